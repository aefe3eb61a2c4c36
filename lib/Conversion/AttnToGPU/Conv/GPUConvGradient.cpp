//===- GPUConvGradient.cpp - Gradients of convolutions on a GPU -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All rows, or those that are listed, by products of tiles.
//
//===----------------------------------------------------------------------===//

#include "GPUConvGradient.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Queries, and keys, of a tile, and threads, of which each has a diagonal:
/// entry (i, j) is on number `i - j + kTile - 1`.
static constexpr int64_t kTile = SquareTile::kSize,
                         kDiagonals = SquareTile::kNumThreads;

namespace {
/// Sums of the gradients of scores by lag and segment.
class LagSums {
public:
  LagSums(GPUConvTables &tables, GPUConvRowGradients &rows);

  void storeBases(Value dBasis);

private:
  void emitDistances();
  void keepGradients(GPUKernelBuilder &k, SquareTile &tile, ValueRange at,
                     Value keyBlock);
  void addDiagonal(GPUKernelBuilder &k, SquareTile &tile, ValueRange at,
                   Value keyBlock);

  GPUConvTables &t;
  GPUConvBuilder &b;
  GPUConvRowGradients &rows;
  /// Sums of diagonals [B, H, R, distances, kDiagonals].
  Value numBlocks, lagSums;
};
} // namespace

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

GPUConvRowGradients::GPUConvRowGradients(GPUConvTables &tables,
                                         GPUConvRows &listed,
                                         GPUConvCorrelations *others,
                                         Value dOutput, Value deltas)
    : others(others), t(tables), b(t.b), listed(listed), dOutput(dOutput),
      deltas(deltas), tops(b.allocate(b.rows(), b.getF32Type())),
      factors(b.allocate(b.rows(), b.getF32Type())) {
  findFactors();
}

/// Listed rows have a maximum and a normaliser of their own.
void GPUConvRowGradients::findFactors() {
  parallelLoop(b, b.rows(), [&](ValueRange at) {
    Value zero = b.scalar(0.0);
    b.storeScalar(zero, tops, at);
    b.storeScalar(others ? zero : b.loadScalar(listed.reciprocals, at), factors,
                  at);
  });
  listed.forEach([&](WarpTeamBuilder &k, ValueRange at, Value row, Value top) {
    auto weigh = [&](KernelBuilder &k, Value key) {
      return t.profiles.weigh(k, t.profiles.loadScore(k, at, row, key), top);
    };
    Value normaliser =
        k.sumColumns(t.segments.first(k, at), k.add(row, 1), weigh);
    k.single([&] {
      Value place[] = {at[0], at[1], row};
      k.storeScalar(top, tops, place);
      k.storeScalar(conv::getFactor(k, normaliser), factors, place);
    });
  });
}

static Value isZero(KernelBuilder &k, Value factor) {
  return arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, factor,
                               k.scalar(0.0));
}

Value GPUConvRowGradients::weightOf(KernelBuilder &k, ValueRange head,
                                    Value row, Value key) {
  return t.profiles.weighEntry(k, head, row, key, [&](ValueRange from) {
    Value at[] = {head[0], head[1], row};
    Value factor = k.loadScalar(factors, at);
    Value weight = t.profiles.weigh(k, k.loadScalar(t.profiles.scores, from),
                                    k.loadScalar(tops, at), factor);
    return others ? softmax::hide(k, isZero(k, factor), weight) : weight;
  });
}

/// Rows without an entry, and those that are hidden, count as zeros, whatever
/// they hold.
Value GPUConvRowGradients::loadGradient(KernelBuilder &k, ValueRange head,
                                        Value row, Value column) {
  Value at[] = {head[0], head[1], row, column};
  Value factor = k.loadScalar(factors, ValueRange(at).drop_back());
  return k.select(isZero(k, factor), k.scalar(0.0), k.loadScalar(dOutput, at));
}

std::pair<Value, Value>
GPUConvRowGradients::numbersFor(KernelBuilder &k, ValueRange head, Value key) {
  if (others)
    return {k.index(0), listed.count(k, head)};
  return {key, b.numTokens};
}

Value GPUConvRowGradients::rowOf(KernelBuilder &k, ValueRange head,
                                 Value number) {
  return others ? listed.load(k, {head[0], head[1], number}) : number;
}

