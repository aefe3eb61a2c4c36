//===- GPUConvLoops.cpp - Sums of convolutions on a GPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                        kMostNumber = std::numeric_limits<float>::max();
/// Threads of a head that look for its greatest score.
static constexpr int64_t kNumShares = 256;
/// Sums that are added up to one of the next level, and levels.
static constexpr int64_t kRadix = 16, kMaxLevels = 5;
/// Rows that a sequence has at most, for bounds of sums.
static constexpr int kLogMaxRows = 20;

ConvLoops::ConvLoops(OpBuilder &builder, Location loc,
                     const ConvOperands &operands, F32Math math)
    : operands(operands), b(loc, builder, builder.getF32Type(), /*lanes=*/0),
      math(math),
      width(cast<MemRefType>(operands.value.getType()).getDimSize(3)),
      batches(b.extent(operands.basis, 0)), heads(b.extent(operands.basis, 1)),
      // Without heads there are no key heads to divide by.
      headsOfKey(b.max(b.div(heads, b.max(b.extent(operands.value, 1), 1)), 1)),
      numBases(b.extent(operands.basis, 2)),
      numTokens(b.extent(operands.basis, 3)) {
  // Narrow values are tf32 numbers, and weights are rounded as they were.
  Type type = cast<MemRefType>(operands.value.getType()).getElementType();
  if (!type.isF32() && math == F32Math::TF32x3)
    this->math = F32Math::TF32;
}

void ConvLoops::emit() {
  Type number = b.getF32Type();
  segments = allocate({batches, heads, numTokens}, b.getI32Type());
  weights = allocate({batches, heads, numBases, numTokens}, number);
  scores = allocate({batches, heads, numBases, numTokens}, number);
  normalisers = allocate({batches, heads, numTokens}, b.getF64Type());
  reciprocals = allocate({batches, heads, numTokens}, number);
  masked = allocate({batches, heads}, b.getI32Type());
  marks = allocate({batches, heads, numTokens}, b.getI32Type());
  listed = allocate({batches, heads, numTokens}, b.getI32Type());
  if (!operands.recomputed)
    operands.recomputed = allocate({batches, heads}, b.getI32Type());
  findSegments();
  storeProfiles(findTops());
  sumWeights();
  findNormalisers();
  prepareProduct();
  judgeRows();
  emitRows();
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
}

Value ConvLoops::allocate(ArrayRef<Value> extents, Type type) {
  return buffers.emplace_back(b.allocate(extents, {}, type));
}

Value ConvLoops::wide(KernelBuilder &k, double number) {
  return arith::ConstantOp::create(k, k.getF64FloatAttr(number));
}

Value ConvLoops::isLess(Value x, Value y) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, y);
}

Value ConvLoops::loadWide(Value memref, ValueRange at) {
  KernelBuilder k(b.getLoc(), b, b.getF64Type(), /*lanes=*/0);
  return k.loadScalar(memref, at);
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

Value ConvLoops::firstKey(KernelBuilder &k, ValueRange head, Value segment) {
  return k.select(
      k.less(segment, numBases), k.getIndexType(),
      [&] {
        Value at[] = {head[0], head[1], segment};
        return k.sub(numTokens, k.loadIndex(operands.sizes, at));
      },
      [&] { return numTokens; });
}

Value ConvLoops::segmentOf(KernelBuilder &k, ValueRange head, Value key) {
  return k.loadIndex(segments, {head[0], head[1], key});
}

Value ConvLoops::weighEntry(KernelBuilder &k, ValueRange head, Value row,
                            Value key, function_ref<Value(ValueRange)> find) {
  Value lag = k.sub(row, key), segment = segmentOf(k, head, key);
  Value isNone = k.either(k.less(lag, k.index(0)), k.less(segment, k.index(0)));
  return k.select(
      isNone, k.getF32Type(), [&] { return getHiddenWeight(k); },
      [&] { return find({head[0], head[1], segment, lag}); });
}

Value ConvLoops::mayHide(KernelBuilder &k, ValueRange head, Value row,
                         Value key) {
  Value at[] = {head[0], head[1]};
  return k.either(k.less(row, key),
                  k.equal(k.loadIndex(masked, at), k.index(1)));
}

/// As many bases as begin up to a key, less one.
void ConvLoops::findSegments() {
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    Value count =
        b.loop(b.index(0), numBases, 1, {b.index(-1)},
               [&](Value r, ValueRange count) -> Values {
                 Value isAfter = b.less(at[2], firstKey(b, at, r));
                 return {b.select(isAfter, count[0], b.add(count[0], 1))};
               })[0];
    b.storeIndex(count, segments, at);
  });
}

