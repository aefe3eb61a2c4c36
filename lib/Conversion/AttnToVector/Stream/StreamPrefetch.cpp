//===- StreamPrefetch.cpp - Prefetches and streaming stores ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Long sequences do not fit the caches, and patterns of linear time touch every
// line only once or twice: without prefetching they wait for memory. Bursts of
// prefetches fill the load queue, so one line is asked for in every few
// products of the score loop. Measured on dense attention, N = 4096: 82 to 86 %
// of peak.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

static constexpr int64_t kLineBytes = 64;
/// Lines of one operand that a turn of the loop of products asks for, at most,
/// where there is a choice.
static constexpr int64_t kMaxPerTurn = 4;
/// Beyond so many a tile is larger than any cache, and the code that asks for
/// it larger than that of the products.
static constexpr int64_t kMaxTilePerTurn = 256;

static int64_t getElementBytes(Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  return type.getElementType().getIntOrFloatBitWidth() / 8;
}

static int64_t getColumns(const StreamKernel::Lookahead &ahead) {
  auto type = cast<MemRefType>(ahead.memref.getType());
  return ahead.columns ? ahead.columns : type.getDimSize(1);
}

static int64_t getLinesPerRow(const StreamKernel::Lookahead &ahead) {
  return llvm::divideCeil(getColumns(ahead),
                          kLineBytes / getElementBytes(ahead.memref));
}

int64_t StreamKernel::getLineElements(const Segment &segment) {
  return kLineBytes / getElementBytes(sources[segment.source].keys);
}

/// A streamed tile asks for the next one: its keys are needed first and at
/// once, so they go to the first cache level, the values to the second. A tile
/// whose bias is copied copies the next one's.
void StreamKernel::lookAhead(Segment &tile) {
  if (!manageCache || tile.kind != Segment::Rows)
    return;
  const SourceView &source = sources[tile.source];
  if (tile.biasRows)
    tile.nextBias = b.add(tile.biasColumn, getLookupTile());
  if (source.keyTable)
    return;
  Value next = b.add(tile.base, tiles.getKey());
  tile.lookahead = {{source.keys, next, 3}, {source.values, next, 2}};
}

/// A query block of a linear-time pattern asks for the next block's queries and
/// for the rows that follow its own, while it scores its first run of rows.
void StreamKernel::lookAhead(MutableArrayRef<Segment> segments) {
  if (!manageCache || op.getBlock() == 0)
    return;
  for (Segment &segment : segments) {
    if (segment.kind != Segment::Rows || sources[segment.source].keyTable)
      continue;
    const SourceView &source = sources[segment.source];
    Value end = b.add(segment.row, segment.count);
    for (const Segment &other : segments)
      if (other.source == segment.source && other.kind == Segment::Diagonal)
        end = b.add(other.row, other.count);
    segment.lookahead = {
        {queryRows, b.add(blockQuery, tiles.getQueryLanes()), 2},
        {source.keys, end, 2},
        {source.values, end, 2}};
    return;
  }
}

SmallVector<std::pair<int64_t, StreamKernel::Lookahead>>
StreamKernel::lookAhead(const Segment &table, int64_t numRows,
                        ArrayRef<Segment> segments) {
  SmallVector<std::pair<int64_t, Lookahead>> result;
  int64_t queries = tiles.getQueryLanes(), step = tiles.getKeys();
  if (!manageCache || op.getBlock() == 0 || numRows < step)
    return result;
  // At least one line in every turn of the loop of products, and few.
  int64_t turns = width / getUnroll(table, width);
  auto add = [&](Lookahead ahead) {
    if (ShapedType::isDynamic(getColumns(ahead)))
      return;
    int64_t lines = queries * getLinesPerRow(ahead);
    int64_t perTurn = llvm::divideCeil(lines * step, numRows * turns);
    ahead.linesPerTile = std::min(perTurn, kMaxPerTurn) * turns;
    int64_t rows = llvm::divideCeil(lines, ahead.linesPerTile) * step;
    result.push_back({std::min(rows, numRows), ahead});
  };
  // The next block needs as many new rows of queries and values as it has
  // queries. A bias is so large that the block's own is asked for, shortly
  // before it is needed.
  Value next = b.add(blockQuery, queries);
  add({queryRows, next, 2});
  for (auto [number, segment] : llvm::enumerate(segments)) {
    if (segment.kind != Segment::Diagonal)
      continue;
    const SourceView &source = sources[segment.source];
    add({source.values, b.add(segment.row, segment.count), 2});
    // The rows before a diagonal are those of the same source that all read.
    const Segment &full = segments[number - 1];
    if (addsBiasInSquares(full))
      add(lookAheadInBias(full));
  }
  return result;
}

