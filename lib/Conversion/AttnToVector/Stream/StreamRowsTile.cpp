//===- StreamRowsTile.cpp - One tile of keys for few query rows -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

static bool isSingle(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back() == 1;
}

bool StreamRowsKernel::isLatent() {
  bool isNarrow =
      getElementTypeOrSelf(op.getValues().front()) != b.getStateType();
  return isNarrow && !hasFewRegisters && width > valueWidth;
}

int64_t StreamRowsKernel::getColumnTile() {
  return isLatent() ? kLatentTile : kColumnTile;
}

/// Sets the layout of the scores and the keys of a tile.
void StreamRowsKernel::startTiles() {
  scores.alongColumns = alongColumns;
  scores.pitch = alongColumns ? b.index(kColumnTile) : rowPitch;
  tileKeys = b.index(alongColumns ? getColumnTile() : kRowTile);
  if (dotsPairs() && alongColumns)
    tileKeys = b.select(areEights(), b.index(kShortPairTile), tileKeys);
  if (multipliesPairs())
    tileKeys = b.select(b.less(b.index(kShortPairRows), paddedRows),
                        b.index(kPairTile), b.index(kShortPairTile));
}

/// Calls `body` for the first key of each tile.
StreamRowsKernel::Values
StreamRowsKernel::forTiles(Value low, Value high, ValueRange inits,
                           function_ref<Values(Value, ValueRange)> body) {
  if (std::optional<int64_t> step = getConstantIntValue(tileKeys))
    return b.loop(low, high, *step, inits, body);
  Value length = b.max(b.sub(high, low), b.index(0));
  Value number = b.div(b.add(length, b.sub(tileKeys, b.index(1))), tileKeys);
  return b.loop(b.index(0), number, 1, inits,
                [&](Value tile, ValueRange carried) {
                  return body(b.add(low, b.mul(tile, tileKeys)), carried);
                });
}

void StreamRowsKernel::attendRows(const SourceView &source,
                                  const Interval &interval, Value low,
                                  Value high) {
  startTiles();
  forTiles(low, high, ValueRange(), [&](Value first, ValueRange) -> Values {
    Value count = b.min(b.sub(high, first), tileKeys);
    hasNextTile = b.less(b.add(first, tileKeys), high);
    Tile tile = {source, interval, first, count, Value()};
    if (isMasked && !source.attr.getMask().isTrivial())
      tile.isCut = b.either(b.less(first, interval.innerLow),
                            b.less(interval.innerHigh, b.add(first, count)));
    if (headBlock == 1 || !alongColumns)
      attendAdmitted(tile);
    else
      b.ifThenElse(
          b.less(b.index(1), taskHeads), [&] { attendTogether(tile); },
          [&] { attendAdmitted(tile); });
    return {};
  });
}

StreamRowsKernel::Rows StreamRowsKernel::rowsOf(const Tile &tile,
                                                Value memref) {
  const StreamSource &operands = tile.source.operands;
  Value ofHeads = memref == tile.source.keys ? operands.keys : operands.values;
  Rows rows = {memref,
               tile.low,
               tile.count,
               /*isStaged=*/false,
               tile.numListed ? listedRows : Value(),
               tile.numListed,
               hasSeveralHeads() ? ofHeads : Value(),
               alongColumns ? tile.source.valuesAreKeys : Value(),
               tile.source.keys};
  // Heads follow one another in memory, or batch entries of one head.
  auto type = cast<MemRefType>(ofHeads.getType());
  unsigned axis = type.getDimSize(1) == 1 ? 0 : 1;
  if (tile.numListed || hasSeveralHeads() || type.getDimSize(axis) == 1)
    return rows;
  auto strides =
      memref::ExtractStridedMetadataOp::create(b, ofHeads).getStrides();
  rows.end = tile.interval.high;
  Value numRows = b.sub(tile.interval.high, tile.interval.low);
  rows.toNextHead =
      b.sub(strides[axis], b.mul(numRows, strides[type.getRank() - 2]));
  return rows;
}

/// The row of the source that a key of a tile is.
StreamRowsKernel::Value StreamRowsKernel::rowOfKey(const Tile &tile,
                                                   Value key) {
  return tile.numListed ? Value(memref::LoadOp::create(b, listedRows, key))
                        : b.add(tile.low, key);
}

