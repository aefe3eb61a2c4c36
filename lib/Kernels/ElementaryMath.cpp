//===- ElementaryMath.cpp - Functions made of instructions ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Signs and magnitudes are computed apart: no sum cancels, results of odd
// functions are odd, and zero keeps its sign.
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ElementaryMath.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/IR/Matchers.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

namespace {
/// Numbers of f32, as scalars or in vectors.
struct MathBuilder : KernelBuilder {
  using KernelBuilder::KernelBuilder;
  using Is = arith::CmpFPredicate;

  Value is(Is how, Value x, Value y) {
    return arith::CmpFOp::create(*this, how, x, y);
  }
  Value is(Is how, Value x, double y) { return is(how, x, splat(y)); }
  Value quotient(Value x, Value y) {
    return arith::DivFOp::create(*this, x, y);
  }
  Value negative(Value x) { return arith::NegFOp::create(*this, x); }
  Value size(Value x) { return math::AbsFOp::create(*this, x); }
  Value withSign(Value size, Value of) {
    return math::CopySignOp::create(*this, size, of);
  }
  Value integers(uint32_t value) {
    Type type = getVectorType(getI32Type());
    TypedAttr number = getI32IntegerAttr(value);
    if (auto vector = dyn_cast<ShapedType>(type))
      number = DenseElementsAttr::get(vector, APInt(32, value));
    return arith::ConstantOp::create(*this, number);
  }
  Value isNegative(Value x) {
    Value bits =
        arith::BitcastOp::create(*this, getVectorType(getI32Type()), x);
    return arith::CmpIOp::create(*this, arith::CmpIPredicate::slt, bits,
                                 integers(0));
  }
};
using Is = arith::CmpFPredicate;
} // namespace

//===----------------------------------------------------------------------===//
// Angles and remainders
//===----------------------------------------------------------------------===//

/// `sin(x)`, or `cos(x)`: that of the distance to the nearest multiple of
/// pi / 2, which is found in f64 so that positions of long sequences keep all
/// digits. Beyond 2^50, where it would be lost, the result is NaN. The error is
/// 1.8e-7 at most.
static Value emitCircular(MathBuilder &b, Value x, bool isSine) {
  Type wideType = b.getVectorType(b.getF64Type());
  auto wide = [&](double number) -> Value {
    TypedAttr value = b.getF64FloatAttr(number);
    if (auto vector = dyn_cast<ShapedType>(wideType))
      value = DenseElementsAttr::get(vector, Attribute(value));
    return arith::ConstantOp::create(b, value);
  };
  Value exact = arith::ExtFOp::create(b, wideType, x);
  // The low bits of the sum are the nearest integer n.
  const double round = 0x1.8p52;
  Value shifted =
      math::FmaOp::create(b, exact, wide(0x1.45f306dc9c883p-1), wide(round));
  Value n = arith::SubFOp::create(b, shifted, wide(round));
  // pi / 2 in two parts.
  Value f = math::FmaOp::create(b, n, wide(-0x1.921fb54442d18p0), exact);
  f = math::FmaOp::create(b, n, wide(-0x1.1a62633145c07p-54), f);
  f = arith::TruncFOp::create(b, b.getVectorType(), f);
  Value quadrant = arith::TruncIOp::create(
      b, b.getVectorType(b.getI32Type()),
      arith::BitcastOp::create(b, b.getVectorType(b.getI64Type()), shifted));
  if (!isSine)
    quadrant = arith::AddIOp::create(b, quadrant, b.integers(1));
  // On [-pi / 4, pi / 4]; S. Moshier, Cephes Mathematical Library.
  Value square = b.fmul(f, f);
  Value sine = b.polynomial(
      square, {-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4});
  sine = b.fma(b.fmul(square, f), sine, f);
  sine = b.select(b.is(Is::OEQ, f, 0.0), f, sine);
  Value cosine =
      b.polynomial(square, {1.0, -0.5, 4.166664568298827e-2,
                            -1.388731625493765e-3, 2.443315711809948e-5});
  auto isSet = [&](uint32_t bit) -> Value {
    Value masked = arith::AndIOp::create(b, quadrant, b.integers(bit));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, masked,
                                 b.integers(0));
  };
  Value result = b.select(isSet(1), cosine, sine);
  result = b.select(isSet(2), b.negative(result), result);
  return b.select(b.is(Is::OLT, b.size(x), 0x1p50), result, b.splat(kNaN));
}
static Value emitSin(MathBuilder &b, ValueRange x) {
  return emitCircular(b, x[0], /*isSine=*/true);
}
static Value emitCos(MathBuilder &b, ValueRange x) {
  return emitCircular(b, x[0], /*isSine=*/false);
}

