//===- GPUConvRecover.cpp - Finding convolutions on a GPU -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   search       columns where bases begin, a warp for each head: a lane has
//                every 32nd entry of a column, and of the profile
//   scores       of all queries with the keys of these columns, one product of
//                matrices, each stored where its basis has that lag
//   differences  of each basis and the sum of those before it
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class RecoverLoops {
public:
  RecoverLoops(OpBuilder &builder, ConvRecoverOp op, F32Math math)
      : op(op), math(math),
        width(cast<MemRefType>(op.getKey().getType()).getDimSize(3)),
        numBases(cast<MemRefType>(op.getBasis().getType()).getDimSize(2)),
        window(op.getWindow()),
        b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
        batches(b.extent(op.getQuery(), 0)), heads(b.extent(op.getQuery(), 1)),
        // Without heads there are no key heads to divide by.
        headsOfKey(b.max(b.div(heads, b.max(b.extent(op.getKey(), 1), 1)), 1)),
        numRows(b.extent(op.getQuery(), 2)) {}

  void emit() {
    profile = b.allocate({batches, heads}, {window}, b.getF32Type());
    GPUKernelBuilder k(op.getLoc(), b, kWarpSize);
    search(k, beginBlocks(k, {batches, heads}));
    emitScores();
    emitDifferences();
    memref::DeallocOp::create(b, profile);
  }

private:
  void search(GPUKernelBuilder &k, ValueRange at);
  Value searchColumn(GPUKernelBuilder &k, ValueRange at, Value low, Value last);
  Value isNew(GPUKernelBuilder &k, ValueRange at, Value column);
  void accept(GPUKernelBuilder &k, ValueRange at, Value basis, Value column);
  Value score(KernelBuilder &k, ValueRange at, Value row, Value key);
  void storeOnce(GPUKernelBuilder &k, Value number, Value memref,
                 ValueRange at) {
    k.ifThen(k.equal(k.lane(), k.i32(0)),
             [&] { k.storeIndex(number, memref, at); });
  }
  void emitScores();
  void emitDifferences();

  ConvRecoverOp op;
  F32Math math;
  int64_t width, numBases, window;
  RowBuilder b;
  Value batches, heads, headsOfKey, numRows;
  /// The first entries of the last basis [B, H, window].
  Value profile;
};
} // namespace

//===----------------------------------------------------------------------===//
// Search
//===----------------------------------------------------------------------===//

/// Finds where the bases of one head begin (algorithms 2 and 3).
void RecoverLoops::search(GPUKernelBuilder &k, ValueRange at) {
  Value zero = k.index(0), none = k.index(-1);
  k.loop(zero, k.index(numBases), 1, [&](Value basis) {
    storeOnce(k, zero, op.getSizes(), {at[0], at[1], basis});
  });
  storeOnce(k, zero, op.getFound(), at);
  Value exists = k.less(zero, numRows);
  k.ifThen(exists, [&] { accept(k, at, zero, zero); });
  Value last = k.sub(numRows, k.index(window));
  k.loop(k.index(1), k.index(numBases), 1, {zero, exists},
         [&](Value basis, ValueRange before) -> Values {
           Value low = k.add(before[0], 1);
           Value canSearch = k.both(before[1], k.less(before[0], last));
           Value column = k.select(
               canSearch, k.getIndexType(),
               [&] { return searchColumn(k, at, low, last); },
               [&] { return none; });
           Value isFound = k.less(none, column);
           k.ifThen(isFound, [&] { accept(k, at, basis, column); });
           return {k.select(isFound, column, before[0]), isFound};
         });
}

/// The first new one of columns `low .. last`, or -1.
Value RecoverLoops::searchColumn(GPUKernelBuilder &k, ValueRange at, Value low,
                                 Value last) {
  // Halves of at most 2^31 columns.
  constexpr int64_t kMaxSteps = 32;
  std::optional<int64_t> known = getConstantIntValue(numRows);
  int64_t steps =
      known ? llvm::Log2_64_Ceil(std::max<int64_t>(*known, 1)) + 1 : kMaxSteps;
  Values range = k.loop(k.index(0), k.index(steps), 1, {low, last},
                        [&](Value, ValueRange range) -> Values {
                          Value middle = k.div(k.add(range[0], range[1]), 2);
                          auto halve = [&] {
                            Value isHit = isNew(k, at, middle);
                            Value next =
                                k.select(isHit, range[0], k.add(middle, 1));
                            Value end = k.select(isHit, middle, range[1]);
                            scf::YieldOp::create(k, ValueRange{next, end});
                          };
                          auto open = scf::IfOp::create(
                              k, TypeRange(range), k.less(range[0], range[1]),
                              /*addThenBlock=*/true, /*addElseBlock=*/true);
                          OpBuilder::InsertionGuard guard(k);
                          k.setInsertionPointToStart(open.thenBlock());
                          halve();
                          k.setInsertionPointToStart(open.elseBlock());
                          scf::YieldOp::create(k, range);
                          return Values(open.getResults());
                        });
  return k.select(isNew(k, at, range[0]), range[0], k.index(-1));
}