void StreamRowsKernel::attendTile(Tile tile) {
  const SourceView &source = tile.source;
  if (source.keyTable)
    lookUp(tile);
  else
    scoreKeys(rowsOf(tile, source.keys), scores);
  if (source.score)
    computeScores(tile);
  stageTerms(tile);
  tile.removesAny = addTerms(tile);
  weigh(tile);
  accumulate(tile);
}

/// Weights from scores.
void StreamRowsKernel::weigh(const Tile &tile) {
  if (!isSoftmax)
    squarePositive(tile);
  else if (alongColumns)
    exponentiateAlongKeys(tile);
  else
    exponentiateAlongRows(tile);
}

//===----------------------------------------------------------------------===//
// Terms and masks
//===----------------------------------------------------------------------===//

/// What the region makes of the scores of consecutive keys.
void StreamRowsKernel::computeScores(const Tile &tile) {
  // As masks count: the last query stands at the last key.
  Value shift = b.add(firstRow, b.sub(tile.source.tokens, sequenceRows));
  MaskAttr mask = tile.source.attr.getMask();
  TileScore &function = *tile.source.score;
  Value target = mayRemove(tile.source) ? computed : scores.memref;
  auto compute = [&](ScoreBody &body, Value row) {
    auto [head, query] = locate(row);
    Value position = b.add(query, shift);
    body.enterHead(b, batch, head);
    b.loop(b.index(0), tile.count, lanes, [&](Value key) {
      Value at = scores.at(b, key, row);
      Value score =
          body.evaluate(b, b.loadVector(scores.memref, at), {position},
                        {emitPosition(b, mask, b.add(tile.low, key)),
                         /*step=*/mask.getStride()})
              .score;
      b.storeVector(score, target, at);
    });
  };
  b.loop(b.index(0), setRows, 1, [&](Value row) {
    if (!tile.admitsAll)
      return compute(function.body, row);
    b.ifThenElse(
        tile.admitsAll, [&] { compute(function.admittedBody, row); },
        [&] { compute(function.body, row); });
  });
}

/// Copies log weights, and biases in the layout of scores, both in base 2 with
/// a soft-max. Without one the weight is a factor.
void StreamRowsKernel::stageTerms(const Tile &tile) {
  const SourceView &source = tile.source;
  double scale = isSoftmax ? softmax::kLog2E : 1.0;
  if (source.logWeight)
    b.loop(b.index(0), tile.count, 1, [&](Value key) {
      Value at = isSingle(source.logWeight) ? b.index(0) : rowOfKey(tile, key);
      Value weight =
          b.fmul(b.loadScalar(source.logWeight, at), b.scalar(softmax::kLog2E));
      b.storeScalar(weight, weights, key);
      if (!isSoftmax)
        b.storeScalar(
            math::Exp2Op::create(b, b.fmax(b.scalar(softmax::kMasked), weight)),
            factors, key);
    });
  if (!source.bias)
    return;
  Value bias = source.bias;
  b.loop(b.index(0), countSlots(), 1, [&](Value row) {
    auto [head, query] = locate(rowOfSlot(row));
    Values at = {b.broadcastIndex(bias, 0, batch),
                 b.broadcastIndex(bias, 1, head),
                 b.broadcastIndex(bias, 2, query), Value()};
    auto copy = [&](Value key, bool isVector) {
      bool isOne = isSingle(bias) && !source.attr.getHasLocalBias();
      at[3] = isOne ? b.index(0)
                    : b.sub(rowOfKey(tile, key), tile.interval.biasBegin);
      if (isVector)
        return b.storeVector(b.fmul(b.loadVector(bias, at), b.splat(scale)),
                             biases, scores.at(b, key, row));
      b.storeScalar(b.fmul(b.loadScalar(bias, at), b.scalar(scale)), biases,
                    scores.at(b, key, row));
    };
    Value whole = b.index(0);
    if (alongColumns && !isSingle(bias) && !tile.numListed)
      whole = b.roundDown(tile.count, lanes);
    b.loop(b.index(0), whole, lanes, [&](Value key) { copy(key, true); });
    b.loop(whole, tile.count, 1, [&](Value key) { copy(key, false); });
  });
}