/// The angle of the smaller of two magnitudes, with what that leaves to the
/// axis of the larger one.
static Value emitAtan2(MathBuilder &b, ValueRange operands) {
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

/// What is left of `x` by whole numbers of `y`, with its sign. It is exact, as
/// f64 has all digits of the difference; NaN where the quotient exceeds 2^52.
static Value emitRemainder(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], y = operands[1];
  Type wideType = b.getF64Type();
  Value size = arith::ExtFOp::create(b, wideType, b.size(x));
  Value step = arith::ExtFOp::create(b, wideType, b.size(y));
  auto wide = [&](double number) -> Value {
    return arith::ConstantOp::create(b, b.getF64FloatAttr(number));
  };
  Value ratio = b.quotient(size, step);
  Value times = math::TruncOp::create(b, ratio);
  Value rest = math::FmaOp::create(b, b.negative(times), step, size);
  // A quotient that was rounded may be one too large.
  Value isBelow = b.is(Is::OLT, rest, wide(0.0));
  rest = b.select(isBelow, arith::AddFOp::create(b, rest, step), rest);
  Value isKnown = b.is(Is::OLT, ratio, wide(0x1p52));
  Value isWhole = b.is(Is::OEQ, step, wide(kInfinity));
  rest = b.select(isKnown, rest, wide(kNaN));
  rest = arith::TruncFOp::create(b, b.getF32Type(), rest);
  rest = b.select(isWhole, b.size(x), rest);
  Value isNone = b.is(Is::UEQ, b.size(x), b.splat(kInfinity));
  return b.select(isNone, b.splat(kNaN), b.withSign(rest, x));
}

//===----------------------------------------------------------------------===//
// Powers and roots
//===----------------------------------------------------------------------===//

/// What logarithms give, and a step of Newton's.
static Value emitCbrt(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x);
  // No logarithm is of a number below the least normal one.
  Value isSmall = b.is(Is::OLT, size, 0x1p-60);
  Value scaled = b.select(isSmall, b.fmul(size, b.splat(0x1p90)), size);
  Value root = math::Log2Op::create(b, scaled);
  root = math::Exp2Op::create(b, b.fmul(root, b.splat(1.0 / 3.0)));
  Value excess = b.fsub(root, b.quotient(scaled, b.fmul(root, root)));
  root = b.fma(excess, b.splat(-1.0 / 3.0), root);
  root = b.select(isSmall, b.fmul(root, b.splat(0x1p-30)), root);
  root = b.withSign(root, x);
  Value isNumber = arith::AndIOp::create(b, b.is(Is::OGT, size, 0.0),
                                         b.is(Is::OLT, size, kInfinity));
  return b.select(isNumber, root, x);
}

