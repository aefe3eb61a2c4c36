//===- GPUStreamLists.cpp - Rows that lists name --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A list is a segment: its rows in the order of its entries, `unit` for each.
// Threads look up the entry of a row when they copy it. Listed rows may stand
// anywhere, so a tile has a place in shared memory for each of its rows: where
// it stands, or kFar for what is not there, for no mask admits that. A bit for
// each row says whether some query of the block does not read it.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void GPUStreamKernel::addListed(unsigned index, Value blockIndex) {
  const SourceView &source = sources[index];
  Value zero = b.i32(0);
  for (AffineMap range : source.attr.getRanges()) {
    RangeBounds run =
        emitRangeBounds(b, range, blockIndex, source.rows, numRows);
    addSegment(index, run.low, run.high);
    Segment &segment = segments.back();
    segment.begin = segment.low;
    segment.end = segment.high;
    Value count = b.mul(countEntries(source, segment), source.attr.getUnit());
    bool hasListedPositions = source.attr.getHasListedPositions();
    segment.low = hasListedPositions ? segment.begin : zero;
    segment.high = hasListedPositions ? b.min(segment.end, count) : count;
  }
}

/// The entries of a list up to the last one that some query of the block reads
/// a row of. Lists are often filled up at the end, so each warp looks from
/// there, at 32 entries at a time.
Value GPUStreamKernel::countEntries(const SourceView &source,
                                    const Segment &segment) {
  Value zero = b.i32(0), entries = b.toI32(b.extent(source.list, 0));
  int64_t unit = source.attr.getUnit();
  auto isRead = [&](Value entry) {
    Value listed = memref::LoadOp::create(b, source.list, b.toIndex(entry));
    Value position =
        b.mul(source.attr.getHasListedPositions() ? entry : listed, unit);
    Value isAdmitted = b.both(b.less(segment.begin, b.add(position, unit)),
                              b.less(position, segment.end));
    return b.both(b.less(b.i32(-1), listed), isAdmitted);
  };
  Values found = b.loopWhile(
      {entries, zero},
      [&](ValueRange state) {
        return b.both(b.less(zero, state[0]), b.equal(state[1], zero));
      },
      [&](ValueRange state) -> Values {
        Value entry = b.add(b.sub(state[0], b.i32(kWarpSize)), b.lane());
        Value votes = b.ballot(b.select(
            b.less(b.i32(-1), entry), b.getI1Type(),
            [&] { return isRead(entry); }, [&] { return b.i1(false); }));
        Value isNone = b.equal(votes, zero);
        return {b.select(isNone, b.sub(state[0], b.i32(kWarpSize)), state[0]),
                votes};
      });
  Value behind = LLVM::CountLeadingZerosOp::create(b, b.getI32Type(), found[1],
                                                   /*is_zero_poison=*/false);
  return b.max(b.sub(found[0], behind), 0);
}

GPUStreamKernel::ListedRow GPUStreamKernel::findListed(const SourceView &source,
                                                       Value number) {
  int64_t unit = source.attr.getUnit();
  Value listed =
      memref::LoadOp::create(b, source.list, b.toIndex(b.div(number, unit)));
  Value row = b.add(b.mul(listed, unit), b.rem(number, unit));
  Value zero = b.i32(0), stored = b.toI32(b.extent(source.keys, 0));
  ListedRow result;
  result.position = source.attr.getHasListedPositions() ? number : row;
  result.exists = b.both(b.less(b.i32(-1), listed), b.less(row, stored));
  result.row = b.max(b.min(row, b.sub(stored, b.i32(1))), zero);
  return result;
}

Value GPUStreamKernel::getPosition(const Tile &tile, Value offset) {
  Value position = getRow(tile, offset);
  for (auto [index, source] : llvm::enumerate(sources))
    if (source.list)
      position = whereSource(tile, index, position, [&, &source = source] {
        return findListed(source, b.add(tile.row, offset)).position;
      });
  return position;
}

/// Called by whole warps, which vote.
void GPUStreamKernel::loadPlaces(const Tile &tile, Value stage) {
  forEachOwn(b, getHiddenWords() * kWarpSize, [&](Value number) {
    Value exists = b.less(number, tile.count), far = b.i32(kFar);
    Value place = b.select(exists, number, far);
    for (auto [index, source] : llvm::enumerate(sources)) {
      if (!source.list)
        continue;
      place = whereSource(tile, index, place, [&, &source = source] {
        Value offset = b.min(number, b.sub(tile.count, b.i32(1)));
        ListedRow row = findListed(source, b.add(tile.row, offset));
        Value isRead =
            b.both(b.less(row.position, tile.end), b.both(exists, row.exists));
        isRead =
            b.both(isRead, b.less(b.sub(tile.begin, b.i32(1)), row.position));
        return b.select(isRead, row.position, far);
      });
    }
    Value stored = b.i32(-1);
    for (auto [index, source] : llvm::enumerate(sources)) {
      if (!source.list || !sharedListedRows)
        continue;
      stored = whereSource(tile, index, stored, [&, &source = source] {
        Value offset = b.min(number, b.sub(tile.count, b.i32(1)));
        ListedRow row = findListed(source, b.add(tile.row, offset));
        return b.select(b.both(exists, row.exists), row.row, b.i32(-1));
      });
    }
    auto [lower, upper] = getCommonRows(tile);
    Value isCommon =
        b.both(b.less(b.sub(lower, b.i32(1)), place), b.less(place, upper));
    Value isInTile = b.less(number, b.i32(keyTile));
    Value isCut = b.both(isInTile, b.equal(isCommon, b.i1(false)));
    storeBits(sharedCuts, stage, number, isCut);
    Value at = b.add(b.mul(stage, keyTile), number);
    b.ifThen(isInTile, [&] {
      memref::StoreOp::create(b, place, sharedPlaces, b.toIndex(at));
      if (sharedListedRows)
        memref::StoreOp::create(b, stored, sharedListedRows, b.toIndex(at));
    });
  });
}

Value GPUStreamKernel::loadPlace(Value stage, Value offset) {
  Value at = b.add(b.mul(stage, keyTile), offset);
  return memref::LoadOp::create(b, sharedPlaces, b.toIndex(at));
}
