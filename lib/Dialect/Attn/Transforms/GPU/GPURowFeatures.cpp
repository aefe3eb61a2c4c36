//===- GPURowFeatures.cpp - Angles and features of rows on a GPU ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULaunch.h"
#include "GPULowRankKernels.h"
#include "LowRank/CosineSine.h"
#include "LowRank/Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Rope
//===----------------------------------------------------------------------===//

uint64_t fovea::attn::getFrequencyFraction(double base, int64_t pair,
                                           int64_t pairs) {
  long double turns = std::pow(static_cast<long double>(base),
                               -static_cast<long double>(pair) / pairs) /
                      (2 * std::acos(-1.0L));
  return static_cast<uint64_t>(std::ldexp(turns - std::floor(turns), 64) +
                               0.5L);
}

/// Products of integers modulo 2^64 drop whole turns: angles are exact at any
/// position. A thread turns one pair of columns.
void fovea::attn::emitRopeLoops(OpBuilder &builder, RopeOp op,
                                Value frequencies) {
  RowBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Value input = op.getInput(), positions = op.getPositions();
  Value extents[] = {b.extent(input, 0), b.extent(input, 1), b.extent(input, 2),
                     b.div(b.extent(input, 3), 2)};
  parallelLoop(b, extents, [&](ValueRange at) {
    SmallVector<Value> place;
    for (int64_t dim = 0; dim < 3; ++dim)
      place.push_back(b.broadcastIndex(positions, dim, at[dim]));
    Value position = arith::ExtSIOp::create(
        b, b.getI64Type(),
        memref::LoadOp::create(b, positions, place).getResult());
    Value turns = b.mul(
        position, memref::LoadOp::create(b, frequencies, at[3]).getResult());
    // The nearest quarter, and what is left: at most an eighth of a turn.
    Value quarters = arith::ShRUIOp::create(b, b.add(turns, int64_t(1) << 61),
                                            b.like(turns, 62));
    Value left =
        b.sub(turns, arith::ShLIOp::create(b, quarters, b.like(turns, 62)));
    Value angle = b.fmul(arith::SIToFPOp::create(b, b.getF32Type(), left),
                         b.scalar(std::ldexp(2 * std::acos(-1.0), -64)));
    auto [cosine, sine] = emitCosineSine(b, angle, quarters);
    Value even = b.mul(at[3], 2);
    Value first[] = {at[0], at[1], at[2], even};
    Value second[] = {at[0], at[1], at[2], b.add(even, 1)};
    Value x = b.loadScalar(input, first), y = b.loadScalar(input, second);
    b.storeScalar(b.fsub(b.fmul(x, cosine), b.fmul(y, sine)), op.getOutput(),
                  first);
    b.storeScalar(b.fma(x, sine, b.fmul(y, cosine)), op.getOutput(), second);
  });
}

//===----------------------------------------------------------------------===//
// Polynomial features
//===----------------------------------------------------------------------===//

namespace {
/// A row is a warp's, whose lanes share the innermost loop.
class RowMonomials : public Monomials {
public:
  RowMonomials(RowBuilder &builder, PolynomialFeaturesOp op, ValueRange at)
      : Monomials(builder,
                  cast<MemRefType>(op.getInput().getType()).getDimSize(3)),
        op(op), row(at.drop_back()), lane(at.back()) {}

private:
  Value loadColumn(Value column) override {
    KernelBuilder::Values at(row);
    at.push_back(column);
    double root = std::sqrt(op.getScale().convertToDouble());
    return b.fmul(b.loadScalar(op.getInput(), at), b.scalar(root));
  }

  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override {
    Value position = carried.front();
    b.loop(b.add(low, lane), b.index(width), kWarpSize, [&](Value column) {
      Value feature = b.fmul(product, loadColumn(column));
      feature = b.select(
          b.equal(column, low), b.getF32Type(),
          [&] { return overRoot(feature, b.add(run, 1)); },
          [&] { return feature; });
      KernelBuilder::Values at(row);
      at.push_back(b.add(position, b.sub(column, low)));
      b.storeScalar(feature, op.getOutput(), at);
    });
    return {skipLast(position, low)};
  }

  PolynomialFeaturesOp op;
  KernelBuilder::Values row;
  Value lane;
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
    RowMonomials(b, op, at).emitRow(op.getDegree());
  });
}
