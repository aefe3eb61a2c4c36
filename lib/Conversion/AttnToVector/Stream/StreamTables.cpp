//===- StreamTables.cpp - Keys that are rows of a table -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys that are given by codes are rows of a table, and so are the keys of
// every source that has this table as its keys. The scores of all rows of the
// table are computed once for a query block,
//
//   R[row][L] = table[row] . QT
//
// and the scores of a key are the row R[code]: consecutive, like any other row
// of scores. They are read when they are needed: the table's fill a part of the
// second cache level already, and a copy would take as much again.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea::attn;

void StreamKernel::collectKeyTables() {
  for (const StreamOp::Source &source : op.getSourceList()) {
    if (!source.codes || findKeyTable(source.keys))
      continue;
    KeyTable table;
    table.operand = source.keys;
    table.numRows = cast<MemRefType>(source.keys.getType()).getDimSize(2);
    for (auto [index, reader] : llvm::enumerate(op.getSourceList()))
      if (isSoftmax && !table.reader && reader.keys == source.keys &&
          !reader.codes && !reader.bias && !reader.attr.hasDistances() &&
          reader.attr.getMask().isTrivial() &&
          reader.attr.getRanges().size() == 1 &&
          ranges.getKind(index, 0) == RangeKind::Short)
        table.reader = index;
    keyTables.push_back(table);
  }
}

/// Lays out what the reader of a table adds to the scores of its rows.
void StreamKernel::packTableWeights(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  Value weights = source.keyTable->weights, masked = b.splat(softmax::kMasked);
  b.loop(b.index(0), b.index(source.keyTable->numRows), lanes,
         [&](Value row) { b.storeVector(masked, weights, row); });
  Value whole = b.index(0);
  if (!source.weightBroadcasts) {
    whole = b.roundDown(segment.count, lanes);
    b.loop(b.index(0), whole, lanes, [&](Value offset) {
      Value row = b.add(segment.row, offset), weight = b.splat(0.0);
      if (source.logWeight)
        weight = b.fmax(masked, b.fmul(b.loadVector(source.logWeight, row),
                                       b.splat(softmax::kLog2E)));
      b.storeVector(weight, weights, row);
    });
  }
  b.loop(whole, segment.count, 1, [&](Value offset) {
    Value row = b.add(segment.row, offset), weight = b.scalar(0.0);
    if (source.logWeight)
      weight = logWeightAt(source, row);
    b.storeScalar(weight, weights, row);
  });
}

const StreamKernel::KeyTable *StreamKernel::findKeyTable(Value keys) {
  auto *found = llvm::find_if(
      keyTables, [&](const KeyTable &table) { return table.operand == keys; });
  return found == keyTables.end() ? nullptr : found;
}

/// Fixes batch and head of the tables.
void StreamKernel::viewKeyTables(Value batch, Value keyHead) {
  for (KeyTable &table : keyTables) {
    auto type = cast<MemRefType>(table.operand.getType());
    Value zero = b.index(0);
    table.keys =
        b.rowView(table.operand, {type.getDimSize(0) == 1 ? zero : batch,
                                  type.getDimSize(1) == 1 ? zero : keyHead});
  }
}

/// Scores all rows of the tables for the present queries. `segments` are what
/// the block reads: what the next block reads is prefetched meanwhile.
void StreamKernel::scoreTables(ArrayRef<Segment> segments, Values &maximum) {
  int64_t step = tiles.getKeys();
  for (const Segment &segment : segments)
    if (isReaderOfTable(segment))
      packTableWeights(segment);
  for (const KeyTable &table : keyTables) {
    auto *first = llvm::find_if(sources, [&](const SourceView &source) {
      return source.keyTable == &table;
    });
    Segment rows;
    rows.kind = Segment::Rows;
    rows.source = first - sources.begin();
    rows.keys = table.keys;
    if (table.staged) {
      b.loop(b.index(0), b.index(table.numRows), 1, [&](Value row) {
        b.copyRow(table.keys, row, table.staged, row, width);
      });
      rows.keys = table.staged;
    }
    auto score = [&](int64_t low, int64_t high, int64_t numRows) {
      auto scoreTile = [&](Value offset, ValueRange running) {
        Values at, next(running);
        for (int64_t i = 0; i < numRows; ++i)
          at.push_back(b.add(offset, i));
        Values products = multiply(rows, offset, at, /*firstVector=*/0,
                                   {rows.keys, packedQueries, width});
        for (int64_t i = 0; i < numRows; ++i) {
          Value weight, isHidden;
          if (table.weights) {
            weight = b.broadcast(b.loadScalar(table.weights, at[i]));
            isHidden = softmax::isMasked(b, weight);
          }
          for (int64_t v = 0; v < vectors; ++v) {
            Value product = products[i * vectors + v];
            b.storeVector(product, table.scores, {at[i], b.index(v * lanes)});
            if (weight)
              next[v] =
                  b.fmax(next[v], arith::SelectOp::create(
                                      b, isHidden, b.splat(softmax::kMasked),
                                      b.fadd(product, weight)));
          }
        }
        return next;
      };
      maximum =
          b.loop(b.index(low), b.index(high), numRows, maximum, scoreTile);
    };
    int64_t whole = table.numRows / step * step, low = 0;
    auto aheads = lookAhead(rows, whole, segments);
    llvm::sort(aheads, llvm::less_first());
    for (auto [number, ahead] : llvm::enumerate(aheads)) {
      rows.lookahead.clear();
      for (auto &[high, later] : ArrayRef(aheads).drop_front(number))
        rows.lookahead.push_back(later);
      score(low, ahead.first, step);
      low = ahead.first;
    }
    rows.lookahead.clear();
    score(low, whole, step);
    score(whole, table.numRows, 1);
  }
}

/// The row of the table that is the key of row `row` of a source.
Value StreamKernel::tableRowOf(const SourceView &source, Value row) {
  if (!source.codes)
    return row;
  Value code = memref::LoadOp::create(b, source.codes, row);
  return arith::IndexCastOp::create(b, b.getIndexType(), code);
}

/// The scores of `numRows` rows of a segment from `offset` on.
StreamKernel::Values StreamKernel::lookUp(const Segment &segment, Value offset,
                                          int64_t numRows,
                                          unsigned firstVector) {
  const SourceView &source = sources[segment.source];
  Values result;
  for (int64_t i = 0; i < numRows; ++i) {
    Value row = tableRowOf(source, sourceRow(segment, b.add(offset, i)));
    for (int64_t v = firstVector; v < vectors; ++v)
      result.push_back(
          b.loadVector(source.keyTable->scores, {row, b.index(v * lanes)}));
  }
  return result;
}
