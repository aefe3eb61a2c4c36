//===- GPUStreamStages.cpp - Scores, soft-max and products on a GPU -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fragments of a 16 x 8 tile of sums, in PTX's m16n8 layout: the four numbers
// of a thread are columns 2 (l % 4) and one more of row l / 4, and the same of
// row l / 4 + 8.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Running sums
//===----------------------------------------------------------------------===//

GPUStreamKernel::State GPUStreamKernel::makeState() {
  State state;
  Value zero = b.scalar(0.0);
  // A multiple of what one load of values covers.
  int64_t columns = type.getWidth() == 16 ? 16 : 8;
  int64_t numTiles = llvm::alignTo(layout.valueColumns, columns) / 8;
  state.output.assign(numTiles, Values(4, zero));
  state.maximum.assign(2, b.scalar(isSoftmax ? softmax::kMasked : kLeastPeak));
  state.sum.assign(2, zero);
  for (int64_t half : {0, 1}) {
    Value sinks = op.getSink();
    if (!sinks)
      break;
    Value ownHead = getRowHead(getOwnRow(half));
    Value sink = b.loadScalar(sinks, {b.broadcastIndex(sinks, 0, batch),
                                      b.broadcastIndex(sinks, 1, ownHead)});
    auto [maximum, sum] = softmax::startWithSink(b, sink);
    // The first of several parts has it.
    if (parts.count) {
      Value isFirst = b.equal(beginTile, b.i32(0));
      maximum = b.select(isFirst, maximum, state.maximum[half]);
      sum = b.select(isFirst, sum, zero);
    }
    state.maximum[half] = maximum;
    // The four threads of a row add their sums up.
    state.sum[half] = b.select(b.equal(pairColumn, b.i32(0)), sum, zero);
  }
  return state;
}

Values GPUStreamKernel::flatten(const State &state) {
  Values values;
  for (const Values &tile : state.output)
    values.append(tile);
  values.append(state.maximum);
  values.append(state.sum);
  return values;
}

GPUStreamKernel::State GPUStreamKernel::unflatten(ValueRange values) {
  State state;
  size_t numOutputs = values.size() - 4;
  for (size_t i = 0; i < numOutputs; i += 4)
    state.output.push_back(Values(values.slice(i, 4)));
  state.maximum = Values(values.slice(numOutputs, 2));
  state.sum = Values(values.slice(numOutputs + 2, 2));
  return state;
}

