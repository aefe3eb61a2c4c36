//===- TreeToGPU.cpp - GPU kernels of trees of averages -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULaunch.h"
#include "GPUTreeKernels.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_TREETOGPUPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct TreeToGPUPass : fovea::attn::impl::TreeToGPUPassBase<TreeToGPUPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<TreeBuildOp, TreeMaterializeOp, TreeFetchOp, TreeUpdateOp,
               TreeSplitOp>(op) ||
          op->getNumResults() != 0)
        return WalkResult::advance();
      ops.push_back(op);
      // Scores are only compared, in any type.
      if (!isa<TreeSplitOp>(op) && failed(verifyGPUElementTypes(op)))
        return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (Operation *op : ops) {
      OpBuilder builder(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case<TreeBuildOp, TreeMaterializeOp, TreeFetchOp, TreeUpdateOp,
                TreeSplitOp>([&](auto tree) { emitTreeLoops(builder, tree); });
      op->erase();
    }
  }
};
} // namespace
