//===- StreamHidden.cpp - Entries that are not read -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tile of rows that a mask cuts, or whose log weights or biases may be minus
// infinity, has entries that are not read. Whatever such an entry holds, its
// score is the masked one and its weight zero. A product with the weights is
// that of the other entries then, unless a row holds a NaN or an infinity: the
// sums of these tiles are looked at, and when they are not finite the hidden
// weights are marked by their sign and the product is taken again without them.
// So tiles that hide nothing pay nothing, and the others one instruction for
// each sum. The order of additions is the same.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace fovea::attn;

bool StreamKernel::isMasked(const Segment &segment) {
  return segment.kind == Segment::Masked || segment.kind == Segment::Diagonal ||
         segment.mayCut;
}

bool StreamKernel::hasBiasThatHides(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  return source.bias ||
         (source.distanceTerms && source.distanceTerms->distanceBias);
}

bool StreamKernel::mayHide(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  return isMasked(segment) || source.logWeight || hasBiasThatHides(segment) ||
         scoresRemove(segment);
}

bool StreamKernel::scoresRemove(const Segment &segment) {
  if (!hasScores())
    return false;
  TileScore &function = getScore(segment.source);
  return (admitsAll ? function.admittedBody : function.body).mayRemove();
}

Value StreamKernel::weightAt(const Segment &segment, Value entry) {
  const SourceView &source = sources[segment.source];
  Value weight;
  if (isReaderOfTable(segment))
    weight = b.loadScalar(source.keyTable->weights, b.add(segment.row, entry));
  else if (segment.kind == Segment::Table)
    weight = b.loadScalar(tableWeights, b.add(segment.table, entry));
  else if (source.logWeight)
    weight = logWeightAt(source, b.add(segment.row, entry));
  return weight ? b.broadcast(weight) : Value();
}

Value StreamKernel::biasAt(const Segment &segment, Value entry,
                           unsigned vector) {
  const SourceView &source = sources[segment.source];
  if (!source.bias && !source.distanceTerms)
    return Value();
  return b.loadVector(
      packedBias, {b.add(segment.scoreRow, entry), b.index(vector * lanes)});
}

Value StreamKernel::hides(const Segment &segment, Value entry, unsigned vector,
                          Value weight, Value bias, Value score, bool cuts) {
  Value hidden;
  auto hide = [&](Value more) {
    hidden = hidden ? arith::OrIOp::create(b, hidden, more) : more;
  };
  // Copies that fill up a table are masked by a weight, too, but hide nothing:
  // the row itself is read.
  if (weight && sources[segment.source].logWeight)
    hide(softmax::isMasked(b, weight));
  if (bias && hasBiasThatHides(segment))
    hide(softmax::isMasked(b, bias));
  if (score)
    hide(softmax::isMasked(b, score));
  if (cuts)
    hide(isCut(segment, entry, vector));
  return hidden;
}

Value StreamKernel::hides(const Segment &segment, Value entry,
                          unsigned vector) {
  if (!hasScores())
    return hides(segment, entry, vector, weightAt(segment, entry),
                 biasAt(segment, entry, vector), /*score=*/Value(),
                 isMasked(segment));
  // What a region has removed, its score tells; weights may have replaced it.
  Value found =
      isOfPairs(arithmeticOf(segment))
          ? loadRows(scores, b.add(segment.scoreRow, entry), 1, vector).front()
          : scoreTile(segment, entry, rowsOf(segment, entry, 1), vector,
                      isMasked(segment))
                .front();
  return softmax::isMasked(b, found);
}

/// Marks the weights of hidden entries.
void StreamKernel::markHidden(const Segment &segment) {
  // Where biases are added in squares they are not packed.
  if (addsBiasInSquares(segment))
    packBias(segment);
  if (isOfPairs(arithmeticOf(segment)))
    return markHiddenPairs(segment);
  b.loop(segment.skip, segment.count, 1, [&](Value entry) {
    for (int64_t v = 0; v < vectors; ++v) {
      Values at = {b.add(segment.weightRow, entry), b.index(v * lanes)};
      Value weight = b.loadVector(segment.weights, at);
      b.storeVector(softmax::hide(b, hides(segment, entry, v), weight),
                    segment.weights, at);
    }
  });
}