Value RecoverLoops::score(KernelBuilder &k, ValueRange at, Value row,
                          Value key) {
  Value group = k.div(at[1], headsOfKey);
  Value product =
      k.loop(k.index(0), k.index(width), 1, {k.scalar(0.0)},
             [&](Value d, ValueRange sum) -> Values {
               Value x = k.loadScalar(op.getQuery(), {at[0], at[1], row, d});
               Value y = k.loadScalar(op.getKey(), {at[0], group, key, d});
               return {k.fma(x, y, sum[0])};
             })[0];
  return k.fmul(product, k.scalar(op.getScaleOrDefault()));
}

/// Whether the first entries of a column differ from the profile. All lanes
/// get the same sum.
Value RecoverLoops::isNew(GPUKernelBuilder &k, ValueRange at, Value column) {
  Value distance = k.loop(
      k.toIndex(k.lane()), k.index(window), kWarpSize, {k.scalar(0.0)},
      [&](Value t, ValueRange sum) -> Values {
        Value entry = score(k, at, k.add(column, t), column);
        Value known = k.loadScalar(profile, {at[0], at[1], t});
        return {k.fadd(sum[0], math::AbsFOp::create(k, k.fsub(entry, known)))};
      })[0];
  for (int64_t mask = 1; mask < kWarpSize; mask *= 2)
    distance = k.fadd(distance, k.shuffleXor(distance, mask));
  return arith::CmpFOp::create(k, arith::CmpFPredicate::OGE, distance,
                               k.scalar(op.getThreshold()));
}

/// Records that a basis begins at `column`, whose first entries become the
/// profile. Lanes read only what they have written.
void RecoverLoops::accept(GPUKernelBuilder &k, ValueRange at, Value basis,
                          Value column) {
  Value size = k.sub(numRows, column);
  storeOnce(k, size, op.getSizes(), {at[0], at[1], basis});
  storeOnce(k, k.add(basis, 1), op.getFound(), at);
  k.loop(k.toIndex(k.lane()), k.min(size, window), kWarpSize, [&](Value t) {
    k.storeScalar(score(k, at, k.add(column, t), column), profile,
                  {at[0], at[1], t});
  });
}

//===----------------------------------------------------------------------===//
// Bases
//===----------------------------------------------------------------------===//

void RecoverLoops::emitScores() {
  auto startOf = [&](KernelBuilder &k, ValueRange at, Value basis) {
    return k.sub(numRows, k.loadIndex(op.getSizes(), {at[0], at[1], basis}));
  };
  auto depth = [&](KernelBuilder &k, ValueRange, Value, Value) {
    return std::pair(k.index(0), k.index(width));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value row, Value d) {
    return k.loadScalar(op.getQuery(), {at[0], at[1], row, d});
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value d, Value basis) {
    // Bases that do not exist begin behind the last key.
    Value key = startOf(k, at, basis);
    return k.select(
        k.less(key, numRows), k.getF32Type(),
        [&] {
          Value group = k.div(at[1], headsOfKey);
          return k.loadScalar(op.getKey(), {at[0], group, key, d});
        },
        [&] { return k.scalar(0.0); });
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value row, Value basis,
                   Value sum) {
    Value lag = k.sub(row, startOf(k, at, basis));
    k.ifThen(k.less(k.index(-1), lag), [&] {
      k.storeScalar(k.fmul(sum, k.scalar(op.getScaleOrDefault())),
                    op.getBasis(), {at[0], at[1], basis, lag});
    });
  };
  TileProduct product = {
      {batches, heads}, numRows, numBases, depth, left, right, store};
  product.rightAlongDepth = true;
  emitTileProduct(b, math, product);
}

/// Makes scores differences: every basis adds to the sum of those before it,
/// which is kept in f64 as attn.conv_apply will have it, so that rounding
/// errors do not add up.
void RecoverLoops::emitDifferences() {
  parallelLoop(b, {batches, heads, numRows}, [&](ValueRange at) {
    Value zero = arith::ConstantOp::create(b, b.getF64FloatAttr(0.0));
    b.loop(b.index(0), b.index(numBases), 1, {zero},
           [&](Value basis, ValueRange sum) -> Values {
             Value size = b.loadIndex(op.getSizes(), {at[0], at[1], basis});
             Value place[] = {at[0], at[1], basis, at[2]};
             Value difference = b.select(
                 b.less(at[2], size), b.getF32Type(),
                 [&]() -> Value {
                   Value entry = arith::ExtFOp::create(
                       b, b.getF64Type(), b.loadScalar(op.getBasis(), place));
                   return arith::TruncFOp::create(b, b.getF32Type(),
                                                  b.fsub(entry, sum[0]));
                 },
                 [&] { return b.scalar(0.0); });
             b.storeScalar(difference, op.getBasis(), place);
             Value added = arith::ExtFOp::create(b, b.getF64Type(), difference);
             return {b.fadd(sum[0], added)};
           });
  });
}

void fovea::attn::emitConvRecoverLoops(OpBuilder &builder, ConvRecoverOp op,
                                       F32Math math) {
  RecoverLoops(builder, op, math).emit();
}
