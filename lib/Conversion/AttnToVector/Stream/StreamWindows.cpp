//===- StreamWindows.cpp - Copies of rows, a window at a time -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A task that copies keys and values goes through them in windows, and in each
// through all its blocks of queries. So the copies, and what blocks keep from
// one window to the next, stay in the second cache level, and their memory
// does not grow with the keys.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Bytes of the copies of a window, and the fewest rows: what blocks keep is
/// read and written once for so many.
static constexpr int64_t kWindowBytes = 512 << 10, kMinWindowRows = 512;

//===----------------------------------------------------------------------===//
// Which rows are copied
//===----------------------------------------------------------------------===//

/// Whether rows are copied when a block of queries first reads them, for the
/// blocks that follow: blocks go up, and so do the rows of one range that they
/// read. Every block takes longer to read rows with gaps, and a copy for itself
/// alone would take as long. Whether they are all copied depends on the call,
/// too (`isWorthPacking`).
bool StreamKernel::packsRows() {
  if (padsRows)
    return false;
  SmallVector<StreamOp::Source> list = op.getSourceList();
  if (op.getBlock() != 0 || tiles.getQuery() <= tiles.getQueryLanes() ||
      list.size() != 1 || list.front().codes)
    return false;
  const StreamOp::Source &source = list.front();
  return source.attr.getRanges().size() == 1 &&
         ranges.getKind(0, 0) == RangeKind::Long &&
         (hasPairs(source)
              ? usesAMX
              : hasRowGaps(source.keys) || hasRowGaps(source.values));
}

/// Whether copies of all rows are worth their memory and their time: many
/// blocks of queries share them, and the rows of others lie between them. Rows
/// that are a part of longer ones are read as fast where they lie.
Value StreamKernel::isWorthPacking() {
  constexpr int64_t kMaxFew = 256, kMinSpread = 2;
  Value queries =
      op.getNumRows() ? Value(op.getNumRows()) : b.extent(op.getQuery(), 2);
  auto areSpread = [&](Value rows, int64_t width) {
    Value pitch =
        memref::ExtractStridedMetadataOp::create(b, rows).getStrides()[2];
    return b.less(b.index(kMinSpread * width - 1), pitch);
  };
  StreamOp::Source source = op.getSourceList().front();
  return b.both(b.less(b.index(kMaxFew), queries),
                b.either(areSpread(source.keys, width),
                         areSpread(source.values, valueWidth)));
}

bool StreamKernel::areNarrow(const StreamOp::Source &source) {
  return getElementTypeOrSelf(source.keys) != b.getStateType() ||
         getElementTypeOrSelf(source.values) != b.getStateType();
}

/// The copies of all rows, or the rows themselves without such copies.
Value StreamKernel::choosePacked(Value copies, Value rows) {
  auto type = MemRefType::get(
      {ShapedType::kDynamic, cast<MemRefType>(copies.getType()).getDimSize(1)},
      b.getStateType(),
      StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic,
                             {ShapedType::kDynamic, 1}));
  return b.select(
      packed.areAll, type,
      [&]() -> Value { return memref::CastOp::create(b, type, copies); },
      [&]() -> Value { return memref::CastOp::create(b, type, rows); });
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// Windows have about so many rows, the last one as many as the others.
int64_t StreamKernel::getWindowRows() {
  int64_t bytes = usesAMX ? 2 : b.getStateType().getIntOrFloatBitWidth() / 8;
  int64_t rows = kWindowBytes / (bytes * (width + valueWidth));
  // So that one and a half of them are whole tiles, too.
  int64_t unit = 2 * tiles.getKey();
  return std::max<int64_t>(llvm::alignDown(rows, unit),
                           llvm::alignTo(kMinWindowRows, unit));
}

int64_t StreamKernel::getMaxWindowRows() { return 3 * getWindowRows() / 2; }

Value StreamKernel::getNumCopies() {
  return b.min(b.extent(op.getKeys().front(), 2), getMaxWindowRows());
}

void StreamKernel::allocateWindows() {
  int64_t queries = tiles.getQueryLanes();
  int64_t columns = llvm::alignTo(valueWidth, lanes);
  Type state = b.getStateType();
  Value blocks = b.ceilDiv(b.extent(op.getQuery(), 2), queries);
  blocks = b.select(
      b.less(b.extent(op.getKeys().front(), 2), b.index(getMaxWindowRows())),
      b.index(1), blocks);
  int64_t paddedWidth = llvm::alignTo(width, usesAMX ? 2 * lanes : lanes);
  if (usesAMX)
    suspended.queries =
        b.scratch(blocks, {paddedWidth / 2, 2 * queries}, b.getBF16Type());
  else
    suspended.queries = b.scratch(blocks, {paddedWidth, queries}, state);
  suspended.outputs = b.scratch(blocks, {columns, queries}, state);
  suspended.state = b.scratch(blocks, {2 * queries}, state);
  if (!usesAMX)
    suspended.before = b.scratch({columns, queries}, state);
}

