//===- LowerToReferencePool.cpp - Pooled summaries as plain loops ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "ReferenceWalks.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Tokens, weights and means of rows, as the formulas of attn.pool have them.
template <typename OpTy> struct Pool {
  ReferenceBuilder &ref;
  OpTy op;

  Value numTokens() { return ref.extent(op.getInput(), 2); }
  Value interval() { return ref.index(op.getInterval()); }

  Value score(ValueRange at, Value token) {
    Value score = ref.load(op.getGate(), {at[0], at[1], token, at[3]});
    if (!op.getPositionBias())
      return score;
    Value place =
        ref.sub(token, ref.mul(ref.div(token, interval()), interval()));
    return ref.addNumbers(score,
                          ref.load(op.getPositionBias(), {place, at[3]}));
  }

  /// Goes through the tokens of row at[2] that its scores do not remove.
  Value
  overTokens(ValueRange at, Value init,
             function_ref<Value(Value token, Value score, Value state)> visit) {
    Value overlap = ref.index(op.getOverlap()),
          own = ref.mul(at[2], interval());
    Value begin = ref.sub(ref.max(own, overlap), overlap);
    Value end = ref.min(ref.add(own, interval()), numTokens());
    return ref.accumulate(begin, end, init, [&](Value token, Value state) {
      Value found = score(at, token);
      return ref.when(
          ref.isNotMinusInfinity(found),
          [&] { return visit(token, found, state); }, state);
    });
  }

  struct Row {
    Value maximum, sum;
  };
  Row getRow(ValueRange at) {
    Value maximum =
        overTokens(at, ref.minusInfinity(), [&](Value, Value score, Value top) {
          return ref.maxNumbers(score, top);
        });
    Value sum =
        overTokens(at, ref.number(0.0), [&](Value, Value score, Value sum) {
          return ref.addNumbers(sum, exponential(score, maximum));
        });
    return {maximum, sum};
  }
  Value exponential(Value score, Value maximum) {
    return ref.exp(ref.subNumbers(score, maximum));
  }
  Value weight(const Row &row, Value score) {
    return ref.divNumbers(exponential(score, row.maximum), row.sum);
  }
  Value mean(ValueRange at, const Row &row) {
    return overTokens(
        at, ref.number(0.0), [&](Value token, Value score, Value sum) {
          Value number = ref.load(op.getInput(), {at[0], at[1], token, at[3]});
          return ref.addNumbers(sum,
                                ref.mulNumbers(weight(row, score), number));
        });
  }
};
} // namespace

static void lowerPool(PoolOp op) {
  ReferenceBuilder ref(op);
  Pool<PoolOp> pool{ref, op};
  ref.forEachElement(op.getOutput(), [&](ValueRange at) {
    ref.store(pool.mean(at, pool.getRow(at)), op.getOutput(), at);
  });
  op.erase();
}

/// Adds what each row gives to its tokens.
static void lowerPoolBackward(PoolBackwardOp op) {
  ReferenceBuilder ref(op);
  Pool<PoolBackwardOp> pool{ref, op};
  Value dOutput = op.getDOutput(), zero = ref.number(0.0);
  Value inputs = ref.allocateZeros(op.getDInput()),
        gates = ref.allocateZeros(op.getDGate());
  ref.forEachElement(dOutput, [&](ValueRange at) {
    auto row = pool.getRow(at);
    Value mean = pool.mean(at, row), ofRow = ref.load(dOutput, at);
    pool.overTokens(at, zero, [&](Value token, Value score, Value state) {
      Value to[] = {at[0], at[1], token, at[3]};
      Value part = ref.mulNumbers(pool.weight(row, score), ofRow);
      Value difference = ref.subNumbers(ref.load(op.getInput(), to), mean);
      ref.addTo(inputs, to, part);
      ref.addTo(gates, to, ref.mulNumbers(part, difference));
      return state;
    });
  });
  ref.storeAll(inputs, op.getDInput());
  ref.storeAll(gates, op.getDGate());
  if (Value bias = op.getDPositionBias()) {
    Value sums = ref.allocateZeros(bias);
    ref.forEachElement(op.getDGate(), [&](ValueRange at) {
      Value own = ref.mul(ref.div(at[2], pool.interval()), pool.interval());
      ref.addTo(sums, {ref.sub(at[2], own), at[3]},
                ref.load(op.getDGate(), at));
    });
    ref.storeAll(sums, bias);
  }
  op.erase();
}

/// Takes the best of what has not been taken, again and again.
static void lowerTopK(TopKOp op) {
  ReferenceBuilder ref(op);
  Value scores = op.getScores(), zero = ref.index(0), none = ref.index(-1);
  Value numKeys = ref.extent(scores, 3), numQueries = ref.extent(scores, 2);
  MaskAttr mask = op.getMaskOrNone();
  ref.forEachElement(op.getIndices(), [&](ValueRange at) {
    auto score = [&](Value key) {
      return ref.load(scores, {at[0], at[1], at[2], key});
    };
    Value query =
        ref.sub(ref.add(at[2], countTokens(ref, mask, numKeys, numQueries)),
                numQueries);
    auto isTaken = [&](Value key) {
      Value taken =
          ref.accumulate(zero, at[3], zero, [&](Value number, Value taken) {
            Value index =
                ref.loadIndex(op.getIndices(), {at[0], at[1], at[2], number});
            Value isThis = ref.both(ref.lessOrEqual(index, key),
                                    ref.lessOrEqual(key, index));
            return ref.select(isThis, ref.index(1), taken);
          });
      return ref.less(zero, taken);
    };
    Value best =
        ref.accumulate(zero, numKeys, none, [&](Value key, Value best) {
          Value isBetter = ref.lessNumber(ref.minusInfinity(), score(key));
          Value isFirst = ref.less(best, zero);
          Value known = score(ref.max(best, zero));
          isBetter = ref.both(
              isBetter, ref.either(isFirst, ref.lessNumber(known, score(key))));
          if (!mask.isTrivial())
            isBetter = ref.both(isBetter, admits(ref, mask, query,
                                                 getPosition(ref, mask, key)));
          return ref.when(
              isBetter, [&] { return ref.select(isTaken(key), best, key); },
              best);
        });
    ref.storeIndex(best, op.getIndices(), at);
  });
  op.erase();
}

void fovea::attn::attachPoolToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerPool, lowerPoolBackward, lowerTopK>(
      context);
}
