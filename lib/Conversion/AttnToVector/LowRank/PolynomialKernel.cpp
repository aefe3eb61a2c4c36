//===- PolynomialKernel.cpp - Loops of polynomial features ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The innermost loop over columns has vectors, which are stored one after the
// other. The gradient goes through the same loops and multiplies the gradients
// of features with what the features are made of.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Kernels/Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Features that one task stores.
static constexpr int64_t kTaskFeatures = 1 << 16;

namespace {
/// Tasks of rows and their monomials.
class MonomialLoops : protected Monomials {
protected:
  /// `features` are the feature rows, one for each row of `input`.
  template <typename OpTy>
  MonomialLoops(OpBuilder &builder, OpTy op, Value features, int64_t vectorBits)
      : Monomials(rowBuilder,
                  cast<MemRefType>(op.getInput().getType()).getDimSize(3)),
        input(op.getInput()), features(features), degree(op.getDegree()),
        root(std::sqrt(op.getScale().convertToDouble())),
        state(getStateType(cast<MemRefType>(input.getType()).getElementType())),
        rowBuilder(op.getLoc(), builder, state, vectorBits / state.getWidth()) {
  }

  /// Calls `emitFeatures` for all rows, after `beginTask` for each task.
  void emitTasks();
  virtual void beginTask() {
    columns = b.scratch({width + b.getLanes()}, state);
    b.storeVector(b.splat(0.0), columns, b.index(width));
  }
  virtual void emitFeatures() = 0;

  Value loadColumn(Value column) override {
    return b.loadScalar(columns, column);
  }
  /// Where feature `position` of the present row lies.
  Values at(Value position) {
    Values indices = row;
    indices.push_back(position);
    return indices;
  }

  Value input, features;
  int64_t degree;
  double root;
  FloatType state;
  RowBuilder rowBuilder;
  /// The present row times the root of the scale, and zeros behind.
  Value columns;
  Values row;
};

class PolynomialKernel : MonomialLoops {
public:
  PolynomialKernel(OpBuilder &builder, PolynomialFeaturesOp op,
                   int64_t vectorBits)
      : MonomialLoops(builder, op, op.getOutput(), vectorBits) {}

  void emit() { emitTasks(); }

private:
  void emitFeatures() override;
  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override;
};

/// Loops carry the gradient of the product of the outer columns.
class PolynomialBackwardKernel : MonomialLoops {
public:
  PolynomialBackwardKernel(OpBuilder &builder, PolynomialFeaturesBackwardOp op,
                           int64_t vectorBits)
      : MonomialLoops(builder, op, op.getDOutput(), vectorBits),
        dInput(op.getDInput()) {}

  void emit() { emitTasks(); }

private:
  void beginTask() override {
    MonomialLoops::beginTask();
    dColumns = b.scratch({width}, state);
  }
  void emitFeatures() override;
  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override;
  Values before(ValueRange carried) override {
    return {carried[0], b.scalar(0.0)};
  }
  Values after(Value product, Value column, Value times, ValueRange outer,
               ValueRange inner) override;
  void addToColumn(Value number, Value column);

  Value dInput;
  /// The gradient of `columns`.
  Value dColumns;
};
} // namespace

void MonomialLoops::emitTasks() {
  Value rows = b.extent(input, 2);
  int64_t numFeatures = cast<MemRefType>(features.getType()).getDimSize(3);
  int64_t chunk = std::max<int64_t>(1, kTaskFeatures / numFeatures);
  b.forAll({b.extent(input, 0), b.extent(input, 1), b.ceilDiv(rows, chunk)},
           [&](ValueRange ivs) {
             beginTask();
             Value low = b.mul(ivs[2], chunk);
             Value high = b.min(b.add(low, chunk), rows);
             b.loop(low, high, 1, [&](Value n) {
               row = {ivs[0], ivs[1], n};
               b.forColumns(width, [&](KernelBuilder &k, Value column) {
                 Value x = k.loadVector(input, at(column));
                 k.storeVector(k.fmul(x, k.splat(root)), columns, column);
               });
               emitFeatures();
             });
             b.freeScratch();
           });
}

//===----------------------------------------------------------------------===//
// Features
//===----------------------------------------------------------------------===//

