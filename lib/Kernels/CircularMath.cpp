//===- CircularMath.cpp - Functions of angles -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MathBuilder.h"
#include "fovea/Kernels/CosineSine.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;
using Is = arith::CmpFPredicate;

/// The low bits of a number less than 2^51 and this one are the nearest
/// integer.
static constexpr double kRound = 0x1.8p52;
/// Beyond, the nearest multiple of pi / 2 is not known.
static constexpr double kFar = 0x1p50;

namespace {
/// An angle as a multiple of pi / 2, added to kRound, and what is left.
struct ReducedAngle {
  Value shifted, rest;
};
} // namespace

/// Of numbers of f64 less than kFar.
static ReducedAngle reduceAngle(MathBuilder &b, Value x, bool isExactF32) {
  Value shifted = b.exactFma(x, b.splat(0x1.45f306dc9c883p-1), b.splat(kRound));
  Value n = b.fsub(shifted, b.splat(kRound));
  // pi / 2 in parts; f32 is satisfied with two.
  Value f = b.exactFma(n, b.splat(-0x1.921fb54442d18p0), x);
  f = b.exactFma(n, b.splat(-0x1.1a62633145c07p-54), f);
  if (!isExactF32)
    f = b.exactFma(n, b.splat(0x1.f1976b7ed8fbcp-110), f);
  return {shifted, f};
}

/// Of any number of f32, in f64. Products of its 24 bits with parts of 2 / pi
/// that have 28 are exact, and so is what is left of each by multiples of 4.
static ReducedAngle reduceFarAngle(MathBuilder &b, Value x) {
  constexpr double kParts[] = {
      0x1.45f306cp-1,   0x1.c9c882ap-29, 0x1.4fe13a8p-59, 0x1.f47d4dp-86,
      0x1.bb81b6cp-113, 0x1.4acc9ep-143, 0x1.0e4107cp-170};
  Value quarters;
  for (double part : kParts) {
    Value product = b.fmul(x, b.splat(part));
    Value turns = math::RoundEvenOp::create(b, b.fmul(product, b.splat(0.25)));
    Value left = b.exactFma(turns, b.splat(-4.0), product);
    quarters = quarters ? b.fadd(quarters, left) : left;
  }
  Value shifted = b.fadd(quarters, b.splat(kRound));
  Value left = b.fsub(quarters, b.fsub(shifted, b.splat(kRound)));
  return {shifted, b.fmul(left, b.splat(M_PI_2))};
}

/// Of any number of f32, few of which are far.
static ReducedAngle reduceAngleOfF32(MathBuilder &b, Value x) {
  ReducedAngle near = reduceAngle(b, x, /*isExactF32=*/true);
  Value isFar = b.is(Is::UGE, b.size(x), kFar);
  Value isAnyFar = isFar;
  if (b.getLanes())
    isAnyFar = vector::ReductionOp::create(b, vector::CombiningKind::OR, isFar);
  auto branch = scf::IfOp::create(b, TypeRange{x.getType(), x.getType()},
                                  isAnyFar, /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange{near.shifted, near.rest});
  b.setInsertionPointToStart(branch.thenBlock());
  ReducedAngle far = reduceFarAngle(b, x);
  scf::YieldOp::create(b, ValueRange{b.select(isFar, far.shifted, near.shifted),
                                     b.select(isFar, far.rest, near.rest)});
  return {branch.getResult(0), branch.getResult(1)};
}

/// Cosine and sine: those of the distance to the nearest multiple of pi / 2,
/// which is found in f64 so that positions of long sequences keep all digits.
/// The error is 1.8e-7 at most, of f64 2e-16; NaN of f64 beyond kFar.
static std::pair<Value, Value> emitCircular(MathBuilder &b, Value x) {
  if (b.isF64()) {
    auto [shifted, rest] = reduceAngle(b, x, /*isExactF32=*/false);
    auto [cosine, sine] = emitCosineSine(b, rest, b.bitsOf(shifted));
    Value isNear = b.is(Is::OLT, b.size(x), kFar), none = b.splat(kNaN);
    // What is left of a zero has no sign.
    sine = b.select(b.is(Is::OEQ, x, 0.0), x, sine);
    return {b.select(isNear, cosine, none), b.select(isNear, sine, none)};
  }
  MathBuilder wide(b.getLoc(), b, b.getF64Type(), b.getLanes());
  auto [shifted, rest] =
      reduceAngleOfF32(wide, arith::ExtFOp::create(b, wide.getVectorType(), x));
  Value angle = arith::TruncFOp::create(b, b.getVectorType(), rest);
  Value quarters =
      arith::TruncIOp::create(b, b.getBitsType(), wide.bitsOf(shifted));
  return emitCosineSine(b, angle, quarters);
}
Value fovea::attn::emitSin(MathBuilder &b, ValueRange x) {
  return emitCircular(b, x[0]).second;
}
Value fovea::attn::emitCos(MathBuilder &b, ValueRange x) {
  return emitCircular(b, x[0]).first;
}

