//===- GPUConvRecoverGradient.cpp - Gradients of found bases on a GPU -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   dH[r][i] = d_basis[r, i - c_r] - d_basis[r + 1, i - c_r]   bases by rows
//
//   d_query    scale dH^T key[c], a product of matrices
//   sums       dH query for every query head, another one
//   d_key      a thread for each number adds the sums of the bases that begin
//   at
//              its key, in order
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class RecoverGradientLoops {
public:
  RecoverGradientLoops(OpBuilder &builder, ConvRecoverBackwardOp op,
                       F32Math math)
      : op(op), math(math),
        width(cast<MemRefType>(op.getKey().getType()).getDimSize(3)),
        b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
        batches(b.extent(op.getQuery(), 0)), heads(b.extent(op.getQuery(), 1)),
        keyHeads(b.extent(op.getKey(), 1)),
        // Without heads there are no key heads to divide by.
        headsOfKey(b.max(b.div(heads, b.max(keyHeads, 1)), 1)),
        numBases(b.extent(op.getDBasis(), 2)),
        numTokens(b.extent(op.getQuery(), 2)) {}

  void emit() {
    emitQueries();
    Value sums =
        b.allocate({batches, heads, numBases}, {width}, b.getF32Type());
    sumKeys(sums);
    storeKeys(sums);
    memref::DeallocOp::create(b, sums);
  }

private:
  Value sizeOf(KernelBuilder &k, ValueRange head, Value basis) {
    return k.loadIndex(op.getSizes(), {head[0], head[1], basis});
  }
  Value startOf(KernelBuilder &k, ValueRange head, Value basis) {
    return k.sub(numTokens, sizeOf(k, head, basis));
  }
  Value loadScore(KernelBuilder &k, ValueRange head, Value basis, Value row);
  Value beginsAfter(KernelBuilder &k, ValueRange head, Value basis, Value row);
  void emitQueries();
  void sumKeys(Value sums);
  void storeKeys(Value sums);
  double getScale() { return op.getScaleOrDefault(); }

  ConvRecoverBackwardOp op;
  F32Math math;
  int64_t width;
  RowBuilder b;
  Value batches, heads, keyHeads, headsOfKey, numBases, numTokens;
};
} // namespace

/// dH; hidden where a row is before the basis.
Value RecoverGradientLoops::loadScore(KernelBuilder &k, ValueRange head,
                                      Value basis, Value row) {
  Value lag = k.sub(row, startOf(k, head, basis)), zero = k.scalar(0.0);
  auto load = [&](Value r) {
    return k.loadScalar(op.getDBasis(), {head[0], head[1], r, lag});
  };
  return k.select(
      k.less(lag, k.index(0)), k.getF32Type(),
      [&] { return getHiddenWeight(k); },
      [&] {
        Value next = k.add(basis, 1);
        Value size = k.select(
            k.less(next, numBases), k.getIndexType(),
            [&] { return sizeOf(k, head, next); }, [&] { return k.index(0); });
        // Lags that the next basis has too.
        Value after = k.select(
            k.less(lag, size), k.getF32Type(), [&] { return load(next); },
            [&] { return zero; });
        return makeRead(k, k.fsub(load(basis), after));
      });
}

/// Whether some of kTileRows bases from `basis` on begin behind a row.
Value RecoverGradientLoops::beginsAfter(KernelBuilder &k, ValueRange head,
                                        Value basis, Value row) {
  Value last = k.min(k.add(basis, kTileRows - 1), k.sub(numBases, k.index(1)));
  return k.less(row, startOf(k, head, last));
}

void RecoverGradientLoops::emitQueries() {
  auto depth = [&](KernelBuilder &k, ValueRange, Value, Value) {
    return std::pair(k.index(0), numBases);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value row, Value basis) {
    return loadScore(k, at, basis, row);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value basis, Value column) {
    // No row reads bases that do not exist, whatever their key.
    Value key = k.min(startOf(k, at, basis), k.sub(numTokens, k.index(1)));
    return k.loadScalar(op.getKey(),
                        {at[0], k.div(at[1], headsOfKey), key, column});
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value row, Value column,
                   Value sum) {
    k.storeScalar(k.fmul(sum, k.scalar(getScale())), op.getDQuery(),
                  {at[0], at[1], row, column});
  };
  TileProduct product = {
      {batches, heads}, numTokens, width, depth, left, right, store};
  product.leftAlongRows = true;
  auto hides = [&](KernelBuilder &k, ValueRange at, Value row, Value basis) {
    return beginsAfter(k, at, basis, row);
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
}

void RecoverGradientLoops::sumKeys(Value sums) {
  auto depth = [&](KernelBuilder &k, ValueRange at, Value basis, Value) {
    // Rows before the first of these bases have nothing.
    return std::pair(startOf(k, at, basis), numTokens);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value basis, Value row) {
    return loadScore(k, at, basis, row);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value row, Value column) {
    return k.loadScalar(op.getQuery(), {at[0], at[1], row, column});
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value basis, Value column,
                   Value sum) {
    k.storeScalar(k.fmul(sum, k.scalar(getScale())), sums,
                  {at[0], at[1], basis, column});
  };
  TileProduct product = {
      {batches, heads}, numBases, width, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value basis, Value row) {
    return beginsAfter(k, at, basis, row);
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
}

void RecoverGradientLoops::storeKeys(Value sums) {
  parallelLoop(
      b, {batches, keyHeads, numTokens, b.index(width)}, [&](ValueRange at) {
        Value count = b.div(heads, b.max(keyHeads, 1)), zero = b.index(0);
        Value first = b.mul(at[1], count);
        auto addHead = [&](Value member, ValueRange total) -> Values {
          Value head[] = {at[0], b.add(first, member)};
          return b.loop(
              zero, numBases, 1, total,
              [&](Value basis, ValueRange total) -> Values {
                return {b.select(
                    b.equal(startOf(b, head, basis), at[2]), b.getF32Type(),
                    [&] {
                      Value from[] = {head[0], head[1], basis, at[3]};
                      return b.fadd(total[0], b.loadScalar(sums, from));
                    },
                    [&] { return total[0]; })};
              });
        };
        Value total = b.loop(zero, count, 1, {b.scalar(0.0)}, addHead)[0];
        b.storeScalar(total, op.getDKey(), at);
      });
}

void fovea::attn::emitConvRecoverLoops(OpBuilder &builder,
                                       ConvRecoverBackwardOp op, F32Math math) {
  RecoverGradientLoops(builder, op, math).emit();
}