PolynomialKernel::Values PolynomialKernel::emitLast(Value product, Value low,
                                                    Value run,
                                                    ValueRange carried) {
  Value position = carried.front();
  auto store = [&](KernelBuilder &k, Value column) {
    Value factor = k.loadVector(columns, column);
    k.storeVector(k.fmul(k.broadcast(product), factor), features,
                  at(b.add(position, b.sub(column, low))));
  };
  // Whole vectors, where zeros behind the last column fall on features that are
  // stored later.
  int64_t numFeatures = cast<MemRefType>(features.getType()).getDimSize(3);
  Value end = b.index(width);
  Value count = b.mul(b.ceilDiv(b.sub(end, low), b.getLanes()), b.getLanes());
  b.ifThenElse(
      b.less(b.add(position, count), b.index(numFeatures + 1)),
      [&] {
        b.loop(low, b.add(low, count), b.getLanes(),
               [&](Value column) { store(b, column); });
      },
      [&] { b.forColumns(low, end, store); });
  Value first = b.fmul(product, loadColumn(low));
  b.storeScalar(overRoot(first, b.add(run, 1)), features, at(position));
  return {skipLast(position, low)};
}

void PolynomialKernel::emitFeatures() {
  b.storeScalar(b.scalar(1.0), features, at(b.index(0)));
  emitRow(degree);
}

//===----------------------------------------------------------------------===//
// Their gradient
//===----------------------------------------------------------------------===//

void PolynomialBackwardKernel::addToColumn(Value number, Value column) {
  Value sum = b.fadd(b.loadScalar(dColumns, column), number);
  b.storeScalar(sum, dColumns, column);
}

PolynomialBackwardKernel::Values
PolynomialBackwardKernel::after(Value product, Value column, Value times,
                                ValueRange outer, ValueRange inner) {
  Value gradient = overRoot(inner[1], times);
  addToColumn(b.fmul(gradient, product), column);
  Value factor = loadColumn(column);
  return {inner[0], b.fadd(outer[1], b.fmul(gradient, factor))};
}

PolynomialBackwardKernel::Values
PolynomialBackwardKernel::emitLast(Value product, Value low, Value run,
                                   ValueRange carried) {
  Value position = carried[0], end = b.index(width);
  Value gradient =
      overRoot(b.loadScalar(features, at(position)), b.add(run, 1));
  addToColumn(b.fmul(gradient, product), low);
  Value factor = loadColumn(low);
  Value total = b.fadd(carried[1], b.fmul(gradient, factor));
  // Whole vectors, then what is left.
  Value begin = b.add(low, 1);
  Value whole = b.add(begin, b.roundDown(b.sub(end, begin), b.getLanes()));
  auto add = [&](int64_t lanes, Value begin, Value end) {
    auto step = [&](Value column, ValueRange sums) -> Values {
      KernelBuilder k(b.getLoc(), b, state, lanes);
      Value gradients =
          k.loadVector(features, at(b.add(position, b.sub(column, low))));
      Value old = k.loadVector(dColumns, column);
      k.storeVector(k.fma(gradients, k.broadcast(product), old), dColumns,
                    column);
      return {k.fma(gradients, k.loadVector(columns, column), sums.front())};
    };
    KernelBuilder k(b.getLoc(), b, state, lanes);
    Value sum = b.loop(begin, end, lanes, k.splat(0.0), step).front();
    total = b.fadd(
        total, vector::ReductionOp::create(b, vector::CombiningKind::ADD, sum));
  };
  add(b.getLanes(), begin, whole);
  add(/*lanes=*/1, whole, end);
  return {skipLast(position, low), total};
}

void PolynomialBackwardKernel::emitFeatures() {
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    k.storeVector(k.splat(0.0), dColumns, column);
  });
  emitRow(degree, b.scalar(0.0));
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value gradient = k.loadVector(dColumns, column);
    k.storeVector(k.fmul(gradient, k.splat(root)), dInput, at(column));
  });
}

void fovea::attn::emitPolynomialFeatures(OpBuilder &builder,
                                         PolynomialFeaturesOp op,
                                         int64_t vectorBits) {
  PolynomialKernel(builder, op, vectorBits).emit();
}

void fovea::attn::emitPolynomialFeaturesBackward(
    OpBuilder &builder, PolynomialFeaturesBackwardOp op, int64_t vectorBits) {
  PolynomialBackwardKernel(builder, op, vectorBits).emit();
}
