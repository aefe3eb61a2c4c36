//===- GPUConvProfiles.cpp - Weights of convolutions on a GPU -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvProfiles.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Threads of a head that look for its greatest score.
static constexpr int64_t kNumShares = 256;

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

/// As many bases as begin up to a key, less one.
GPUConvSegments::GPUConvSegments(GPUConvBuilder &b) : b(b) {
  segments = b.tabulate(b.rows(), b.getI32Type(), [&](ValueRange at) {
    auto count = [&](Value r, ValueRange count) -> Values {
      Value isAfter = b.less(at[2], first(b, at, r));
      return {b.select(isAfter, count[0], b.add(count[0], 1))};
    };
    return b.loop(b.index(0), b.numBases, 1, {b.index(-1)}, count)[0];
  });
}

Value GPUConvSegments::first(KernelBuilder &k, ValueRange head, Value segment) {
  return k.select(
      k.less(segment, b.numBases), k.getIndexType(),
      [&] {
        Value at[] = {head[0], head[1], segment};
        return k.sub(b.numTokens, k.loadIndex(b.sizes, at));
      },
      [&] { return b.numTokens; });
}

Value GPUConvSegments::of(KernelBuilder &k, ValueRange head, Value key) {
  return k.loadIndex(segments, {head[0], head[1], key});
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

GPUConvProfiles::GPUConvProfiles(GPUConvBuilder &b, GPUConvSegments &segments)
    : b(b), segments(segments) {
  Value extents[] = {b.batches, b.heads, b.numBases, b.numTokens};
  weights = b.allocate(extents, b.getF32Type());
  scores = b.allocate(extents, b.getF32Type());
  shifts = b.allocate({b.batches, b.heads}, b.getF64Type());
  masked = b.allocate({b.batches, b.heads}, b.getI32Type());
  findShifts();
  store();
}

/// Visits the score sums of one lag, in f64, segment by segment.
Values GPUConvProfiles::visitLag(ValueRange head, Value lag, ValueRange inits,
                                 SumVisitor visit) {
  Values carried = {b.wide(0.0)};
  carried.append(inits.begin(), inits.end());
  carried = b.loop(
      b.index(0), b.numBases, 1, carried,
      [&](Value segment, ValueRange carried) -> Values {
        Value size = b.loadIndex(b.sizes, {head[0], head[1], segment});
        Value exists = b.less(lag, size);
        Value term = b.select(
            exists, b.getF64Type(),
            [&] {
              return b.loadWide(b.basis, {head[0], head[1], segment, lag});
            },
            [&] { return b.wide(0.0); });
        Values next = {b.fadd(carried[0], term)};
        next.append(visit(segment, next[0], exists, carried.drop_front()));
        return next;
      });
  return Values(llvm::drop_begin(carried));
}

static Value minimum(KernelBuilder &b, Value x, Value y) {
  Value isLess = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y);
  return b.select(isLess, x, y);
}

/// Stores the greatest and the least score sum of a thread's share of the lags.
void GPUConvProfiles::findRange(ValueRange at, Value highs, Value lows) {
  Value inits[] = {b.wide(-kInfinity), b.wide(kInfinity)};
  auto extend = [&](Value, Value sum, Value exists,
                    ValueRange range) -> Values {
    // Where a segment has no such lag, the sum is another's.
    Value top = conv::maxNumber(b, sum, range[0]);
    return {b.select(exists, top, range[0]), minimum(b, sum, range[1])};
  };
  Values range = b.loop(at[2], b.numTokens, kNumShares, inits,
                        [&](Value lag, ValueRange carried) {
                          return visitLag(at, lag, carried, extend);
                        });
  b.storeWide(range[0], highs, at);
  b.storeWide(range[1], lows, at);
}

/// Takes the greatest score sum off all, if there is one.
void GPUConvProfiles::findShifts() {
  Value extents[] = {b.batches, b.heads, b.index(kNumShares)};
  Value highs = b.allocate(extents, b.getF64Type());
  Value lows = b.allocate(extents, b.getF64Type());
  parallelLoop(b, extents, [&](ValueRange at) { findRange(at, highs, lows); });
  parallelLoop(b, {b.batches, b.heads}, [&](ValueRange at) {
    Value inits[] = {b.wide(-kInfinity), b.wide(kInfinity)};
    Values range =
        b.loop(b.index(0), b.index(kNumShares), 1, inits,
               [&](Value share, ValueRange range) -> Values {
                 Value place[] = {at[0], at[1], share};
                 return {b.fmax(b.loadWide(highs, place), range[0]),
                         minimum(b, b.loadWide(lows, place), range[1])};
               });
    Value top = conv::zeroIfNone(b, range[0]);
    b.storeWide(conv::getShift(b, top), shifts, at);
    Value isWhole = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                          b.wide(-kInfinity), range[1]);
    b.storeIndex(b.select(isWhole, b.index(0), b.index(1)), masked, at);
  });
}

void GPUConvProfiles::store() {
  parallelLoop(b, b.rows(), [&](ValueRange at) {
    Value shift = b.loadWide(shifts, at.take_front(2));
    visitLag(at, at[2], {},
             [&](Value segment, Value sum, Value exists, ValueRange) -> Values {
               Value place[] = {at[0], at[1], segment, at[2]};
               Value score = conv::getLimitedScore(b, sum, shift);
               score = arith::TruncFOp::create(b, b.getF32Type(), score);
               score = b.select(exists, score, b.scalar(-kInfinity));
               b.storeScalar(score, scores, place);
               b.storeScalar(weigh(b, score), weights, place);
               return {};
             });
  });
}

Value GPUConvProfiles::weigh(KernelBuilder &k, Value score, Value top,
                             Value factor) {
  Value isNone = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, score,
                                       k.scalar(-kInfinity));
  Value weight = conv::getWeight(k, score, top);
  return softmax::hide(k, isNone, factor ? k.fmul(weight, factor) : weight);
}

Value GPUConvProfiles::loadScore(KernelBuilder &k, ValueRange head, Value row,
                                 Value key) {
  Value segment = segments.of(k, head, key);
  return k.loadScalar(scores, {head[0], head[1], segment, k.sub(row, key)});
}

Value GPUConvProfiles::weighEntry(KernelBuilder &k, ValueRange head, Value row,
                                  Value key,
                                  function_ref<Value(ValueRange)> find) {
  Value lag = k.sub(row, key), segment = segments.of(k, head, key);
  Value isNone = k.either(k.less(lag, k.index(0)), k.less(segment, k.index(0)));
  return k.select(
      isNone, k.getF32Type(), [&] { return getHiddenWeight(k); },
      [&] { return find({head[0], head[1], segment, lag}); });
}

Value GPUConvProfiles::mayHide(KernelBuilder &k, ValueRange head, Value row,
                               Value key) {
  Value at[] = {head[0], head[1]};
  return k.either(k.less(row, key),
                  k.equal(k.loadIndex(masked, at), k.index(1)));
}