/// Visits the score sums of one lag, in f64, segment by segment.
Values ConvLoops::visitLag(
    ValueRange head, Value lag, ValueRange inits,
    function_ref<Values(Value, Value, Value, ValueRange)> visit) {
  Values carried = {wide(b, 0.0)};
  carried.append(inits.begin(), inits.end());
  carried = b.loop(
      b.index(0), numBases, 1, carried,
      [&](Value segment, ValueRange carried) -> Values {
        Value size = b.loadIndex(operands.sizes, {head[0], head[1], segment});
        Value exists = b.less(lag, size);
        Value term = b.select(
            exists, b.getF64Type(),
            [&] {
              return loadWide(operands.basis, {head[0], head[1], segment, lag});
            },
            [&] { return wide(b, 0.0); });
        Values next = {b.fadd(carried[0], term)};
        next.append(visit(segment, next[0], exists, carried.drop_front()));
        return next;
      });
  return Values(llvm::drop_begin(carried));
}

/// The greatest score sum of every head, in f64; 0 when there is none. Neither
/// NaN nor plus infinity is great: taken off all scores, it would leave none to
/// the rows that do not read it.
Value ConvLoops::findTops() {
  Value highs = allocate({batches, heads, b.index(kNumShares)}, b.getF64Type());
  Value lows = allocate({batches, heads, b.index(kNumShares)}, b.getF64Type());
  Value tops = allocate({batches, heads}, b.getF64Type());
  Value most = wide(b, kInfinity), least = wide(b, -kInfinity);
  auto minimum = [&](Value x, Value y) { return b.select(isLess(x, y), x, y); };
  parallelLoop(b, {batches, heads, b.index(kNumShares)}, [&](ValueRange at) {
    Values range = b.loop(
        at[2], numTokens, kNumShares, {least, most},
        [&](Value lag, ValueRange carried) {
          return visitLag(
              at, lag, carried,
              [&](Value, Value sum, Value exists, ValueRange range) -> Values {
                // Where a segment has no such lag, the sum is another's.
                Value counts = b.both(exists, isLess(sum, most));
                return {b.fmax(b.select(counts, sum, least), range[0]),
                        minimum(sum, range[1])};
              });
        });
    memref::StoreOp::create(b, range[0], highs, at);
    memref::StoreOp::create(b, range[1], lows, at);
  });
  parallelLoop(b, {batches, heads}, [&](ValueRange at) {
    Values range = b.loop(
        b.index(0), b.index(kNumShares), 1, {least, most},
        [&](Value share, ValueRange range) -> Values {
          Value place[] = {at[0], at[1], share};
          return {b.fmax(memref::LoadOp::create(b, highs, place), range[0]),
                  minimum(memref::LoadOp::create(b, lows, place), range[1])};
        });
    Value isSome = isLess(least, range[0]), isWhole = isLess(least, range[1]);
    memref::StoreOp::create(b, b.select(isSome, range[0], wide(b, 0.0)), tops,
                            at);
    b.storeIndex(b.select(isWhole, b.index(0), b.index(1)), masked, at);
  });
  return tops;
}

Value ConvLoops::weigh(KernelBuilder &k, Value score, Value top, Value factor) {
  Value isNone = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, score,
                                       k.scalar(-kInfinity));
  if (top)
    score = k.fsub(score, top);
  // Minus infinity has no power; NaN stays.
  score = k.fmax(k.scalar(softmax::kMasked), score);
  Value weight = math::Exp2Op::create(k, score);
  return softmax::hide(k, isNone, factor ? k.fmul(weight, factor) : weight);
}