/// That of the distance to an angle whose tangent is 0, 1 or infinite: what is
/// left has a tangent t of at most tan(pi / 8), and atan(t) = t + t^3 P(t^2).
/// The relative error of that is 3e-9, or 4e-18.
Value fovea::attn::emitAtan(MathBuilder &b, ValueRange operands) {
  Value size = b.size(operands[0]), one = b.splat(1.0);
  Value isFar = b.is(Is::OGT, size, 2.414213562373095);
  Value isMiddle = b.is(Is::OGT, size, 0.4142135623730950);
  auto byPlace = [&](Value far, Value middle, Value near) {
    return b.select(isFar, far, b.select(isMiddle, middle, near));
  };
  Value above = byPlace(b.splat(-1.0), b.fsub(size, one), size);
  Value below = byPlace(size, b.fadd(size, one), one);
  Value t = b.quotient(above, below), square = b.fmul(t, t);
  Value series = b.polynomialByType(
      square,
      {-0x1.555554p-2, 0x1.99973p-3, -0x1.24202ep-3, 0x1.b80f88p-4,
       -0x1.08432cp-4},
      {-0x1.5555555555555p-2, 0x1.9999999999953p-3, -0x1.249249248d7dcp-3,
       0x1.c71c71c303dbbp-4, -0x1.745d165dc9713p-4, 0x1.3b1392d519db1p-4,
       -0x1.110e87b4357d2p-4, 0x1.e19a0bfa3eef9p-5, -0x1.ac7a5a79b3f26p-5,
       0x1.74dccfb93fffp-5, -0x1.1b311bb48c215p-5, 0x1.0acd9e91a5a35p-6});
  Value angle = b.fma(b.fmul(t, square), series, t);
  // The digits of pi / 2 that f64 has no place for.
  if (b.isF64()) {
    constexpr double kMore = 6.123233995736765886130e-17;
    angle = b.fadd(angle,
                   byPlace(b.splat(kMore), b.splat(kMore / 2), b.splat(0.0)));
  }
  angle =
      b.fadd(angle, byPlace(b.splat(M_PI_2), b.splat(M_PI_4), b.splat(0.0)));
  return b.withSign(angle, operands[0]);
}

/// The angle of the smaller of two magnitudes, with what that leaves to the
/// axis of the larger one.
Value fovea::attn::emitAtan2(MathBuilder &b, ValueRange operands) {
  Value y = operands[0], x = operands[1];
  Value height = b.size(y), width = b.size(x);
  Value isSteep = b.is(Is::OGT, height, width);
  Value less = b.select(isSteep, width, height);
  Value more = b.select(isSteep, height, width);
  Value ratio = b.quotient(less, more);
  // Those of two zeros and of two infinities are what IEEE says.
  ratio = b.select(b.is(Is::OEQ, more, 0.0), b.splat(0.0), ratio);
  ratio = b.select(b.is(Is::OEQ, less, kInfinity), b.splat(1.0), ratio);
  Value angle = math::AtanOp::create(b, ratio);
  angle = b.select(isSteep, b.fsub(b.splat(M_PI_2), angle), angle);
  angle = b.select(b.isNegative(x), b.fsub(b.splat(M_PI), angle), angle);
  angle = b.withSign(angle, y);
  return b.select(b.is(Is::UNO, x, y), b.splat(kNaN), angle);
}

/// The angle of a point of the circle: no digit is lost near 1.
Value fovea::attn::emitAsin(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], one = b.splat(1.0);
  Value square = b.fmul(b.fsub(one, x), b.fadd(one, x));
  return math::Atan2Op::create(b, x, math::SqrtOp::create(b, square));
}
Value fovea::attn::emitAcos(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], one = b.splat(1.0);
  Value half = math::Atan2Op::create(b, math::SqrtOp::create(b, b.fsub(one, x)),
                                     math::SqrtOp::create(b, b.fadd(one, x)));
  return b.fadd(half, half);
}
