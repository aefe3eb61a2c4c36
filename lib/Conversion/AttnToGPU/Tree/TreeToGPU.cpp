//===- TreeToGPU.cpp - GPU kernels of trees of averages -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUTreeKernels.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {
#define GEN_PASS_DEF_TREETOGPUPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct TreeToGPUPass : fovea::attn::impl::TreeToGPUPassBase<TreeToGPUPass> {
  void runOnOperation() override {
    auto emit = [](OpBuilder &builder, auto op) -> LogicalResult {
      // Scores are only compared, in any type.
      if (!isa<TreeSplitOp>(op) && failed(verifyGPUElementTypes(op)))
        return failure();
      emitTreeLoops(builder, op);
      return success();
    };
    if (failed(
            replaceOnMemrefs<TreeBuildOp, TreeMaterializeOp, TreeFetchOp,
                             TreeUpdateOp, TreeSplitOp>(getOperation(), emit)))
      signalPassFailure();
  }
};
} // namespace