void StreamRowsKernel::forScores(const Tile &tile,
                                 function_ref<void(const Place &)> body) {
  forScores(tile, ValueRange(), [&](const Place &place, ValueRange) -> Values {
    body(place);
    return {};
  });
}

StreamRowsKernel::Value
StreamRowsKernel::forScores(const Tile &tile, Value init,
                            function_ref<Value(const Place &, Value)> body) {
  return forScores(tile, ValueRange(init),
                   [&](const Place &place, ValueRange running) -> Values {
                     return {body(place, running.front())};
                   })
      .front();
}

StreamRowsKernel::Values StreamRowsKernel::forScores(
    const Tile &tile, ValueRange inits,
    function_ref<Values(const Place &, ValueRange)> body) {
  Value zero = b.index(0);
  if (alongColumns)
    return b.loop(zero, setRows, 1, inits, [&](Value row, ValueRange running) {
      return b.loop(zero, tile.count, lanes, running,
                    [&](Value key, ValueRange running) {
                      return body({scores.at(b, key, row), key, row}, running);
                    });
    });
  return b.loop(zero, tile.count, 1, inits, [&](Value key, ValueRange running) {
    return b.loop(zero, paddedRows, lanes, running,
                  [&](Value row, ValueRange running) {
                    return body({scores.at(b, key, row), key, row}, running);
                  });
  });
}

/// What is one for each key, for the keys of a vector of scores.
StreamRowsKernel::Value StreamRowsKernel::loadOfKeys(Value memref,
                                                     const Place &place) {
  return alongColumns ? b.loadVector(memref, place.key)
                      : b.broadcast(b.loadScalar(memref, place.key));
}

/// Whether terms or a region may remove entries.
bool StreamRowsKernel::mayRemove(const SourceView &source) {
  return source.bias || source.logWeight || hasRemovals(source);
}

bool StreamRowsKernel::hasRemovals(const SourceView &source) {
  return source.score && source.score->body.mayRemove();
}

/// Whether terms or a region remove entries, of which there are some.
StreamRowsKernel::Value StreamRowsKernel::isRemoved(const Tile &tile,
                                                    const Place &place) {
  Value removed;
  auto remove = [&](Value number) {
    Value more = softmax::isMasked(b, number);
    removed = removed ? arith::OrIOp::create(b, removed, more) : more;
  };
  if (hasRemovals(tile.source))
    remove(b.loadVector(computed, place.at));
  if (tile.source.bias)
    remove(b.loadVector(biases, place.at));
  if (tile.source.logWeight)
    remove(loadOfKeys(weights, place));
  return removed;
}

/// Whether the mask cuts entries: with d the distance of the key from the
/// position of the first query, query i does not read it when d > i (causal,
/// and the key is behind the prefix), i - d >= window, d - i >= window.
StreamRowsKernel::Value StreamRowsKernel::isCut(const Tile &tile,
                                                const Place &place) {
  MaskAttr mask = tile.source.attr.getMask();
  Value position = b.add(b.add(firstRow, firstQuery),
                         b.sub(tile.source.tokens, sequenceRows));
  auto type = VectorType::get({lanes}, b.getI32Type());
  auto numbers =
      llvm::map_to_vector(llvm::seq<int32_t>(0, lanes), [&](int32_t lane) {
        return int32_t(lane * mask.getStride());
      });
  // The positions of the keys of the vector, less `position`.
  auto behind = [&](Value position) -> Value {
    constexpr int64_t kFar = 1 << 30;
    Value distance = b.sub(b.index(0), position);
    if (!tile.numListed)
      distance =
          b.add(emitPosition(b, mask, b.add(tile.low, place.key)), distance);
    distance = b.clamp(distance, b.index(-kFar), b.index(kFar));
    Value narrow = arith::IndexCastOp::create(b, b.getI32Type(), distance);
    Value keys;
    if (tile.numListed && !alongColumns)
      narrow = arith::AddIOp::create(
          b, narrow, memref::LoadOp::create(b, listedPositions, place.key));
    else if (tile.numListed)
      keys = b.loadVector(listedPositions, place.key);
    else if (alongColumns)
      keys = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
    Value all = vector::BroadcastOp::create(b, type, narrow);
    return keys ? arith::AddIOp::create(b, all, keys) : all;
  };
  Value query;
  if (alongColumns)
    query = vector::BroadcastOp::create(
        b, type, memref::LoadOp::create(b, queryOf, place.row));
  else
    query = b.loadVector(queryOf, place.row);
  Value cut;
  auto cutWhere = [&](arith::CmpIPredicate predicate, Value bound) {
    Value holds = arith::CmpIOp::create(b, predicate, behind(bound), query);
    cut = cut ? arith::OrIOp::create(b, cut, holds) : holds;
  };
  Value window = b.index(mask.getWindow());
  if (mask.getCausal())
    cutWhere(arith::CmpIPredicate::sgt, position);
  if (mask.hasPrefix()) {
    // All queries read the prefix.
    Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(type));
    cut = arith::AndIOp::create(
        b, cut,
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                              behind(b.index(mask.getPrefix())), zeros));
  }
  if (mask.hasWindow()) {
    cutWhere(arith::CmpIPredicate::sle, b.sub(position, window));
    if (!mask.getCausal())
      cutWhere(arith::CmpIPredicate::sge, b.add(position, window));
  }
  return cut;
}

