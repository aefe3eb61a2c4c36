//===- VectorizeSummarize.cpp - Vector code of attn.summarize -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeKernel.h"
#include "VectorOperands.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
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
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Whether both are parts of one buffer that are known to be apart, as the
/// levels of pooled summaries are.
static bool areDisjointParts(Value a, Value b) {
  auto first = a.getDefiningOp<memref::SubViewOp>();
  auto second = b.getDefiningOp<memref::SubViewOp>();
  if (!first || !second || first.getSource() != second.getSource())
    return false;
  auto endsBefore = [](memref::SubViewOp x, memref::SubViewOp y, int64_t dim) {
    int64_t offset = x.getStaticOffsets()[dim], size = x.getStaticSizes()[dim],
            stride = x.getStaticStrides()[dim],
            start = y.getStaticOffsets()[dim];
    return !ShapedType::isDynamic(offset) && !ShapedType::isDynamic(size) &&
           !ShapedType::isDynamic(start) && stride == 1 &&
           offset + size <= start;
  };
  for (int64_t dim = 0, rank = first.getSourceType().getRank(); dim < rank;
       ++dim)
    if (endsBefore(first, second, dim) || endsBefore(second, first, dim))
      return true;
  return false;
}

/// Whether `op` may write any of `values`, or touch one at all if `read`.
static bool mayTouch(Operation *op, ArrayRef<Value> values, bool read,
                     AliasAnalysis &aliases) {
  std::optional<SmallVector<MemoryEffects::EffectInstance>> effects =
      getEffectsRecursively(op);
  if (!effects)
    return true;
  for (const MemoryEffects::EffectInstance &effect : *effects) {
    // Memory that `op` itself brings to life is none of the others'.
    if (isa<MemoryEffects::Allocate>(effect.getEffect()) ||
        (isa<MemoryEffects::Read>(effect.getEffect()) && !read))
      continue;
    Value touched = effect.getValue();
    if (!touched || llvm::any_of(values, [&](Value value) {
          return !aliases.alias(touched, value).isNo() &&
                 !areDisjointParts(touched, value);
        }))
      return true;
  }
  return false;
}

/// Whether `first` may run as late as `op`: nothing writes what it reads and
/// nothing touches what it writes.
static bool mayRunAfter(SummarizeOp first, Operation *op,
                        AliasAnalysis &aliases) {
  SmallVector<Value> reads = {first.getInput(), first.getWeights()};
  if (first.getBias())
    reads.push_back(first.getBias());
  return !mayTouch(op, reads, /*read=*/false, aliases) &&
         !mayTouch(op, first.getOutput(), /*read=*/true, aliases);
}

/// Whether `next` continues a group that ends in `last`.
static bool isNextLevel(SummarizeOp last, SummarizeOp next) {
  auto sets = [](SummarizeOp op) {
    return cast<MemRefType>(op.getWeights().getType()).getDimSize(0);
  };
  return next.getInput() == last.getInput() &&
         next.getRank() == last.getRank() && sets(next) == sets(last) &&
         next.getInterval() == 2 * last.getInterval();
}

/// The levels that are computed together with `first`, in order: later ops of
/// the block past which all the earlier ones may be moved.
static SmallVector<SummarizeOp> collectLevels(SummarizeOp first,
                                              const DenseSet<Operation *> &done,
                                              AliasAnalysis &aliases) {
  SmallVector<SummarizeOp> levels = {first};
  for (Operation *op = first->getNextNode(); op; op = op->getNextNode()) {
    if (!llvm::all_of(levels, [&](SummarizeOp level) {
          return mayRunAfter(level, op, aliases);
        }))
      break;
    if (auto next = dyn_cast<SummarizeOp>(op))
      if (!done.contains(next) && isNextLevel(levels.back(), next))
        levels.push_back(next);
  }
  return levels;
}

namespace {
struct VectorizeSummarizePass
    : fovea::attn::impl::VectorizeSummarizePassBase<VectorizeSummarizePass> {
  using VectorizeSummarizePassBase::VectorizeSummarizePassBase;

  void runOnOperation() override {
    SmallVector<SummarizeOp> ops;
    WalkResult result = getOperation().walk([&](SummarizeOp op) {
      ops.push_back(op);
      return WalkResult(fovea::attn::detail::verifyVectorOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();

    auto &aliases = getAnalysis<AliasAnalysis>();
    DenseSet<Operation *> done;
    SmallVector<SmallVector<SummarizeOp>> groups;
    for (SummarizeOp op : ops)
      if (!done.contains(op)) {
        groups.push_back(collectLevels(op, done, aliases));
        done.insert_range(groups.back());
      }
    for (ArrayRef<SummarizeOp> levels : groups)
      lower(levels);
  }

  void lower(ArrayRef<SummarizeOp> levels) {
    SummarizeOp last = levels.back();
    OpBuilder builder(last);
    SummarizePlan plan =
        planSummaries(levels, {vectorBits, numRegisters, minTasks});
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
