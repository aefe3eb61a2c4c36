//===- MathBuilder.h - Emission of elementary functions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What elementary functions are made of: comparisons, bits and signs.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_KERNELS_MATHBUILDER_H
#define FOVEA_LIB_KERNELS_MATHBUILDER_H

#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/PatternMatch.h"
#include <limits>

namespace fovea::attn {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Numbers of f32 or f64, as scalars or in vectors.
struct MathBuilder : KernelBuilder {
  using KernelBuilder::KernelBuilder;
  using Value = mlir::Value;
  using Is = mlir::arith::CmpFPredicate;

  bool isF64() const { return getStateType().isF64(); }
  /// One of two constants, by the type of numbers.
  template <typename T> T byType(T single, T wide) const {
    return isF64() ? wide : single;
  }
  /// A polynomial with the coefficients for the type of numbers.
  Value polynomialByType(Value x, llvm::ArrayRef<double> single,
                         llvm::ArrayRef<double> wide) {
    return polynomial(x, byType(single, wide));
  }

  Value is(Is how, Value x, Value y) {
    return mlir::arith::CmpFOp::create(*this, how, x, y);
  }
  Value is(Is how, Value x, double y) { return is(how, x, splat(y)); }
  /// The smaller of `x` and `limit`, and the larger one; NaN stays.
  Value atMost(Value x, double limit) {
    Value bound = splat(limit);
    return select(is(Is::OLT, bound, x), bound, x);
  }
  Value atLeast(Value x, double limit) {
    Value bound = splat(limit);
    return select(is(Is::OGT, bound, x), bound, x);
  }

  /// One that is rounded once on every CPU: fma() is not on those without an
  /// instruction.
  Value exactFma(Value x, Value y, Value z) {
    return mlir::math::FmaOp::create(*this, x, y, z);
  }
  Value quotient(Value x, Value y) {
    return mlir::arith::DivFOp::create(*this, x, y);
  }
  /// One whose last digit does not matter, of a divisor far from the ends of
  /// the range: GPUs have an instruction for that of f32.
  Value roughQuotient(Value x, Value y) {
    if (getLanes() || isF64())
      return quotient(x, y);
    return mlir::arith::DivFOp::create(*this, x, y,
                                       mlir::arith::FastMathFlags::afn);
  }
  Value negative(Value x) { return mlir::arith::NegFOp::create(*this, x); }
  Value size(Value x) { return mlir::math::AbsFOp::create(*this, x); }
  Value withSign(Value size, Value of) {
    return mlir::math::CopySignOp::create(*this, size, of);
  }

  // Integers as wide as the numbers.
  mlir::Type getBitsType() {
    return getVectorType(getIntegerType(getStateType().getWidth()));
  }
  Value integers(int64_t value) {
    mlir::Type type = getBitsType();
    mlir::TypedAttr number = getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vector = mlir::dyn_cast<mlir::ShapedType>(type))
      number = mlir::DenseElementsAttr::get(vector, mlir::Attribute(number));
    return mlir::arith::ConstantOp::create(*this, number);
  }
  Value bitsOf(Value x) {
    return mlir::arith::BitcastOp::create(*this, getBitsType(), x);
  }
  Value numberOf(Value bits) {
    return mlir::arith::BitcastOp::create(*this, getVectorType(), bits);
  }
  Value isNegative(Value x) {
    return mlir::arith::CmpIOp::create(*this, mlir::arith::CmpIPredicate::slt,
                                       bitsOf(x), integers(0));
  }
};

/// The terms of P, where 2 atanh(s) = 2 s + s^3 P(s^2), for what logarithms of
/// numbers from sqrt(1/2) to sqrt(2) need.
llvm::ArrayRef<double> getLogarithmTerms(bool isF64);

// The value of a function of its operands.
mlir::Value emitExp(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitExp2(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitExpM1(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitLog(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitLog2(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitLog10(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitLog1p(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitErfc(MathBuilder &b, mlir::ValueRange operands);
// Of f64.
mlir::Value emitErf(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitTanh(MathBuilder &b, mlir::ValueRange operands);
// Of f32; they take constant factors before, and that of tanh behind it.
mlir::Value emitScaledErf(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitScaledTanh(MathBuilder &b, mlir::math::TanhOp op,
                           mlir::PatternRewriter &rewriter);

mlir::Value emitSin(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitCos(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitAsin(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitAcos(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitAtan(MathBuilder &b, mlir::ValueRange operands);
mlir::Value emitAtan2(MathBuilder &b, mlir::ValueRange operands);

} // namespace fovea::attn

#endif // FOVEA_LIB_KERNELS_MATHBUILDER_H
