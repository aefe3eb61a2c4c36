//===- PolynomialBackwardKernel.cpp - Gradients of polynomial features ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loops of the features, which multiply the gradients of the features with
// what these are made of, and carry the gradient of the product of the outer
// columns.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Features that one task reads.
static constexpr int64_t kTaskFeatures = 1 << 16;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

namespace {
class PolynomialBackwardKernel : Monomials {
public:
  PolynomialBackwardKernel(OpBuilder &builder, PolynomialFeaturesBackwardOp op,
                           FloatType state, int64_t vectorBits)
      : Monomials(rowBuilder, typeOf(op.getInput()).getDimSize(3)), op(op),
        root(std::sqrt(op.getScale().convertToDouble())),
        rowBuilder(op.getLoc(), builder, state, vectorBits / state.getWidth()) {
  }

  void emit();

private:
  void emitTask();
  Value loadColumn(Value column) override {
    return b.loadScalar(columns, column);
  }
  Values getCarried() override { return {b.scalar(0.0)}; }
  Values emitLast(Value product, Value low, Value run, Value position,
                  ValueRange carried) override;
  Values leaveColumn(Value product, Value column, Value times, ValueRange outer,
                     ValueRange inner) override;
  void addToColumn(Value number, Value column);
  /// Where column or feature `position` of the present row lies.
  Values at(Value position) {
    Values indices = row;
    indices.push_back(position);
    return indices;
  }

  PolynomialFeaturesBackwardOp op;
  double root;
  RowBuilder rowBuilder;
  /// The present row times the root of the scale, and its gradient.
  Value columns, dColumns;
  Values row;
};
} // namespace

void PolynomialBackwardKernel::addToColumn(Value number, Value column) {
  Value sum = b.fadd(b.loadScalar(dColumns, column), number);
  b.storeScalar(sum, dColumns, column);
}

PolynomialBackwardKernel::Values
PolynomialBackwardKernel::leaveColumn(Value product, Value column, Value times,
                                      ValueRange outer, ValueRange inner) {
  Value gradient = overRoot(inner.front(), times);
  addToColumn(b.fmul(gradient, product), column);
  return {b.fadd(outer.front(), b.fmul(gradient, loadColumn(column)))};
}

PolynomialBackwardKernel::Values
PolynomialBackwardKernel::emitLast(Value product, Value low, Value run,
                                   Value position, ValueRange carried) {
  Value features = op.getDOutput(), end = b.index(width);
  Value gradient =
      overRoot(b.loadScalar(features, at(position)), b.add(run, 1));
  addToColumn(b.fmul(gradient, product), low);
  Value total = b.fadd(carried.front(), b.fmul(gradient, loadColumn(low)));
  // Whole vectors, then what is left.
  Value begin = b.add(low, 1);
  Value whole = b.add(begin, b.roundDown(b.sub(end, begin), b.getLanes()));
  auto add = [&](int64_t lanes, Value begin, Value end) {
    auto step = [&](Value column, ValueRange sums) -> Values {
      KernelBuilder k(b.getLoc(), b, b.getStateType(), lanes);
      Value gradients =
          k.loadVector(features, at(b.add(position, b.sub(column, low))));
      Value old = k.loadVector(dColumns, column);
      k.storeVector(k.fma(gradients, k.broadcast(product), old), dColumns,
                    column);
      return {k.fma(gradients, k.loadVector(columns, column), sums.front())};
    };
    KernelBuilder k(b.getLoc(), b, b.getStateType(), lanes);
    Value sum = b.loop(begin, end, lanes, k.splat(0.0), step).front();
    total = b.fadd(
        total, vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum));
  };
  add(b.getLanes(), begin, whole);
  add(/*lanes=*/1, whole, end);
  return {total};
}

void PolynomialBackwardKernel::emitTask() {
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value x = k.loadVector(op.getInput(), at(column));
    k.storeVector(k.fmul(x, k.splat(root)), columns, column);
    k.storeVector(k.splat(0.0), dColumns, column);
  });
  emitRow(op.getDegree());
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value gradient = k.loadVector(dColumns, column);
    k.storeVector(k.fmul(gradient, k.splat(root)), op.getDInput(), at(column));
  });
}

void PolynomialBackwardKernel::emit() {
  Value input = op.getInput(), rows = b.extent(input, 2);
  int64_t features = typeOf(op.getDOutput()).getDimSize(3);
  int64_t chunk = std::max<int64_t>(1, kTaskFeatures / features);
  b.forAll({b.extent(input, 0), b.extent(input, 1), b.ceilDiv(rows, chunk)},
           [&](ValueRange ivs) {
             columns = b.scratch({width}, b.getStateType());
             dColumns = b.scratch({width}, b.getStateType());
             Value low = b.mul(ivs[2], chunk);
             b.loop(low, b.min(b.add(low, chunk), rows), 1, [&](Value n) {
               row = {ivs[0], ivs[1], n};
               emitTask();
             });
             b.freeScratch();
           });
}

void fovea::attn::emitPolynomialFeaturesBackward(
    OpBuilder &builder, PolynomialFeaturesBackwardOp op, int64_t vectorBits) {
  FloatType state = getStateType(typeOf(op.getInput()).getElementType());
  PolynomialBackwardKernel(builder, op, state, vectorBits).emit();
}
