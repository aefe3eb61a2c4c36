//===- StreamLists.cpp - Rows that lists name -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rows that a list names for a block of queries, as far as the ranges and
// the mask of the source admit them, go to the row table: first those that all
// queries of the block read, then those that the mask cuts for some. They are
// streamed in tiles like a long range, row by row through the table, so that
// one entry may name a single row or many.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Makes room for the row tables of ranges and, behind them, of lists.
void StreamKernel::allocateTables() {
  Value rows = b.index(ranges.getMaxTableRows());
  bool anyLists = false, anyListedPositions = false;
  listStarts.clear();
  for (const StreamOp::Source &source : op.getSourceList()) {
    listStarts.push_back(rows);
    if (!source.rowList)
      continue;
    anyLists = true;
    anyListedPositions |= source.attr.getHasListedPositions();
    // Each range may name all that is listed, and both parts are filled up.
    int64_t most = source.attr.getUnit() * source.attr.getRanges().size();
    rows = b.add(rows, b.add(b.mul(b.extent(source.rowList, 3), most),
                             2 * tiles.getKeys()));
  }
  if (!anyLists && ranges.getMaxTableRows() == 0)
    return;
  auto allocate = [&](Type type) {
    return anyLists ? b.scratch(rows, {}, type)
                    : b.scratch({ranges.getMaxTableRows()}, type);
  };
  table = allocate(b.getIndexType());
  tableWeights = allocate(b.getStateType());
  if (anyListedPositions)
    tablePositions = allocate(b.getIndexType());
}

void StreamKernel::listRows(unsigned index, Value blockIndex,
                            SmallVectorImpl<Segment> &segments) {
  const SourceView &source = sources[index];
  Value start = listStarts[index];
  auto listPart = [&](bool isCut) {
    Value end = start;
    for (AffineMap range : source.attr.getRanges()) {
      RangeBounds run =
          emitRangeBounds(b, range, blockIndex, source.rows, numRows);
      splitByMask(index, run.low, run.high,
                  [&](Segment::Kind kind, Value low, Value high, Value) {
                    if ((kind == Segment::Masked) == isCut)
                      end = listRowsBetween(source, blockIndex, low, high, end);
                  });
    }
    Segment segment = finishTable(index, start, end);
    segment.mayCut = isCut;
    segments.push_back(segment);
    start = b.add(start, segment.count);
  };
  listPart(/*isCut=*/false);
  if (!source.attr.getMask().isTrivial())
    listPart(/*isCut=*/true);
}

/// Enters the listed rows at positions `[low, high)`, from entry `next` of the
/// table on. Returns the entry behind them.
Value StreamKernel::listRowsBetween(const SourceView &source, Value blockIndex,
                                    Value low, Value high, Value next) {
  int64_t unit = source.attr.getUnit();
  bool hasListedPositions = source.attr.getHasListedPositions();
  Value block = b.broadcastIndex(source.list, 0, blockIndex);
  Value zero = b.index(0), stored = b.extent(source.keys, 0);
  return b.loop(zero, b.extent(source.list, 1), 1, next,
                [&](Value number, ValueRange carried) -> Values {
                  Value listed = b.loadIndex(source.list, {block, number});
                  Value row = b.mul(listed, unit);
                  Value position =
                      hasListedPositions ? b.mul(number, unit) : row;
                  Value begin = b.max(b.sub(low, position), zero);
                  Value end = b.min(b.sub(high, position),
                                    b.min(b.sub(stored, row), b.index(unit)));
                  end = b.select(b.less(listed, zero), zero, end);
                  Value length = b.max(b.sub(end, begin), zero);
                  b.loop(zero, length, 1, [&](Value offset) {
                    Value entry = b.add(carried[0], offset);
                    offset = b.add(begin, offset);
                    storeTableRow(source, b.add(row, offset), entry);
                    if (hasListedPositions)
                      memref::StoreOp::create(b, b.add(position, offset),
                                              tablePositions, entry);
                  });
                  return {b.add(carried[0], length)};
                })[0];
}

/// Where an entry of a segment stands, for masks and scores.
Value StreamKernel::positionOf(const Segment &segment, Value entry) {
  SourceAttr attr = sources[segment.source].attr;
  Value row = attr.getHasListedPositions()
                  ? memref::LoadOp::create(b, tablePositions,
                                           b.add(segment.table, entry))
                  : sourceRow(segment, entry);
  return emitPosition(b, attr.getMask(), row);
}