void ConvLoops::storeProfiles(Value tops) {
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    Value top = memref::LoadOp::create(b, tops, ValueRange{at[0], at[1]});
    visitLag(at, at[2], {},
             [&](Value segment, Value sum, Value exists, ValueRange) -> Values {
               Value place[] = {at[0], at[1], segment, at[2]};
               Value score = b.fmul(b.fsub(sum, top), wide(b, softmax::kLog2E));
               score = arith::TruncFOp::create(b, b.getF32Type(), score);
               // Only what is not read is minus infinity.
               score = b.fmax(b.scalar(-kMostNumber), score);
               Value isRead = arith::CmpFOp::create(
                   b, arith::CmpFPredicate::UNE, sum, wide(b, -kInfinity));
               score = b.select(b.both(exists, isRead), score,
                                b.scalar(-kInfinity));
               b.storeScalar(score, scores, place);
               b.storeScalar(weigh(b, score), weights, place);
               return {};
             });
  });
}

//===----------------------------------------------------------------------===//
// Normalisers
//===----------------------------------------------------------------------===//

/// Row i adds up, for every segment, the weights of the lags from i - (its last
/// key) to i - (its first key). Sums of 16, 256, .. weights make that few
/// additions, and nothing is ever subtracted.
void ConvLoops::sumWeights() {
  Value below = weights, count = numTokens;
  std::optional<int64_t> known = getConstantIntValue(numTokens);
  for (int64_t level = 1; level < kMaxLevels; ++level) {
    if (known && *known <= kRadix)
      break;
    if (known)
      known = llvm::divideCeil(*known, kRadix);
    Value numSums = b.ceilDiv(count, kRadix);
    Value sums = allocate({batches, heads, numBases, numSums}, b.getF64Type());
    parallelLoop(b, {batches, heads, numBases, numSums}, [&](ValueRange at) {
      Value first = b.mul(at[3], kRadix);
      Value end = b.min(b.add(first, kRadix), count);
      Value sum = b.loop(first, end, 1, {wide(b, 0.0)},
                         [&](Value i, ValueRange sum) -> Values {
                           Value place[] = {at[0], at[1], at[2], i};
                           return {b.fadd(sum[0], loadWide(below, place))};
                         })[0];
      memref::StoreOp::create(b, sum, sums, at);
    });
    pyramid.push_back(below = sums);
    count = numSums;
  }
}

/// The weights of lags `low .. high - 1`.
Value ConvLoops::sumWindow(ValueRange head, Value segment, Value low,
                           Value high) {
  Value sum = wide(b, 0.0), zero = b.index(0);
  auto addUp = [&](Value numbers, Value from, Value to) {
    sum = b.loop(from, to, 1, {sum}, [&](Value i, ValueRange sum) -> Values {
      Value at[] = {head[0], head[1], segment, i};
      return {b.fadd(sum[0], loadWide(numbers, at))};
    })[0];
  };
  Value numbers = weights;
  for (Value above : pyramid) {
    // What does not fill a sum of the level above, at both ends.
    Value nextLow = b.ceilDiv(low, kRadix), nextHigh = b.div(high, kRadix);
    Value isOpen = b.less(nextLow, nextHigh);
    addUp(numbers, low, b.select(isOpen, b.mul(nextLow, kRadix), high));
    addUp(numbers, b.select(isOpen, b.mul(nextHigh, kRadix), high), high);
    low = b.select(isOpen, nextLow, zero);
    high = b.select(isOpen, nextHigh, zero);
    numbers = above;
  }
  addUp(numbers, low, high);
  return sum;
}

void ConvLoops::findNormalisers() {
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    Value row = at[2], end = b.add(segmentOf(b, at, row), 1);
    Value total =
        b.loop(b.index(0), end, 1, {wide(b, 0.0)},
               [&](Value segment, ValueRange total) -> Values {
                 Value next = b.add(row, 1);
                 Value low =
                     b.max(b.sub(next, firstKey(b, at, b.add(segment, 1))), 0);
                 Value high = b.sub(next, firstKey(b, at, segment));
                 return {b.fadd(total[0], sumWindow(at, segment, low, high))};
               })[0];
    memref::StoreOp::create(b, total, normalisers, at);
  });
}

