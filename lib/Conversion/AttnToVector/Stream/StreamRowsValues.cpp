//===- StreamRowsValues.cpp - Weights of few query rows times values ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// `output += weights . values`. Where entries are removed, a weight of zero
/// takes part as long as the values are finite; both ways add in one order.
void StreamRowsKernel::accumulate(const Tile &tile) {
  if (multipliesPairs())
    return accumulateByPairs(tile);
  // Rounding the weights of fewer rows costs more than it saves.
  if (dotsPairs() && maxRows > kColumnRows / 2)
    return b.ifThenElse(
        areEights(), [&] { accumulateByPairs(tile); },
        [&] { accumulateWeighted(tile); });
  accumulateWeighted(tile);
}

/// The same with weights that are not rounded.
void StreamRowsKernel::accumulateWeighted(const Tile &tile) {
  const SourceView &source = tile.source;
  Rows asked = rowsOf(tile, source.values);
  Rows values = stage(asked, stagedValues, valueWidth, /*asks=*/alongColumns);
  auto accumulateAll = [&] {
    if (!alongColumns)
      return accumulateColumns(values, asked);
    b.ifThenElse(
        b.equal(paddedRows, b.index(1)), [&] { accumulateRows(values, 1); },
        [&] {
          b.ifThenElse(
              b.equal(paddedRows, b.index(2)),
              [&] { accumulateRows(values, 2); },
              [&] { accumulateRows(values, kGroupRows); });
        });
  };
  if (!tile.removesAny)
    return accumulateAll();
  Value isPlain = areFinite(values, tile.removesAny);
  b.ifThenElse(isPlain, accumulateAll, [&] {
    markHidden(tile);
    alongColumns ? accumulateVisible(values) : accumulateVisibleColumns(values);
  });
}

/// Whether all values of a tile are finite, or `isNeeded` is false.
StreamRowsKernel::Value StreamRowsKernel::areFinite(const Rows &values,
                                                    Value isNeeded) {
  Value end = b.select(isNeeded, values.count, b.index(0));
  Value zero = b.splat(0.0);
  // Zero times what is not finite is NaN.
  Value total = b.loop(
      b.index(0), end, 1, zero, [&](Value key, ValueRange carried) -> Values {
        Value row = values.at(b, key);
        return b.overVectors(
            paddedValueWidth, carried, [&](Value column, ValueRange sum) {
              Value value = b.loadVector(values.memref, {row, column});
              return Values{b.fma(value, zero, sum[0])};
            });
      })[0];
  Value isNumber =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, total, total);
  return vector::ReductionOp::create(b, vector::CombiningKind::AND, isNumber);
}

int64_t StreamRowsKernel::getNumPanels(int64_t numRows) {
  return llvm::divideCeil(paddedValueWidth, accumulators / numRows * lanes);
}

int64_t StreamRowsKernel::getValueRows(const Rows &values, int64_t numRows) {
  if (hasSeveralHeads())
    return kHeadsValueRows;
  if (!hasFewRegisters) {
    // While the first panel reads the block it asks for its part of the next
    // one's lines: it comes to those it has asked for.
    int64_t ahead = getAhead(values, numRows), panels = getNumPanels(numRows);
    if (!ahead || panels == 1 || values.numbers)
      return kValueRows;
    int64_t rows = llvm::bit_floor<uint64_t>(ahead * panels / (panels - 1));
    // Where lines come late this is not enough for its last rows.
    bool isWide = getElementTypeOrSelf(values.memref) == b.getStateType();
    return std::clamp<int64_t>(
        rows, 8, splitVectors && isWide ? kNarrowValueRows : kValueRows);
  }
  if (getElementTypeOrSelf(values.memref) == b.getStateType())
    return kNarrowValueRows;
  int64_t lines = std::max<int64_t>(getLinesPerRow(values.memref), 1);
  int64_t rows = llvm::alignDown(kNarrowValueLines / lines, kNarrowValueRows);
  return std::clamp(rows, kNarrowValueRows, kValueRows);
}

void StreamRowsKernel::accumulateRows(const Rows &values, int64_t numRows) {
  int64_t numVectors = accumulators / numRows, step = numVectors * lanes;
  int64_t full = llvm::alignDown(paddedValueWidth, step);
  int64_t block = getValueRows(values, numRows);
  b.loop(b.index(0), values.count, block, [&](Value first) {
    Value end = b.min(b.add(first, block), values.count);
    auto accumulateColumns = [&](Value column, int64_t numVectors) {
      auto accumulateFrom = [&](Value row, bool readsMemory) {
        accumulatePanel(values, first, end, row, numRows, column, numVectors,
                        readsMemory);
      };
      accumulateFrom(b.index(0), /*readsMemory=*/true);
      if (std::min(numRows, maxRows) < kGroupRows)
        return; // there are no others
      b.loop(b.index(numRows), paddedRows, numRows,
             [&](Value row) { accumulateFrom(row, /*readsMemory=*/false); });
    };
    b.loop(b.index(0), b.index(full), step,
           [&](Value column) { accumulateColumns(column, numVectors); });
    if (full != paddedValueWidth)
      accumulateColumns(b.index(full), (paddedValueWidth - full) / lanes);
  });
}

