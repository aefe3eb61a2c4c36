//===- StreamSegments.cpp - Rows that a query block reads -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

void StreamKernel::collectSegments(Value blockIndex,
                                   SmallVectorImpl<Segment> &longs,
                                   SmallVectorImpl<Segment> &shorts) {
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (source.list) {
      listRows(index, blockIndex, longs);
      continue;
    }
    auto split = [&, index = index, &source = source](RangeKind kind,
                                                      const RangeBounds &run) {
      Value biasBegin = source.attr.getHasLocalBias() ? run.first : b.index(0);
      splitByMask(
          index, run.low, run.high,
          [&](Segment::Kind part, Value begin, Value end, Value skip) {
            Segment segment;
            segment.kind = part;
            segment.source = index;
            segment.keys = source.keys;
            segment.values = source.values;
            segment.base = segment.row = begin;
            segment.biasColumn = b.sub(begin, biasBegin);
            segment.count = b.max(b.sub(end, begin), b.index(0));
            segment.skip = skip;
            if (window)
              clipToWindow(segment);
            (kind == RangeKind::Short ? shorts : longs).push_back(segment);
          });
    };
    SmallVector<unsigned> listed =
        ranges.emitRuns(b, index, source, blockIndex, numRows, split);
    if (!listed.empty())
      shorts.push_back(buildTable(index, listed, blockIndex));
  }
}

void StreamKernel::splitByMask(
    unsigned index, Value low, Value high,
    function_ref<void(Segment::Kind, Value, Value, Value)> visit) {
  const SourceView &source = sources[index];
  MaskAttr mask = source.attr.getMask();
  auto append = [&](Segment::Kind kind, Value begin, Value end) {
    visit(kind, begin, end, /*skip=*/b.index(0));
  };
  if (mask.isTrivial())
    return append(Segment::Rows, low, high);

  // Position of the block's first and one past its last query.
  Value position = firstPosition(source);
  Value endPosition = b.add(position, blockQueries);
  auto rowAt = [&](Value position) { return emitFirstRow(b, mask, position); };
  // Rows that some query may read, and rows [fullLow, fullHigh) that all may.
  Value fullLow = low, fullHigh = high;
  Value window = b.index(mask.getWindow());
  if (mask.getCausal()) {
    Value behind = endPosition;
    fullHigh = position;
    // All queries read the prefix, and the diagonal starts behind it.
    if (mask.hasPrefix()) {
      behind = b.max(behind, mask.getPrefix());
      fullHigh = b.max(fullHigh, mask.getPrefix());
    }
    high = b.min(high, rowAt(behind));
    fullHigh = rowAt(fullHigh);
  }
  if (mask.hasWindow()) {
    low = b.max(low, rowAt(b.add(b.sub(position, window), b.index(1))));
    fullLow = rowAt(b.sub(endPosition, window));
    if (!mask.getCausal()) {
      high = b.min(high, rowAt(b.sub(b.add(endPosition, window), b.index(1))));
      fullHigh = rowAt(b.add(position, window));
    }
  }
  fullLow = b.clamp(fullLow, low, b.max(low, high));
  fullHigh = b.clamp(fullHigh, fullLow, b.max(fullLow, high));
  if (mask.hasWindow())
    append(Segment::Masked, low, fullLow);
  append(Segment::Rows, fullLow, fullHigh);
  // Triangles could cut a pair of rows in two, and have a row for each query.
  if (mask.hasWindow() || mask.hasStride() || source.list ||
      isOfPairs(source.arithmetic))
    return append(Segment::Masked, fullHigh, high);
  // A diagonal starts at the first query's own position, even when the source
  // has no such row: its triangles count from there.
  visit(Segment::Diagonal, position, high,
        b.max(b.sub(fullHigh, position), b.index(0)));
}

StreamKernel::Segment StreamKernel::buildTable(unsigned index,
                                               ArrayRef<unsigned> listed,
                                               Value blockIndex) {
  const SourceView &source = sources[index];
  int64_t start = ranges.getTableStart(index);
  Value count = b.index(start);
  for (unsigned number : listed) {
    auto [low, high, first] = emitRangeBounds(
        b, source.attr.getRanges()[number], blockIndex, source.rows, numRows);
    Value length = b.max(b.sub(high, low), b.index(0));
    b.loop(b.index(0), length, 1, [&, low = low, count](Value offset) {
      Value row = b.add(low, offset), entry = b.add(count, offset);
      storeTableRow(source, row, entry);
      if (!tableShifts.empty())
        memref::StoreOp::create(b, b.add(row, tableShifts[index][number]),
                                tableTargets, entry);
    });
    count = b.add(count, length);
  }
  return finishTable(index, b.index(start), count);
}

/// Enters a row of a source, with its log weight.
void StreamKernel::storeTableRow(const SourceView &source, Value row,
                                 Value entry) {
  memref::StoreOp::create(b, row, table, entry);
  Value weight = source.logWeight ? logWeightAt(source, row) : b.scalar(0.0);
  memref::StoreOp::create(b, weight, tableWeights, entry);
}

