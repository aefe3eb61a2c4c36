//===- ScaledMath.cpp - Functions that take constant factors --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Factors of what a function is of, and of its value, become factors of
// coefficients.
//
//===----------------------------------------------------------------------===//

#include "MathBuilder.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <cmath>
#include <limits>
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

namespace {
/// A product with a constant factor that may go into coefficients of f32.
struct ScaledValue {
  Value value;
  double factor = 1.0;
  Operation *product = nullptr;
};
} // namespace

static std::optional<ScaledValue> matchScaled(Operation *op,
                                              double before = 1.0) {
  constexpr double kMost = 0x1p10;
  auto product = dyn_cast_or_null<arith::MulFOp>(op);
  if (!product)
    return std::nullopt;
  for (auto [value, factor] : {std::pair(product.getLhs(), product.getRhs()),
                               std::pair(product.getRhs(), product.getLhs())})
    if (std::optional<double> number = getConstantLanes(factor))
      if (double all = *number * before;
          std::abs(all) > 1.0 / kMost && std::abs(all) < kMost)
        return ScaledValue{value, all, op};
  return std::nullopt;
}

/// Whether something is made of the results of an operation.
static bool isLive(Operation *op) {
  return !isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>() ||
         llvm::any_of(op->getUsers(), isLive);
}

/// The coefficients of a polynomial whose powers are 1 apart by twos, from
/// `first` on, of a number times `inner`, times `outer`.
static SmallVector<double> scale(ArrayRef<double> coefficients, double inner,
                                 double outer, double first) {
  SmallVector<double> scaled;
  for (auto [i, coefficient] : llvm::enumerate(coefficients))
    scaled.push_back(outer * coefficient * std::pow(inner, 2.0 * i + first));
  return scaled;
}

/// `a tanh(b x)`, the cap of most scores, with as few instructions as its
/// accuracy allows: a quotient of an odd polynomial of degree 9 and an even one
/// of degree 8. Its own relative error is 1e-8; roundings make that 4e-7 at
/// most.
Value fovea::attn::emitScaledTanh(MathBuilder &b, math::TanhOp op,
                                  PatternRewriter &rewriter) {
  ScaledValue inner = {op.getOperand()}, outer = {op};
  // The scale of a score comes before what its function divides it by.
  while (auto scaled = matchScaled(inner.value.getDefiningOp(), inner.factor))
    inner = *scaled;
  SmallVector<Operation *> users =
      llvm::filter_to_vector(op->getUsers(), isLive);
  if (auto scaled = matchScaled(users.size() == 1 ? users.front() : nullptr))
    outer = *scaled;
  // From here on it is the nearest number of f32 to 1, or the one before.
  const double limit = 8.1 / std::abs(inner.factor);
  Value x = b.atLeast(b.atMost(inner.value, limit), -limit);
  Value square = b.fmul(x, x);
  // Minimax by reweighted least squares, then by trials of neighbouring
  // coefficients in f32.
  Value numerator = b.polynomial(
      square,
      scale({1.0, 0x1.1343eep-3, 0x1.d386cap-9, 0x1.6dee94p-16, 0x1.035d84p-26},
            inner.factor, outer.factor, /*first=*/1.0));
  Value denominator = b.polynomial(
      square,
      scale({1.0, 0x1.def74ap-2, 0x1.ac64dcp-6, 0x1.64df9cp-12, 0x1.c6d592p-21},
            inner.factor, /*outer=*/1.0, /*first=*/0.0));
  Value quotient = b.roughQuotient(b.fmul(x, numerator), denominator);
  if (!outer.product)
    return quotient;
  rewriter.replaceAllUsesWith(outer.product->getResult(0), quotient);
  // What is left of users is dead.
  return b.splat(0.0);
}

/// `erf(b x)`: a quotient of an odd polynomial of degree 11 and an even one of
/// degree 10, in few steps that wait for each other. Its own relative error is
/// 1.8e-8; roundings make that 4e-7 at most. No result exceeds 1.
Value fovea::attn::emitScaledErf(MathBuilder &b, ValueRange operands) {
  ScaledValue scaled = {operands[0]};
  if (auto found = matchScaled(operands[0].getDefiningOp()))
    if (found->factor > 0.0)
      scaled = *found;
  Value bits = b.bitsOf(scaled.value);
  Value sign = arith::AndIOp::create(
      b, bits, b.integers(std::numeric_limits<int32_t>::min()));
  Value size = arith::AndIOp::create(
      b, bits, b.integers(std::numeric_limits<int32_t>::max()));
  Value x = b.atMost(b.numberOf(size), 3.9 / scaled.factor);
  Value square = b.fmul(x, x);
  // Minimax by reweighted least squares; at 3.9 the quotient is 1.
  Value numerator = b.polynomial(
      square, scale({0x1.20dd74p0, 0x1.847092p-3, 0x1.af7542p-5, 0x1.e9ff84p-9,
                     0x1.2ae904p-12, 0x1.155b24p-19},
                    scaled.factor, /*outer=*/1.0, /*first=*/1.0));
  Value denominator =
      b.polynomial(square, scale({1.0, 0x1.00ba52p-1, 0x1.d23444p-4,
                                  0x1.e8b6cp-7, 0x1.2f66ep-10, 0x1.41081ep-15},
                                 scaled.factor, /*outer=*/1.0, /*first=*/0.0));
  Value result = b.roughQuotient(b.fmul(x, numerator), denominator);
  result = b.bitsOf(b.atMost(result, 1.0));
  return b.numberOf(arith::OrIOp::create(b, result, sign));
}
