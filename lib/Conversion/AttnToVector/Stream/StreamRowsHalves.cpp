//===- StreamRowsHalves.cpp - Vectors of two columns of fewer query rows --===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With 32 registers, a register tile of one vector of rows loads as often as it
// multiplies, and half of the last vector may be empty. So what two vectors do
// not divide has vectors of two columns of half as many rows: two for each
// vector of rows, of its even and of its odd ones,
//
//   [row 0, column], [row 0, column + 1], [row 2, column], ...
//   [row 1, column], [row 1, column + 1], [row 3, column], ...
//
// and one for a last vector whose half would be empty. Two columns of a key or
// of values are broadcast as one element. Even and odd columns of scores are
// added at the end; weights stand twice, which loads do by themselves.
//
// All other passes see vectors of rows. Where a half would be empty, such a
// vector has each row twice: its even and its odd ones are the same. So places
// of rows there are slots, not numbers of rows.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Vectors of the even and odd elements of two, or of both together: columns of
/// all rows from those of even and of odd rows, and back.
static std::pair<Value, Value> turn(KernelBuilder &b, Value one, Value other) {
  SmallVector<int64_t> even, odd;
  for (int64_t lane = 0; lane < b.getLanes(); lane += 2) {
    even.append({lane, lane + b.getLanes()});
    odd.append({lane + 1, lane + 1 + b.getLanes()});
  }
  return {vector::ShuffleOp::create(b, one, other, even),
          vector::ShuffleOp::create(b, one, other, odd)};
}

/// Divides the slots of the rows. Vectors in pairs of columns are two, or three
/// with the last half, or five.
void StreamRowsKernel::layOutSlots() {
  pairedBegin = doubledBegin = paddedRows;
  if (!mayPairColumns())
    return;
  Value zero = b.index(0), rest = b.rem(setRows, lanes);
  Value isHalf =
      b.both(b.less(zero, rest), b.less(rest, b.index(lanes / 2 + 1)));
  Value one = b.rem(paddedRows, 2 * lanes);
  Value paired = b.add(one, b.select(isHalf, b.index(2 * lanes), zero));
  pairedBegin = b.sub(paddedRows, paired);
  doubledBegin = b.sub(paddedRows, b.select(isHalf, b.index(lanes), zero));
}

StreamRowsKernel::Value StreamRowsKernel::rowOfSlot(Value slot) {
  if (!mayPairColumns())
    return slot;
  Value doubled = b.max(b.sub(slot, doubledBegin), b.index(0));
  return b.sub(slot, b.ceilDiv(doubled, 2));
}

/// How many slots have rows of the set.
StreamRowsKernel::Value StreamRowsKernel::countSlots() {
  if (!mayPairColumns())
    return setRows;
  return b.add(setRows, b.max(b.sub(setRows, doubledBegin), b.index(0)));
}

/// Register tiles of vectors of two columns: of two vectors, and of three
/// behind them.
void StreamRowsKernel::forPairedVectors(
    function_ref<void(Value, Value, RowVectors)> body) {
  constexpr int64_t kColumns = 2;
  Value isDoubled = b.less(doubledBegin, paddedRows);
  Value threes =
      b.sub(paddedRows, b.select(isDoubled, b.index(2 * lanes), b.index(0)));
  b.ifThen(b.less(pairedBegin, threes),
           [&] { body(pairedBegin, threes, {2, kColumns}); });
  b.ifThen(isDoubled, [&] { body(threes, paddedRows, {3, kColumns}); });
}

/// Calls `body` with the number of columns of the vectors from `row` on.
void StreamRowsKernel::withColumns(Value row,
                                   function_ref<void(int64_t)> body) {
  if (!mayPairColumns())
    return body(1);
  b.ifThenElse(b.less(row, pairedBegin), [&] { body(1); }, [&] { body(2); });
}

/// Where a vector of a register tile lies in buffers of columns.
StreamRowsKernel::Value StreamRowsKernel::vectorAt(Value column, Value row,
                                                   int64_t vector,
                                                   int64_t columns) {
  Value at = columnAt(column, b.add(row, vector / columns * lanes));
  return vector % columns ? b.add(at, rowPitch) : at;
}

/// What is one for each row of a vector of rows, for those of the `vector`-th.
StreamRowsKernel::Value StreamRowsKernel::ofVector(Value rows, int64_t vector,
                                                   int64_t columns) {
  if (columns == 1)
    return rows;
  SmallVector<int64_t> mask;
  for (int64_t lane = 0; lane < lanes; lane += 2)
    mask.append(2, lane + vector % columns);
  return vector::ShuffleOp::create(b, rows, rows, mask);
}

