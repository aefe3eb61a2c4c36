//===- ConvProfiles.cpp - Weights of sums of convolutions -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvProfiles.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Lags whose score sums lie in the first-level cache while bases are added,
/// and those that are looked at for the greatest one.
static constexpr int64_t kLagChunk = 1024, kFirstLags = 256;

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

ConvSegments::ConvSegments(ConvBuilder &b)
    : b(b), bounds(b.allocate(b.getIndexType(), {b.add(b.numBases, 1)})),
      segments(b.allocate(b.getIndexType(), {b.numTokens})) {}

void ConvSegments::prepare() {
  b.loop(b.index(0), b.numBases, 1, [&](Value r) {
    Value size = b.loadIndex(b.sizes, {b.batch, b.head, r});
    b.storeIndex(b.sub(b.numTokens, size), bounds, r);
  });
  b.storeIndex(b.numTokens, bounds, b.numBases);
  if (b.plan.block == 0)
    list(b.index(0), b.numTokens);
}

void ConvSegments::list(Value firstColumn, Value endColumn) {
  b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
    Value begin = b.max(firstColumn, first(segment));
    Value behind = b.min(endColumn, end(segment));
    b.loop(begin, behind, 1,
           [&](Value column) { b.storeIndex(segment, segments, column); });
  });
}

//===----------------------------------------------------------------------===//
// Score sums
//===----------------------------------------------------------------------===//

ConvProfiles::ConvProfiles(ConvBuilder &b, ConvSegments &segments)
    : b(b), segments(segments) {
  Type state = b.getStateType();
  scoreRow =
      b.mul(b.ceilDiv(b.numTokens, b.plan.lagMultiple), b.plan.lagMultiple);
  // The last tile of queries reads past the last lag: zeros of what is next.
  weightRow = b.add(scoreRow, b.plan.front);
  weights = b.allocate(state, {b.mul(b.add(b.numBases, 1), weightRow)});
  scores = b.allocate(state, {b.mul(b.numBases, scoreRow)});
  Value chunks = b.ceilDiv(scoreRow, kLagChunk);
  // That of the first chunk is found even if there is none.
  partialTops = b.allocate(b.getF64Type(), {b.max(chunks, 1)});
  chunkSums = b.allocate(state, {b.numBases, chunks});
}

void ConvProfiles::forAllLagChunks(function_ref<void(Value, Value)> body) {
  b.forAll({b.ceilDiv(scoreRow, kLagChunk)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kLagChunk);
    body(first, b.min(b.sub(scoreRow, first), b.index(kLagChunk)));
  });
}

/// Visits the score sums of lags `[first, first + count)`, in f64, segment by
/// segment, as far as the segment has lags; other elements of the last vector
/// are minus infinity. `finish` sees what was carried behind a segment.
Values
ConvProfiles::forEachScoreSum(Value first, Value count, ValueRange inits,
                              ScoreVisitor visit,
                              function_ref<Values(Value, ValueRange)> finish) {
  Value sums = b.scratch({kLagChunk}, b.getF64Type());
  b.clearWide(sums, count);
  auto visitSegment = [&](Value segment, ValueRange carried) {
    // Later segments have no more lags.
    Value size = segments.numLags(segment);
    Value end = b.min(count, b.sub(size, first)), next = b.add(segment, 1);
    auto visitVector = [&](Value at, Value mask, ValueRange carried) {
      Value lag = b.add(first, at);
      // Lags of a segment are far from those of the next.
      b.prefetch(b.basis, {b.batch, b.head, next, lag}, /*locality=*/3);
      if (finish)
        b.prefetch(weights, weightAt(next, lag), /*locality=*/3,
                   /*isWrite=*/true);
      Value term =
          b.loadMasked(b.basis, {b.batch, b.head, segment, lag}, mask, 0.0);
      Value sum = b.fadd(b.loadWide(sums, at), b.widen(term));
      b.storeWide(sum, sums, at);
      if (mask)
        sum = arith::SelectOp::create(b, mask, sum, b.splatWide(-kInfinity));
      return visit(segment, lag, sum, carried);
    };
    Values found = b.forEachVector(b.index(0), end, carried, visitVector);
    return finish ? finish(segment, found) : found;
  };
  return b.loop(b.index(0), b.numBases, 1, inits, visitSegment);
}