/// Hidden entries weigh zero, which leaves sums as they are unless the values
/// that it is multiplied with are infinite or NaN. So the sums are looked at
/// once, behind all tiles: if some is not finite they are taken again, without
/// the hidden entries.
StreamKernel::State
StreamKernel::repeatUnlessFinite(function_ref<State()> attend) {
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false)),
        yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  SmallVector<Type> types(2 * vectors, b.getVectorType());
  auto loop = scf::WhileOp::create(
      b, types, no,
      [&](OpBuilder &, Location, ValueRange repeated) {
        isRepeated = repeated.front();
        State state = attend();
        Values results = state.maximum;
        results.append(state.sum);
        Value isFirst = b.createOrFold<arith::XOrIOp>(isRepeated, yes);
        Value isSpecial =
            hasSpecial(outputs, tiles.getQueryLanes(), b.index(0),
                       b.index(valueWidth), [](Value row) { return row; });
        scf::ConditionOp::create(b, b.both(isFirst, isSpecial), results);
      },
      [&](OpBuilder &, Location, ValueRange) { scf::YieldOp::create(b, yes); });
  isRepeated = Value();
  ValueRange results = loop.getResults();
  return {Values(results.take_front(vectors)),
          Values(results.drop_front(vectors))};
}

Value StreamKernel::hasSpecial(Value rows, int64_t columns, Value begin,
                               Value end, function_ref<Value(Value)> rowOf) {
  int64_t numVectors = llvm::divideCeil(columns, lanes);
  // Zero times what is not finite is NaN. Chains, so that none is waited for.
  constexpr int64_t kChains = 8;
  int64_t unroll = std::max<int64_t>(1, kChains / numVectors);
  Values chains(std::min(kChains, unroll * numVectors), b.splat(0.0));
  auto addRow = [&](Value offset, ValueRange running) {
    Values next(running);
    Value row = rowOf(offset);
    for (int64_t c = 0; c < numVectors; ++c) {
      Value &chain = next[c % next.size()];
      chain = b.fma(b.loadVector(rows, {row, b.index(c * lanes)}), b.splat(0.0),
                    chain);
    }
    std::rotate(next.begin(), next.begin() + numVectors % next.size(),
                next.end());
    return next;
  };
  chains = b.unrolledLoop(begin, end, unroll, chains, addRow);
  Value total = chains.front();
  for (Value chain : ArrayRef(chains).drop_front())
    total = b.fadd(total, chain);
  return isAnyNaN(total);
}

Value StreamKernel::isAnyNaN(Value vector) {
  return vector::ReductionOp::create(
      b, vector::CombiningKind::OR,
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, vector, vector));
}

/// Whether the mask cuts the entry of a row, for a vector of queries.
Value StreamKernel::isCut(const Segment &segment, Value entry,
                          unsigned vector) {
  const SourceView &source = sources[segment.source];
  MaskAttr mask = source.attr.getMask();
  // Query lane i does not read a row at d behind the position of the block's
  // first query when d > i (causal), i - d >= window, d - i >= window.
  constexpr int64_t kFar = 1 << 30;
  auto intType = VectorType::get({lanes}, b.getI32Type());
  auto broadcast = [&](Value distance) -> Value {
    distance = b.clamp(distance, b.index(-kFar), b.index(kFar));
    Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), distance);
    return vector::BroadcastOp::create(b, intType, narrow);
  };
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < lanes; ++lane)
    numbers.push_back(vector * lanes + lane);
  Value queries = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  Value distance = b.sub(positionOf(segment, entry), firstPosition(source));
  Value cut;
  auto cutWhere = [&](arith::CmpIPredicate predicate, Value bound) {
    Value holds =
        arith::CmpIOp::create(b, predicate, broadcast(bound), queries);
    cut = cut ? arith::OrIOp::create(b, cut, holds) : holds;
  };
  Value window = b.index(mask.getWindow());
  if (mask.getCausal())
    cutWhere(arith::CmpIPredicate::sgt, distance);
  if (mask.hasWindow()) {
    cutWhere(arith::CmpIPredicate::sle, b.add(distance, window));
    if (!mask.getCausal())
      cutWhere(arith::CmpIPredicate::sge, b.sub(distance, window));
  }
  return cut;
}
