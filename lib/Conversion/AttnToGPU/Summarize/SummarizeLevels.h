//===- SummarizeLevels.h - Summaries of several levels ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels that read an input once for levels whose intervals double. A *unit*
// is a finest interval: `unit % 2^level` says which part of an interval of a
// level it is, and `unit / 2^level` of which one.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_SUMMARIZE_SUMMARIZELEVELS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_SUMMARIZE_SUMMARIZELEVELS_H

#include "fovea/Conversion/Interfaces/LevelGroups.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/IR/BuiltinOps.h"

namespace fovea::attn {

/// Warps of a block, at most.
constexpr int64_t kMostLevelWarps = 8;
/// Sums of all levels that a thread keeps in registers, at most.
constexpr int64_t kMostLevelSums = 48;
/// Rows of a unit. Of fewer, blocks would mostly begin and end; of more, there
/// would be few warps.
constexpr int64_t kLeastUnit = 16, kMostUnit = 1024;

/// `levels` in order, in parts each of which has a kernel: with a single level
/// one of its own.
template <typename OpTy>
llvm::SmallVector<llvm::SmallVector<OpTy>>
divideLevels(llvm::ArrayRef<OpTy> levels) {
  llvm::SmallVector<llvm::SmallVector<OpTy>> parts;
  for (OpTy level : levels) {
    bool continues = false;
    if (!parts.empty()) {
      OpTy finest = parts.back().front();
      int64_t sums = (parts.back().size() + 1) * finest.getRank();
      continues = sums <= kMostLevelSums &&
                  finest.getInterval() >= kLeastUnit &&
                  finest.getInterval() <= kMostUnit;
    }
    if (!continues)
      parts.emplace_back();
    parts.back().push_back(level);
  }
  return parts;
}

/// The levels that `op` is the last one of, itself at least. Empty if later
/// ones follow, which then take it with them.
template <typename OpTy> llvm::SmallVector<OpTy> findLevelsUntil(OpTy op) {
  mlir::AliasAnalysis aliases(op->template getParentOfType<mlir::ModuleOp>());
  if (findLevels(op, aliases).size() > 1)
    return {};
  for (mlir::Operation &other : *op->getBlock()) {
    auto first = llvm::dyn_cast<OpTy>(other);
    if (!first)
      continue;
    llvm::SmallVector<OpTy> levels = findLevels(first, aliases);
    if (levels.back() == op)
      return levels;
  }
  llvm_unreachable("levels that do not end with themselves");
}

/// What kernels of several levels know of them.
struct LevelsOf {
  LevelsOf(GPUKernelBuilder &b, mlir::Value input, mlir::Value weights,
           int64_t interval, int64_t rank, size_t numLevels)
      : batches(b.extent(input, 0)), heads(b.extent(input, 1)),
        rows(b.extent(input, 2)), columns(b.extent(input, 3)),
        // Consecutive heads share a set of weights.
        headsOfSet(b.max(b.div(heads, b.extent(weights, 0)), 1)),
        interval(interval), rank(rank), numLevels(numLevels) {}

  /// The row of weights of a level for the first row of a unit.
  mlir::Value getPlace(GPUKernelBuilder &b, mlir::Value unit,
                       size_t level) const {
    return b.mul(b.rem(unit, int64_t(1) << level), interval);
  }

  mlir::Value batches, heads, rows, columns, headsOfSet;
  int64_t interval, rank; // of the finest level
  size_t numLevels;
};

/// The columns of a warp: a lane has one of each 32. Lanes behind the last
/// column repeat it and store nothing.
struct LaneColumn {
  LaneColumn(GPUKernelBuilder &b, mlir::Value part, mlir::Value columns)
      : lane(b.toIndex(b.lane())) {
    mlir::Value column = b.add(b.mul(part, kWarpSize), lane);
    exists = b.less(column, columns);
    at = b.min(column, b.sub(columns, b.index(1)));
  }
  mlir::Value lane, at, exists;
};

/// Sums of at least two levels.
void emitSummaryLevels(mlir::OpBuilder &builder,
                       llvm::ArrayRef<SummarizeOp> levels);

/// Adds gradients of all levels to those of the input. Rounds what it has to
/// `rounded` instead, if that is not null.
void emitInputOfLevels(mlir::OpBuilder &builder,
                       llvm::ArrayRef<SummarizeBackwardOp> levels,
                       mlir::Value rounded);
/// Adds to the gradients of the weights of at least two levels.
void emitWeightsOfLevels(mlir::OpBuilder &builder,
                         llvm::ArrayRef<SummarizeBackwardOp> levels);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_SUMMARIZE_SUMMARIZELEVELS_H