/// Fills up the last register tile of entries `[start, end)` with masked copies
/// of the last row.
StreamKernel::Segment StreamKernel::finishTable(unsigned index, Value start,
                                                Value end) {
  const SourceView &source = sources[index];
  int64_t step = tiles.getKeys();
  Value length = b.sub(end, start);
  length = b.roundDown(b.add(length, step - 1), step);
  Value padded = b.add(length, start);
  b.loop(end, padded, 1, [&](Value entry) {
    Value last = b.sub(end, b.index(1));
    auto copy = [&](Value memref) {
      memref::StoreOp::create(b, memref::LoadOp::create(b, memref, last),
                              memref, entry);
    };
    copy(table);
    if (!tableShifts.empty())
      copy(tableTargets);
    if (source.attr.getHasListedPositions())
      copy(tablePositions);
    memref::StoreOp::create(b, b.scalar(softmax::kMasked), tableWeights, entry);
  });
  Segment segment;
  segment.kind = Segment::Table;
  segment.source = index;
  segment.keys = source.keys;
  segment.values = source.values;
  segment.table = start;
  segment.count = length;
  segment.skip = b.index(0);
  return segment;
}

Value StreamKernel::tableRow(const Segment &segment, Value entry) {
  return memref::LoadOp::create(b, table, b.add(segment.table, entry));
}

/// The row of the source that entry `entry` of a segment is.
Value StreamKernel::sourceRow(const Segment &segment, Value entry) {
  return segment.kind == Segment::Table ? tableRow(segment, entry)
                                        : b.add(segment.row, entry);
}

/// What natural log weights are multiplied by, and what is added to scores.
Value StreamKernel::getTermScale() {
  return b.scalar(isSoftmax ? softmax::kLog2E : 1.0);
}

/// The log weight of a row, in base 2; masked where it is minus infinity.
Value StreamKernel::logWeightAt(const SourceView &source, Value row) {
  Value at = source.weightBroadcasts ? b.index(0) : row;
  Value weight =
      b.fmul(b.loadScalar(source.logWeight, at), b.scalar(softmax::kLog2E));
  return b.fmax(b.scalar(softmax::kMasked), weight);
}

/// Copies a segment's keys and values to rows of the state type.
StreamKernel::Segment StreamKernel::stage(Segment segment) {
  if (arithmeticOf(segment) == Arithmetic::InPlace)
    return segment;
  if (arithmeticOf(segment) == Arithmetic::Packed)
    return pack(segment);
  if (arithmeticOf(segment) == Arithmetic::Pairs) {
    packValuePairs(segment);
    return segment;
  }
  if (arithmeticOf(segment) == Arithmetic::AMX)
    return stageForAMX(segment);
  return convert(segment);
}

StreamKernel::Segment StreamKernel::convert(Segment segment) {
  auto copy = [&](Value from, Value to, int64_t columns) {
    b.loop(segment.skip, segment.count, 1, [&](Value offset) {
      Value row = segment.kind == Segment::Table ? tableRow(segment, offset)
                                                 : b.add(segment.base, offset);
      b.copyRow(from, row, to, b.add(segment.scoreRow, offset), columns);
    });
  };
  if (!sources[segment.source].keyTable)
    copy(segment.keys, stagedKeys, width);
  copy(segment.values, stagedValues, valueWidth);
  segment.keys = stagedKeys;
  segment.values = stagedValues;
  segment.base = segment.scoreRow;
  return segment;
}

/// Transposes the bias of a segment's rows to the layout of the scores.
void StreamKernel::packBias(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  if (!source.bias)
    return;
  Value termScale = getTermScale();
  auto packElements = [&](Value lowRow, Value lowQuery, Value highQuery) {
    b.loop(lowRow, segment.count, 1, [&](Value offset) {
      Value key = segment.kind == Segment::Table
                      ? tableRow(segment, offset)
                      : b.add(segment.biasColumn, offset);
      Value at = source.biasKeyBroadcasts ? b.index(0) : key;
      b.loop(lowQuery, highQuery, 1, [&](Value query) {
        Value row =
            source.biasRowBroadcasts ? b.index(0) : b.add(blockQuery, query);
        Value element = b.fmul(b.loadScalar(source.bias, {row, at}), termScale);
        b.storeScalar(b.fmax(b.scalar(softmax::kMasked), element), packedBias,
                      {b.add(segment.scoreRow, offset), query});
      });
    });
  };
  if (source.biasKeyBroadcasts || source.biasRowBroadcasts ||
      segment.kind == Segment::Table)
    return packElements(segment.skip, b.index(0), blockQueries);

  // Whole squares are transposed in registers, the rest goes element by
  // element.
  Value length = b.max(b.sub(segment.count, segment.skip), b.index(0));
  Value fullRows = b.add(segment.skip, b.roundDown(length, lanes));
  Value fullQueries = b.roundDown(blockQueries, lanes);
  b.loop(segment.skip, fullRows, lanes, [&](Value offset) {
    b.loop(b.index(0), fullQueries, lanes, [&](Value query) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        // Every row is a stream of its own, more than the CPU follows.
        Value row = b.add(b.add(blockQuery, query), i);
        Value column = b.add(segment.biasColumn, offset);
        if (manageCache && biasAhead)
          b.prefetch(source.bias, {row, b.add(column, biasAhead)},
                     biasLocality);
        tile.push_back(b.fmul(b.loadVector(source.bias, {row, column}),
                              b.broadcast(termScale)));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
        b.storeVector(b.fmax(b.splat(softmax::kMasked), vector), packedBias,
                      {b.add(b.add(segment.scoreRow, offset), i), query});
    });
  });
  packElements(segment.skip, fullQueries, blockQueries);
  packElements(fullRows, b.index(0), fullQueries);
}
