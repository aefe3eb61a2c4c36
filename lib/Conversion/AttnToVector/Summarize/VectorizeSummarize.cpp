//===- VectorizeSummarize.cpp - Vector code of attn.summarize -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LevelGroups.h"
#include "SummarizeKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Analysis/AliasAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZESUMMARIZEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Whether `next` continues a group that ends in `last`.
static bool isNextLevel(SummarizeOp last, SummarizeOp next) {
  auto sets = [](SummarizeOp op) {
    return cast<MemRefType>(op.getWeights().getType()).getDimSize(0);
  };
  return next.getInput() == last.getInput() &&
         next.getRank() == last.getRank() && sets(next) == sets(last) &&
         next.getInterval() == 2 * last.getInterval();
}

namespace {
struct VectorizeSummarizePass
    : fovea::attn::impl::VectorizeSummarizePassBase<VectorizeSummarizePass> {
  using VectorizeSummarizePassBase::VectorizeSummarizePassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    SmallVector<SummarizeOp> ops;
    WalkResult result = getOperation().walk([&](SummarizeOp op) {
      ops.push_back(op);
      return WalkResult(fovea::attn::detail::verifyVectorOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();

    auto &aliases = getAnalysis<AliasAnalysis>();
    for (ArrayRef<SummarizeOp> levels : groupLevels<SummarizeOp>(
             ops, aliases, isNextLevel,
             /*getShared=*/[](SummarizeOp) { return Value(); }))
      lower(levels);
  }

  void lower(ArrayRef<SummarizeOp> levels) {
    SummarizeOp last = levels.back();
    OpBuilder builder(last);
    SummarizePlan plan = planSummaries(levels, {vectorBits, numRegisters});
    std::string intervals =
        llvm::join(llvm::map_range(levels,
                                   [](SummarizeOp op) {
                                     return std::to_string(op.getInterval());
                                   }),
                   ", ");
    remark::passed(last.getLoc(), remark::RemarkOpts::name("summaries")
                                      .category("attn-vectorize-summarize"))
        << llvm::formatv("one nest for intervals of {0} rows: chunks of {1} "
                         "rows, tiles of {2} sums by {3} intervals by {4} "
                         "columns",
                         intervals, plan.chunk, plan.rankBlock, plan.streams,
                         plan.lanes)
               .str();
    emitSummaries(builder, levels, plan);
    for (SummarizeOp op : levels)
      op.erase();
  }
};
} // namespace