void GPUConvRowGradients::forEachTile(KernelBuilder &k, ValueRange head,
                                      Value distance, Value begin,
                                      function_ref<void(Value)> body) {
  if (!others) {
    Value numTiles = k.ceilDiv(b.numTokens, kTile);
    k.loop(begin, k.sub(numTiles, distance), 1, body);
    return;
  }
  // Rows of a tile are neighbours in the list.
  k.loop(k.index(0), listed.count(k, head), 1, {k.index(-1)},
         [&](Value number, ValueRange last) -> Values {
           Value tile = k.div(rowOf(k, head, number), kTile);
           Value keyTile = k.sub(tile, distance);
           Value isNext = k.both(k.less(last[0], tile),
                                 k.less(k.sub(begin, k.index(1)), keyTile));
           k.ifThen(isNext, [&] { body(keyTile); });
           return {tile};
         });
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

static void emitValues(GPUConvTables &t, GPUConvRowGradients &rows,
                       Value dValue) {
  GPUConvBuilder &b = t.b;
  Value width = b.index(b.width);
  Value sums =
      b.allocate({b.batches, b.heads, b.numTokens, width}, b.getF32Type());
  auto depth = [&](KernelBuilder &k, ValueRange at, Value key, Value) {
    return rows.numbersFor(k, at, key);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value key, Value number) {
    return rows.weightOf(k, at, rows.rowOf(k, at, number), key);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value number,
                   Value column) {
    return rows.loadGradient(k, at, rows.rowOf(k, at, number), column);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value key, Value column,
                   Value sum) {
    k.storeScalar(sum, sums, {at[0], at[1], key, column});
  };
  TileProduct product = {
      {b.batches, b.heads}, b.numTokens, b.width, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value key, Value number) {
    Value row = rows.rowOf(k, at, number);
    return k.either(k.less(key, t.segments.first(k, at)),
                    t.profiles.mayHide(k, at, row, k.add(key, kTileRows - 1)));
  };
  product.hides = hides;
  emitTileProduct(b, b.math, product);
  Value groups = b.extent(dValue, 1);
  Value shared = b.div(b.heads, b.max(groups, 1));
  parallelLoop(b, {b.batches, groups, b.numTokens, width}, [&](ValueRange at) {
    Value first = b.mul(at[1], shared);
    Value total =
        b.loop(b.index(0), shared, 1, {b.scalar(0.0)},
               [&](Value member, ValueRange total) -> Values {
                 Value from[] = {at[0], b.add(first, member), at[2], at[3]};
                 Value sum = b.loadScalar(sums, from);
                 if (rows.others)
                   sum =
                       b.fadd(sum, rows.others->loadValue(from, at[2], at[3]));
                 return {b.fadd(total[0], sum)};
               })[0];
    b.storeScalar(total, dValue, at);
  });
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

LagSums::LagSums(GPUConvTables &tables, GPUConvRowGradients &rows)
    : t(tables), b(t.b), rows(rows), numBlocks(b.ceilDiv(b.numTokens, kTile)) {
  lagSums = b.allocate(
      {b.batches, b.heads, b.numBases, numBlocks, b.index(kDiagonals)},
      b.getF32Type());
  emitDistances();
}

/// A block of threads goes through the tiles at one distance.
void LagSums::emitDistances() {
  OpBuilder::InsertionGuard guard(b);
  GPUKernelBuilder k(b.getLoc(), b, SquareTile::kNumThreads);
  Values at = beginBlocks(k, {b.batches, b.heads, numBlocks},
                          SquareTile::getSharedBytes(/*numKept=*/1));
  SquareTile tile(k, b.math, /*numKept=*/1);
  k.loop(k.index(0), b.numBases, 1, [&](Value segment) {
    k.storeScalar(k.scalar(0.0), lagSums,
                  {at[0], at[1], segment, at[2], k.toIndex(k.thread())});
  });
  Value begin = k.div(t.segments.first(k, at), kTile);
  rows.forEachTile(k, at, at[2], begin, [&](Value keyBlock) {
    keepGradients(k, tile, at, keyBlock);
    addDiagonal(k, tile, at, keyBlock);
  });
}

/// The gradients of the scores of a tile.
void LagSums::keepGradients(GPUKernelBuilder &k, SquareTile &tile,
                            ValueRange at, Value keyBlock) {
  Value firstKey = k.mul(keyBlock, kTile);
  Value firstRow = k.add(firstKey, k.mul(at[2], kTile));
  auto elementOr0 = [&](Value number, function_ref<Value()> load) {
    return k.select(k.less(number, b.numTokens), k.getF32Type(), load,
                    [&] { return k.scalar(0.0); });
  };
  auto left = [&](Value number, Value column) {
    Value row = k.add(firstRow, number);
    return elementOr0(row,
                      [&] { return rows.loadGradient(k, at, row, column); });
  };
  auto right = [&](Value number, Value column) {
    Value key = k.add(firstKey, number);
    return elementOr0(key, [&] { return b.loadValue(k, at, key, column); });
  };
  Values gradients;
  auto addGradient = [&](Value ofRow, Value ofColumn, Value product) {
    Value row = k.add(firstRow, ofRow), key = k.add(firstKey, ofColumn);
    Value exists = k.both(k.less(row, b.numTokens), k.less(key, b.numTokens));
    gradients.push_back(k.select(
        exists, k.getF32Type(),
        [&]() -> Value {
          Value weight = rows.weightOf(k, at, row, key);
          Value delta = rows.loadDelta(k, at, row);
          return k.select(softmax::isHidden(k, weight), k.scalar(0.0),
                          k.fmul(weight, k.fsub(product, delta)));
        },
        [&] { return k.scalar(0.0); }));
  };
  tile.forEach(tile.multiply(b.width, left, right), addGradient);
  tile.keep(SquareTile::Kept::Gradients, gradients);
}

/// Adds up the thread's diagonal; keys of a segment are neighbours.
void LagSums::addDiagonal(GPUKernelBuilder &k, SquareTile &tile, ValueRange at,
                          Value keyBlock) {
  Value diagonal = k.toIndex(k.thread()), firstKey = k.mul(keyBlock, kTile);
  Value shift = k.sub(diagonal, k.index(kTile - 1));
  Value begin = k.max(k.sub(k.index(0), shift), 0);
  Value end = k.min(k.sub(k.index(kTile), shift), kTile);
  end = k.min(end, k.sub(b.numTokens, firstKey));
  auto flush = [&](Value segment, Value sum) {
    k.ifThen(k.less(k.index(-1), segment), [&] {
      Value place[] = {at[0], at[1], segment, at[2], diagonal};
      k.storeScalar(k.fadd(k.loadScalar(lagSums, place), sum), lagSums, place);
    });
  };
  Values last = k.loop(
      begin, end, 1, {k.index(-1), k.scalar(0.0)},
      [&](Value column, ValueRange carried) -> Values {
        Value segment = t.segments.of(k, at, k.add(firstKey, column));
        Value isSame = k.equal(segment, carried[0]);
        k.ifThenElse(isSame, [] {}, [&] { flush(carried[0], carried[1]); });
        Value sum = k.select(isSame, carried[1], k.scalar(0.0));
        Value number = tile.loadKept(SquareTile::Kept::Gradients,
                                     k.add(column, shift), column);
        return {segment, k.fadd(sum, number)};
      });
  flush(last[0], last[1]);
}

/// Basis r is in the profiles of all segments from r on.
void LagSums::storeBases(Value dBasis) {
  parallelLoop(b, b.rows(), [&](ValueRange at) {
    Value lag = at[2], zero = b.scalar(0.0);
    Value distance = b.div(lag, kTile), place = b.rem(lag, kTile);
    Value next = b.add(distance, 1);
    Value hasNext = b.both(b.less(next, numBlocks), b.less(b.index(0), place));
    b.loop(
        b.index(0), b.numBases, 1, {zero},
        [&](Value step, ValueRange sums) -> Values {
          Value r = b.sub(b.sub(b.numBases, b.index(1)), step);
          auto load = [&](Value distance, Value diagonal) {
            return b.loadScalar(lagSums, {at[0], at[1], r, distance, diagonal});
          };
          Value sum = b.fadd(sums[0], load(distance, b.add(place, kTile - 1)));
          sum = b.select(
              hasNext, b.getF32Type(),
              [&] { return b.fadd(sum, load(next, b.sub(place, b.index(1)))); },
              [&] { return sum; });
          if (rows.others)
            sum = b.fadd(sum, rows.others->loadProfile(at, r, lag));
          Value size = b.sub(b.numTokens, t.segments.first(b, at, r));
          b.storeScalar(b.select(b.less(lag, size), sum, zero), dBasis,
                        {at[0], at[1], r, lag});
          return {sum};
        });
  });
}

void fovea::attn::emitConvGradientOnGPU(OpBuilder &builder,
                                        ConvApplyBackwardOp op, F32Math math,
                                        std::optional<int64_t> block) {
  GPUConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(),
                   math);
  GPUConvTables tables(b);
  Value deltas = b.allocate(b.rows(), b.getF32Type());
  emitRowDots(b, op.getDOutput(), op.getOutput(), /*factor=*/1.0, deltas);
  std::optional<GPUConvCorrelations> others;
  if (block)
    others.emplace(tables, op, deltas, *block);
  GPUConvRows listed(tables, b.allocate({b.batches, b.heads}, b.getI32Type()),
                     [&](ValueRange row, Value normaliser) {
                       // Products are as exact as sums are.
                       return others ? others->isQuiet(row, normaliser)
                                     : Value();
                     });
  if (others)
    others->emit(listed.reciprocals);
  GPUConvRowGradients rows(tables, listed, others ? &*others : nullptr,
                           op.getDOutput(), deltas);
  emitValues(tables, rows, op.getDValue());
  LagSums(tables, rows).storeBases(op.getDBasis());
  b.freeBuffers();
}
