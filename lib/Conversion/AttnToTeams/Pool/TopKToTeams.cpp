//===- TopKToTeams.cpp - The largest scores of queries, for both targets --===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   a lane for each row
//     for each key
//       where it is better than the worst one of a heap, or there is room:
//         put it there
//     take the worst from the heap, from the last place down
//
// The heap is the row of indices that is to be filled. A key is better than
// those of lower scores, and than later ones of the same score.
//
//===----------------------------------------------------------------------===//

#include "PoolTeams.h"
#include "fovea/Kernels/StreamRanges.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of a team, as many as a warp has lanes.
static constexpr int64_t kRows = 32;

namespace {
class TopKKernel {
public:
  TopKKernel(TeamBuilder &builder, TopKOp op)
      : b(builder), op(op), numQueries(b.extent(op.getScores(), 2)),
        capacity(b.extent(op.getIndices(), 3)) {}

  void emit();

private:
  struct Entry {
    Value index, score;
  };

  void emitRow(Value batch, Value head, Value query);
  Value loadScore(Value key) {
    return b.loadScalar(op.getScores(), {row[0], row[1], row[2], key});
  }
  Values placeOf(Value number) { return {row[0], row[1], row[2], number}; }
  Entry load(Value number) {
    Value index = b.loadIndex(op.getIndices(), placeOf(number));
    return {index, loadScore(index)};
  }
  void store(Value index, Value number) {
    b.storeIndex(index, op.getIndices(), placeOf(number));
  }
  Value isWorse(const Entry &a, const Entry &b);
  void siftUp(const Entry &entry, Value number);
  void siftDown(const Entry &entry, Value count);

  TeamBuilder &b;
  TopKOp op;
  Value numQueries, capacity;
  Values row;
};
} // namespace

static Value compare(KernelBuilder &b, arith::CmpFPredicate predicate, Value x,
                     Value y) {
  return arith::CmpFOp::create(b, predicate, x, y);
}

Value TopKKernel::isWorse(const Entry &x, const Entry &y) {
  Value isLater =
      b.both(compare(b, arith::CmpFPredicate::OEQ, x.score, y.score),
             b.less(y.index, x.index));
  return b.either(compare(b, arith::CmpFPredicate::OLT, x.score, y.score),
                  isLater);
}

/// Puts an entry at a place or above it, behind all that are worse.
void TopKKernel::siftUp(const Entry &entry, Value number) {
  auto parentOf = [&](Value place) {
    return b.div(b.sub(place, b.index(1)), 2);
  };
  Value place = b.loopWhile(
      {number},
      [&](ValueRange place) {
        Value isInside = b.less(b.index(0), place[0]);
        return b.select(
            isInside, b.getI1Type(),
            [&] { return isWorse(entry, load(parentOf(place[0]))); },
            [&]() -> Value { return b.less(b.index(0), b.index(0)); });
      },
      [&](ValueRange place) -> Values {
        Value parent = parentOf(place[0]);
        store(load(parent).index, place[0]);
        return {parent};
      })[0];
  store(entry.index, place);
}

/// Puts an entry at the top of a heap of `count`, or below all that are worse.
void TopKKernel::siftDown(const Entry &entry, Value count) {
  auto worstChild = [&](Value place) {
    Value left = b.add(b.mul(place, 2), 1), right = b.add(left, 1);
    return b.select(
        b.less(right, count), b.getIndexType(),
        [&] { return b.select(isWorse(load(right), load(left)), right, left); },
        [&] { return left; });
  };
  Value place = b.loopWhile(
      {b.index(0)},
      [&](ValueRange place) {
        Value isInside = b.less(b.add(b.mul(place[0], 2), 1), count);
        return b.select(
            isInside, b.getI1Type(),
            [&] { return isWorse(load(worstChild(place[0])), entry); },
            [&]() -> Value { return b.less(b.index(0), b.index(0)); });
      },
      [&](ValueRange place) -> Values {
        Value child = worstChild(place[0]);
        store(load(child).index, place[0]);
        return {child};
      })[0];
  store(entry.index, place);
}

void TopKKernel::emitRow(Value batch, Value head, Value query) {
  row = {batch, head, query};
  MaskAttr mask = op.getMaskOrNone();
  Value numKeys = b.extent(op.getScores(), 3);
  SourceLength length = {numKeys, emitTokens(b, mask, numKeys, numQueries)};
  auto [low, high] = emitAdmittedRows(b, mask, query, numQueries, length);
  Value zero = b.index(0),
        none = b.scalar(-std::numeric_limits<double>::infinity());
  // Beside the count the score of the worst: what is not above it stays out.
  Value count = b.loop(
      low, high, 1, {zero, none}, [&](Value key, ValueRange state) -> Values {
        Entry entry = {key, loadScore(key)};
        Value hasRoom = b.less(state[0], capacity);
        Value least = b.select(hasRoom, none, state[1]);
        Value count = b.select(
            compare(b, arith::CmpFPredicate::OGT, entry.score, least),
            b.getIndexType(),
            [&] {
              b.ifThenElse(
                  hasRoom, [&] { siftUp(entry, state[0]); },
                  [&] { siftDown(entry, capacity); });
              return b.min(b.add(state[0], 1), capacity);
            },
            [&]() -> Value { return state[0]; });
        Value worst = b.select(
            b.both(b.less(zero, count), b.equal(count, capacity)),
            b.getStateType(), [&] { return load(zero).score; },
            [&] { return none; });
        return {count, worst};
      })[0];
  b.loop(zero, count, 1, [&](Value taken) {
    Value last = b.sub(b.sub(count, taken), b.index(1));
    Entry worst = load(zero);
    siftDown(load(last), last);
    store(worst.index, last);
  });
  Value absent = b.index(-1);
  b.loop(count, capacity, 1, [&](Value number) { store(absent, number); });
}

void TopKKernel::emit() {
  Value grid[] = {b.extent(op.getScores(), 0), b.extent(op.getScores(), 1),
                  b.ceilDiv(numQueries, kRows)};
  b.forTeams(grid, [&](ValueRange at) {
    Value first = b.mul(at[2], kRows);
    Value end = b.min(b.add(first, kRows), numQueries);
    b.forNumbers(first, end,
                 [&](Value query) { emitRow(at[0], at[1], query); });
  });
}

LogicalResult fovea::attn::lowerToTeams(TopKOp op, TeamBuilder &b) {
  TopKKernel(b, op).emit();
  return success();
}
