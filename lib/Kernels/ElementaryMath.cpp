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
#include "MathBuilder.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/IR/Matchers.h"
#include <optional>

using namespace mlir;
using namespace fovea::attn;
using Is = arith::CmpFPredicate;

//===----------------------------------------------------------------------===//
// Remainders
//===----------------------------------------------------------------------===//

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

static Value emitRsqrt(MathBuilder &b, ValueRange x) {
  return b.quotient(b.splat(1.0), math::SqrtOp::create(b, x[0]));
}

/// `x^y`; as IEEE says of zeros, infinities, NaN and negative numbers.
static Value emitPower(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], y = operands[1];
  Value size = b.size(x), one = b.splat(1.0);
  // What is lost of the logarithm of f32 would be many digits of the power.
  auto widen = [&](Value number) -> Value {
    if (b.isF64())
      return number;
    return arith::ExtFOp::create(b, b.getF64Type(), number);
  };
  Value log = math::Log2Op::create(b, widen(size));
  log = arith::MulFOp::create(b, widen(y), log);
  Value power = math::Exp2Op::create(b, log);
  if (!b.isF64())
    power = arith::TruncFOp::create(b, b.getF32Type(), power);
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
static double getFar(const MathBuilder &b) { return b.byType(0x1p13, 0x1p28); }

static Value emitAsinh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], size = b.size(x), one = b.splat(1.0);
  Value square = b.fmul(size, size);
  Value root = math::SqrtOp::create(b, b.fadd(square, one));
  Value near = math::Log1pOp::create(
      b, b.fadd(size, b.quotient(square, b.fadd(root, one))));
  Value isFar = b.is(Is::OGT, size, getFar(b));
  return b.withSign(b.select(isFar, emitLogOfTwice(b, size), near), x);
}
static Value emitAcosh(MathBuilder &b, ValueRange operands) {
  Value x = operands[0], more = b.fsub(x, b.splat(1.0));
  Value square = b.fma(more, more, b.fadd(more, more));
  Value near =
      math::Log1pOp::create(b, b.fadd(more, math::SqrtOp::create(b, square)));
  near = b.select(b.is(Is::OLT, x, 1.0), b.splat(kNaN), near);
  return b.select(b.is(Is::OGT, x, getFar(b)), emitLogOfTwice(b, x), near);
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

/// Which numbers a function is known of.
enum class Of { F32, F64, Either };
} // namespace

/// The builder of a function of vectors or of scalars; none where the function
/// is of others.
static std::optional<MathBuilder>
begin(Operation *op, PatternRewriter &rewriter, bool ofVectors, Of of) {
  Type type = op->getResult(0).getType();
  int64_t lanes = 0;
  if (ofVectors) {
    auto vector = dyn_cast<VectorType>(type);
    if (!vector || vector.getRank() != 1 || vector.isScalable())
      return std::nullopt;
    lanes = vector.getNumElements();
    type = vector.getElementType();
  }
  if (!(type.isF32() && of != Of::F64) && !(type.isF64() && of != Of::F32))
    return std::nullopt;
  return std::optional<MathBuilder>(std::in_place, op->getLoc(), rewriter,
                                    cast<FloatType>(type), lanes);
}

namespace {
/// A function, before MLIR's pattern for it.
struct EmitFunction : RewritePattern {
  EmitFunction(MLIRContext *context, StringRef name, Emitter emit,
               bool ofVectors, Of of)
      : RewritePattern(name, /*benefit=*/2, context), emit(emit),
        ofVectors(ofVectors), of(of) {}

  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    std::optional<MathBuilder> b = begin(op, rewriter, ofVectors, of);
    Value result = b ? emit(*b, op->getOperands()) : Value();
    if (!result)
      return failure();
    rewriter.replaceOp(op, result);
    return success();
  }

private:
  Emitter emit;
  bool ofVectors;
  Of of;
};

struct EmitTanh : OpRewritePattern<math::TanhOp> {
  EmitTanh(MLIRContext *context, bool ofVectors)
      : OpRewritePattern(context, /*benefit=*/2), ofVectors(ofVectors) {}

  LogicalResult matchAndRewrite(math::TanhOp op,
                                PatternRewriter &rewriter) const override {
    std::optional<MathBuilder> b = begin(op, rewriter, ofVectors, Of::F32);
    if (!b)
      return failure();
    rewriter.replaceOp(op, emitScaledTanh(*b, op, rewriter));
    return success();
  }

private:
  bool ofVectors;
};

/// Adds functions of one kind.
struct Functions {
  RewritePatternSet &patterns;
  bool ofVectors;
  Of of;

  template <typename Function> void add(Emitter emit) {
    patterns.add<EmitFunction>(patterns.getContext(),
                               Function::getOperationName(), emit, ofVectors,
                               of);
  }
};
} // namespace

void fovea::attn::populateElementaryMathPatterns(RewritePatternSet &patterns,
                                                 bool ofVectors) {
  Functions functions{patterns, ofVectors, Of::F32};
  functions.add<math::ExpOp>(emitExp);
  functions.add<math::SinOp>(emitSin);
  functions.add<math::CosOp>(emitCos);
  functions.add<math::AtanOp>(emitAtan);
  functions.add<math::Atan2Op>(emitAtan2);
  functions.add<math::CbrtOp>(emitCbrt);
  functions.add<math::ErfOp>(emitScaledErf);
  patterns.add<EmitTanh>(patterns.getContext(), ofVectors);
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
  Functions either{patterns, ofVectors, Of::Either};
  either.add<math::PowFOp>(emitPowF);
  either.add<math::ExpM1Op>(emitExpM1);
  either.add<math::LogOp>(emitLog);
  either.add<math::Log10Op>(emitLog10);
  either.add<math::Log1pOp>(emitLog1p);
  either.add<math::ErfcOp>(emitErfc);
  either.add<math::AsinOp>(emitAsin);
  either.add<math::AcosOp>(emitAcos);
  either.add<math::SinhOp>(emitSinh);
  either.add<math::CoshOp>(emitCosh);
  either.add<math::AsinhOp>(emitAsinh);
  either.add<math::AcoshOp>(emitAcosh);
  either.add<math::AtanhOp>(emitAtanh);
  Functions single{patterns, ofVectors, Of::F32};
  single.add<arith::RemFOp>(emitRemainder);
  Functions wide{patterns, ofVectors, Of::F64};
  wide.add<math::ExpOp>(emitExp);
  wide.add<math::Exp2Op>(emitExp2);
  wide.add<math::Log2Op>(emitLog2);
  wide.add<math::RsqrtOp>(emitRsqrt);
  wide.add<math::SinOp>(emitSin);
  wide.add<math::CosOp>(emitCos);
  wide.add<math::AtanOp>(emitAtan);
  wide.add<math::Atan2Op>(emitAtan2);
  wide.add<math::CbrtOp>(emitCbrt);
  wide.add<math::ErfOp>(emitErf);
  wide.add<math::TanhOp>(emitTanh);
}
