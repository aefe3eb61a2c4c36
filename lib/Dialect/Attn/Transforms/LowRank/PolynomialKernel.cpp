//===- PolynomialKernel.cpp - Loops of attn.polynomial_features -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The monomials of a degree are nested loops over columns that do not decrease.
// The innermost one multiplies the product of the outer columns with all
// columns from the last one on: vectors that are stored one after the other.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Features that one task stores.
static constexpr int64_t kTaskFeatures = 1 << 16;

namespace {
class PolynomialKernel {
public:
  using Values = KernelBuilder::Values;

  PolynomialKernel(OpBuilder &builder, PolynomialFeaturesOp op,
                   int64_t vectorBits)
      : op(op), type(cast<MemRefType>(op.getInput().getType())),
        state(getStateType(type.getElementType())),
        b(op.getLoc(), builder, state, vectorBits / state.getWidth()),
        width(type.getDimSize(3)) {}

  void emit();

private:
  void emitRow(Value batch, Value head, Value row);
  Value emitMonomials(int64_t missing, Value product, Value low, Value run,
                      Value position);
  void storeLast(Value product, Value low, Value run, Value position);
  /// `product / sqrt(times)`.
  Value overRoot(Value product, Value times) {
    Value root = math::SqrtOp::create(b, b.toNumber(times));
    return arith::DivFOp::create(b, product, root);
  }

  PolynomialFeaturesOp op;
  MemRefType type;
  FloatType state;
  RowBuilder b;
  int64_t width;
  /// The present row times the root of the scale.
  Value columns;
  Values outputRow;
};
} // namespace

/// Stores the products of `product` with `missing` more columns from `low` on,
/// the last of which it has `run` times already. Takes and returns where the
/// next feature lies.
Value PolynomialKernel::emitMonomials(int64_t missing, Value product, Value low,
                                      Value run, Value position) {
  if (missing == 1) {
    storeLast(product, low, run, position);
    return b.add(position, b.sub(b.index(width), low));
  }
  return b
      .loop(low, b.index(width), 1, position,
            [&](Value column, ValueRange positions) -> Values {
              Value one = b.index(1);
              Value times =
                  b.select(b.equal(column, low), b.add(run, one), one);
              Value factor = b.loadScalar(columns, column);
              Value next = overRoot(b.fmul(product, factor), times);
              return {emitMonomials(missing - 1, next, column, times,
                                    positions.front())};
            })
      .front();
}

/// The innermost loop: all columns from `low` on, the first of which `product`
/// has `run` times.
void PolynomialKernel::storeLast(Value product, Value low, Value run,
                                 Value position) {
  auto at = [&](Value column) {
    Values indices = outputRow;
    indices.push_back(b.add(position, b.sub(column, low)));
    return indices;
  };
  b.forColumns(low, b.index(width), [&](KernelBuilder &k, Value column) {
    Value factor = k.loadVector(columns, column);
    k.storeVector(k.fmul(k.broadcast(product), factor), op.getOutput(),
                  at(column));
  });
  Value first = b.fmul(product, b.loadScalar(columns, low));
  b.storeScalar(overRoot(first, b.add(run, 1)), op.getOutput(), at(low));
}

void PolynomialKernel::emitRow(Value batch, Value head, Value row) {
  double root = std::sqrt(op.getScale().convertToDouble());
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value x = k.loadVector(op.getInput(), {batch, head, row, column});
    k.storeVector(k.fmul(x, k.splat(root)), columns, column);
  });
  outputRow = {batch, head, row};
  Value zero = b.index(0), one = b.scalar(1.0);
  b.storeScalar(one, op.getOutput(), {batch, head, row, zero});
  Value position = b.index(1);
  for (int64_t degree = 1; degree <= int64_t(op.getDegree()); ++degree)
    position = emitMonomials(degree, one, zero, /*run=*/zero, position);
}

void PolynomialKernel::emit() {
  Value input = op.getInput(), rows = b.extent(input, 2);
  int64_t features = cast<MemRefType>(op.getOutput().getType()).getDimSize(3);
  int64_t chunk = std::max<int64_t>(1, kTaskFeatures / features);
  b.forAll({b.extent(input, 0), b.extent(input, 1), b.ceilDiv(rows, chunk)},
           [&](ValueRange ivs) {
             columns = b.scratch({width}, state);
             Value low = b.mul(ivs[2], chunk);
             Value high = b.min(b.add(low, chunk), rows);
             b.loop(low, high, 1,
                    [&](Value row) { emitRow(ivs[0], ivs[1], row); });
             b.freeScratch();
           });
}

void fovea::attn::emitPolynomialFeatures(OpBuilder &builder,
                                         PolynomialFeaturesOp op,
                                         int64_t vectorBits) {
  PolynomialKernel(builder, op, vectorBits).emit();
}
