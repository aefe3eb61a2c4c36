//===- SoftmaxAlgebra.cpp - Numerics of the streaming soft-max ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "MathBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// `value` in every lane of a vector like `like`, or alone.
static Value constantLike(KernelBuilder &b, Value like, double value) {
  return isa<VectorType>(like.getType()) ? b.splat(value) : b.scalar(value);
}

Value softmax::isMasked(KernelBuilder &b, Value score) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, score,
                               constantLike(b, score, kAdmitted));
}

Value softmax::hide(KernelBuilder &b, Value isHidden, Value weight) {
  return arith::SelectOp::create(b, isHidden, constantLike(b, weight, kHidden),
                                 weight);
}

Value softmax::isHidden(KernelBuilder &b, Value weight) {
  Type type = b.getIntegerType(b.getStateType().getWidth());
  APInt sign = APInt::getSignMask(b.getStateType().getWidth());
  TypedAttr number = b.getIntegerAttr(type, sign);
  if (auto vector = dyn_cast<VectorType>(weight.getType())) {
    type = vector.clone(type);
    number = DenseElementsAttr::get(cast<ShapedType>(type), sign);
  }
  return arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                               arith::BitcastOp::create(b, type, weight),
                               arith::ConstantOp::create(b, number));
}

Value softmax::addVisible(KernelBuilder &b, Value weight, Value factor,
                          Value sum) {
  return arith::SelectOp::create(b, isHidden(b, weight), sum,
                                 b.fma(weight, factor, sum));
}

KernelBuilder::Values
softmax::unlessFinite(KernelBuilder &b, ValueRange sums,
                      function_ref<KernelBuilder::Values()> again) {
  // Zero times what is not finite is NaN. Some chains: one would be waited for.
  Value zero = constantLike(b, sums.front(), 0.0);
  KernelBuilder::Values chains(std::min<size_t>(4, sums.size()), zero);
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value &chain = chains[i % chains.size()];
    chain = isa<VectorType>(sum.getType()) ? b.fma(sum, zero, chain)
                                           : b.fadd(b.fmul(sum, zero), chain);
  }
  Value total = chains.front();
  for (Value chain : ArrayRef(chains).drop_front())
    total = b.fadd(total, chain);
  Value isFinite =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, total, total);
  if (isa<VectorType>(total.getType()))
    isFinite =
        vector::ReductionOp::create(b, vector::CombiningKind::AND, isFinite);
  auto choice = scf::IfOp::create(b, TypeRange(sums), isFinite,
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(b, sums);
  b.setInsertionPointToStart(choice.elseBlock());
  KernelBuilder::Values repeated = again();
  scf::YieldOp::create(b, repeated);
  return KernelBuilder::Values(choice.getResults());
}

/// The first terms of the series of `2^x`: ln(2)^k / k!.
static SmallVector<double> getTaylorCoefficients(int degree) {
  SmallVector<double> coefficients = {1.0};
  for (int k = 1; k <= degree; ++k)
    coefficients.push_back(coefficients.back() * std::log(2.0) / k);
  return coefficients;
}

/// A vector by an instruction of AVX-512 on whole registers.
static Value callAVX512(KernelBuilder &b, StringRef instruction,
                        ValueRange operands) {
  std::string name = ("llvm.x86.avx512." + instruction).str();
  name += b.getStateType().isF64() ? ".pd.512" : ".ps.512";
  return LLVM::CallIntrinsicOp::create(b, b.getVectorType(),
                                       b.getStringAttr(name), operands)
      .getResult(0);
}

/// The elements of two vectors, one after the other, at the places that the low
/// bits of `index` give.
static Value lookUp(KernelBuilder &b, Value low, Value high, Value index) {
  return callAVX512(b, "vpermi2var", {low, index, high});
}

/// `a 2^floor(exponent)`.
static Value scale(KernelBuilder &b, Value a, Value exponent) {
  auto integer = [&](unsigned width, int64_t value) -> Value {
    return arith::ConstantOp::create(
        b, b.getIntegerAttr(b.getIntegerType(width), value));
  };
  Value allLanes = integer(b.getLanes(), -1);
  Value currentRounding = integer(32, 4);
  return callAVX512(b, "mask.scalef",
                    {a, exponent, a, allLanes, currentRounding});
}

