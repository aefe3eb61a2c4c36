//===- StreamRowsColumns.cpp - Outputs with vectors of query rows ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where scores have vectors of rows, outputs have them, too, until all keys are
// added:
//
//   outputColumns[column][row] += value[key][column] S[key][row]
//
// S is read in the order of memory and stays in the first cache level. With
// vectors of columns instead, a panel reads a line of each key's values, which
// are as far apart as long rows are, once for every four rows: with 16
// registers 60 to 75 % of the multiply-adds of two units, and this 85 to 90 %.
// With 32 the two are alike where rows of values begin at cache lines;
// otherwise every vector of columns lies in two of them, and elements do not.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Keys of a turn of a panel's loop.
static constexpr int64_t kUnroll = 2;
/// Columns of a panel, or pairs of them, at most.
static constexpr int64_t kMaxColumns = 16;

/// Calls `body(low, high, vectors)` for rows that register tiles divide.
void StreamRowsKernel::forRowVectors(
    function_ref<void(Value, Value, RowVectors)> body) {
  Value zero = b.index(0);
  if (mayPairColumns()) {
    Value fours = b.roundDown(pairedBegin, 4 * lanes);
    body(zero, fours, {4});
    b.ifThen(b.less(fours, pairedBegin),
             [&] { body(fours, pairedBegin, {2}); });
    return forPairedVectors(body);
  }
  // By two vectors, and an odd number ends with three, or is one.
  Value rest = b.mul(b.rem(paddedRows, 2 * lanes), 3);
  Value twos = b.max(b.sub(paddedRows, rest), zero);
  body(zero, twos, {2});
  b.ifThen(b.less(b.add(twos, 2 * lanes), paddedRows),
           [&] { body(twos, paddedRows, {3}); });
  if (lanes > kColumnRows)
    b.ifThen(b.equal(paddedRows, b.index(lanes)),
             [&] { body(zero, paddedRows, {1}); });
}

StreamRowsKernel::Value StreamRowsKernel::columnAt(Value column, Value row) {
  return b.add(b.mul(column, rowPitch), row);
}

/// Elements of a cache line.
static int64_t getLine(KernelBuilder &b) {
  return 512 / b.getStateType().getIntOrFloatBitWidth();
}

/// No even number of cache lines: a slice of the rows lies in all sets of the
/// first cache level.
int64_t StreamRowsKernel::getRowPitch() {
  int64_t rows = getRowCapacity(), line = getLine(b);
  return rows % (2 * line) == 0 ? rows + line : rows;
}

void StreamRowsKernel::clearColumns() {
  b.loop(b.index(0), b.index(paddedValueWidth), 1, [&](Value column) {
    b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
      b.storeVector(b.splat(0.0), outputColumns, columnAt(column, row));
    });
  });
}

/// Outputs of a vector of rows times their factors.
void StreamRowsKernel::rescaleColumns(Value row, Value factor) {
  withColumns(row, [&](int64_t columns) {
    b.loop(b.index(0), b.index(valueWidth), columns, [&](Value column) {
      for (int64_t v = 0; v < columns; ++v) {
        Value at = columnAt(b.add(column, v), row);
        b.storeVector(b.fmul(b.loadVector(outputColumns, at),
                             ofVector(factor, v, columns)),
                      outputColumns, at);
      }
    });
  });
}

/// The widths of the panels behind those of `size` columns: a panel of one or
/// two would not cover the latency of its sums.
static SmallVector<int64_t> getLastPanels(int64_t columns, int64_t size) {
  int64_t rest = columns % size;
  if (rest == 0)
    return {};
  if (rest > 2 || columns < size)
    return {rest};
  int64_t both = size + rest;
  return {both - both / 2, both / 2};
}

