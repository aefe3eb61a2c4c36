//===- FeaturesToTeams.cpp - Loops of polynomial features -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The monomials of a degree are nested loops over columns that do not decrease.
// The innermost one multiplies the product of the outer columns with all
// columns from the last one on: features that lie one after the other. The
// gradient goes through the same loops and multiplies the gradients of features
// with what the features are made of.
//
//===----------------------------------------------------------------------===//

#include "LowRankTeams.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Features that one team stores, where that makes up for its cost.
static constexpr int64_t kTeamFeatures = 1 << 16;

static int64_t getWidth(Value rows) {
  return cast<MemRefType>(rows.getType()).getDimSize(3);
}

namespace {
/// Rows and their monomials of degrees 1 to `degree`, in this order, behind the
/// feature 1.
class MonomialKernel {
public:
  virtual ~MonomialKernel() = default;
  void emit();

protected:
  /// `features` are the feature rows, one for each row of `input`.
  template <typename OpTy>
  MonomialKernel(TeamBuilder &builder, OpTy op, Value features)
      : b(builder), input(op.getInput()), features(features),
        width(getWidth(input)), degree(op.getDegree()),
        root(std::sqrt(op.getScale().convertToDouble())) {}

  virtual void beginTeam();
  virtual void emitFeatures() = 0;
  /// Emits all loops of a row. Beside the number of the next feature, they
  /// carry `others`, which start anew with every degree.
  void emitMonomials(ValueRange others = {});

  /// The innermost loop: `product` times every column from `low` on, of which
  /// it has the first `run` times already. Takes and returns what loops carry.
  virtual Values emitLast(Value product, Value low, Value run,
                          ValueRange carried) = 0;
  /// What the loops under a column start from; `after` takes it back.
  virtual Values before(ValueRange carried) { return Values(carried); }
  virtual Values after(Value product, Value column, Value times,
                       ValueRange outer, ValueRange inner) {
    return Values(inner);
  }

  Value loadColumn(Value column) { return b.loadScalar(columns, column); }
  /// `product / sqrt(times)`.
  Value overRoot(Value product, Value times);
  /// Where feature or column `position` of the present row lies.
  Values at(Value position) {
    Values indices = row;
    indices.push_back(position);
    return indices;
  }
  /// The feature behind those of the innermost loop.
  Value skipLast(Value position, Value low) {
    return b.add(position, b.sub(b.index(width), low));
  }

  TeamBuilder &b;
  Value input, features;
  int64_t width, degree;
  double root;
  /// The present row times the root of the scale, and zeros for the rest of a
  /// vector.
  Value columns;
  Values row;

private:
  Values emitLoops(int64_t missing, Value product, Value low, Value run,
                   ValueRange carried);
};

class FeatureKernel : public MonomialKernel {
public:
  FeatureKernel(TeamBuilder &builder, PolynomialFeaturesOp op)
      : MonomialKernel(builder, op, op.getOutput()) {}

private:
  void emitFeatures() override;
  Values emitLast(Value product, Value low, Value run,
                  ValueRange carried) override;
};

/// Loops carry the gradient of the product of the outer columns.
class FeatureGradientKernel : public MonomialKernel {
public:
  FeatureGradientKernel(TeamBuilder &builder, PolynomialFeaturesBackwardOp op)
      : MonomialKernel(builder, op, op.getDOutput()), dInput(op.getDInput()) {}

private:
  void beginTeam() override;
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

//===----------------------------------------------------------------------===//
// Loops of both
//===----------------------------------------------------------------------===//

void MonomialKernel::emit() {
  Value rows = b.extent(input, 2);
  int64_t chunk = b.getRowsPerTeam(
      std::max<int64_t>(1, kTeamFeatures / getWidth(features)));
  Value grid[] = {b.extent(input, 0), b.extent(input, 1),
                  b.ceilDiv(rows, chunk)};
  b.forTeams(grid, [&](ValueRange point) {
    beginTeam();
    Value first = b.mul(point[2], chunk);
    b.loop(first, b.min(b.add(first, chunk), rows), 1, [&](Value n) {
      row = {point[0], point[1], n};
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        Value x = k.loadVector(input, at(column));
        k.storeVector(k.fmul(x, k.splat(root)), columns, column);
      });
      b.barrier();
      emitFeatures();
      b.barrier();
    });
  });
}

void MonomialKernel::beginTeam() {
  int64_t padded = width + b.getLanes();
  columns = b.teamBuffer({padded}, b.getStateType());
  b.forColumns(b.index(width), b.index(padded),
               [&](KernelBuilder &k, Value column) {
                 k.storeVector(k.splat(0.0), columns, column);
               });
}

