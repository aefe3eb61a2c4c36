//===- VectorizeSummarizeBackward.cpp - Gradients of summaries ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LevelGroups.h"
#include "SummarizeBackwardKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZESUMMARIZEBACKWARDPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Whether `next` continues a group that ends in `last`.
static bool isNextLevel(SummarizeBackwardOp last, SummarizeBackwardOp next) {
  auto sets = [](SummarizeBackwardOp op) {
    return cast<MemRefType>(op.getWeights().getType()).getDimSize(0);
  };
  return next.getInput() == last.getInput() &&
         next.getDInput() == last.getDInput() &&
         next.getRank() == last.getRank() && sets(next) == sets(last) &&
         next.getInterval() == 2 * last.getInterval();
}

namespace {
struct VectorizeSummarizeBackwardPass
    : fovea::attn::impl::VectorizeSummarizeBackwardPassBase<
          VectorizeSummarizeBackwardPass> {
  using VectorizeSummarizeBackwardPassBase::VectorizeSummarizeBackwardPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    SmallVector<SummarizeBackwardOp> ops;
    WalkResult result = getOperation().walk([&](SummarizeBackwardOp op) {
      ops.push_back(op);
      return WalkResult(fovea::attn::detail::verifyVectorOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();

    auto &aliases = getAnalysis<AliasAnalysis>();
    for (ArrayRef<SummarizeBackwardOp> levels :
         groupLevels<SummarizeBackwardOp>(
             ops, aliases, isNextLevel,
             [](SummarizeBackwardOp op) { return op.getDInput(); })) {
      OpBuilder builder(levels.back());
      SummarizeBackwardKernel(builder, levels, {vectorBits, numRegisters},
                              minTasks)
          .emit();
      for (SummarizeBackwardOp op : levels)
        op.erase();
    }
  }
};
} // namespace