void StreamRowsKernel::accumulateColumns(const Rows &values,
                                         const Rows &asked) {
  forRowVectors([&](Value low, Value high, RowVectors vectors) {
    // Of columns, or of pairs of them.
    int64_t all = llvm::divideCeil(valueWidth, vectors.columns);
    int64_t most = std::min(kMaxColumns, rowAccumulators / vectors.number);
    // As equal as they may be.
    int64_t size = llvm::divideCeil(all, llvm::divideCeil(all, most));
    SmallVector<int64_t> last = getLastPanels(all, size);
    int64_t whole = all;
    for (int64_t columns : last)
      whole -= columns;
    ColumnPanel panel;
    panel.vectors = vectors;
    panel.numPanels = whole / size + last.size();
    auto accumulate = [&](Value column, Value number, int64_t numColumns) {
      panel.column = b.mul(column, vectors.columns);
      panel.number = number;
      panel.numColumns = numColumns;
      accumulatePanel(values, asked, panel);
    };
    // The weights of these rows stay in the first cache level.
    b.loop(low, high, vectors.getSlots(lanes), [&](Value row) {
      panel.row = row;
      b.loop(b.index(0), b.index(whole), size, [&](Value column) {
        accumulate(column, b.div(column, size), size);
      });
      int64_t number = whole / size, column = whole;
      for (int64_t columns : last) {
        accumulate(b.index(column), b.index(number++), columns);
        column += columns;
      }
    });
  });
}

/// Adds all keys to a panel. Those of the first rows ask for values.
void StreamRowsKernel::accumulatePanel(const Rows &values, const Rows &asked,
                                       const ColumnPanel &panel) {
  RowVectors vectors = panel.vectors;
  Values at, initial;
  for (int64_t c = 0; c < panel.numColumns; ++c)
    for (int64_t v = 0; v < vectors.number; ++v)
      at.push_back(vectorAt(b.add(panel.column, c * vectors.columns), panel.row,
                            v, vectors.columns));
  for (Value place : at)
    initial.push_back(b.loadVector(outputColumns, place));
  auto addKey = [&](Value key, ValueRange running) {
    Values found, next;
    for (int64_t v = 0; v < vectors.number; ++v)
      found.push_back(loadWeights(key, panel.row, v, vectors.columns));
    Value row = values.at(b, key);
    for (int64_t c = 0; c < panel.numColumns; ++c) {
      Value column = b.add(panel.column, c * vectors.columns);
      Value value =
          broadcastColumns(values.memref, {row, column}, vectors.columns);
      for (Value weights : found)
        next.push_back(b.fma(value, weights, running[next.size()]));
    }
    return next;
  };
  // The first panel reads a line of every row: all rows of the next tile are
  // asked for, in order.
  Value isFirst = b.both(b.equal(panel.row, b.index(0)), hasNextTile);
  NextRows next = {asked, asked.count, asked.count, isFirst};
  bool asks = getAhead(asked, lanes) != 0;
  auto askAhead = [&](Value key) {
    if (asks)
      b.ifThen(next.asks, [&] {
        Value turn =
            b.div(b.add(b.mul(panel.number, asked.count), key), kUnroll);
        askShare(next, turn, {panel.numPanels, kUnroll});
      });
  };
  Values totals = b.unrolledLoop(b.index(0), values.count, kUnroll, initial,
                                 addKey, askAhead);
  for (auto [total, place] : llvm::zip(totals, at))
    b.storeVector(total, outputColumns, place);
}

/// The same sums without hidden entries, whose weights are marked.
void StreamRowsKernel::accumulateVisibleColumns(const Rows &values) {
  auto addColumn = [&](Value row, Value column, int64_t columns) {
    Values at, initial;
    for (int64_t v = 0; v < columns; ++v)
      at.push_back(vectorAt(column, row, v, columns));
    for (Value place : at)
      initial.push_back(b.loadVector(outputColumns, place));
    Values totals = b.loop(
        b.index(0), values.count, 1, initial, [&](Value key, ValueRange sums) {
          Value value = broadcastColumns(values.memref,
                                         {values.at(b, key), column}, columns);
          Values next;
          for (auto [v, sum] : llvm::enumerate(sums))
            next.push_back(softmax::addVisible(
                b, loadWeights(key, row, v, columns), value, sum));
          return next;
        });
    for (auto [total, place] : llvm::zip(totals, at))
      b.storeVector(total, outputColumns, place);
  };
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    withColumns(row, [&](int64_t columns) {
      b.loop(b.index(0), b.index(valueWidth), columns,
             [&](Value column) { addColumn(row, column, columns); });
    });
  });
}

/// Makes rows of the outputs.
void StreamRowsKernel::turnColumns() {
  turnPairs(outputColumns, valueWidth);
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), b.index(paddedValueWidth), lanes, [&](Value column) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(
            b.loadVector(outputColumns, columnAt(b.add(column, i), row)));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, outputs, {b.add(row, i), column});
    });
  });
  mergeSlots();
}