/// Stores the greatest of the scores of a chunk.
void ConvProfiles::storeTop(Value tops, Value first) {
  Value top = b.reduce(vector::CombiningKind::MAXNUMF, tops);
  memref::StoreOp::create(b, top, partialTops, b.div(first, kLagChunk));
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// The greatest score sum of a few lags is taken off, unless there are others
/// so much greater that weights had better be computed again.
void ConvProfiles::prepare() {
  clearZeros();
  storeFirstTop();
  Value top = memref::LoadOp::create(b, partialTops, b.index(0));
  Value inits[] = {getShift(b, zeroIfNone(b, top)), b.index(1)};
  auto storeAll = [&](Value, ValueRange carried) {
    shift = carried[0];
    b.ifThen(b.less(b.index(0), carried[1]), [&] { storeWeights(); });
    Value top =
        b.loop(b.index(0), b.ceilDiv(scoreRow, kLagChunk), 1,
               b.wide(-kInfinity), [&](Value chunk, ValueRange carried) {
                 Value part = memref::LoadOp::create(b, partialTops, chunk);
                 return Values{b.fmax(part, carried[0])};
               })[0];
    top = zeroIfNone(b, top);
    // Where the first lags have no score it may also be less.
    Value isFar =
        b.compare(arith::CmpFPredicate::OGT, math::AbsFOp::create(b, top),
                  b.wide(kLogMostWeight));
    return Values{b.select(isFar, b.fsub(shift, top), shift),
                  b.select(isFar, b.index(1), b.index(0))};
  };
  shift = b.loop(b.index(0), b.index(2), 1, inits, storeAll)[0];
}

/// The profile of zeros. A pair of windows of it is a transform and a block
/// long; elsewhere it stands for a segment.
void ConvProfiles::clearZeros() {
  Value start = b.mul(b.numBases, weightRow), count = weightRow;
  if (int64_t block = b.plan.block) {
    int64_t length = 2 * block + b.plan.piece;
    count = b.min(count, llvm::alignTo(length, b.getLanes()));
  }
  b.loop(start, b.add(start, count), b.getLanes(),
         [&](Value at) { b.storeVector(b.splat(0.0), weights, at); });
}

void ConvProfiles::storeFirstTop() {
  b.forAll({b.index(1)}, [&](ValueRange) {
    auto visit = [&](Value, Value, Value sum, ValueRange tops) {
      return Values{maxNumber(b, sum, tops[0])};
    };
    storeTop(forEachScoreSum(b.index(0), b.min(scoreRow, kFirstLags),
                             b.splatWide(-kInfinity), visit)[0],
             b.index(0));
  });
}

void ConvProfiles::storeWeights() {
  forAllLagChunks([&](Value first, Value count) {
    auto store = [&](Value segment, Value lag, Value sum, ValueRange carried) {
      Value score = getScore(b, sum, shift);
      Value top = maxNumber(b, score, carried[1]);
      Value numbers = getWeight(b, b.narrow(score));
      b.storeVector(numbers, weights, weightAt(segment, lag));
      return Values{b.fadd(carried[0], numbers), top};
    };
    auto finish = [&](Value segment, ValueRange carried) {
      Value sum = sumLanes(b, carried[0]);
      b.storeScalar(sum, chunkSums, {segment, b.div(first, kLagChunk)});
      return Values{b.splat(0.0), carried[1]};
    };
    Value inits[] = {b.splat(0.0), b.splatWide(-kInfinity)};
    Values found = forEachScoreSum(first, count, inits, store, finish);
    storeTop(found[1], first);
    padWeights(first, count);
  });
}

/// Stores zeros before the first lag and behind the last, as far as a window
/// reaches.
void ConvProfiles::padWeights(Value first, Value count) {
  int64_t lanes = b.getLanes(), front = b.plan.front;
  Value isFirst = b.equal(first, b.index(0)), end = b.add(first, count);
  Value low = b.select(isFirst, b.index(-front), b.index(0));
  b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
    auto clear = [&](Value first, Value end) {
      b.loop(first, end, lanes, [&](Value lag) {
        b.storeVector(b.splat(0.0), weights, weightAt(segment, lag));
      });
    };
    clear(low, b.index(0));
    Value behind = b.mul(b.ceilDiv(segments.numLags(segment), lanes), lanes);
    int64_t reach = b.plan.block != 0 ? front + lanes : 2 * front;
    clear(b.max(first, behind), b.min(end, b.add(behind, reach)));
  });
}