/// Finds rows whose weights are next to nothing, or whose numerator may be
/// mostly noise, and the factor that each of the others is multiplied by.
void ConvLoops::judgeRows() {
  // What weights that underflow might have added is less than the rounding
  // error of a normaliser as large as this.
  double least = std::ldexp(1.0, -126 + 25 + kLogMaxRows);
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    Value normaliser = memref::LoadOp::create(b, normalisers, at);
    Value isGood = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE,
                                         normaliser, wide(b, least));
    isGood = b.both(isGood, isLess(normaliser, wide(b, kInfinity)));
    if (Value isQuiet = this->isQuiet(at, normaliser))
      isGood = b.both(isGood, isQuiet);
    Value reciprocal = arith::DivFOp::create(b, wide(b, 1.0), normaliser);
    reciprocal = b.select(isGood, reciprocal, wide(b, 0.0));
    b.storeScalar(arith::TruncFOp::create(b, b.getF32Type(), reciprocal),
                  reciprocals, at);
    // Rows before the first segment are zero.
    Value isEmpty = b.less(at[2], firstKey(b, at, b.index(0)));
    Value mark = b.select(b.either(isGood, isEmpty), b.index(0), b.index(1));
    b.storeIndex(mark, marks, at);
  });
  listNumbers(
      b, {batches, heads}, numTokens,
      [&](GPUKernelBuilder &k, ValueRange at, Value row) {
        Value mark = k.loadIndex(marks, {at[0], at[1], row});
        return k.equal(mark, k.index(1));
      },
      listed, operands.recomputed);
}

//===----------------------------------------------------------------------===//
// Listed rows
//===----------------------------------------------------------------------===//

Value ConvLoops::sumOverKeys(GPUKernelBuilder &k, ValueRange head, Value row,
                             function_ref<Value(Value, Value)> add,
                             double start) {
  Value lane = k.toIndex(k.lane());
  Value first = k.add(firstKey(k, head, k.index(0)), lane);
  return k.loop(first, k.add(row, 1), kWarpSize, {k.scalar(start)},
                [&](Value key, ValueRange running) -> Values {
                  Value place[] = {head[0], head[1], segmentOf(k, head, key),
                                   k.sub(row, key)};
                  return {add(k.loadScalar(scores, place), running[0])};
                })[0];
}

void ConvLoops::forListedRows(
    function_ref<void(GPUKernelBuilder &, ValueRange, Value, Value)> body) {
  OpBuilder::InsertionGuard guard(b);
  GPUKernelBuilder k(b.getLoc(), b, kWarpSize);
  Values at = beginBlocks(k, {batches, heads, numTokens});
  k.ifThen(isListed(k, at, at[2]), [&] {
    Value row = k.loadIndex(listed, at);
    auto greater = [&](Value score, Value top) { return k.fmax(score, top); };
    Value top = sumOverKeys(k, at, row, greater, -kInfinity);
    for (int64_t mask = 1; mask < kWarpSize; mask *= 2)
      top = k.fmax(k.shuffleXor(top, mask), top);
    // Without an entry all weights are zero, whatever is taken off.
    Value isEmpty = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, top,
                                          k.scalar(-kInfinity));
    body(k, at, row, k.select(isEmpty, k.scalar(0.0), top));
  });
}

//===----------------------------------------------------------------------===//
// attn.conv_apply
//===----------------------------------------------------------------------===//

ConvApplyLoops::ConvApplyLoops(OpBuilder &builder, ConvApplyOp op, F32Math math)
    : ConvLoops(
          builder, op.getLoc(),
          {op.getBasis(), op.getSizes(), op.getValue(), op.getRecomputed()},
          math),
      op(op) {}

void ConvApplyLoops::emitRows() {
  emitProduct();
  emitExactRows();
}

/// The greatest score of every listed row.
Value ConvApplyLoops::findRowTops() {
  Value tops = allocate({batches, heads, numTokens}, b.getF32Type());
  forListedRows([&](GPUKernelBuilder &k, ValueRange at, Value, Value top) {
    k.ifThen(k.equal(k.lane(), k.i32(0)),
             [&] { k.storeScalar(top, tops, at); });
  });
  return tops;
}