int64_t StreamKernel::getUnroll(const Segment &segment, int64_t width) {
  int64_t unroll =
      std::max<int64_t>(1, getLineElements(segment) / tiles.getKeys());
  while (width % unroll != 0)
    --unroll;
  return unroll;
}

/// Emitted in each turn of the loop over `k` below `width`, which takes
/// `unroll` steps at once.
void StreamKernel::prefetch(const Segment &segment, Value offset, Value k,
                            int64_t unroll, int64_t width) {
  for (const Lookahead &ahead : segment.lookahead) {
    int64_t lines = tiles.getKeys() * getLinesPerRow(ahead);
    Value firstRow = b.add(ahead.row, offset), firstLine = b.index(0);
    if (ahead.linesPerTile) {
      lines = ahead.linesPerTile;
      firstRow = ahead.row;
      firstLine = b.mul(b.div(offset, tiles.getKeys()), lines);
    }
    // A loop shorter than that has one turn.
    int64_t turns = std::max<int64_t>(width / unroll, 1);
    int64_t perTurn = llvm::divideCeil(lines, turns);
    if (perTurn > kMaxTilePerTurn)
      continue;
    firstLine = b.add(firstLine, b.mul(b.div(k, unroll), perTurn));
    prefetchLines(ahead, firstRow, firstLine, perTurn);
  }
}

/// Lines `firstLine ...` of the rows from `firstRow` on.
void StreamKernel::prefetchLines(const Lookahead &ahead, Value firstRow,
                                 Value firstLine, int64_t count) {
  int64_t linesPerRow = getLinesPerRow(ahead);
  int64_t lineElements = kLineBytes / getElementBytes(ahead.memref);
  for (int64_t i = 0; i < count; ++i) {
    Value line = b.add(firstLine, i);
    Value row = b.div(line, linesPerRow);
    Value column = b.mul(b.rem(line, linesPerRow), lineElements);
    if (ahead.column)
      column = b.add(ahead.column, column);
    if (ahead.lastColumn)
      column = b.min(column, ahead.lastColumn);
    b.prefetch(ahead.memref, {b.add(firstRow, row), column}, ahead.locality);
  }
}

/// Whether rows of the output `view` are stored past the caches: those of
/// patterns of linear time, where they can be. Null when never.
Value StreamKernel::canStream(Value view) {
  if (op.getBlock() == 0 || valueWidth % lanes != 0)
    return Value();
  return hasAlignedRows(view);
}

/// Whether rows of `view` can be stored past the caches: decided at run time,
/// since callers may pass memory of any alignment. Null when never.
Value StreamKernel::hasAlignedRows(Value view) {
  int64_t vectorBytes = lanes * getElementBytes(view);
  if (!manageCache || vectorBytes != kLineBytes)
    return Value();
  // Every row has to be as aligned as the first.
  auto [strides, offset] =
      cast<MemRefType>(view.getType()).getStridesAndOffset();
  bool isOpen = ShapedType::isDynamic(strides[0]);
  if (!isOpen && strides[0] % lanes != 0)
    return Value();
  auto metadata = memref::ExtractStridedMetadataOp::create(b, view);
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, view);
  Value address =
      b.add(base, b.mul(metadata.getOffset(), getElementBytes(view)));
  Value isAligned = b.equal(b.rem(address, kLineBytes), b.index(0));
  if (!isOpen)
    return isAligned;
  Value stride = metadata.getStrides()[0];
  return b.both(isAligned, b.equal(b.rem(stride, lanes), b.index(0)));
}
