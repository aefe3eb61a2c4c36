//===- GPUConvGradient.cpp - Gradients of convolutions on a GPU -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With P[i, j] = 2^(score[i - j] - top[i]) factor[i], where rows that are not
// listed have the head's greatest score as their own, and g = d_output:
//
//   value sums     P^T g for every query head, one product of matrices; heads
//                  that share values are added up
//   lag sums       a block of threads for each distance of a tile of queries
//                  and one of keys: g value^T by products of tiles, times P,
//                  and a thread for each diagonal of the tile, by segment
//   bases          basis r is in the profiles of all segments from r on
//
// All rows take the product, whatever the algorithm of attn.conv_apply.
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Queries, and keys, of a tile, and threads, of which each has a diagonal:
/// entry (i, j) is on number `i - j + kTile - 1`.
static constexpr int64_t kTile = SquareTile::kSize,
                         kDiagonals = SquareTile::kNumThreads;

namespace {
class ConvGradientLoops : public ConvLoops {
public:
  ConvGradientLoops(OpBuilder &builder, ConvApplyBackwardOp op, F32Math math)
      : ConvLoops(builder, op.getLoc(),
                  {op.getBasis(), op.getSizes(), op.getValue()}, math),
        op(op) {}

private:
  void emitRows() override;
  void findFactors();
  /// The weight of an entry.
  Value weightOf(KernelBuilder &k, ValueRange head, Value row, Value key);
  Value loadGradient(KernelBuilder &k, ValueRange head, Value row,
                     Value column);
  void emitValues();
  void emitDistances();
  void keepGradients(GPUKernelBuilder &k, SquareTile &tile, ValueRange at,
                     Value keyBlock);
  void addDiagonal(GPUKernelBuilder &k, SquareTile &tile, ValueRange at,
                   Value keyBlock);
  void storeBases();

  ConvApplyBackwardOp op;
  /// What is taken off the scores of a row, what its weights are multiplied by,
  /// and d_output . output [B, H, N].
  Value tops, factors, deltas;
  /// Sums of diagonals [B, H, R, distances, kDiagonals].
  Value numBlocks, lagSums;
};
} // namespace

/// Listed rows have a maximum and a normaliser of their own.
void ConvGradientLoops::findFactors() {
  Type type = b.getF32Type();
  tops = allocate({batches, heads, numTokens}, type);
  factors = allocate({batches, heads, numTokens}, type);
  deltas = allocate({batches, heads, numTokens}, type);
  emitRowDots(b, op.getDOutput(), op.getOutput(), /*factor=*/1.0, deltas);
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    b.storeScalar(b.scalar(0.0), tops, at);
    b.storeScalar(b.loadScalar(reciprocals, at), factors, at);
  });
  forListedRows([&](GPUKernelBuilder &k, ValueRange at, Value row, Value top) {
    auto add = [&](Value score, Value total) {
      return k.fadd(total, weigh(k, score, top));
    };
    Value total = sumOverKeys(k, at, row, add, 0.0);
    for (int64_t mask = 1; mask < kWarpSize; mask *= 2)
      total = k.fadd(k.shuffleXor(total, mask), total);
    Value isZero = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, total,
                                         k.scalar(0.0));
    Value factor = arith::DivFOp::create(k, k.scalar(1.0), total);
    factor = k.select(isZero, k.scalar(0.0), factor);
    k.ifThen(k.equal(k.lane(), k.i32(0)), [&] {
      Value place[] = {at[0], at[1], row};
      k.storeScalar(top, tops, place);
      k.storeScalar(factor, factors, place);
    });
  });
}

Value ConvGradientLoops::weightOf(KernelBuilder &k, ValueRange head, Value row,
                                  Value key) {
  return weighEntry(k, head, row, key, [&](ValueRange from) {
    Value at[] = {head[0], head[1], row};
    return weigh(k, k.loadScalar(scores, from), k.loadScalar(tops, at),
                 k.loadScalar(factors, at));
  });
}

