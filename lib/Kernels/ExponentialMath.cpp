//===- ExponentialMath.cpp - Exponentials, logarithms, error functions ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Polynomials interpolate at Chebyshev's points, in arithmetic of 40 digits or
// more, unless they say otherwise.
//
//===----------------------------------------------------------------------===//

#include "MathBuilder.h"

using namespace mlir;
using namespace fovea::attn;
using Is = arith::CmpFPredicate;

// ln(2) in two parts: products of the first with exponents are exact.
static double getLn2High(const MathBuilder &b) {
  return b.byType(0x1.62e4p-1, 0x1.62e42fee00000p-1);
}
static double getLn2Low(const MathBuilder &b) {
  return b.byType(0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
}
static constexpr double kLog2E = 0x1.71547652b82fep0;

/// How many bits of a number are behind its exponent.
static int64_t getFractionBits(const MathBuilder &b) {
  return b.byType<int64_t>(23, 52);
}

//===----------------------------------------------------------------------===//
// Exponentials
//===----------------------------------------------------------------------===//

/// `x`, which is added to what is nearly half, rounded down: that, and, in
/// the low bits of a number, that plus the bias of exponents. Shifted up they
/// are 2^n.
static std::pair<Value, Value> roundDown(MathBuilder &b, Value lessHalf) {
  Value round = b.splat(b.byType(0x1.8p23 + 127, 0x1.8p52 + 1023));
  Value shifted = b.fadd(lessHalf, round);
  return {b.fsub(shifted, round), shifted};
}

/// `exp(f) 2^n` for `f` in [0, ln(2)], as then no power is too large for one
/// number: that of the largest n is infinite, of the smallest one it is 0.
static Value emitScaledSeries(MathBuilder &b, Value f, Value shifted) {
  // Of f32 minimax of degree 5 with constant term 1: relative error 8.3e-8.
  // Of f64 it is 3e-19.
  Value series = b.polynomialByType(
      f,
      {1.0, 0x1.000064p0, 0x1.ffde2p-2, 0x1.57272cp-3, 0x1.3fff1ep-5,
       0x1.7e65p-7},
      {1.0, 1.0, 0x1.0000000000001p-1, 0x1.555555555540fp-3,
       0x1.555555555de90p-5, 0x1.1111110f34f41p-7, 0x1.6c16c1e5c6ad3p-10,
       0x1.a019edf05cc23p-13, 0x1.a01c19346e200p-16, 0x1.71b861cb04038p-19,
       0x1.29a6b048d0217p-22, 0x1.94347f4ca344fp-26, 0x1.8c01de4b9dc02p-29});
  Value power = arith::ShLIOp::create(b, b.bitsOf(shifted),
                                      b.integers(getFractionBits(b)));
  return b.fmul(series, b.numberOf(power));
}

/// What falls hardly short is not rounded down: exp(0) is 1.
static double getNearlyHalf(const MathBuilder &b) {
  return b.byType(0.499998, 0.4999999999);
}

/// `exp(x)`, of which softmax::exp2() is the form for exponents that are not
/// positive: here they are exact, and infinite beyond the largest number. Below
/// the least normal number it is 0. The relative error is 2e-7, of f64 4e-16.
Value fovea::attn::emitExp(MathBuilder &b, ValueRange operands) {
  Value x = b.atMost(operands[0], b.byType(89.0, 710.0));
  x = b.atLeast(x, b.byType(-88.0, -709.0));
  // x = n ln(2) + f.
  auto [n, shifted] =
      roundDown(b, b.fma(x, b.splat(kLog2E), b.splat(-getNearlyHalf(b))));
  Value f = b.fma(n, b.splat(-getLn2High(b)), x);
  f = b.fma(n, b.splat(-getLn2Low(b)), f);
  return emitScaledSeries(b, f, shifted);
}

Value fovea::attn::emitExp2(MathBuilder &b, ValueRange operands) {
  Value x = b.atMost(operands[0], b.byType(128.0, 1024.0));
  x = b.atLeast(x, b.byType(-127.0, -1023.0));
  auto [n, shifted] = roundDown(b, b.fsub(x, b.splat(getNearlyHalf(b))));
  Value f = b.fmul(b.fsub(x, n), b.splat(M_LN2));
  return emitScaledSeries(b, f, shifted);
}

/// `exp(x) - 1`: near zero by a series of its own.
Value fovea::attn::emitExpM1(MathBuilder &b, ValueRange operands) {
  Value x = operands[0];
  Value far = b.fsub(math::ExpOp::create(b, x), b.splat(1.0));
  // Relative errors of (exp(x) - 1 - x) / x^2 of 3e-8, and 3e-18.
  Value series = b.polynomialByType(
      x,
      {0x1.000000p-1, 0x1.555556p-3, 0x1.55538p-5, 0x1.111040p-7,
       0x1.6e88dcp-10, 0x1.a2463ap-13},
      {0x1.0000000000000p-1, 0x1.5555555555555p-3, 0x1.555555555558ep-5,
       0x1.1111111111120p-7, 0x1.6c16c16c02003p-10, 0x1.a01a01a00ef0fp-13,
       0x1.a01a01f8a44eap-16, 0x1.71de3a84a10c3p-19, 0x1.27e450c2e35f7p-22,
       0x1.ae63a07779c78p-26, 0x1.201cd8001288bp-29, 0x1.6267cf434f12cp-33});
  Value near = b.fma(b.fmul(x, x), series, x);
  // The square of a zero has no sign.
  near = b.select(b.is(Is::OEQ, x, 0.0), x, near);
  return b.select(b.is(Is::OLT, b.size(x), 0.5), near, far);
}

Value fovea::attn::emitTanh(MathBuilder &b, ValueRange operands) {
  // From 20 on it is 1.
  Value size = b.atMost(b.size(operands[0]), 20.0);
  Value more = math::ExpM1Op::create(b, b.fadd(size, size));
  return b.withSign(b.quotient(more, b.fadd(more, b.splat(2.0))), operands[0]);
}

//===----------------------------------------------------------------------===//
// Logarithms
//===----------------------------------------------------------------------===//

namespace {
/// A positive number as 2^exponent m, with m in [sqrt(1/2), sqrt(2)].
struct Logarithm {
  Value exponent;
  /// The sum of the two is ln(m): what is not known exactly is less.
  Value first, rest;
};
} // namespace

/// Absolute errors of s^3 P(s^2) are 1e-10, or 2e-18.
ArrayRef<double> fovea::attn::getLogarithmTerms(bool isF64) {
  static constexpr double kSingle[] = {0x1.555556p-1, 0x1.9999ecp-2,
                                       0x1.245c4p-2, 0x1.ddcf72p-3};
  static constexpr double kWide[] = {0x1.5555555555558p-1, 0x1.99999999952d7p-2,
                                     0x1.2492492df281ap-2, 0x1.c71c62e3f11e6p-3,
                                     0x1.7462b51cb66b1p-3, 0x1.39fe51a7c18f9p-3,
                                     0x1.2b5900de53b32p-3};
  return isF64 ? ArrayRef<double>(kWide) : ArrayRef<double>(kSingle);
}

/// With s = f / (2 + f) and h = f^2 / 2, ln(1 + f) = 2 atanh(s) is
/// f - (h - s (h + s^2 P(s^2))).
static Logarithm emitLogarithm(MathBuilder &b, Value x) {
  double least = b.byType(0x1p-126, 0x1p-1022);
  int64_t fractionBits = getFractionBits(b), shift = fractionBits + 2;
  Value isSmall = b.is(Is::OLT, x, least);
  Value normal =
      b.select(isSmall, b.fmul(x, b.splat(std::ldexp(1.0, shift))), x);
  // That of sqrt(1/2) becomes the least number with its exponent.
  Value bits = b.bitsOf(normal),
        offset = b.integers(b.byType<int64_t>(0x3f3504f3, 0x3fe6a09e667f3bcd));
  Value exponent = arith::ShRSIOp::create(
      b, arith::SubIOp::create(b, bits, offset), b.integers(fractionBits));
  Value m = arith::SubIOp::create(
      b, bits,
      arith::ShLIOp::create(b, exponent, b.integers(fractionBits)).getResult());
  Value whole = arith::SIToFPOp::create(b, b.getVectorType(), exponent);
  whole = b.select(isSmall, b.fsub(whole, b.splat(shift)), whole);

  Value f = b.fsub(b.numberOf(m), b.splat(1.0));
  Value s = b.roughQuotient(f, b.fadd(f, b.splat(2.0)));
  Value square = b.fmul(s, s);
  Value series = b.polynomial(square, getLogarithmTerms(b.isF64()));
  series = b.fmul(square, series);
  Value half = b.fmul(b.fmul(f, f), b.splat(0.5));
  Value rest = b.fsub(b.fmul(s, b.fadd(half, series)), half);
  return {whole, f, rest};
}

/// What IEEE says of logarithms of other numbers than positive ones.
static Value finishLogarithm(MathBuilder &b, Value x, Value log) {
  Value isPositive = arith::AndIOp::create(b, b.is(Is::OGT, x, 0.0),
                                           b.is(Is::OLT, x, kInfinity));
  Value other = b.select(b.is(Is::OLT, x, 0.0), b.splat(kNaN), x);
  other = b.select(b.is(Is::OEQ, x, 0.0), b.splat(-kInfinity), other);
  return b.select(isPositive, log, other);
}

Value fovea::attn::emitLog(MathBuilder &b, ValueRange operands) {
  auto [exponent, first, rest] = emitLogarithm(b, operands[0]);
  Value low = b.fma(exponent, b.splat(getLn2Low(b)), rest);
  Value log = b.fma(exponent, b.splat(getLn2High(b)), b.fadd(first, low));
  return finishLogarithm(b, operands[0], log);
}

/// Exact of powers of two.
Value fovea::attn::emitLog2(MathBuilder &b, ValueRange operands) {
  auto [exponent, first, rest] = emitLogarithm(b, operands[0]);
  Value log = b.fma(b.fadd(first, rest), b.splat(kLog2E), exponent);
  return finishLogarithm(b, operands[0], log);
}

Value fovea::attn::emitLog10(MathBuilder &b, ValueRange operands) {
  auto [exponent, first, rest] = emitLogarithm(b, operands[0]);
  Value log = b.fmul(exponent, b.splat(std::log10(2.0)));
  log = b.fma(b.fadd(first, rest), b.splat(1.0 / std::log(10.0)), log);
  return finishLogarithm(b, operands[0], log);
}

/// The logarithm of what 1 + x is rounded to, times what that misses of x: W.
/// Kahan.
Value fovea::attn::emitLog1p(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], one = b.splat(1.0), sum = b.fadd(x, one);
  Value log = math::LogOp::create(b, sum);
  Value scaled = b.fmul(x, b.quotient(log, b.fsub(sum, one)));
  Value isNone = arith::OrIOp::create(b, b.is(Is::OEQ, sum, 1.0),
                                      b.is(Is::OEQ, sum, kInfinity));
  return b.select(isNone, x, scaled);
}

