//===- GPURowFeatures.cpp - Features of rows on a GPU ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Polynomial features
//===----------------------------------------------------------------------===//

namespace {
/// A row is a warp's, whose lanes share the innermost loop.
class RowMonomials : public Monomials {
public:
  template <typename OpTy>
  RowMonomials(RowBuilder &builder, OpTy op, Value features, ValueRange row,
               Value lane)
      : Monomials(builder,
                  cast<MemRefType>(op.getInput().getType()).getDimSize(3)),
        input(op.getInput()), features(features),
        root(std::sqrt(op.getScale().convertToDouble())), row(row), lane(lane) {
  }

protected:
  Value loadColumn(Value column) override {
    return b.fmul(b.loadScalar(input, at(column)), b.scalar(root));
  }
  /// Feature or column `position` of the row.
  Values at(Value position) {
    Values indices = row;
    indices.push_back(position);
    return indices;
  }
  /// `number`, the one of column `low` divided by a root.
  Value overRootAt(Value column, Value low, Value run, Value number) {
    return b.select(
        b.equal(column, low), b.getF32Type(),
        [&] { return overRoot(number, b.add(run, 1)); },
        [&] { return number; });
  }

  Value input, features;
  double root;
  Values row;
  Value lane;
};

class RowFeatures : public RowMonomials {
public:
  using RowMonomials::RowMonomials;

private:
  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override {
    Value position = carried.front();
    b.loop(b.add(low, lane), b.index(width), kWarpSize, [&](Value column) {
      Value feature = b.fmul(product, loadColumn(column));
      b.storeScalar(overRootAt(column, low, run, feature), features,
                    at(b.add(position, b.sub(column, low))));
    });
    return {skipLast(position, low)};
  }
};

/// Loops carry the lane's part of the gradient of the product of the outer
/// columns. Column c is lane `c % 32`'s, so no two lanes add to the same one.
class RowFeatureGradients : public RowMonomials {
public:
  RowFeatureGradients(GPUKernelBuilder &builder,
                      PolynomialFeaturesBackwardOp op, ValueRange row)
      : RowMonomials(builder, op, op.getDOutput(), row,
                     builder.toIndex(builder.lane())),
        k(builder), gradient(op.getDInput()) {
    sums = k.sharedBuffer(0, {width}, b.getF32Type());
  }

  void emit(int64_t degree) {
    b.loop(lane, b.index(width), kWarpSize,
           [&](Value column) { b.storeScalar(b.scalar(0.0), sums, column); });
    emitRow(degree, b.scalar(0.0));
    b.loop(lane, b.index(width), kWarpSize, [&](Value column) {
      Value sum = b.fmul(b.loadScalar(sums, column), b.scalar(root));
      b.storeScalar(sum, gradient, at(column));
    });
  }

private:
  void add(Value number, Value column) {
    b.storeScalar(b.fadd(b.loadScalar(sums, column), number), sums, column);
  }

  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override {
    Value position = carried[0],
          first = b.mul(b.div(low, kWarpSize), kWarpSize);
    Value begin = b.add(first, lane);
    begin = b.select(b.less(begin, low), b.add(begin, kWarpSize), begin);
    Value total =
        b.loop(begin, b.index(width), kWarpSize, {carried[1]},
               [&](Value column, ValueRange sum) -> Values {
                 Value number = b.loadScalar(
                     features, at(b.add(position, b.sub(column, low))));
                 number = overRootAt(column, low, run, number);
                 add(b.fmul(number, product), column);
                 return {b.fma(number, loadColumn(column), sum[0])};
               })[0];
    return {skipLast(position, low), total};
  }

  Values before(ValueRange carried) override {
    return {carried[0], b.scalar(0.0)};
  }

  Values after(Value product, Value column, Value times, ValueRange outer,
               ValueRange inner) override {
    Value part = overRoot(inner[1], times), sum = part;
    for (int64_t mask = kWarpSize / 2; mask; mask /= 2)
      sum = b.fadd(sum, k.shuffleXor(sum, mask));
    b.ifThen(b.equal(b.rem(column, kWarpSize), lane),
             [&] { add(b.fmul(sum, product), column); });
    return {inner[0], b.fma(part, loadColumn(column), outer[1])};
  }

  GPUKernelBuilder &k;
  /// The gradients of the columns times the root, in shared memory.
  Value gradient, sums;
};
} // namespace

void fovea::attn::emitPolynomialLoops(OpBuilder &builder,
                                      PolynomialFeaturesOp op) {
  RowBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Value input = op.getInput();
  Value extents[] = {b.extent(input, 0), b.extent(input, 1), b.extent(input, 2),
                     b.index(kWarpSize)};
  parallelLoop(b, extents, [&](ValueRange at) {
    b.ifThen(b.equal(at[3], b.index(0)), [&] {
      b.storeScalar(b.scalar(1.0), op.getOutput(),
                    {at[0], at[1], at[2], b.index(0)});
    });
    RowFeatures(b, op, op.getOutput(), at.drop_back(), at.back())
        .emitRow(op.getDegree());
  });
}

LogicalResult
fovea::attn::emitPolynomialLoops(OpBuilder &builder,
                                 PolynomialFeaturesBackwardOp op) {
  constexpr int64_t kMaxWidth = 12288;
  Value input = op.getInput();
  int64_t width = cast<MemRefType>(input.getType()).getDimSize(3);
  if (width > kMaxWidth)
    return op.emitOpError("has rows of ")
           << width << " columns, but GPU kernels take at most " << kMaxWidth;
  OpBuilder::InsertionGuard guard(builder);
  GPUKernelBuilder b(op.getLoc(), builder, kWarpSize);
  Value extents[] = {b.extent(input, 0), b.extent(input, 1),
                     b.extent(input, 2)};
  Monomials::Values row = beginBlocks(b, extents, width * sizeof(float));
  RowFeatureGradients(b, op, row).emit(op.getDegree());
  return success();
}
