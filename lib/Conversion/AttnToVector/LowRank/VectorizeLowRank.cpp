//===- VectorizeLowRank.cpp - Vector code of low-rank ops -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZELOWRANKPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeLowRankPass
    : fovea::attn::impl::VectorizeLowRankPassBase<VectorizeLowRankPass> {
  using VectorizeLowRankPassBase::VectorizeLowRankPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    RegisterFile registers = {vectorBits, numRegisters};
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<RopeOp, RopeBackwardOp, PolynomialFeaturesOp,
               PolynomialFeaturesBackwardOp, LowRankOp, LowRankBackwardOp>(op))
        return WalkResult::advance();
      if (failed(fovea::attn::detail::verifyVectorOperands(op)))
        return WalkResult::interrupt();
      OpBuilder builder(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case<RopeOp, RopeBackwardOp>(
              [&](auto op) { emitRope(builder, op, vectorBits); })
          .Case([&](PolynomialFeaturesOp op) {
            emitPolynomialFeatures(builder, op, vectorBits);
          })
          .Case([&](PolynomialFeaturesBackwardOp op) {
            emitPolynomialFeaturesBackward(builder, op, vectorBits);
          })
          .Case([&](LowRankOp op) {
            emitLowRankSum(builder, op.getLoc(), getLowRankSum(op), registers);
          })
          .Case([&](LowRankBackwardOp op) {
            emitLowRankBackward(builder, op, registers);
          });
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