void StreamKernel::forEachWindow(Value numQueries, function_ref<void()> body) {
  if (!packsRows())
    return body();
  // The rows that all queries together read: blocks that follow read no row
  // before.
  blockQuery = b.index(0);
  blockQueries = numQueries;
  SmallVector<Segment> segments, none;
  collectSegments(b.index(0), segments, none);
  const Segment &last = segments.back();
  Value low = segments.front().row,
        high = b.min(b.add(last.row, last.count), sources.front().rows);
  // Results of queries that read nothing are stored in a window, too.
  high = b.max(high, b.add(low, 1));
  Value length = b.sub(high, low), mean = b.index(getWindowRows());
  Value count =
      b.max(b.floorDiv(b.add(length, getWindowRows() / 2), mean), b.index(1));
  // Whole tiles each.
  int64_t tile = tiles.getKey();
  Value others = b.div(b.sub(length, b.index(1)), b.mul(count, tile));
  Value size = b.mul(b.add(others, 1), tile);
  b.loop(b.index(0), count, 1, [&](Value number) {
    Value begin = b.add(low, b.mul(number, size));
    Value shift =
        packed.areAll ? b.select(packed.areAll, begin, b.index(0)) : begin;
    window = {begin, b.add(begin, size), shift, b.equal(number, b.index(0)),
              b.equal(b.add(number, 1), count)};
    memref::StoreOp::create(b, b.index(0), packed.end, b.index(0));
    body();
  });
  window.reset();
}

/// Leaves of a segment what lies in the window, and counts its rows from the
/// first that is copied.
void StreamKernel::clipToWindow(Segment &segment) {
  Value begin = b.sub(window->begin, segment.row),
        end = b.sub(window->end, segment.row);
  if (segment.kind == Segment::Diagonal) {
    segment.skip = b.max(segment.skip, begin);
    segment.count = b.min(segment.count, end);
    segment.count = b.select(b.less(segment.skip, segment.count), segment.count,
                             b.index(0));
  } else {
    begin = b.max(begin, b.index(0));
    end = b.min(segment.count, end);
    segment = slice(segment, begin, /*size=*/0);
    segment.count = b.max(b.sub(end, begin), b.index(0));
  }
  segment.base = b.sub(segment.base, window->shift);
}

//===----------------------------------------------------------------------===//
// Blocks of queries between windows
//===----------------------------------------------------------------------===//

void StreamKernel::resume(Value query, State &state,
                          function_ref<void()> packFactors) {
  // Where one window has all rows, blocks follow each other in one place.
  Value block = b.select(b.both(window->isFirst, window->isLast), b.index(0),
                         b.div(query, tiles.getQueryLanes()));
  outputs = b.rowView(suspended.outputs, block);
  blockState = b.rowView(suspended.state, block);
  (usesAMX ? queryPairs : packedQueries) = b.rowView(suspended.queries, block);
  b.ifThen(window->isFirst, [&] {
    packFactors();
    clearOutputs();
    suspend(state);
  });
  for (int64_t v = 0; v < vectors; ++v) {
    state.maximum[v] = b.loadVector(blockState, b.index(v * lanes));
    state.sum[v] = b.loadVector(blockState, b.index((vectors + v) * lanes));
  }
}

void StreamKernel::suspend(const State &state) {
  for (int64_t v = 0; v < vectors; ++v) {
    b.storeVector(state.maximum[v], blockState, b.index(v * lanes));
    b.storeVector(state.sum[v], blockState, b.index((vectors + v) * lanes));
  }
}

/// Keeps the outputs for the case that they are computed once more, or takes
/// them from there.
void StreamKernel::rewindOutputs() {
  auto copy = [&](Value from, Value to) {
    b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
      for (int64_t v = 0; v < vectors; ++v) {
        Values at = {column, b.index(v * lanes)};
        b.storeVector(b.loadVector(from, at), to, at);
      }
    });
  };
  b.ifThenElse(
      isRepeated, [&] { copy(suspended.before, outputs); },
      [&] { copy(outputs, suspended.before); });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Copies those of a segment's rows that no block has read before, or narrower
/// rows for this block alone.
StreamKernel::Segment StreamKernel::pack(Segment segment) {
  const SourceView &source = sources[segment.source];
  Value zero = b.index(0);
  auto copyRow = [&](Value row, Value copy) {
    b.copyRow(source.spreadKeys, row, packed.keys, copy, width);
    b.copyRow(source.spreadValues, row, packed.values, copy, valueWidth);
  };
  auto copyNew = [&] {
    Value copied = memref::LoadOp::create(b, packed.end, zero);
    // A later block may read the rows of tiles that this one skips.
    Value begin = skipsTiles()
                      ? copied
                      : b.max(copied, b.add(segment.base, segment.skip));
    Value end = b.add(segment.base, segment.count);
    b.loop(begin, end, 1,
           [&](Value row) { copyRow(b.add(row, window->shift), row); });
    memref::StoreOp::create(b, b.max(copied, end), packed.end, zero);
  };
  if (!areNarrow(op.getSourceList()[segment.source])) {
    b.ifThen(packed.areAll, copyNew);
    return segment;
  }
  b.ifThenElse(packed.areAll, copyNew, [&] {
    b.loop(segment.skip, segment.count, 1, [&](Value offset) {
      copyRow(b.add(segment.base, offset), b.add(segment.scoreRow, offset));
    });
  });
  segment.base = b.select(packed.areAll, segment.base, segment.scoreRow);
  return segment;
}