void GPUStreamKernel::attend(const Tile &tile, Value stage, State &state) {
  SharedRows values = {sharedValues, b.mul(stage, keyTile), keyTile,
                       layout.valueColumns};
  Value isCut = this->isCut(tile, stage);
  // Before there are scores, which take registers, unless these have to say.
  if (!scoresHide)
    clearHidden(tile, stage, isCut, values, state);
  SmallVector<Values> scores = score(tile, stage);
  Values factors = weigh(tile, stage, isCut, /*ahead=*/{}, scores, state);
  if (scoresHide)
    clearHidden(tile, stage, isCut, values, state);
  rescale(factors, state);
  if (type.isF32())
    accumulateF32(scores, stage, state);
  else
    accumulate(scores, stage, state);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

SmallVector<Values> GPUStreamKernel::score(const Tile &tile, Value stage) {
  SmallVector<GPUKernelBuilder::Sum> sums(keyTile / 8, b.makeSum());
  Value row = b.mul(stage, keyTile);
  int64_t stepElements = 2 * sharedKeys.chunkElements;
  for (int64_t step = 0; step * stepElements < width; ++step)
    b.multiplyRows(type, math,
                   queryFragments.empty()
                       ? b.loadLeft(sharedQueries, warpRow, step)
                       : queryFragments[step],
                   sharedKeys, row, keyTile, step, sums);
  SmallVector<Values> scores;
  for (const GPUKernelBuilder::Sum &sum : sums)
    scores.push_back(b.getTotal(sum));
  return scores;
}

/// What loadWeights left for column `i` of the thread's pair in tile `number`.
Value GPUStreamKernel::loadWeight(Value stage, int64_t number, int64_t i) {
  Value at = b.add(b.mul(stage, keyTile), b.add(pairColumn, number * 8 + i));
  return memref::LoadOp::create(b, sharedWeights, b.toIndex(at));
}

/// Scales products and adds what is added to them.
void GPUStreamKernel::addTerms(const Tile &tile, Value stage,
                               const Terms &ahead,
                               SmallVectorImpl<Values> &scores) {
  if (!scalesScores)
    return;
  Values removed;
  if (!scoreBodies.empty())
    removed = computeScores(tile, scores);
  double factor = scoreBodies.empty() ? scoreScale : 1.0;
  bool addsWeights = hasWeights && isSoftmax;
  // A bias of all sources is added in one step.
  if (addsWeights || !hasBias || sources.size() > 1) {
    for (auto [number, tileScores] : llvm::enumerate(scores)) {
      Values weights;
      for (int64_t i = 0; addsWeights && i < 2; ++i)
        weights.push_back(loadWeight(stage, number, i));
      for (auto [i, score] : llvm::enumerate(tileScores))
        score = addsWeights ? b.fma(score, b.scalar(factor), weights[i % 2])
                            : multiply(score, factor);
    }
    factor = 1.0;
  }
  if (hasBias)
    addBias(tile, ahead, factor, scores);
  // Last: a term could raise what is removed.
  for (auto [number, isRemoved] : llvm::enumerate(removed)) {
    Value &score = scores[number / 4][number % 4];
    score = b.select(isRemoved, b.scalar(masked), score);
  }
}

//===----------------------------------------------------------------------===//
// Soft-max and the product with the values
//===----------------------------------------------------------------------===//

/// Makes weights of scores, and returns what sums of values so far are to be
/// multiplied by, for each of the thread's two queries. A bias or a region may
/// remove entries, and a tile with such is cut: all threads find out together,
/// or later, of what `vote` says for each.
Values GPUStreamKernel::weigh(const Tile &tile, Value stage, Value &isCut,
                              const Terms &ahead,
                              SmallVectorImpl<Values> &scores, State &state,
                              function_ref<void(Value)> vote) {
  addTerms(tile, stage, ahead, scores);
  // Ahead of the branch, behind which ptxas would put it after exponentials.
  if (scoresHide && vote)
    vote(b.either(isCut, hasMasked(scores)));
  mask(tile, stage, isCut, scores);
  if (scoresHide && !vote)
    isCut = b.either(isCut, b.anyThread(hasMasked(scores)));
  return isSoftmax ? normalise(scores, state) : square(stage, scores, state);
}

/// The greatest of a thread's scores of one row. Two chains take half as long
/// as one: a warp of a warpgroup can do nothing else before it is known, and
/// others have warps beside them that can.
Value GPUStreamKernel::findTop(ArrayRef<Values> scores, int64_t half) {
  int64_t chains = tiles.getLanes() == kWarpgroupRows ? 2 : 1;
  Value tops[2];
  for (const Values &tile : scores)
    for (int64_t i : {0, 1}) {
      Value &top = tops[i % chains], score = tile[2 * half + i];
      top = top ? b.maxNum(top, score) : score;
    }
  return chains == 2 ? b.maxNum(tops[0], tops[1]) : tops[0];
}

void GPUStreamKernel::rescale(const Values &factors, State &state) {
  for (Values &tile : state.output)
    for (auto [i, value] : llvm::enumerate(tile))
      value = b.fmul(value, factors[i / 2]);
}

Values GPUStreamKernel::normalise(SmallVectorImpl<Values> &scores,
                                  State &state) {
  bool scales = exponentScale != 1.0;
  Value factor = b.scalar(exponentScale), zero = b.scalar(0.0);
  Values factors;
  for (int64_t half : {0, 1}) {
    Value top = findTop(scores, half);
    // The four threads of a row.
    top = b.maxNum(top, b.shuffleXor(top, 1));
    top = b.maxNum(top, b.shuffleXor(top, 2));
    if (scales)
      top = b.fmul(top, factor);
    Value maximum = b.maxNum(state.maximum[half], top);
    factors.push_back(b.exp2(b.fsub(state.maximum[half], maximum)));
    Value shift = arith::NegFOp::create(b, maximum);
    // The exponential of minus infinity, which only an infinite key gives a
    // score, is no NaN: the sum gets one from its product with zero.
    Value sum = zero, unordered = zero;
    for (Values &tile : scores)
      for (int64_t i : {2 * half, 2 * half + 1}) {
        Value shifted =
            scales ? b.fma(tile[i], factor, shift) : b.fadd(tile[i], shift);
        unordered = b.fma(tile[i], zero, unordered);
        tile[i] = b.exp2(shifted);
        sum = b.fadd(sum, tile[i]);
      }
    state.maximum[half] = maximum;
    state.sum[half] =
        b.fma(state.sum[half], factors[half], b.fadd(sum, unordered));
  }
  return factors;
}

/// The weights of `squared_relu`, over the square of the greatest score so far:
/// they fit any type, as those of soft-max do.
Values GPUStreamKernel::square(Value stage, SmallVectorImpl<Values> &scores,
                               State &state) {
  Value zero = b.scalar(0.0), one = b.scalar(1.0);
  for (auto [number, tile] : llvm::enumerate(scores))
    for (int64_t i : {0, 1}) {
      Value root = hasWeights ? loadWeight(stage, number, i) : Value();
      for (int64_t half : {0, 1}) {
        // The second operand wins when it is NaN. A masked score is negative.
        Value positive = b.fmax(zero, tile[2 * half + i]);
        tile[2 * half + i] = root ? b.fmul(positive, root) : positive;
      }
    }
  Values factors;
  for (int64_t half : {0, 1}) {
    Value top = state.maximum[half];
    for (const Values &tile : scores)
      for (int64_t i : {2 * half, 2 * half + 1})
        top = b.maxNum(top, tile[i]);
    top = b.maxNum(top, b.shuffleXor(top, 1));
    top = b.maxNum(top, b.shuffleXor(top, 2));
    Value inverse = arith::DivFOp::create(b, one, top);
    Value rescale = b.fmul(state.maximum[half], inverse);
    factors.push_back(b.fmul(rescale, rescale));
    state.maximum[half] = top;
    for (Values &tile : scores)
      for (int64_t i : {2 * half, 2 * half + 1}) {
        Value share = b.fmul(tile[i], inverse);
        tile[i] = b.fmul(share, share);
      }
  }
  return factors;
}

void GPUStreamKernel::accumulate(const SmallVectorImpl<Values> &weights,
                                 Value stage, State &state) {
  Value stageRow = b.mul(stage, keyTile);
  int64_t elements = sharedValues.chunkElements;
  auto pair = [&](Value first, Value second) -> Value {
    Value both = vector::FromElementsOp::create(
        b, VectorType::get({2}, b.getF32Type()), ValueRange{first, second});
    return arith::TruncFOp::create(b, VectorType::get({2}, type), both);
  };
  for (int64_t key = 0; key < keyTile; key += 16) {
    // Sums of two tiles are, in this order, the first operand of a product.
    Values left;
    for (const Values &tile : {weights[key / 8], weights[key / 8 + 1]})
      for (int64_t half : {0, 1})
        left.push_back(pair(tile[2 * half], tile[2 * half + 1]));
    Value row = b.add(stageRow, b.add(lane16, key));
    for (size_t column = 0; column < state.output.size(); column += 2) {
      Value chunk = b.bitXor(valueSwizzle, column);
      Values right = b.loadMatrices(sharedValues, row, b.mul(chunk, elements),
                                    /*transpose=*/true);
      for (int64_t i : {0, 1}) {
        GPUKernelBuilder::Sum sum = {state.output[column + i], {}};
        b.multiply(type, math, left, ValueRange(right).slice(2 * i, 2), sum);
        state.output[column + i] = sum.high;
      }
    }
  }
}

void GPUStreamKernel::accumulateF32(const SmallVectorImpl<Values> &weights,
                                    Value stage, State &state) {
  // There is no transposing load of 32-bit elements. Depth may be counted in
  // any order: with keys 2 t and 2 t + 1 in the place of t and t + 4, sums are
  // the first operand as they are, and the elements of values that a warp loads
  // lie in different banks.
  Value stageRow = b.mul(stage, keyTile);
  int64_t elements = sharedValues.chunkElements;
  for (size_t column = 0; column < state.output.size(); ++column) {
    // Sums of a tile start from zero: many short sums lose less than a long
    // one.
    GPUKernelBuilder::Sum sum = b.makeSum();
    Value chunk = b.add(b.div(group, elements), int64_t(2 * column));
    for (int64_t key = 0; key < keyTile; key += 8) {
      const Values &tile = weights[key / 8];
      Values right;
      for (int64_t i : {0, 1}) {
        Value tileRow = b.add(pairColumn, i);
        Value moved = b.bitXor(chunk, b.swizzle(sharedValues, tileRow));
        Value at[] = {b.add(stageRow, b.add(tileRow, key)),
                      b.add(b.mul(moved, elements), b.rem(group, elements))};
        right.push_back(
            memref::LoadOp::create(b, sharedValues.memref, b.toIndices(at)));
      }
      b.multiply(type, math, {tile[0], tile[2], tile[1], tile[3]}, right, sum);
    }
    Values total = b.getTotal(sum);
    for (auto [i, value] : llvm::enumerate(state.output[column]))
      value = b.fadd(value, total[i]);
  }
}

/// Stores what `change` makes of the thread's sums of one row to the columns
/// from `firstColumn` on of `rows[leading]`.
void GPUStreamKernel::storeColumns(const State &state, int64_t half,
                                   Value firstColumn, Value rows,
                                   ValueRange leading,
                                   function_ref<Value(Value)> change) {
  auto type = cast<FloatType>(getMemRefType(rows).getElementType());
  int64_t elementBytes = type.getWidth() / 8;
  // Both columns of a thread are stored at once where they are aligned.
  bool storesPairs = getCopyBytes(rows, elementBytes) >= 2 * elementBytes;
  bool cutsColumns = valueWidth % (state.output.size() * 8) != 0;
  auto exists = [&](Value at) { return b.less(at, b.i32(valueWidth)); };
  auto locate = [&](Value column) {
    Values at(leading);
    at.push_back(column);
    return b.toIndices(at);
  };
  for (auto [number, tile] : llvm::enumerate(state.output)) {
    Value column = b.add(firstColumn, b.add(pairColumn, int64_t(number * 8)));
    Values changed = {change(tile[2 * half]), change(tile[2 * half + 1])};
    if (storesPairs) {
      auto storePair = [&] {
        Value pair = vector::FromElementsOp::create(
            b, VectorType::get({2}, b.getF32Type()), changed);
        if (!type.isF32())
          pair = arith::TruncFOp::create(b, VectorType::get({2}, type), pair);
        auto store = vector::StoreOp::create(b, pair, rows, locate(column));
        store.setAlignment(2 * elementBytes);
      };
      if (cutsColumns)
        b.ifThen(exists(column), storePair);
      else
        storePair();
      continue;
    }
    for (int64_t i : {0, 1}) {
      Value at = b.add(column, i);
      b.ifThen(exists(at),
               [&] { b.storeScalar(changed[i], rows, locate(at)); });
    }
  }
}

/// What sums of values are multiplied by in the end: zero for empty rows.
Value GPUStreamKernel::getFinalFactor(Value maximum, Value sum) {
  return isSoftmax ? softmax::inverseSum(b, maximum, sum)
                   : b.fmul(maximum, maximum);
}

/// A sum that some value made infinite becomes NaN; an empty row is zero
/// whatever the values that it did not read.
Value GPUStreamKernel::getMean(Value total, Value factor) {
  Value zero = b.scalar(0.0);
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor, zero);
  Value mean = b.fma(total, zero, b.fmul(total, factor));
  return b.select(isEmpty, zero, mean);
}