Value MonomialKernel::overRoot(Value product, Value times) {
  Value root = math::SqrtOp::create(b, b.toNumber(times));
  return arith::DivFOp::create(b, product, root);
}

/// The products of `product` with `missing` more columns from `low` on, the
/// last of which it has `run` times already.
Values MonomialKernel::emitLoops(int64_t missing, Value product, Value low,
                                 Value run, ValueRange carried) {
  if (missing == 1)
    return emitLast(product, low, run, carried);
  return b.loop(
      low, b.index(width), 1, carried,
      [&](Value column, ValueRange carried) -> Values {
        Value one = b.index(1);
        Value times = b.select(b.equal(column, low), b.add(run, one), one);
        Value next = overRoot(b.fmul(product, loadColumn(column)), times);
        Values inner =
            emitLoops(missing - 1, next, column, times, before(carried));
        return after(product, column, times, carried, inner);
      });
}

void MonomialKernel::emitMonomials(ValueRange others) {
  Value zero = b.index(0), one = b.scalar(1.0), position = b.index(1);
  for (int64_t missing = 1; missing <= degree; ++missing) {
    Values carried = {position};
    llvm::append_range(carried, others);
    position = emitLoops(missing, one, zero, /*run=*/zero, carried).front();
  }
}

//===----------------------------------------------------------------------===//
// Features
//===----------------------------------------------------------------------===//

Values FeatureKernel::emitLast(Value product, Value low, Value run,
                               ValueRange carried) {
  Value position = carried.front();
  auto store = [&](KernelBuilder &k, Value column) {
    Value factor = k.loadVector(columns, column);
    k.storeVector(k.fmul(k.broadcast(product), factor), features,
                  at(b.add(position, b.sub(column, low))));
  };
  // Zeros behind the last column fall on features that are stored later.
  Value left = b.sub(b.index(getWidth(features)), position);
  b.forColumnsOrMore(low, b.index(width), left, store);
  b.atColumn(low, [&] {
    Value first = b.fmul(product, loadColumn(low));
    b.storeScalar(overRoot(first, b.add(run, 1)), features, at(position));
  });
  return {skipLast(position, low)};
}

void FeatureKernel::emitFeatures() {
  b.single([&] { b.storeScalar(b.scalar(1.0), features, at(b.index(0))); });
  emitMonomials();
}

//===----------------------------------------------------------------------===//
// Their gradient
//===----------------------------------------------------------------------===//

void FeatureGradientKernel::beginTeam() {
  MonomialKernel::beginTeam();
  dColumns = b.teamBuffer({width}, b.getStateType());
}

void FeatureGradientKernel::addToColumn(Value number, Value column) {
  b.atColumn(column, [&] {
    Value sum = b.fadd(b.loadScalar(dColumns, column), number);
    b.storeScalar(sum, dColumns, column);
  });
}

Values FeatureGradientKernel::after(Value product, Value column, Value times,
                                    ValueRange outer, ValueRange inner) {
  Value gradient = overRoot(inner[1], times);
  addToColumn(b.fmul(gradient, product), column);
  Value factor = loadColumn(column);
  return {inner[0], b.fadd(outer[1], b.fmul(gradient, factor))};
}

Values FeatureGradientKernel::emitLast(Value product, Value low, Value run,
                                       ValueRange carried) {
  Value position = carried[0];
  Value gradient =
      overRoot(b.loadScalar(features, at(position)), b.add(run, 1));
  addToColumn(b.fmul(gradient, product), low);
  Value first = b.fmul(gradient, loadColumn(low));
  auto addRest = [&](KernelBuilder &k, Value column) {
    Value gradients =
        k.loadVector(features, at(b.add(position, b.sub(column, low))));
    Value old = k.loadVector(dColumns, column);
    k.storeVector(k.fma(gradients, k.broadcast(product), old), dColumns,
                  column);
    return k.fmul(gradients, k.loadVector(columns, column));
  };
  Value rest = b.sumColumns(b.add(low, 1), b.index(width), addRest);
  return {skipLast(position, low), b.fadd(carried[1], b.fadd(first, rest))};
}

void FeatureGradientKernel::emitFeatures() {
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    k.storeVector(k.splat(0.0), dColumns, column);
  });
  emitMonomials(b.scalar(0.0));
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Value gradient = k.loadVector(dColumns, column);
    k.storeVector(k.fmul(gradient, k.splat(root)), dInput, at(column));
  });
}

LogicalResult fovea::attn::lowerToTeams(PolynomialFeaturesOp op,
                                        TeamBuilder &builder) {
  FeatureKernel(builder, op).emit();
  return success();
}

LogicalResult fovea::attn::lowerToTeams(PolynomialFeaturesBackwardOp op,
                                        TeamBuilder &builder) {
  FeatureGradientKernel(builder, op).emit();
  return success();
}
