//===- LowerGPUMath.cpp - Math operations of NVIDIA GPUs ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/ElementaryMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERGPUMATHPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Functions that are made from those that are instructions.
static bool isComposed(Operation *op) {
  if (isa<arith::CeilDivSIOp, arith::CeilDivUIOp, arith::FloorDivSIOp>(op))
    return true;
  if (op->getNumResults() != 1)
    return false;
  Type type = op->getResult(0).getType();
  if (isa<math::Exp2Op, math::Log2Op, math::RsqrtOp>(op))
    return type.isF64();
  if (isa<arith::RemFOp>(op))
    return type.isF32();
  return isa<math::AcosOp, math::AcoshOp, math::AsinOp, math::AsinhOp,
             math::Atan2Op, math::AtanOp, math::AtanhOp, math::CbrtOp,
             math::CosOp, math::CoshOp, math::ErfOp, math::ErfcOp, math::ExpOp,
             math::ExpM1Op, math::FPowIOp, math::LogOp, math::Log10Op,
             math::Log1pOp, math::PowFOp, math::SinOp, math::SinhOp,
             math::TanOp, math::TanhOp>(op) &&
         (type.isF32() || type.isF64());
}

static LogicalResult compose(Operation *module) {
  SmallVector<Operation *> ops;
  module->walk([&](Operation *op) {
    if (isComposed(op))
      ops.push_back(op);
  });
  if (ops.empty())
    return success();
  RewritePatternSet patterns(module->getContext());
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  populateScalarMathPatterns(patterns);
  math::populateExpansionPatterns(patterns, {"powf", "tan"});
  GreedyRewriteConfig config;
  config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
  return applyOpPatternsGreedily(ops, std::move(patterns), config);
}

/// A quotient whose last digit does not matter.
static bool isRoughQuotient(Operation *op) {
  auto quotient = dyn_cast<arith::DivFOp>(op);
  return quotient && quotient.getType().isF32() &&
         quotient.getFastmath() == arith::FastMathFlags::afn;
}

static bool isFunction(Operation *op) {
  return isRoughQuotient(op) ||
         isa_and_nonnull<math::MathDialect>(op->getDialect()) ||
         isa<arith::MaxNumFOp, arith::MinNumFOp, arith::RemFOp>(op);
}

/// Makes functions of numbers of 16 bits those of f32, which are rounded.
static void widen(Operation *module) {
  auto isNarrow = [](Type type) { return type.isF16() || type.isBF16(); };
  module->walk([&](Operation *op) {
    if (!isFunction(op) || !isNarrow(op->getResult(0).getType()))
      return;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    for (OpOperand &operand : op->getOpOperands())
      if (isNarrow(operand.get().getType()))
        operand.set(arith::ExtFOp::create(b, b.getF32Type(), operand.get()));
    Value result = op->getResult(0);
    Type type = result.getType();
    result.setType(b.getF32Type());
    b.setInsertionPointAfter(op);
    auto rounded = arith::TruncFOp::create(b, type, result);
    result.replaceAllUsesExcept(rounded, rounded);
  });
}

