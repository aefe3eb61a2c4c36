//===- GPUConvApply.cpp - Sums of convolutions on a GPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvKernel.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Listed rows from their scores, with the row's own maximum taken off: a
/// soft-max that nothing else can spoil.
class ExactRows {
public:
  ExactRows(GPUConvTables &tables, GPUConvRows &rows, ConvApplyOp op);

private:
  void findTops();
  void multiply();
  void store();
  std::pair<Value, Value> depthOf(KernelBuilder &k, ValueRange at,
                                  Value number);
  Value weightOf(KernelBuilder &k, ValueRange at, Value number, Value key);

  GPUConvTables &t;
  GPUConvBuilder &b;
  GPUConvRows &rows;
  ConvApplyOp op;
  /// Of every listed row: the greatest score [B, H, N]; weighted sums of values
  /// and of ones [B, H, N, E + 1].
  Value tops, sums;
};
} // namespace

ExactRows::ExactRows(GPUConvTables &tables, GPUConvRows &rows, ConvApplyOp op)
    : t(tables), b(t.b), rows(rows), op(op) {
  Value numColumns = b.index(b.width + 1);
  Type type = b.getF32Type();
  tops = b.allocate(b.rows(), type);
  sums = b.allocate({b.batches, b.heads, b.numTokens, numColumns}, type);
  findTops();
  multiply();
  store();
}

void ExactRows::findTops() {
  rows.forEach([&](WarpTeamBuilder &k, ValueRange at, Value, Value top) {
    k.single([&] { k.storeScalar(top, tops, at); });
  });
}

/// The keys up to the last row of a tile of the list.
std::pair<Value, Value> ExactRows::depthOf(KernelBuilder &k, ValueRange at,
                                           Value number) {
  Value count = rows.count(k, at);
  Value end = k.select(
      k.less(number, count), k.getIndexType(),
      [&] {
        Value last = k.min(k.add(number, kTileRows), count);
        Value place[] = {at[0], at[1], k.sub(last, k.index(1))};
        return k.add(rows.load(k, place), 1);
      },
      [&] { return k.index(0); });
  return {k.min(t.segments.first(k, at), end), end};
}

Value ExactRows::weightOf(KernelBuilder &k, ValueRange at, Value number,
                          Value key) {
  Value place[] = {at[0], at[1], number};
  return k.select(
      k.less(number, rows.count(k, at)), k.getF32Type(),
      [&] {
        Value row = rows.load(k, place);
        return t.profiles.weighEntry(k, at, row, key, [&](ValueRange from) {
          Value score = k.loadScalar(t.profiles.scores, from);
          return t.profiles.weigh(k, score, k.loadScalar(tops, place));
        });
      },
      [&] { return k.scalar(0.0); });
}

void ExactRows::multiply() {
  auto depth = [&](KernelBuilder &k, ValueRange at, Value number, Value) {
    return depthOf(k, at, number);
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value number, Value key) {
    return weightOf(k, at, number, key);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value key, Value column) {
    return k.select(
        k.less(column, k.index(b.width)), k.getF32Type(),
        [&] { return b.loadValue(k, at, key, column); },
        [&] { return k.scalar(1.0); });
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value number, Value column,
                   Value sum) {
    k.ifThen(k.less(number, rows.count(k, at)),
             [&] { k.storeScalar(sum, sums, {at[0], at[1], number, column}); });
  };
  TileProduct product = {{b.batches, b.heads},
                         b.numTokens,
                         b.width + 1,
                         depth,
                         left,
                         right,
                         store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value number, Value key) {
    Value row = rows.load(k, {at[0], at[1], number});
    return t.profiles.mayHide(k, at, row, k.add(key, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, b.math, product);
}

void ExactRows::store() {
  Value grid[] = {b.batches, b.heads, b.numTokens, b.index(b.width)};
  parallelLoop(b, grid, [&](ValueRange at) {
    b.ifThen(b.less(at[2], rows.count(b, at)), [&] {
      Value row = rows.load(b, at.take_front(3));
      Value total = b.loadScalar(sums, {at[0], at[1], at[2], b.index(b.width)});
      Value mean = arith::DivFOp::create(b, b.loadScalar(sums, at),
                                         conv::getDivisor(b, total));
      b.storeScalar(mean, op.getOutput(), {at[0], at[1], row, at[3]});
    });
  });
}

void fovea::attn::emitConvApplyOnGPU(
    OpBuilder &builder, ConvApplyOp op, F32Math math,
    function_ref<std::unique_ptr<GPUConvProduct>(GPUConvTables &)>
        makeProduct) {
  GPUConvBuilder b(builder, op, op.getBasis(), op.getSizes(), op.getValue(),
                   math);
  GPUConvTables tables(b);
  std::unique_ptr<GPUConvProduct> product = makeProduct(tables);
  GPUConvRows rows(tables, op.getRecomputed(),
                   [&](ValueRange row, Value normaliser) {
                     return product->isQuiet(row, normaliser);
                   });
  product->emit(rows.reciprocals);
  ExactRows exact(tables, rows, op);
  b.freeBuffers();
}

//===----------------------------------------------------------------------===//
// The Toeplitz product
//===----------------------------------------------------------------------===//

namespace {
/// A product of matrices, the left one of which is looked up in the profiles.
class ConvToeplitz : public GPUConvProduct {
public:
  ConvToeplitz(GPUConvTables &tables, ConvApplyOp op)
      : t(tables), b(t.b), op(op) {}

private:
  void emit(Value reciprocals) override;

  GPUConvTables &t;
  GPUConvBuilder &b;
  ConvApplyOp op;
};
} // namespace

void ConvToeplitz::emit(Value reciprocals) {
  auto depth = [&](KernelBuilder &k, ValueRange at, Value row, Value) {
    return std::pair(t.segments.first(k, at),
                     k.min(k.add(row, kTileRows), b.numTokens));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value row, Value key) {
    return t.profiles.weighEntry(k, at, row, key, [&](ValueRange from) {
      return k.loadScalar(t.profiles.weights, from);
    });
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value key, Value column) {
    return b.loadValue(k, at, key, column);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value row, Value column,
                   Value sum) {
    Value factor = k.loadScalar(reciprocals, {at[0], at[1], row});
    k.storeScalar(k.fmul(sum, factor), op.getOutput(),
                  {at[0], at[1], row, column});
  };
  TileProduct product = {
      {b.batches, b.heads}, b.numTokens, b.width, depth, left, right, store};
  auto hides = [&](KernelBuilder &k, ValueRange at, Value row, Value key) {
    return t.profiles.mayHide(k, at, row, k.add(key, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, b.math, product);
}

std::unique_ptr<GPUConvProduct>
fovea::attn::makeConvToeplitz(GPUConvTables &tables, ConvApplyOp op) {
  return std::make_unique<ConvToeplitz>(tables, op);
}