void GPUStreamKernel::finish(const State &state, Value firstColumn) {
  if (parts.count)
    return storePart(state, firstColumn);
  for (int64_t half : {0, 1}) {
    Value sum = sumOfRow(state, half), maximum = state.maximum[half];
    Value row = getOwnRow(half);
    b.ifThen(b.less(row, blockQueries), [&] {
      Values target = locateRow(row);
      Value factor = getFinalFactor(maximum, sum);
      storeColumns(state, half, firstColumn, outputView, target,
                   [&](Value total) { return getMean(total, factor); });
      storeLse(maximum, sum, target, firstColumn);
    });
  }
}

void GPUStreamKernel::storeLse(Value maximum, Value sum, ValueRange row,
                               Value firstColumn) {
  if (!lseView)
    return;
  b.ifThen(isRowWriter(firstColumn), [&] {
    b.storeScalar(softmax::logSumExp(b, maximum, sum), lseView,
                  b.toIndices(row));
  });
}

/// The sum of the weights of one of the thread's rows, which four threads have.
Value GPUStreamKernel::sumOfRow(const State &state, int64_t half) {
  Value sum = state.sum[half];
  sum = b.fadd(sum, b.shuffleXor(sum, 1));
  return b.fadd(sum, b.shuffleXor(sum, 2));
}

/// Whether the thread stores what there is once for each of its rows.
Value GPUStreamKernel::isRowWriter(Value firstColumn) {
  return b.both(b.equal(pairColumn, b.i32(0)), b.equal(firstColumn, b.i32(0)));
}