/// Rows without an entry count as zeros, whatever they hold.
Value ConvGradientLoops::loadGradient(KernelBuilder &k, ValueRange head,
                                      Value row, Value column) {
  Value at[] = {head[0], head[1], row, column};
  Value factor = k.loadScalar(factors, ValueRange(at).drop_back());
  Value isNone = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, factor,
                                       k.scalar(0.0));
  return k.select(isNone, k.scalar(0.0), k.loadScalar(op.getDOutput(), at));
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

void ConvGradientLoops::emitValues() {
  Value sums =
      allocate({batches, heads, numTokens, b.index(width)}, b.getF32Type());
  auto depth = [&](KernelBuilder &k, ValueRange, Value key, Value) {
    return std::pair(key, numTokens);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value key, Value row) {
    return weightOf(k, at, row, key);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value row, Value column) {
    return loadGradient(k, at, row, column);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value key, Value column,
                   Value sum) {
    k.storeScalar(sum, sums, {at[0], at[1], key, column});
  };
  TileProduct product = {
      {batches, heads}, numTokens, width, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value key, Value row) {
    return k.either(k.less(key, firstKey(k, at, k.index(0))),
                    mayHide(k, at, row, k.add(key, kTileRows - 1)));
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
  Value groups = b.extent(op.getDValue(), 1);
  Value shared = b.div(heads, b.max(groups, 1));
  parallelLoop(
      b, {batches, groups, numTokens, b.index(width)}, [&](ValueRange at) {
        Value first = b.mul(at[1], shared);
        Value total =
            b.loop(b.index(0), shared, 1, {b.scalar(0.0)},
                   [&](Value member, ValueRange total) -> Values {
                     Value from[] = {at[0], b.add(first, member), at[2], at[3]};
                     return {b.fadd(total[0], b.loadScalar(sums, from))};
                   })[0];
        b.storeScalar(total, op.getDValue(), at);
      });
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

/// A block of threads goes through the tiles at one distance.
void ConvGradientLoops::emitDistances() {
  numBlocks = b.ceilDiv(numTokens, kTile);
  lagSums = allocate({batches, heads, numBases, numBlocks, b.index(kDiagonals)},
                     b.getF32Type());
  OpBuilder::InsertionGuard guard(b);
  GPUKernelBuilder k(b.getLoc(), b, SquareTile::kNumThreads);
  Values at =
      beginBlocks(k, {batches, heads, numBlocks}, SquareTile::getSharedBytes());
  SquareTile tile(k, math);
  k.loop(k.index(0), numBases, 1, [&](Value segment) {
    k.storeScalar(k.scalar(0.0), lagSums,
                  {at[0], at[1], segment, at[2], k.toIndex(k.thread())});
  });
  Value begin = k.div(firstKey(k, at, k.index(0)), kTile);
  k.loop(begin, k.sub(numBlocks, at[2]), 1, [&](Value keyBlock) {
    keepGradients(k, tile, at, keyBlock);
    addDiagonal(k, tile, at, keyBlock);
  });
}

/// The gradients of the scores of a tile.
void ConvGradientLoops::keepGradients(GPUKernelBuilder &k, SquareTile &tile,
                                      ValueRange at, Value keyBlock) {
  Value firstKey = k.mul(keyBlock, kTile);
  Value firstRow = k.add(firstKey, k.mul(at[2], kTile));
  auto elementOr0 = [&](Value number, function_ref<Value()> load) {
    return k.select(k.less(number, numTokens), k.getF32Type(), load,
                    [&] { return k.scalar(0.0); });
  };
  auto left = [&](Value number, Value column) {
    Value row = k.add(firstRow, number);
    return elementOr0(row, [&] { return loadGradient(k, at, row, column); });
  };
  auto right = [&](Value number, Value column) {
    Value key = k.add(firstKey, number);
    return elementOr0(key, [&] {
      return k.loadScalar(op.getValue(),
                          {at[0], keyHead(k, at[1]), key, column});
    });
  };
  Values gradients;
  auto addGradient = [&](Value ofRow, Value ofColumn, Value product) {
    Value row = k.add(firstRow, ofRow), key = k.add(firstKey, ofColumn);
    Value exists = k.both(k.less(row, numTokens), k.less(key, numTokens));
    gradients.push_back(k.select(
        exists, k.getF32Type(),
        [&]() -> Value {
          Value weight = weightOf(k, at, row, key);
          Value delta = k.loadScalar(deltas, {at[0], at[1], row});
          return k.select(softmax::isHidden(k, weight), k.scalar(0.0),
                          k.fmul(weight, k.fsub(product, delta)));
        },
        [&] { return k.scalar(0.0); }));
  };
  tile.forEach(tile.multiply(width, left, right), addGradient);
  tile.keep(gradients, 1.0);
}

/// Adds up the thread's diagonal; keys of a segment are neighbours.
void ConvGradientLoops::addDiagonal(GPUKernelBuilder &k, SquareTile &tile,
                                    ValueRange at, Value keyBlock) {
  Value diagonal = k.toIndex(k.thread()), firstKey = k.mul(keyBlock, kTile);
  Value shift = k.sub(diagonal, k.index(kTile - 1));
  Value begin = k.max(k.sub(k.index(0), shift), 0);
  Value end = k.min(k.sub(k.index(kTile), shift), kTile);
  end = k.min(end, k.sub(numTokens, firstKey));
  auto flush = [&](Value segment, Value sum) {
    k.ifThen(k.less(k.index(-1), segment), [&] {
      Value place[] = {at[0], at[1], segment, at[2], diagonal};
      k.storeScalar(k.fadd(k.loadScalar(lagSums, place), sum), lagSums, place);
    });
  };
  Values last = k.loop(
      begin, end, 1, {k.index(-1), k.scalar(0.0)},
      [&](Value column, ValueRange carried) -> Values {
        Value segment = segmentOf(k, at, k.add(firstKey, column));
        Value isSame = k.equal(segment, carried[0]);
        k.ifThenElse(isSame, [] {}, [&] { flush(carried[0], carried[1]); });
        Value sum = k.select(isSame, carried[1], k.scalar(0.0));
        Value number = tile.loadKept(k.add(column, shift), column);
        return {segment, k.fadd(sum, number)};
      });
  flush(last[0], last[1]);
}

void ConvGradientLoops::storeBases() {
  parallelLoop(b, {batches, heads, numTokens}, [&](ValueRange at) {
    Value lag = at[2], zero = b.scalar(0.0);
    Value distance = b.div(lag, kTile), place = b.rem(lag, kTile);
    Value next = b.add(distance, 1);
    Value hasNext = b.both(b.less(next, numBlocks), b.less(b.index(0), place));
    b.loop(
        b.index(0), numBases, 1, {zero},
        [&](Value step, ValueRange sums) -> Values {
          Value r = b.sub(b.sub(numBases, b.index(1)), step);
          auto load = [&](Value distance, Value diagonal) {
            return b.loadScalar(lagSums, {at[0], at[1], r, distance, diagonal});
          };
          Value sum = b.fadd(sums[0], load(distance, b.add(place, kTile - 1)));
          sum = b.select(
              hasNext, b.getF32Type(),
              [&] { return b.fadd(sum, load(next, b.sub(place, b.index(1)))); },
              [&] { return sum; });
          Value size = b.sub(numTokens, firstKey(b, at, r));
          b.storeScalar(b.select(b.less(lag, size), sum, zero), op.getDBasis(),
                        {at[0], at[1], r, lag});
          return {sum};
        });
  });
}

void ConvGradientLoops::emitRows() {
  findFactors();
  emitValues();
  emitDistances();
  storeBases();
}

void fovea::attn::emitConvGradientLoops(OpBuilder &builder,
                                        ConvApplyBackwardOp op, F32Math math) {
  ConvGradientLoops(builder, op, math).emit();
}