/// The panels divide the lines of a block of rows among them: in order, or of
/// listed rows and of several heads those of each, as a single panel does.
void StreamRowsKernel::askOfPanel(const Rows &values, const PanelTurn &turn,
                                  int64_t ahead) {
  if (turn.panels == 1 || values.numbers || values.ofHeads ||
      values.areShared) {
    auto askPart = [&](const Rows &rows, int64_t before) {
      int64_t own = getLinesPerRow(rows.memref);
      int64_t perKey = llvm::divideCeil(own - before, turn.panels);
      Value line = b.add(b.mul(turn.panel, perKey), before);
      b.ifThen(b.both(turn.isFirst, b.less(line, b.index(own))), [&] {
        for (int64_t i = 0; i < turn.numKeys; ++i)
          askRow(rows, b.add(turn.key, ahead + i), line, perKey);
      });
    };
    if (!values.areShared)
      return askPart(values, 0);
    Rows keys = values;
    keys.memref = values.keys;
    return b.ifThenElse(
        values.areShared, [&] { askPart(keys, getSharedLines(keys.memref)); },
        [&] { askPart(values, 0); });
  }
  int64_t perTurn = llvm::divideCeil(
      turn.numKeys * getLinesPerRow(values.memref), turn.panels);
  b.ifThen(turn.isFirst, [&] {
    Value number = b.add(b.mul(turn.panel, turn.blockTurns),
                         b.div(b.sub(turn.key, turn.firstKey), turn.numKeys));
    ask(values, b.add(turn.firstKey, ahead), b.mul(number, perTurn), perTurn);
  });
}

/// Adds the keys `[firstKey, endKey)` to some rows and columns of the outputs.
/// The first rows read them from memory, and ask for those that follow.
///
/// There a Zen 4 takes a tenth less time where each product has its operand
/// from memory: loads to registers run so far ahead that no buffers are left
/// for the lines that are asked for.
void StreamRowsKernel::accumulatePanel(const Rows &values, Value firstKey,
                                       Value endKey, Value row, int64_t numRows,
                                       Value column, int64_t numVectors,
                                       bool readsMemory) {
  int64_t ahead = readsMemory ? getAhead(values, numRows) : 0;
  bool isWide = getElementTypeOrSelf(values.memref) == b.getStateType();
  Values columns(numRows, column);
  if (splitVectors && manageCache && readsMemory && isWide)
    for (int64_t r = 1; r < numRows; ++r)
      columns[r] = b.hide(columns[r - 1]);
  // Where asking takes as many instructions as the products of a key, four keys
  // of narrow elements do it together, which have the lines of two.
  int64_t numKeys = asksEvenly(values) ? 1 : hasFewRegisters && !isWide ? 4 : 2;
  Values initial;
  for (int64_t r = 0; r < numRows; ++r)
    for (int64_t v = 0; v < numVectors; ++v)
      initial.push_back(
          b.loadVector(outputs, {b.add(row, r), b.add(column, v * lanes)}));
  auto addKey = [&](Value key, ValueRange running) {
    Values loaded, next;
    Value valueRow = values.at(b, key);
    for (int64_t r = 0; r < numRows; ++r) {
      if (r == 0 || columns[r] != columns[r - 1]) {
        loaded.clear();
        for (int64_t v = 0; v < numVectors; v += getColumnVectors())
          llvm::append_range(
              loaded, loadColumns(values.memref,
                                  {valueRow, b.add(columns[r], v * lanes)}));
      }
      Value weight = b.broadcast(
          b.loadScalar(scores.memref, scores.at(b, key, b.add(row, r))));
      for (int64_t v = 0; v < numVectors; ++v)
        next.push_back(b.fma(weight, loaded[v], running[r * numVectors + v]));
    }
    return next;
  };
  auto askAhead = [&](Value key) {
    if (!ahead)
      return;
    PanelTurn turn;
    turn.key = key;
    turn.firstKey = firstKey;
    turn.panel = b.div(column, accumulators / numRows * lanes);
    turn.isFirst = b.equal(row, b.index(0));
    turn.panels = getNumPanels(numRows);
    turn.numKeys = numKeys;
    turn.blockTurns = b.index(getValueRows(values, numRows) / numKeys);
    askOfPanel(values, turn, ahead);
  };
  Values totals =
      b.unrolledLoop(firstKey, endKey, numKeys, initial, addKey, askAhead);
  for (int64_t r = 0; r < numRows; ++r)
    for (int64_t v = 0; v < numVectors; ++v)
      b.storeVector(totals[r * numVectors + v], outputs,
                    {b.add(row, r), b.add(column, v * lanes)});
}

StreamRowsKernel::Value StreamRowsKernel::isFinite(Value values) {
  // Zero times what is not finite is NaN.
  Value zeros = b.fmul(values, b.splat(0.0));
  return arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, zeros, zeros);
}

/// The same product without hidden entries, whose weights are marked, or of
/// the values that are not finite alone.
void StreamRowsKernel::accumulateVisible(const Rows &values,
                                         bool onlyInfinite) {
  int64_t numVectors = getColumnVectors();
  auto addColumns = [&](Value row, Value column) {
    Values at, initial;
    for (int64_t v = 0; v < numVectors; ++v) {
      at.push_back(b.add(column, v * lanes));
      initial.push_back(b.loadVector(outputs, {row, at[v]}));
    }
    Values totals = b.loop(
        b.index(0), values.count, 1, initial, [&](Value key, ValueRange sums) {
          Value weight =
              b.broadcast(b.loadScalar(scores.memref, scores.at(b, key, row)));
          Values next;
          for (auto [value, sum] : llvm::zip(
                   loadColumns(values.memref, {values.at(b, key), column}),
                   sums)) {
            Value total = softmax::addVisible(b, weight, value, sum);
            if (onlyInfinite)
              total = arith::SelectOp::create(b, isFinite(value), sum, total);
            next.push_back(total);
          }
          return next;
        });
    for (int64_t v = 0; v < numVectors; ++v)
      b.storeVector(totals[v], outputs, {row, at[v]});
  };
  b.loop(b.index(0), setRows, 1, [&](Value row) {
    b.loop(b.index(0), b.index(paddedValueWidth), numVectors * lanes,
           [&](Value column) { addColumns(row, column); });
  });
}