void ConvProfiles::clean() {
  // Hardly ever there is one, and a parallel loop has its price.
  Value chunks = b.ceilDiv(b.numTokens, kLagChunk);
  auto keepNaN = [&](Value segment, Value chunk, Value total) {
    Value own = b.loadScalar(chunkSums, {segment, chunk});
    Value isNaN = b.compare(arith::CmpFPredicate::UNO, own, own);
    return b.select(isNaN, own, total);
  };
  Value total =
      b.loop(b.index(0), b.numBases, 1, b.scalar(0.0),
             [&](Value segment, ValueRange carried) {
               return b.loop(b.index(0), chunks, 1, carried,
                             [&](Value chunk, ValueRange total) {
                               return Values{keepNaN(segment, chunk, total[0])};
                             });
             })[0];
  b.ifThen(b.compare(arith::CmpFPredicate::UNO, total, total), [&] {
    forAllLagChunks(
        [&](Value first, Value count) { cleanChunk(first, count); });
  });
}

void ConvProfiles::cleanChunk(Value first, Value count) {
  b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
    Value left = b.sub(segments.numLags(segment), first);
    Value sum = b.loadScalar(chunkSums, {segment, b.div(first, kLagChunk)});
    b.ifThen(b.compare(arith::CmpFPredicate::UNO, sum, sum), [&] {
      b.loop(b.index(0), b.min(count, left), b.getLanes(), [&](Value lag) {
        Value at = weightAt(segment, b.add(first, lag));
        Value numbers = b.loadVector(weights, at);
        Value isNaN = b.compare(arith::CmpFPredicate::UNO, numbers, numbers);
        numbers = arith::SelectOp::create(b, isNaN, b.splat(0.0), numbers);
        b.storeVector(numbers, weights, at);
      });
    });
  });
}

Values ConvProfiles::addLags(Value segment, Value low, Value high,
                             ValueRange sums) {
  Value firstChunk = b.ceilDiv(low, kLagChunk);
  Value endChunk = b.div(high, kLagChunk);
  auto add = [&](Value lag, Value mask, ValueRange carried) {
    Value numbers = b.loadMasked(weights, weightAt(segment, lag), mask, 0.0);
    return Values{b.fadd(b.widen(numbers), carried[0])};
  };
  Value head = b.min(b.mul(firstChunk, kLagChunk), high);
  Value tail = b.max(b.mul(endChunk, kLagChunk), head);
  Values vectors = b.forEachVector(low, head, sums[0], add);
  vectors = b.forEachVector(tail, high, vectors, add);
  Value whole = b.loop(firstChunk, endChunk, 1, sums[1],
                       [&](Value chunk, ValueRange carried) {
                         Value sum = b.loadScalar(chunkSums, {segment, chunk});
                         return Values{b.fadd(carried[0], b.widen(sum))};
                       })[0];
  return {vectors[0], whole};
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

void ConvProfiles::prepareScores(Value end) {
  auto store = [&](Value segment, Value lag, Value sum, ValueRange) {
    Value score = b.narrow(getLimitedScore(b, sum, shift));
    b.storeVector(score, scores, scoreAt(segment, lag));
    return Values();
  };
  b.forAll({b.ceilDiv(end, kLagChunk)}, [&](ValueRange task) {
    Value first = b.mul(task[0], kLagChunk);
    Value count = b.min(b.sub(scoreRow, first), b.index(kLagChunk));
    segments.list(first, b.min(b.add(first, count), b.numTokens));
    forEachScoreSum(first, count, ValueRange(), store);
  });
}

Value ConvProfiles::isRead(Value segment, Value lag) {
  Value score = b.loadScalar(scores, scoreAt(segment, lag));
  return b.compare(arith::CmpFPredicate::UNE, score, b.scalar(-kInfinity));
}
