//===- LowerGPUMath.cpp - Math operations of NVIDIA GPUs ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERGPUMATHPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct LowerGPUMathPass
    : fovea::attn::impl::LowerGPUMathPassBase<LowerGPUMathPass> {
  using LowerGPUMathPassBase::LowerGPUMathPassBase;

  void runOnOperation() override {
    WalkResult result = getOperation()->walk([](Operation *op) -> WalkResult {
      bool isMath = isa_and_nonnull<math::MathDialect>(op->getDialect());
      if (!isMath && !isa<arith::MaxNumFOp, arith::MinNumFOp>(op))
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

  /// The value of `op` on f32 scalars, few of which f64 has, too; or null.
  static Value lower(Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Type type = op->getResult(0).getType();
    Value x = op->getOperand(0);
    if (type.isF64() && isa<math::SqrtOp>(op))
      return LLVM::CallIntrinsicOp::create(
                 b, type, b.getStringAttr("llvm.nvvm.sqrt.rn.d"), x)
          .getResult(0);
    auto fma = dyn_cast<math::FmaOp>(op);
    if (fma && (type.isF32() || type.isF64()))
      return LLVM::FMAOp::create(b, fma.getA(), fma.getB(), fma.getC());
    if (!type.isF32())
      return {};
    auto call = [&](StringRef name, Value argument) -> Value {
      return LLVM::CallIntrinsicOp::create(b, type, b.getStringAttr(name),
                                           ValueRange(argument))
          .getResult(0);
    };
    auto constant = [&](double value) -> Value {
      return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
    };
    auto times = [&](Value value, double factor) -> Value {
      return arith::MulFOp::create(b, value, constant(factor));
    };
    auto exp2 = [&](Value value) {
      return call("llvm.nvvm.ex2.approx.ftz", value);
    };
    auto log2 = [&](Value value) {
      return call("llvm.nvvm.lg2.approx.ftz.f", value);
    };
    return TypeSwitch<Operation *, Value>(op)
        .Case([&](math::Exp2Op) { return exp2(x); })
        .Case([&](math::ExpOp) { return exp2(times(x, softmax::kLog2E)); })
        .Case([&](math::Log2Op) { return log2(x); })
        .Case([&](math::LogOp) { return times(log2(x), 1 / softmax::kLog2E); })
        .Case([&](math::RsqrtOp) {
          return call("llvm.nvvm.rsqrt.approx.ftz.f", x);
        })
        .Case([&](math::SqrtOp) { return call("llvm.nvvm.sqrt.rn.f", x); })
        .Case([&](math::AbsFOp) { return call("llvm.fabs.f32", x); })
        .Case([&](arith::MaxNumFOp op) -> Value {
          return LLVM::MaxNumOp::create(b, op.getLhs(), op.getRhs());
        })
        .Case([&](arith::MinNumFOp op) -> Value {
          return LLVM::MinNumOp::create(b, op.getLhs(), op.getRhs());
        })
        .Case([&](math::TanhOp) -> Value {
          Value power = exp2(times(x, 2 * softmax::kLog2E));
          Value sum = arith::AddFOp::create(b, power, constant(1));
          Value quotient = arith::DivFOp::create(b, constant(2), sum);
          return arith::SubFOp::create(b, constant(1), quotient);
        })
        .Default([](Operation *) { return Value(); });
  }
};
} // namespace