/// `x^y`; as IEEE says of zeros, infinities, NaN and negative numbers.
static Value emitPower(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], y = operands[1];
  Value size = b.size(x), one = b.splat(1.0);
  Value log = math::Log2Op::create(b, size);
  Value power = math::Exp2Op::create(b, b.fmul(y, log));
  auto either = [&](Value p, Value q) -> Value {
    return arith::OrIOp::create(b, p, q);
  };
  auto both = [&](Value p, Value q) -> Value {
    return arith::AndIOp::create(b, p, q);
  };
  power = b.select(either(b.is(Is::OEQ, size, 1.0), b.is(Is::OEQ, y, 0.0)), one,
                   power);
  Value half = b.fmul(y, b.splat(0.5));
  Value isOdd = both(b.is(Is::OEQ, math::FloorOp::create(b, y), y),
                     b.is(Is::UNE, math::FloorOp::create(b, half), half));
  power = b.select(both(b.isNegative(x), isOdd), b.negative(power), power);
  // There is none of a negative number, unless it is infinite.
  Value isNone = both(both(b.is(Is::OLT, x, 0.0), b.is(Is::OGT, x, -kInfinity)),
                      b.is(Is::UNE, math::FloorOp::create(b, y), y));
  return b.select(isNone, b.splat(kNaN), power);
}

/// To constants that are small integers: products. MLIR has those of 1, 2 and
/// 3, roots, and the inverses of these.
static Value emitPowF(MathBuilder &b, ValueRange operands) {
  APFloat exponent(0.0f);
  if (!matchPattern(operands[1], m_ConstantFloat(&exponent)))
    return emitPower(b, operands);
  double number = exponent.convertToDouble();
  if (std::abs(number) == 0.5 || std::abs(number) == 1.0 ||
      std::abs(number) == 2.0 || number == 3.0 || number == 0.0)
    return {};
  constexpr double kMost = 64.0;
  if (number != std::floor(number) || std::abs(number) > kMost)
    return emitPower(b, operands);
  Value integer =
      arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(number)));
  return math::FPowIOp::create(b, operands[0], integer);
}

/// The power to a negative constant is the inverse of one, where zero keeps
/// its sign: MLIR's takes it for less than zero.
static LogicalResult invertNegativePower(math::FPowIOp op,
                                         PatternRewriter &rewriter) {
  APInt exponent;
  if (!isa<FloatType>(op.getType()) ||
      !matchPattern(op.getRhs(), m_ConstantInt(&exponent)) ||
      !exponent.isNegative() || exponent.isMinSignedValue())
    return failure();
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  Value size = arith::ConstantOp::create(
      b, b.getIntegerAttr(op.getRhs().getType(), -exponent));
  Value one = arith::ConstantOp::create(b, b.getFloatAttr(op.getType(), 1.0));
  Value power = math::FPowIOp::create(b, op.getLhs(), size);
  rewriter.replaceOpWithNewOp<arith::DivFOp>(op, one, power);
  return success();
}

//===----------------------------------------------------------------------===//
// Hyperbolic functions
//===----------------------------------------------------------------------===//

/// Half of `exp(x)`, and of its inverse; infinite only where the half is.
static std::pair<Value, Value> emitHalves(MathBuilder &b, Value size) {
  Value root = math::ExpOp::create(b, b.fmul(size, b.splat(0.5)));
  Value half = b.fmul(root, b.splat(0.5));
  return {b.fmul(half, root), b.quotient(b.quotient(b.splat(0.5), root), root)};
}
static Value emitCosh(MathBuilder &b, ValueRange x) {
  auto [half, inverse] = emitHalves(b, b.size(x[0]));
  return b.fadd(half, inverse);
}
static Value emitSinh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x);
  auto [half, inverse] = emitHalves(b, size);
  // Near zero it is what `exp` has more than 1.
  Value more = math::ExpM1Op::create(b, size);
  Value near = b.fmul(
      b.splat(0.5), b.fadd(more, b.quotient(more, b.fadd(more, b.splat(1.0)))));
  Value isNear = b.is(Is::OLT, size, 1.0);
  return b.withSign(b.select(isNear, near, b.fsub(half, inverse)), x);
}

/// `log(2 x)`, of which half may be the greatest number.
static Value emitLogOfTwice(MathBuilder &b, Value x) {
  return b.fadd(math::LogOp::create(b, x), b.splat(M_LN2));
}
/// From here on the square has no digit more than that and 1.
static constexpr double kFar = 0x1p13;

