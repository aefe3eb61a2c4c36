//===- ConvToGPU.cpp - GPU kernels of sums of convolutions ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvLoops.h"
#include "GPULaunch.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CONVTOGPUPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static LogicalResult emitConvApply(OpBuilder &builder, ConvApplyOp op,
                                   F32Math math) {
  ConvAlgorithm algorithm = op.getAlgorithm();
  if (algorithm != ConvAlgorithm::Auto && algorithm != ConvAlgorithm::Toeplitz)
    return op.emitOpError("by algorithm '")
           << stringifyConvAlgorithm(algorithm)
           << "' has no form for GPUs; use 'toeplitz', or compile it for the "
              "CPU";
  emitConvToeplitzLoops(builder, op, math);
  return success();
}

namespace {
struct ConvToGPUPass : fovea::attn::impl::ConvToGPUPassBase<ConvToGPUPass> {
  using ConvToGPUPassBase::ConvToGPUPassBase;

  void runOnOperation() override {
    std::optional<F32Math> math = requireF32Math(getOperation(), f32);
    if (!math)
      return signalPassFailure();
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<ConvApplyOp, ConvRecoverOp>(op) || op->getNumResults() != 0)
        return WalkResult::advance();
      if (failed(verifyGPUElementTypes(op)))
        return WalkResult::interrupt();
      OpBuilder builder(op);
      if (auto recover = dyn_cast<ConvRecoverOp>(op))
        emitConvRecoverLoops(builder, recover, *math);
      else if (failed(emitConvApply(builder, cast<ConvApplyOp>(op), *math)))
        return WalkResult::interrupt();
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