namespace {
struct LowerGPUMathPass
    : fovea::attn::impl::LowerGPUMathPassBase<LowerGPUMathPass> {
  using LowerGPUMathPassBase::LowerGPUMathPassBase;

  void runOnOperation() override {
    widen(getOperation());
    if (failed(compose(getOperation())))
      return signalPassFailure();
    WalkResult result = getOperation()->walk([](Operation *op) -> WalkResult {
      if (!isFunction(op))
        return WalkResult::advance();
      Value value = lower(op);
      if (!value) {
        op->emitOpError("on ") << op->getResult(0).getType()
                               << " has no instruction on NVIDIA GPUs";
        return WalkResult::interrupt();
      }
      op->replaceAllUsesWith(ValueRange(value));
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

  /// Whether a number is NaN, infinite or finite, of any type.
  static Value classify(ImplicitLocOpBuilder &b, Operation *op) {
    Value x = op->getOperand(0);
    if (isa<math::IsNaNOp>(op))
      return arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
    auto type = cast<FloatType>(x.getType());
    auto compare = [&](arith::CmpFPredicate how, bool isNegative) -> Value {
      APFloat number = APFloat::getInf(type.getFloatSemantics(), isNegative);
      Value infinity =
          arith::ConstantOp::create(b, b.getFloatAttr(type, number));
      return arith::CmpFOp::create(b, how, x, infinity);
    };
    if (isa<math::IsInfOp>(op)) {
      Value above = compare(arith::CmpFPredicate::OEQ, /*isNegative=*/false);
      Value below = compare(arith::CmpFPredicate::OEQ, /*isNegative=*/true);
      return arith::OrIOp::create(b, above, below);
    }
    Value isBelow = compare(arith::CmpFPredicate::OLT, /*isNegative=*/false);
    Value isAbove = compare(arith::CmpFPredicate::OGT, /*isNegative=*/true);
    return arith::AndIOp::create(b, isBelow, isAbove);
  }

  /// The value of `op` on numbers of f32 or f64 that are not computed, but
  /// rounded, compared or given a sign; or null.
  static Value lowerAnyFloat(ImplicitLocOpBuilder &b, Operation *op) {
    Type type = op->getResult(0).getType();
    if (!type.isF32() && !type.isF64())
      return {};
    if (auto most = dyn_cast<arith::MaxNumFOp>(op))
      return LLVM::MaxNumOp::create(b, most.getLhs(), most.getRhs());
    if (auto least = dyn_cast<arith::MinNumFOp>(op))
      return LLVM::MinNumOp::create(b, least.getLhs(), least.getRhs());
    StringRef name =
        TypeSwitch<Operation *, StringRef>(op)
            .Case([](math::FloorOp) { return "llvm.floor"; })
            .Case([](math::CeilOp) { return "llvm.ceil"; })
            .Case([](math::TruncOp) { return "llvm.trunc"; })
            .Case([](math::RoundOp) { return "llvm.round"; })
            .Case([](math::RoundEvenOp) { return "llvm.roundeven"; })
            .Case([](math::AbsFOp) { return "llvm.fabs"; })
            .Case([](math::CopySignOp) { return "llvm.copysign"; })
            .Default([](Operation *) { return ""; });
    if (name.empty())
      return {};
    StringRef suffix = type.isF32() ? ".f32" : ".f64";
    return LLVM::CallIntrinsicOp::create(
               b, type, b.getStringAttr(name + suffix), op->getOperands())
        .getResult(0);
  }

  /// The value of `op` on f32 scalars, few of which f64 has, too; or null.
  static Value lower(Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Type type = op->getResult(0).getType();
    Value x = op->getOperand(0);
    if (type.isF64() && isa<math::SqrtOp>(op))
      return LLVM::CallIntrinsicOp::create(
                 b, type, b.getStringAttr("llvm.nvvm.sqrt.rn.d"), x)
          .getResult(0);
    if (Value value = lowerAnyFloat(b, op))
      return value;
    auto fma = dyn_cast<math::FmaOp>(op);
    if (fma && (type.isF32() || type.isF64()))
      return LLVM::FMAOp::create(b, fma.getA(), fma.getB(), fma.getC());
    if (isa<math::AbsIOp>(op))
      return LLVM::AbsOp::create(b, type, x, /*isIntMinPoison=*/false);
    if (isa<math::IsNaNOp, math::IsInfOp, math::IsFiniteOp>(op))
      return classify(b, op);
    if (!type.isF32())
      return {};
    auto call = [&](StringRef name, ValueRange arguments) -> Value {
      return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name),
                                           arguments)
          .getResult(0);
    };
    return TypeSwitch<Operation *, Value>(op)
        .Case([&](math::Exp2Op) { return call("llvm.nvvm.ex2.approx.ftz", x); })
        // Of numbers below the least normal one, too, which would be zero.
        .Case([&](math::Log2Op) { return call("llvm.nvvm.lg2.approx.f", x); })
        .Case(
            [&](math::RsqrtOp) { return call("llvm.nvvm.rsqrt.approx.f", x); })
        .Case([&](math::SqrtOp) { return call("llvm.nvvm.sqrt.rn.f", x); })
        // `div.approx` is the same, but for divisors below the normal ones.
        .Case([&](arith::DivFOp quotient) {
          return LLVM::FMulOp::create(
              b, x, call("llvm.nvvm.rcp.approx.ftz.f", quotient.getRhs()));
        })
        .Default([](Operation *) { return Value(); });
  }
};
} // namespace