/// The weights of a key for the rows of a vector. A load doubles them by
/// itself, as long as there is one for each vector.
StreamRowsKernel::Value StreamRowsKernel::loadWeights(Value key, Value row,
                                                      int64_t vector,
                                                      int64_t columns) {
  Value at = scores.at(b, key, b.add(row, vector / columns * lanes));
  if (vector % columns != 0)
    at = b.hide(at);
  return ofVector(b.loadVector(scores.memref, at), vector, columns);
}

/// Columns of a row for all rows of a vector.
StreamRowsKernel::Value StreamRowsKernel::broadcastColumns(Value memref,
                                                           ValueRange at,
                                                           int64_t columns) {
  if (columns == 1)
    return b.broadcast(b.loadScalar(memref, at));
  auto type = VectorType::get({columns}, b.getStateType());
  Value pair = vector::LoadOp::create(b, type, memref, at);
  SmallVector<int64_t> mask;
  for (int64_t lane = 0; lane < lanes; ++lane)
    mask.push_back(lane % columns);
  return vector::ShuffleOp::create(b, pair, pair, mask);
}

/// Vectors of rows from sums of the vectors of a register tile.
StreamRowsKernel::Values StreamRowsKernel::addColumns(ValueRange sums,
                                                      int64_t columns) {
  if (columns == 1)
    return sums;
  Values totals;
  for (size_t v = 0; v < sums.size(); v += columns) {
    bool isDoubled = v + 1 == sums.size();
    auto [even, odd] = turn(b, sums[v], sums[isDoubled ? v : v + 1]);
    totals.push_back(b.fadd(even, odd));
  }
  return totals;
}

/// Pairs of columns in turns, each of which asks for one of the next rows: its
/// place is computed once, and its lines are asked for one by one. What asks
/// for nothing names the lines of `key`, which are there. LLVM would move what
/// a written-out turn broadcasts far ahead of the products.
StreamRowsKernel::Values StreamRowsKernel::loopOverPairs(
    const NextRows &next, Value key, int64_t numKeys, ValueRange inits,
    function_ref<Values(Value, ValueRange)> addPair) {
  int64_t pairs = llvm::divideCeil(width, 2);
  int64_t perTurn = std::max<int64_t>(1, pairs / numKeys);
  int64_t perPair = llvm::divideCeil(getLinesPerRow(next.rows.memref), perTurn);
  return b.loop(
      b.index(0), b.index(pairs), perTurn, inits,
      [&](Value first, ValueRange running) -> Values {
        Value row;
        if (next.asks) {
          Value turn = b.div(first, perTurn);
          Value asks = b.both(next.asks, b.less(turn, next.count));
          row = b.select(asks, next.rows.atAhead(b, b.add(next.first, turn)),
                         rowOf(next.rows, key));
        }
        Value end = b.min(b.add(first, perTurn), b.index(pairs));
        return b.loop(first, end, 1, running,
                      [&](Value pair, ValueRange running) -> Values {
                        Value line = b.mul(b.sub(pair, first), perPair);
                        for (int64_t i = 0; row && i < perPair; ++i)
                          askLine(next.rows, row, b.add(line, i));
                        return addPair(pair, running);
                      });
      });
}

/// Makes vectors of two columns of the packed rows.
void StreamRowsKernel::pairColumns() {
  if (mayPairColumns() && width % 2 != 0)
    b.loop(pairedBegin, paddedRows, lanes, [&](Value row) {
      b.storeVector(b.splat(0.0), packed, columnAt(b.index(width), row));
    });
  turnPairs(packed, width);
}

/// Turns vectors of rows and of two columns into one another.
void StreamRowsKernel::turnPairs(Value memref, int64_t width) {
  if (!mayPairColumns())
    return;
  b.loop(pairedBegin, paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), b.index(width), 2, [&](Value column) {
      Value at = columnAt(column, row), next = columnAt(b.add(column, 1), row);
      auto [even, odd] =
          turn(b, b.loadVector(memref, at), b.loadVector(memref, next));
      b.storeVector(even, memref, at);
      b.storeVector(odd, memref, next);
    });
  });
}

/// Puts the state of the last rows in their places where they have two slots.
/// Outputs are those of the first.
void StreamRowsKernel::mergeSlots() {
  if (!mayPairColumns())
    return;
  b.loop(doubledBegin, paddedRows, lanes, [&](Value first) {
    b.loop(b.index(1), b.index(lanes / 2), 1, [&](Value i) {
      Value row = b.add(first, i), slot = b.add(row, i);
      b.storeScalar(b.loadScalar(maxima, slot), maxima, row);
      b.storeScalar(b.loadScalar(sums, slot), sums, row);
      b.copyRow(outputs, slot, outputs, row, paddedValueWidth);
    });
  });
}
