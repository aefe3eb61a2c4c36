//===- PolynomialKernel.cpp - Loops of attn.polynomial_features -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Features that one task stores.
static constexpr int64_t kTaskFeatures = 1 << 16;

namespace {
class PolynomialKernel : Monomials {
public:
  using Values = KernelBuilder::Values;

  PolynomialKernel(OpBuilder &builder, PolynomialFeaturesOp op, FloatType state,
                   int64_t vectorBits)
      : Monomials(rowBuilder,
                  cast<MemRefType>(op.getInput().getType()).getDimSize(3)),
        op(op),
        rowBuilder(op.getLoc(), builder, state, vectorBits / state.getWidth()) {
  }

  void emit();

private:
  void emitTask(Value batch, Value head, Value row);
  Value loadColumn(Value column) override {
    return b.loadScalar(columns, column);
  }
  void storeLast(Value product, Value low, Value run, Value position) override;

  PolynomialFeaturesOp op;
  RowBuilder rowBuilder;
  /// The present row times the root of the scale.
  Value columns;
  Values outputRow;
};
} // namespace

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
  Value first = b.fmul(product, loadColumn(low));
  b.storeScalar(overRoot(first, b.add(run, 1)), op.getOutput(), at(low));
}

void PolynomialKernel::emitTask(Value batch, Value head, Value row) {
  double root = std::sqrt(op.getScale().convertToDouble());
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value x = k.loadVector(op.getInput(), {batch, head, row, column});
    k.storeVector(k.fmul(x, k.splat(root)), columns, column);
  });
  outputRow = {batch, head, row};
  b.storeScalar(b.scalar(1.0), op.getOutput(), {batch, head, row, b.index(0)});
  emitRow(op.getDegree());
}

void PolynomialKernel::emit() {
  Value input = op.getInput(), rows = b.extent(input, 2);
  int64_t features = cast<MemRefType>(op.getOutput().getType()).getDimSize(3);
  int64_t chunk = std::max<int64_t>(1, kTaskFeatures / features);
  b.forAll({b.extent(input, 0), b.extent(input, 1), b.ceilDiv(rows, chunk)},
           [&](ValueRange ivs) {
             columns = b.scratch({width}, b.getStateType());
             Value low = b.mul(ivs[2], chunk);
             Value high = b.min(b.add(low, chunk), rows);
             b.loop(low, high, 1,
                    [&](Value row) { emitTask(ivs[0], ivs[1], row); });
             b.freeScratch();
           });
}

void fovea::attn::emitPolynomialFeatures(OpBuilder &builder,
                                         PolynomialFeaturesOp op,
                                         int64_t vectorBits) {
  FloatType state =
      getStateType(cast<MemRefType>(op.getInput().getType()).getElementType());
  PolynomialKernel(builder, op, state, vectorBits).emit();
}
