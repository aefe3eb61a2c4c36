//===- VectorizeConv.cpp - Vector code of sums of convolutions ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZECONVPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeConvPass
    : fovea::attn::impl::VectorizeConvPassBase<VectorizeConvPass> {
  using VectorizeConvPassBase::VectorizeConvPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    WalkResult result = getOperation().walk([&](ConvApplyOp op) -> WalkResult {
      if (failed(fovea::attn::detail::verifyVectorOperands(op)))
        return WalkResult::interrupt();
      ConvPlan plan = planConv(op, vectorBits, numRegisters, splitVectors);
      plan.separateAdds = separateAdds;
      remark::passed(op.getLoc(), remark::RemarkOpts::name("ConvPlanned")
                                      .category("attn-vectorize-conv"))
          << remark::metric("Algorithm", stringifyConvAlgorithm(plan.algorithm))
          << remark::metric("Lanes", plan.lanes)
          << remark::metric("Block", plan.block)
          << remark::metric("PiecesAbreast", plan.abreast);
      OpBuilder builder(op);
      if (plan.algorithm == ConvAlgorithm::Toeplitz)
        emitConvToeplitz(builder, op, plan);
      else
        emitConvPartitioned(builder, op, plan);
      op.erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
