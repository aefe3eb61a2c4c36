//===- VectorMath.cpp - Functions of vectors ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VectorMath.h"
#include "fovea/Kernels/ElementaryMath.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <cmath>
#include <optional>

using namespace mlir;
using namespace fovea::attn;

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

/// The builder of an expansion of `op`, where it is of vectors of f32.
static std::optional<KernelBuilder> beginVector(Operation *op,
                                                PatternRewriter &rewriter) {
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (!type || type.getRank() != 1 || type.isScalable() ||
      !type.getElementType().isF32())
    return std::nullopt;
  return KernelBuilder(op->getLoc(), rewriter, rewriter.getF32Type(),
                       type.getNumElements());
}

/// The smaller of `x` and `limit`; NaN stays.
static Value atMost(KernelBuilder &b, Value x, double limit) {
  Value bound = b.splat(limit);
  Value exceeds = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, bound, x);
  return arith::SelectOp::create(b, exceeds, bound, x);
}

static Value integers(KernelBuilder &b, uint32_t value) {
  auto type = VectorType::get({b.getLanes()}, b.getI32Type());
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, APInt(32, value)));
}
static Value bitsOf(KernelBuilder &b, Value x) {
  return arith::BitcastOp::create(
      b, VectorType::get({b.getLanes()}, b.getI32Type()), x);
}

/// What is added to a number so that the nearest integer n, plus the bias of
/// exponents, is in the low bits of the sum: shifted up they are 2^n.
static constexpr double kRound = 0x1.8p23 + 127;
static Value powerOfTwo(KernelBuilder &b, Value shifted) {
  Value power =
      arith::ShLIOp::create(b, bitsOf(b, shifted), integers(b, /*value=*/23));
  return arith::BitcastOp::create(b, b.getVectorType(), power);
}

/// `exp(x)` of f32, of which softmax::exp2() is the form for exponents that
/// are not positive: here they are exact, and infinite beyond the largest
/// number. Below the least normal number it is 0. The relative error is 2e-7.
static LogicalResult expandExp(math::ExpOp op, PatternRewriter &rewriter) {
  std::optional<KernelBuilder> builder = beginVector(op, rewriter);
  if (!builder)
    return failure();
  KernelBuilder &b = *builder;
  // x = n ln(2) + f with f in [0, ln(2)], as then no power is too large for
  // one number: that of 128 is infinite, of -127 it is 0.
  Value x = atMost(b, op.getOperand(), 89.0), least = b.splat(-88.0);
  Value isBelow = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, least, x);
  x = arith::SelectOp::create(b, isBelow, least, x);
  // Rounded down, but for what hardly falls short: exp(0) is 1.
  Value shifted = b.fma(x, b.splat(0x1.715476p0), b.splat(-0.499998));
  shifted = b.fadd(shifted, b.splat(kRound));
  Value n = b.fsub(shifted, b.splat(kRound));
  // ln(2) in two parts: products with the first are exact.
  Value f = b.fma(n, b.splat(-0x1.62e4p-1), x);
  f = b.fma(n, b.splat(-0x1.7f7d1cp-20), f);
  // Minimax of degree 5 with constant term 1: relative error 8.3e-8.
  Value series = b.polynomial(f, {1.0, 0x1.000064p0, 0x1.ffde2p-2,
                                  0x1.57272cp-3, 0x1.3fff1ep-5, 0x1.7e65p-7});
  rewriter.replaceOp(op, b.fmul(series, powerOfTwo(b, shifted)));
  return success();
}

/// `erf(b x)` of f32, which takes the factor, too: a quotient of an odd
/// polynomial of degree 11 and an even one of degree 10, in few steps that wait
/// for each other. Its own relative error is 1.8e-8; roundings make that 4e-7
/// at most. No result exceeds 1.
static LogicalResult expandErf(math::ErfOp op, PatternRewriter &rewriter) {
  std::optional<KernelBuilder> builder = beginVector(op, rewriter);
  if (!builder)
    return failure();
  KernelBuilder &b = *builder;
  ScaledValue scaled = {op.getOperand()};
  if (auto found = matchScaled(op.getOperand().getDefiningOp()))
    if (found->factor > 0.0)
      scaled = *found;
  // Minimax by reweighted least squares; at 3.9 the quotient is 1.
  SmallVector<double> numerator = {0x1.20dd74p0,   0x1.847092p-3,
                                   0x1.af7542p-5,  0x1.e9ff84p-9,
                                   0x1.2ae904p-12, 0x1.155b24p-19};
  SmallVector<double> denominator = {1.0,           0x1.00ba52p-1,
                                     0x1.d23444p-4, 0x1.e8b6cp-7,
                                     0x1.2f66ep-10, 0x1.41081ep-15};
  for (auto [i, above, below] : llvm::enumerate(numerator, denominator)) {
    above *= std::pow(scaled.factor, 2.0 * i + 1.0);
    below *= std::pow(scaled.factor, 2.0 * i);
  }
  Value bits = bitsOf(b, scaled.value);
  Value sign = arith::AndIOp::create(b, bits, integers(b, 0x80000000));
  Value size = arith::AndIOp::create(b, bits, integers(b, 0x7fffffff));
  Value x = arith::BitcastOp::create(b, b.getVectorType(), size);
  x = atMost(b, x, 3.9 / scaled.factor);
  Value square = b.fmul(x, x);
  Value result =
      arith::DivFOp::create(b, b.fmul(x, b.polynomial(square, numerator)),
                            b.polynomial(square, denominator));
  result = bitsOf(b, atMost(b, result, 1.0));
  result = arith::OrIOp::create(b, result, sign);
  rewriter.replaceOp(op,
                     arith::BitcastOp::create(b, b.getVectorType(), result));
  return success();
}

void fovea::attn::populateVectorMathPatterns(RewritePatternSet &patterns) {
  populateMathPolynomialApproximationPatterns(patterns);
  patterns.add(expandExp, /*benefit=*/2);
  patterns.add(expandErf, /*benefit=*/2);
  patterns.add(expandTanh, /*benefit=*/2);
  populateElementaryMathPatterns(patterns, /*ofVectors=*/true);
}
