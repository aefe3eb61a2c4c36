//===- SummarizeToVector.cpp - Vector code of summaries -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeBackwardKernel.h"
#include "SummarizeKernel.h"
#include "fovea/Conversion/Interfaces/LevelGroups.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea::attn;

static void emitLevels(ArrayRef<SummarizeOp> levels, OpBuilder &builder,
                       VectorLowering &lowering) {
  SummarizeOp last = levels.back();
  SummarizePlan plan = planSummaries(levels, lowering.cpu.getRegisters());
  std::string intervals =
      llvm::join(llvm::map_range(levels,
                                 [](SummarizeOp op) {
                                   return std::to_string(op.getInterval());
                                 }),
                 ", ");
  remark::passed(last.getLoc(), remark::RemarkOpts::name("summaries")
                                    .category(SummarizeOp::getOperationName()))
      << llvm::formatv("one nest for intervals of {0} rows: chunks of {1} "
                       "rows, tiles of {2} sums by {3} {4} by {5} columns",
                       intervals, plan.chunk, plan.rankBlock, plan.streams,
                       plan.streamsAreHeads ? "heads" : "intervals", plan.lanes)
             .str();
  emitSummaries(builder, levels, plan);
}

static void emitLevels(ArrayRef<SummarizeBackwardOp> levels, OpBuilder &builder,
                       VectorLowering &lowering) {
  SummarizeBackwardKernel(builder, levels, lowering.cpu.getRegisters(),
                          lowering.minTasks)
      .emit();
}

namespace {
/// One loop nest computes several levels of an input.
template <typename OpTy>
struct LevelsModel
    : LowerToVectorOpInterface::ExternalModel<LevelsModel<OpTy>, OpTy> {
  void claimOthers(Operation *op, VectorLowering &lowering) const {
    SmallVector<OpTy> levels = findLevels(cast<OpTy>(op), lowering.aliases);
    // Several sums of the same tokens, which a step of decoding adds to all
    // levels.
    if (std::is_same_v<OpTy, SummarizeOp> && levels.size() == 1)
      levels = findLevels(cast<OpTy>(op), lowering.aliases, /*factor=*/1);
    for (OpTy level : ArrayRef(levels).drop_front()) {
      lowering.claimed.insert(level);
      lowering.groups[op].push_back(level);
    }
  }

  LogicalResult lowerToVector(Operation *op, OpBuilder &builder,
                              VectorLowering &lowering) const {
    SmallVector<OpTy> levels = {cast<OpTy>(op)};
    for (Operation *level : lowering.groups.lookup(op))
      levels.push_back(cast<OpTy>(level));
    for (OpTy level : levels)
      if (failed(fovea::attn::detail::verifyVectorOperands(level)))
        return failure();
    builder.setInsertionPoint(levels.back());
    emitLevels(levels, builder, lowering);
    for (OpTy level : levels)
      level.erase();
    return success();
  }
};
} // namespace

void fovea::attn::attachSummarizeToVector(MLIRContext &context) {
  SummarizeOp::attachInterface<LevelsModel<SummarizeOp>>(context);
  SummarizeBackwardOp::attachInterface<LevelsModel<SummarizeBackwardOp>>(
      context);
}
