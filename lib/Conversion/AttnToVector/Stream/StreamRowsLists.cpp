//===- StreamRowsLists.cpp - Rows that lists name, for few query rows -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rows of a list are numbers in scratch memory, without entries that are
// not read. Behind those of a tile stand those of the next one: lines of listed
// rows are asked for as those of consecutive rows are.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Enters the rows of the places `[low, high)` of the list from `place` on.
/// Returns the next place, and whether the mask cuts one of them.
StreamRowsKernel::Values StreamRowsKernel::enterRows(const SourceView &source,
                                                     const Interval &interval,
                                                     Value low, Value high,
                                                     Value place) {
  int64_t unit = source.attr.getUnit();
  bool hasListedPositions = source.attr.getHasListedPositions();
  bool mayCut = isMasked && !source.attr.getMask().isTrivial();
  Value stored = b.extent(source.keys, 0);
  // Each row takes the next place, which is that of the row behind it where it
  // is none.
  auto enter = [&](Value slot, ValueRange carried) -> Values {
    Value entry = unit == 1 ? slot : b.div(slot, unit);
    Value listed = b.loadIndex(source.list, entry);
    Value row = listed;
    if (unit != 1)
      row = b.add(b.mul(listed, unit), b.rem(slot, unit));
    Value isRead = b.both(b.less(b.index(-1), listed), b.less(row, stored));
    // Places are in the interval already.
    Value position = hasListedPositions ? slot : row;
    if (!hasListedPositions)
      isRead = b.both(isRead,
                      b.both(b.less(b.sub(interval.low, b.index(1)), position),
                             b.less(position, interval.high)));
    memref::StoreOp::create(b, row, listedRows, carried[0]);
    Value isCut = carried[1];
    if (mayCut) {
      b.storeIndex(emitPosition(b, source.attr.getMask(), position),
                   listedPositions, carried[0]);
      Value isOutside =
          b.either(b.less(position, interval.innerLow),
                   b.less(b.sub(interval.innerHigh, b.index(1)), position));
      isCut = b.either(isCut, b.both(isRead, isOutside));
    }
    return {b.add(carried[0], b.select(isRead, b.index(1), b.index(0))), isCut};
  };
  Value isFalse = arith::ConstantOp::create(b, b.getBoolAttr(false));
  return b.loop(low, high, 1, ValueRange{place, isFalse}, enter);
}

/// `attendRows` for the rows of an interval that the list names.
void StreamRowsKernel::attendList(const SourceView &source,
                                  const Interval &interval, Value part,
                                  Value numParts) {
  startTiles();
  if (hasSeveralHeads() && alongColumns)
    tileKeys = b.index(kHeadsTile);
  Value zero = b.index(0), low = zero;
  Value high = b.mul(b.extent(source.list, 0), source.attr.getUnit());
  if (source.attr.getHasListedPositions()) {
    low = b.max(interval.low, zero);
    high = b.max(b.min(high, interval.high), low);
  }
  Value share = shareOf(b.sub(high, low), numParts);
  low = b.add(low, b.mul(part, share));
  high = b.min(high, b.add(low, share));
  auto enter = [&](Value first, Value place) {
    return enterRows(source, interval, first,
                     b.min(b.add(first, tileKeys), high), place);
  };
  bool mayCut = isMasked && !source.attr.getMask().isTrivial();
  forTiles(
      low, high, enter(low, zero),
      [&](Value first, ValueRange entered) -> Values {
        Value count = entered[0];
        Values next = enter(b.add(first, tileKeys), count);
        b.ifThen(b.less(zero, count), [&] {
          hasNextTile = b.less(count, next[0]);
          forHeads([&] {
            SourceView own = headBlock == 1 ? source : view(source.operands);
            attendTile({own, interval, zero, count,
                        mayCut ? entered[1] : Value(), next[0]});
          });
        });
        // The next tile becomes this one.
        auto move = [&](Value memref) {
          auto type = VectorType::get(
              {lanes}, cast<MemRefType>(memref.getType()).getElementType());
          b.loop(zero, tileKeys, lanes, [&](Value place) {
            Value moved =
                vector::LoadOp::create(b, type, memref, b.add(place, count));
            vector::StoreOp::create(b, moved, memref, place);
          });
        };
        move(listedRows);
        if (mayCut)
          move(listedPositions);
        return {b.sub(next[0], count), next[1]};
      });
}
