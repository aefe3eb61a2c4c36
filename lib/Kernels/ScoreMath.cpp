//===- ScoreMath.cpp - Functions of vectors of scores ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ScoreMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <cmath>
#include <optional>

using namespace mlir;

/// The number that all lanes of a vector are, if it is a constant.
static std::optional<double> getConstantLanes(Value vector) {
  if (auto broadcast = vector.getDefiningOp<vector::BroadcastOp>())
    vector = broadcast.getSource();
  APFloat number(0.0);
  if (!matchPattern(vector, m_ConstantFloat(&number)))
    return std::nullopt;
  return number.convertToDouble();
}

/// A product with a constant factor that may go into coefficients of f32.
struct ScaledValue {
  Value value;
  double factor = 1.0;
  Operation *product = nullptr;
};
static std::optional<ScaledValue> matchScaled(Operation *op) {
  constexpr double kMost = 0x1p10;
  auto product = dyn_cast_or_null<arith::MulFOp>(op);
  if (!product)
    return std::nullopt;
  for (auto [value, factor] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())})
    if (std::optional<double> number = getConstantLanes(factor))
      if (std::abs(*number) > 1.0 / kMost && std::abs(*number) < kMost)
        return ScaledValue{value, *number, op};
  return std::nullopt;
}

/// Whether something is made of the results of an operation.
static bool isLive(Operation *op) {
  return !isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>() ||
         llvm::any_of(op->getUsers(), isLive);
}

/// `a tanh(b x)` of vectors of f32, the cap of most scores, with as few
/// instructions as its accuracy allows: a quotient of an odd polynomial of
/// degree 9 and an even one of degree 8, whose coefficients take the factors.
/// Its own relative error is 1e-8; roundings make that 4e-7 at most.
static LogicalResult expandTanh(math::TanhOp op, PatternRewriter &rewriter) {
  auto type = dyn_cast<VectorType>(op.getType());
  if (!type || !type.getElementType().isF32())
    return failure();
  ScaledValue inner = {op.getOperand()}, outer = {op};
  if (auto scaled = matchScaled(op.getOperand().getDefiningOp()))
    inner = *scaled;
  SmallVector<Operation *> users =
      llvm::filter_to_vector(op->getUsers(), isLive);
  if (auto scaled = matchScaled(users.size() == 1 ? users.front() : nullptr))
    outer = *scaled;
  Location loc = op.getLoc();
  auto constant = [&](double number) -> Value {
    auto element = FloatAttr::get(rewriter.getF32Type(), number);
    return arith::ConstantOp::create(rewriter, loc,
                                     DenseElementsAttr::get(type, element));
  };
  // The bound where it is the smaller or the larger one; NaN stays.
  auto bound = [&](arith::CmpFPredicate predicate, double number, Value x) {
    Value limit = constant(number);
    Value exceeds = arith::CmpFOp::create(rewriter, loc, predicate, limit, x);
    return Value(arith::SelectOp::create(rewriter, loc, exceeds, limit, x));
  };
  // From here on it is the nearest number of f32 to 1, or the one before.
  const double limit = 8.1 / std::abs(inner.factor);
  Value x = bound(arith::CmpFPredicate::OLT, limit, inner.value);
  x = bound(arith::CmpFPredicate::OGT, -limit, x);
  Value square = arith::MulFOp::create(rewriter, loc, x, x);
  auto polynomial = [&](double factor, ArrayRef<double> coefficients) {
    Value sum;
    for (int64_t i = coefficients.size(); i-- > 0;) {
      Value next =
          constant(factor * coefficients[i] * std::pow(inner.factor, 2.0 * i));
      sum = sum ? Value(math::FmaOp::create(rewriter, loc, sum, square, next))
                : next;
    }
    return sum;
  };
  // Minimax by reweighted least squares, then by trials of neighbouring
  // coefficients in f32.
  Value numerator = polynomial(
      outer.factor * inner.factor,
      {1.0, 0x1.1343eep-3, 0x1.d386cap-9, 0x1.6dee94p-16, 0x1.035d84p-26});
  Value denominator = polynomial(
      1.0, {1.0, 0x1.def74ap-2, 0x1.ac64dcp-6, 0x1.64df9cp-12, 0x1.c6d592p-21});
  numerator = arith::MulFOp::create(rewriter, loc, x, numerator);
  Value quotient = arith::DivFOp::create(rewriter, loc, numerator, denominator);
  if (outer.product) {
    rewriter.replaceAllUsesWith(outer.product->getResult(0), quotient);
    // What is left of users is dead.
    quotient = constant(0.0);
  }
  rewriter.replaceOp(op, quotient);
  return success();
}

void fovea::attn::populateScoreMathPatterns(RewritePatternSet &patterns) {
  patterns.add(expandTanh, /*benefit=*/2);
}