/// Adds the terms to the scores. What they or a mask remove has the masked
/// score, whatever it was. Returns whether there is such an entry, or null
/// where there cannot be.
StreamRowsKernel::Value StreamRowsKernel::addTerms(const Tile &tile) {
  const SourceView &source = tile.source;
  Value masked = b.splat(softmax::kMasked), removesAny = tile.isCut;
  auto update = [&](const Place &place, Value removed, Value score) {
    b.storeVector(arith::SelectOp::create(b, removed, masked, score),
                  scores.memref, place.at);
  };
  if (mayRemove(source)) {
    // All bits of a lane: conditions of vectors carried by loops are slow.
    Type integer = b.getIntegerType(b.getStateType().getWidth());
    Type lanesType = b.getVectorType(integer);
    Value none = arith::ConstantOp::create(b, b.getZeroAttr(lanesType));
    Value all = forScores(tile, none, [&](const Place &place, Value running) {
      Value score =
          b.loadVector(source.score ? computed : scores.memref, place.at);
      if (source.bias)
        score = b.fadd(score, b.loadVector(biases, place.at));
      if (isSoftmax && source.logWeight)
        score = b.fadd(score, loadOfKeys(weights, place));
      Value removed = isRemoved(tile, place);
      update(place, removed, score);
      Value bits = arith::ExtSIOp::create(b, lanesType, removed);
      return Value(arith::OrIOp::create(b, running, bits));
    });
    all = vector::ReductionOp::create(b, vector::CombiningKind::OR, all);
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(integer));
    Value removes =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, all, zero);
    removesAny = removesAny ? b.either(removesAny, removes) : removes;
  }
  if (tile.isCut)
    b.ifThen(tile.isCut, [&] {
      forScores(tile, [&](const Place &place) {
        update(place, isCut(tile, place),
               b.loadVector(scores.memref, place.at));
      });
    });
  return removesAny;
}

/// Marks the weights of entries that terms or a mask remove.
void StreamRowsKernel::markHidden(const Tile &tile) {
  auto mark = [&](const Place &place, Value removed) {
    Value weight = b.loadVector(scores.memref, place.at);
    b.storeVector(softmax::hide(b, removed, weight), scores.memref, place.at);
  };
  if (mayRemove(tile.source))
    forScores(tile,
              [&](const Place &place) { mark(place, isRemoved(tile, place)); });
  if (tile.isCut)
    b.ifThen(tile.isCut, [&] {
      forScores(tile,
                [&](const Place &place) { mark(place, isCut(tile, place)); });
    });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Outputs of one row times a vector of its factor.
void StreamRowsKernel::rescaleOutput(Value row, Value factor) {
  b.overVectors(paddedValueWidth, [&](Value column) {
    Value output = b.loadVector(outputs, {row, column});
    b.storeVector(b.fmul(output, factor), outputs, {row, column});
  });
}

static Value isAnyAbove(KernelBuilder &b, Value scores, Value maximum) {
  Value above =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, scores, maximum);
  return vector::ReductionOp::create(b, vector::CombiningKind::OR, above);
}