//===----------------------------------------------------------------------===//
// Error functions
//===----------------------------------------------------------------------===//

/// `erfc(x)`; below the least normal number it is 0.
Value fovea::attn::emitErfc(MathBuilder &b, ValueRange operands) {
  // (1 + 2 a) exp(a^2) erfc(a) is smooth in (a - c) / (a + c) for all a. Its
  // relative error is 1.2e-8, or 2e-18.
  Value a = b.atMost(b.size(operands[0]), b.byType(10.6, 27.5));
  Value c = b.splat(b.byType(2.0, 4.0)), one = b.splat(1.0);
  Value t = b.quotient(b.fsub(a, c), b.fadd(a, c));
  Value smooth = b.polynomialByType(
      t,
      {0x1.46e80ep+0, -0x1.7bf602p-4, -0x1.540848p-3, 0x1.4ffb36p-3,
       -0x1.bc0a92p-5, -0x1.079df8p-7, 0x1.1af2e2p-7, 0x1.4d408ep-10,
       -0x1.479a9p-10, -0x1.79384cp-12, 0x1.d7a11cp-16},
      {0x1.3ba5916e9fd7fp+0,   -0x1.1df1ad154a28fp-3,  0x1.f7f5df66fd6b2p-7,
       0x1.16ecefcfa5420p-4,   -0x1.9ddb23c3e88bdp-4,  0x1.7fee004e11047p-4,
       -0x1.0fb06dfe55b64p-4,  0x1.3079edf6afb72p-5,   -0x1.096238829a103p-6,
       0x1.49c672795ae39p-8,   -0x1.8d4a9c358d161p-11, -0x1.a1df1d0157977p-13,
       0x1.3be068468cff1p-13,  -0x1.995a165bfb90ap-16, -0x1.788cb6125d278p-17,
       0x1.7f2e89022af89p-18,  0x1.3b7bf198a88ddp-22,  -0x1.bb383d84837e4p-21,
       0x1.4093bbdb2244ap-24,  0x1.d8f553235570ep-24,  -0x1.33de9402c1f5dp-26,
       -0x1.e45a279d29f94p-27, 0x1.f8e6ce33532f4p-30,  0x1.58a12a6de32b3p-30});
  smooth = b.quotient(smooth, b.fma(a, b.splat(2.0), one));
  // The square in two parts, as its last digits are many of the power's.
  Value square = b.fmul(a, a), below = b.exactFma(a, a, b.negative(square));
  Value power = math::ExpOp::create(b, b.negative(square));
  power = b.fma(b.negative(power), below, power);
  Value result = b.fmul(smooth, power);
  Value isBelow = b.is(Is::OLT, operands[0], 0.0);
  return b.select(isBelow, b.fsub(b.splat(2.0), result), result);
}

/// Below 1 by a polynomial, with a relative error of 1.5e-19.
Value fovea::attn::emitErf(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x), square = b.fmul(x, x);
  Value near = b.polynomial(
      square,
      {0x1.20dd750429b6dp+0, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b30p-4,
       -0x1.b82ce31284e00p-6, 0x1.565bcd0dbaa38p-8, -0x1.c02db3dac435fp-11,
       0x1.f9a321d5b8e1ep-14, -0x1.f4d1e3183f7aep-17, 0x1.b9df224ca4b97p-20,
       -0x1.5f1ecb6f0764cp-23, 0x1.f7b4bf3b13964p-27, -0x1.389d4f2641625p-30,
       0x1.05ffd737fb32ep-34});
  Value far = math::ErfcOp::create(b, size);
  far = b.withSign(b.fsub(b.splat(1.0), far), x);
  return b.select(b.is(Is::OLT, size, 1.0), b.fmul(x, near), far);
}