/// `2^x` by a table of two vectors, from the rounding of `x` to a step of it.
/// What is left is so small that the series needs few terms.
static Value exp2ByTable(KernelBuilder &b, Value x) {
  bool isDouble = b.getStateType().isF64();
  int64_t lanes = b.getLanes(), size = 2 * lanes;
  SmallVector<double> powers;
  for (int64_t j = 0; j < size; ++j)
    powers.push_back(std::exp2(static_cast<double>(j) / size));
  // Minimax of degree 2 with constant term 1: relative error 5.4e-8.
  SmallVector<double> coefficients = {1.0, 0x1.62e584p-1, 0x1.ebfc1ap-3};
  if (isDouble) // the first term left out is below 2e-18
    coefficients = getTaylorCoefficients(/*degree=*/7);
  // Adding `round` leaves size * n + j in the low bits of the sum.
  Value round = b.splat(std::ldexp(1.5, isDouble ? 52 : 23) / size);
  Value shifted = b.fadd(x, round);
  Value whole = b.fsub(shifted, round);
  Value fraction = b.fsub(x, whole);
  auto intType = VectorType::get({lanes}, b.getIntegerType(isDouble ? 64 : 32));
  Value index = arith::BitcastOp::create(b, intType, shifted);
  Value power = lookUp(b, b.constant(ArrayRef(powers).take_front(lanes)),
                       b.constant(ArrayRef(powers).drop_front(lanes)), index);
  // Scaled first: at minus infinity the power is 0 and the fraction NaN, and so
  // is the result. A NaN scaled by minus infinity would be 0.
  power = scale(b, power, whole);
  // 2^f = 1 + f q(f)
  Value factor = b.polynomial(fraction, ArrayRef(coefficients).drop_front());
  return b.fma(b.fmul(power, fraction), factor, power);
}

Value softmax::exp2(KernelBuilder &b, Value x) {
  bool isDouble = b.getStateType().isF64();
  // Vectors of 512 bits are those of AVX-512.
  if (b.getLanes() * b.getStateType().getWidth() == 512)
    return exp2ByTable(b, x);
  int64_t mantissaBits = isDouble ? 52 : 23, bias = isDouble ? 1023 : 127;
  // Adding `round` leaves the nearest integer of x, plus the exponent bias, in
  // the low bits of the sum: shifted up they are the float 2^n. At the clamp n
  // is -bias, whose float is 0.
  double round = std::ldexp(1.5, mantissaBits) + bias;
  Value shifted = b.fadd(x, b.splat(round));
  shifted = b.fmax(b.splat(round - bias), shifted);
  Value fraction = b.fsub(x, b.fsub(shifted, b.splat(round)));
  // Minimax of degree 5 with constant term 1: relative error 9.1e-8.
  SmallVector<double> coefficients = {1.0,           0x1.62e42ap-1,
                                      0x1.ebf9bcp-3, 0x1.c6b752p-5,
                                      0x1.3cea88p-7, 0x1.5bba14p-10};
  if (isDouble) // the first term left out is below 1e-17
    coefficients = getTaylorCoefficients(/*degree=*/13);
  // 2^f = 1 + f q(f)
  Value factor = b.polynomial(fraction, ArrayRef(coefficients).drop_front());
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
  return b.fma(b.fmul(fraction, power), factor, power);
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
  // With s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + s^2 P(s^2)).
  Value s = arith::DivFOp::create(b, f, b.fadd(b.splat(2.0), f));
  Value z = b.fmul(s, s);
  double highLn2 = isDouble ? 6.93147180369123816490e-01 : 6.9313812256e-01;
  double lowLn2 = isDouble ? 1.90821492927058770002e-10 : 9.0580006145e-06;
  Value series = b.polynomial(z, getLogarithmTerms(isDouble));
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

std::pair<Value, Value> softmax::startWithSink(KernelBuilder &b, Value sink) {
  auto number = [&](double value) { return constantLike(b, sink, value); };
  Value score = b.fmul(sink, number(kLog2E)), zero = number(0.0);
  Value sum = b.fadd(b.fmul(sink, zero), number(1.0));
  return {b.fmax(number(kAdmitted), score),
          arith::SelectOp::create(b, isMasked(b, score), zero, sum)};
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

Value softmax::logCount(KernelBuilder &k, Value count) {
  Value number = arith::SIToFPOp::create(k, k.getVectorType(), count);
  Value zero = k.splat(0.0);
  Value log = softmax::log(k, number);
  Value isZero =
      arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, number, zero);
  Value isNegative =
      arith::CmpFOp::create(k, arith::CmpFPredicate::OLT, number, zero);
  Value ofZero = k.splat(-std::numeric_limits<double>::infinity());
  Value ofNegative = k.splat(std::numeric_limits<double>::quiet_NaN());
  log = arith::SelectOp::create(k, isZero, ofZero, log);
  return arith::SelectOp::create(k, isNegative, ofNegative, log);
}