void StreamRowsKernel::exponentiateAlongKeys(const Tile &tile) {
  Value zero = b.index(0);
  Value padded = b.mul(b.ceilDiv(tile.count, lanes), lanes);
  b.loop(zero, setRows, 1, [&](Value row) {
    // Whole vectors: what is left of the last one counts nothing.
    b.loop(tile.count, padded, 1, [&](Value key) {
      b.storeScalar(b.scalar(softmax::kMasked), scores.memref,
                    scores.at(b, key, row));
    });
    Value old = b.loadScalar(maxima, row);
    Value top = b.loop(zero, padded, lanes, b.broadcast(old),
                       [&](Value key, ValueRange top) -> Values {
                         Value score = b.loadVector(scores.memref,
                                                    scores.at(b, key, row));
                         return {b.fmax(score, top[0])};
                       })[0];
    Value sumAt = b.mul(row, lanes);
    b.ifThen(isAnyAbove(b, top, b.broadcast(old)), [&] {
      Value maximum =
          vector::ReductionOp::create(b, vector::CombiningKind::MAXNUMF, top);
      Value factor = softmax::exp2(b, b.broadcast(b.fsub(old, maximum)));
      b.storeScalar(maximum, maxima, row);
      b.storeVector(b.fmul(b.loadVector(laneSums, sumAt), factor), laneSums,
                    sumAt);
      rescaleOutput(row, factor);
    });
    Value maximum = b.broadcast(b.loadScalar(maxima, row));
    Value sum =
        b.loop(zero, padded, lanes, b.loadVector(laneSums, sumAt),
               [&](Value key, ValueRange sum) -> Values {
                 Value at = scores.at(b, key, row);
                 Value weight = softmax::exp2(
                     b, b.fsub(b.loadVector(scores.memref, at), maximum));
                 b.storeVector(weight, scores.memref, at);
                 return {b.fadd(sum[0], weight)};
               })[0];
    b.storeVector(sum, laneSums, sumAt);
  });
}

void StreamRowsKernel::exponentiateAlongRows(const Tile &tile) {
  Value zero = b.index(0);
  b.loop(zero, paddedRows, lanes, [&](Value row) {
    Value old = b.loadVector(maxima, row);
    Value top = b.loop(
        zero, tile.count, 1, old, [&](Value key, ValueRange top) -> Values {
          Value score = b.loadVector(scores.memref, scores.at(b, key, row));
          return {b.fmax(score, top[0])};
        })[0];
    b.ifThen(isAnyAbove(b, top, old), [&] {
      Value factor = softmax::exp2(b, b.fsub(old, top));
      b.storeVector(top, maxima, row);
      b.storeVector(b.fmul(b.loadVector(sums, row), factor), sums, row);
      if (usesColumns())
        return rescaleColumns(row, factor);
      b.storeVector(factor, rowFactors, row);
      b.loop(row, b.min(b.add(row, lanes), setRows), 1, [&](Value one) {
        rescaleOutput(one, b.broadcast(b.loadScalar(rowFactors, one)));
      });
    });
    Rows keys = rowsOf(tile, tile.source.keys);
    Value sum = b.unrolledLoop(
        zero, tile.count, multipliesPairs() ? kQuarters : 1,
        b.loadVector(sums, row),
        [&](Value key, ValueRange sum) -> Values {
          Value at = scores.at(b, key, row);
          Value weight =
              softmax::exp2(b, b.fsub(b.loadVector(scores.memref, at), top));
          b.storeVector(weight, scores.memref, at);
          return {b.fadd(sum[0], weight)};
        },
        [&](Value key) {
          if (multipliesPairs())
            b.ifThen(b.equal(row, zero), [&] { askQuarter(keys, 3, key); });
        })[0];
    b.storeVector(sum, sums, row);
  });
}

/// The weights of `squared_relu`.
void StreamRowsKernel::squarePositive(const Tile &tile) {
  forScores(tile, [&](const Place &place) {
    Value positive =
        b.fmax(b.splat(0.0), b.loadVector(scores.memref, place.at));
    Value weight = b.fmul(positive, positive);
    if (tile.source.logWeight)
      weight = b.fmul(weight, loadOfKeys(factors, place));
    b.storeVector(weight, scores.memref, place.at);
  });
}