static Value emitAsinh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x), one = b.splat(1.0);
  Value square = b.fmul(size, size);
  Value root = math::SqrtOp::create(b, b.fadd(square, one));
  Value near = math::Log1pOp::create(
      b, b.fadd(size, b.quotient(square, b.fadd(root, one))));
  Value isFar = b.is(Is::OGT, size, kFar);
  return b.withSign(b.select(isFar, emitLogOfTwice(b, size), near), x);
}
static Value emitAcosh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], more = b.fsub(x, b.splat(1.0));
  Value square = b.fma(more, more, b.fadd(more, more));
  Value near =
      math::Log1pOp::create(b, b.fadd(more, math::SqrtOp::create(b, square)));
  near = b.select(b.is(Is::OLT, x, 1.0), b.splat(kNaN), near);
  return b.select(b.is(Is::OGT, x, kFar), emitLogOfTwice(b, x), near);
}
static Value emitAtanh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x);
  Value ratio = b.quotient(b.fadd(size, size), b.fsub(b.splat(1.0), size));
  Value twice = math::Log1pOp::create(b, ratio);
  return b.withSign(b.fmul(twice, b.splat(0.5)), x);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
using Emitter = Value (*)(MathBuilder &, ValueRange);

/// A function of vectors or scalars of f32, before MLIR's pattern for it.
struct EmitFunction : RewritePattern {
  EmitFunction(MLIRContext *context, StringRef name, Emitter emit,
               bool ofVectors)
      : RewritePattern(name, /*benefit=*/2, context), emit(emit),
        ofVectors(ofVectors) {}

  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    Type type = op->getResult(0).getType();
    int64_t lanes = 0;
    if (ofVectors) {
      auto vector = dyn_cast<VectorType>(type);
      if (!vector || vector.getRank() != 1 || vector.isScalable())
        return failure();
      lanes = vector.getNumElements();
      type = vector.getElementType();
    }
    if (!type.isF32())
      return failure();
    MathBuilder b(op->getLoc(), rewriter, rewriter.getF32Type(), lanes);
    Value result = emit(b, op->getOperands());
    if (!result)
      return failure();
    rewriter.replaceOp(op, result);
    return success();
  }

private:
  Emitter emit;
  bool ofVectors;
};
} // namespace

template <typename Function>
static void add(RewritePatternSet &patterns, Emitter emit, bool ofVectors) {
  patterns.add<EmitFunction>(patterns.getContext(),
                             Function::getOperationName(), emit, ofVectors);
}

void fovea::attn::populateElementaryMathPatterns(RewritePatternSet &patterns,
                                                 bool ofVectors) {
  add<math::SinOp>(patterns, emitSin, ofVectors);
  add<math::CosOp>(patterns, emitCos, ofVectors);
  add<math::Atan2Op>(patterns, emitAtan2, ofVectors);
  add<math::CbrtOp>(patterns, emitCbrt, ofVectors);
}

void fovea::attn::populateIntegerPowerPatterns(RewritePatternSet &patterns) {
  patterns.add(invertNegativePower, /*benefit=*/2);
  math::populateExpansionPatterns(
      patterns, {math::FPowIOp::getOperationName().split('.').second});
}

void fovea::attn::populateScalarMathPatterns(RewritePatternSet &patterns) {
  constexpr bool ofVectors = false;
  populateElementaryMathPatterns(patterns, ofVectors);
  populateIntegerPowerPatterns(patterns);
  add<arith::RemFOp>(patterns, emitRemainder, ofVectors);
  add<math::PowFOp>(patterns, emitPowF, ofVectors);
  add<math::SinhOp>(patterns, emitSinh, ofVectors);
  add<math::CoshOp>(patterns, emitCosh, ofVectors);
  add<math::AsinhOp>(patterns, emitAsinh, ofVectors);
  add<math::AcoshOp>(patterns, emitAcosh, ofVectors);
  add<math::AtanhOp>(patterns, emitAtanh, ofVectors);
}