/// Listed rows from their scores, with the row's own maximum taken off: a
/// soft-max that nothing else can spoil.
void ConvApplyLoops::emitExactRows() {
  Value tops = findRowTops();
  Value sums =
      allocate({batches, heads, numTokens, b.index(width + 1)}, b.getF32Type());
  auto countOf = [&](KernelBuilder &k, ValueRange at) {
    return k.loadIndex(op.getRecomputed(), {at[0], at[1]});
  };
  auto depth = [&](KernelBuilder &k, ValueRange at, Value number, Value) {
    Value count = countOf(k, at), zero = k.index(0);
    Value end = k.select(
        k.less(number, count), k.getIndexType(),
        [&] {
          Value last = k.min(k.add(number, kTileRows), count);
          Value place[] = {at[0], at[1], k.sub(last, k.index(1))};
          return k.add(k.loadIndex(listed, place), 1);
        },
        [&] { return zero; });
    return std::pair(k.min(firstKey(k, at, zero), end), end);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value number, Value key) {
    auto find = [&] {
      Value place[] = {at[0], at[1], number};
      return weighEntry(k, at, k.loadIndex(listed, place), key,
                        [&](ValueRange from) {
                          return weigh(k, k.loadScalar(scores, from),
                                       k.loadScalar(tops, place));
                        });
    };
    return k.select(k.less(number, countOf(k, at)), k.getF32Type(), find,
                    [&] { return k.scalar(0.0); });
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value key, Value column) {
    return k.select(
        k.less(column, k.index(width)), k.getF32Type(),
        [&] {
          Value place[] = {at[0], keyHead(k, at[1]), key, column};
          return k.loadScalar(op.getValue(), place);
        },
        [&] { return k.scalar(1.0); });
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value number, Value column,
                   Value sum) {
    k.ifThen(k.less(number, countOf(k, at)),
             [&] { k.storeScalar(sum, sums, {at[0], at[1], number, column}); });
  };
  TileProduct product = {
      {batches, heads}, numTokens, width + 1, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value number, Value key) {
    Value row = k.loadIndex(listed, {at[0], at[1], number});
    return mayHide(k, at, row, k.add(key, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
  parallelLoop(
      b, {batches, heads, numTokens, b.index(width)}, [&](ValueRange at) {
        b.ifThen(b.less(at[2], countOf(b, at)), [&] {
          Value row = b.loadIndex(listed, at.take_front(3));
          Value total =
              b.loadScalar(sums, {at[0], at[1], at[2], b.index(width)});
          Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                               total, b.scalar(0.0));
          Value mean =
              arith::DivFOp::create(b, b.loadScalar(sums, at),
                                    b.select(isZero, b.scalar(1.0), total));
          b.storeScalar(mean, op.getOutput(), {at[0], at[1], row, at[3]});
        });
      });
}

//===----------------------------------------------------------------------===//
// The Toeplitz product
//===----------------------------------------------------------------------===//

namespace {
class ConvToeplitzLoops : public ConvApplyLoops {
public:
  using ConvApplyLoops::ConvApplyLoops;

private:
  void emitProduct() override;
};
} // namespace

/// A product of matrices, the left one of which is looked up in the profiles.
void ConvToeplitzLoops::emitProduct() {
  auto depth = [&](KernelBuilder &k, ValueRange at, Value row, Value) {
    return std::pair(firstKey(k, at, k.index(0)),
                     k.min(k.add(row, kTileRows), numTokens));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value row, Value key) {
    return weighEntry(k, at, row, key, [&](ValueRange from) {
      return k.loadScalar(weights, from);
    });
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value key, Value column) {
    Value place[] = {at[0], keyHead(k, at[1]), key, column};
    return k.loadScalar(op.getValue(), place);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value row, Value column,
                   Value sum) {
    Value factor = k.loadScalar(reciprocals, {at[0], at[1], row});
    k.storeScalar(k.fmul(sum, factor), op.getOutput(),
                  {at[0], at[1], row, column});
  };
  TileProduct product = {
      {batches, heads}, numTokens, width, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value row, Value key) {
    return mayHide(k, at, row, k.add(key, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
}

void fovea::attn::emitConvToeplitzLoops(OpBuilder &builder, ConvApplyOp op,
                                        F32Math math) {
  ConvToeplitzLoops(builder, op, math).emit();
}
