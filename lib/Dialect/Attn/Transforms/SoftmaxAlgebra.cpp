//===- SoftmaxAlgebra.cpp - Numerics of the streaming soft-max ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Coefficients of a polynomial for `2^f` on `[-1/2, 1/2]`, constant term
/// first.
static SmallVector<double> getExp2Coefficients(bool isDouble) {
  // Minimax of degree 5 with constant term 1; relative error 9.1e-8.
  if (!isDouble)
    return {1.0,           0x1.62e42ap-1, 0x1.ebf9bcp-3,
            0x1.c6b752p-5, 0x1.3cea88p-7, 0x1.5bba14p-10};
  // Taylor: ln(2)^k / k!; the first term left out is below 1e-17.
  SmallVector<double> coefficients = {1.0};
  for (int k = 1; k <= 13; ++k)
    coefficients.push_back(coefficients.back() * std::log(2.0) / k);
  return coefficients;
}

Value softmax::exp2(KernelBuilder &b, Value x) {
  bool isDouble = b.getStateType().isF64();
  int64_t mantissaBits = isDouble ? 52 : 23, bias = isDouble ? 1023 : 127;
  // Adding `round` leaves the nearest integer of x, plus the exponent bias, in
  // the low bits of the sum: shifted up they are the float 2^n. At the clamp n
  // is -bias, whose float is 0.
  double round = std::ldexp(1.5, mantissaBits) + bias;
  Value shifted = b.fadd(x, b.splat(round));
  shifted = b.fmax(b.splat(round - bias), shifted);
  Value fraction = b.fsub(x, b.fsub(shifted, b.splat(round)));
  // 2^f = 1 + f q(f)
  SmallVector<double> coefficients = getExp2Coefficients(isDouble);
  Value polynomial = b.splat(coefficients.back());
  for (double coefficient :
       llvm::reverse(ArrayRef(coefficients).drop_front().drop_back()))
    polynomial = b.fma(polynomial, fraction, b.splat(coefficient));
  auto intType =
      VectorType::get({b.getLanes()}, b.getIntegerType(isDouble ? 64 : 32));
  Value bits = arith::BitcastOp::create(b, intType, shifted);
  Value amount = arith::ConstantOp::create(
      b,
      DenseElementsAttr::get(
          intType, b.getIntegerAttr(intType.getElementType(), mantissaBits)));
  Value power = arith::BitcastOp::create(
      b, b.getVectorType(), arith::ShLIOp::create(b, bits, amount));
  // The fraction is not clamped. Where the power is 0 a finite fraction leaves
  // 0, and an infinite one NaN.
  return b.fma(b.fmul(fraction, power), polynomial, power);
}

Value softmax::log(KernelBuilder &b, Value x) {
  bool isDouble = b.getStateType().isF64();
  int64_t mantissaBits = isDouble ? 52 : 23;
  Type element = b.getIntegerType(isDouble ? 64 : 32), intType = element;
  if (b.getLanes())
    intType = VectorType::get({b.getLanes()}, element);
  auto integer = [&](int64_t value) -> Value {
    TypedAttr number = b.getIntegerAttr(element, value);
    if (auto type = dyn_cast<VectorType>(intType))
      number = DenseElementsAttr::get(type, number);
    return arith::ConstantOp::create(b, number);
  };
  // x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): whatever the bits have
  // above those of sqrt(1/2) belongs to the exponent.
  Value bits = arith::BitcastOp::create(b, intType, x);
  int64_t rootHalf = isDouble ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  Value above = arith::SubIOp::create(b, bits, integer(rootHalf));
  Value power = arith::ShRSIOp::create(b, above, integer(mantissaBits));
  Value shifted = arith::ShLIOp::create(b, power, integer(mantissaBits));
  Value mantissa = arith::BitcastOp::create(
      b, b.getVectorType(), arith::SubIOp::create(b, bits, shifted));
  Value n = arith::SIToFPOp::create(b, b.getVectorType(), power);
  Value f = b.fsub(mantissa, b.splat(1.0));
  // FreeBSD's log: with s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R)
  // where R approximates the odd series of log((1 + s) / (1 - s)) past 2 s.
  Value s = arith::DivFOp::create(b, f, b.fadd(b.splat(2.0), f));
  Value z = b.fmul(s, s);
  SmallVector<double> coefficients = {0xaaaaaa.0p-24, 0xccce13.0p-25,
                                      0x91e9ee.0p-25, 0xf89e26.0p-26};
  double highLn2 = 6.9313812256e-01, lowLn2 = 9.0580006145e-06;
  if (isDouble) {
    coefficients = {6.666666666666735130e-01, 3.999999999940941908e-01,
                    2.857142874366239149e-01, 2.222219843214978396e-01,
                    1.818357216161805012e-01, 1.531383769920937332e-01,
                    1.479819860511658591e-01};
    highLn2 = 6.93147180369123816490e-01;
    lowLn2 = 1.90821492927058770002e-10;
  }
  Value series = b.splat(coefficients.back());
  for (double coefficient : llvm::reverse(ArrayRef(coefficients).drop_back()))
    series = b.fma(series, z, b.splat(coefficient));
  Value half = b.fmul(b.fmul(f, f), b.splat(0.5));
  Value low = b.fma(n, b.splat(lowLn2), b.fmul(s, b.fma(series, z, half)));
  return b.fma(n, b.splat(highLn2), b.fadd(b.fsub(low, half), f));
}

/// True in lanes whose row admitted nothing. The maximum passes over NaN, which
/// the sum keeps.
static Value isEmpty(KernelBuilder &b, Value maximum, Value sum) {
  Value masked = arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, maximum,
                                       b.splat(softmax::kAdmitted));
  Value isNumber =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, sum, sum);
  return arith::AndIOp::create(b, masked, isNumber);
}

Value softmax::inverseSum(KernelBuilder &b, Value maximum, Value sum) {
  Value inverse = arith::DivFOp::create(b, b.splat(1.0), sum);
  return arith::SelectOp::create(b, isEmpty(b, maximum, sum), b.splat(0.0),
                                 inverse);
}

Value softmax::logSumExp(KernelBuilder &b, Value maximum, Value sum) {
  Value logSum = math::LogOp::create(b, sum);
  Value value = b.fma(maximum, b.splat(1.0 / softmax::kLog2E), logSum);
  Value minusInfinity = b.splat(-std::numeric_limits<double>::infinity());
  return arith::SelectOp::create(b, isEmpty(b, maximum, sum), minusInfinity,
                                 value);
}
