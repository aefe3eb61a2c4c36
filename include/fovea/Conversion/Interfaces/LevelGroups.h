//===- LevelGroups.h - Levels that are computed together --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_INTERFACES_LEVELGROUPS_H
#define FOVEA_CONVERSION_INTERFACES_LEVELGROUPS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Analysis/AliasAnalysis.h"

namespace fovea::attn {

/// Whether `first` may run as late as `op`: nothing writes what it reads and
/// nothing touches what it writes, except `shared`, which may be null.
bool mayRunAfter(mlir::DestinationStyleOpInterface first, mlir::Operation *op,
                 mlir::Value shared, mlir::AliasAnalysis &aliases);

/// What several levels of an input have as one, and must not differ in.
inline mlir::Value getSharedOfLevels(SummarizeOp) { return {}; }
inline mlir::Value getSharedOfLevels(SummarizeBackwardOp op) {
  return op.getDInput();
}

/// Whether levels are of the same input, and alike but for their intervals.
template <typename OpTy> bool areLevels(OpTy last, OpTy next) {
  auto sets = [](OpTy op) {
    return llvm::cast<mlir::ShapedType>(op.getWeights().getType())
        .getDimSize(0);
  };
  return next.getInput() == last.getInput() &&
         getSharedOfLevels(next) == getSharedOfLevels(last) &&
         next.getRank() == last.getRank() && sets(next) == sets(last);
}

/// `first` and the operations after it in its block that continue it, each with
/// intervals `factor` times as long as those before, if all may run where the
/// last one is.
template <typename OpTy>
llvm::SmallVector<OpTy> findLevels(OpTy first, mlir::AliasAnalysis &aliases,
                                   int64_t factor = 2) {
  llvm::SmallVector<OpTy> levels = {first};
  for (mlir::Operation *op = first->getNextNode(); op; op = op->getNextNode()) {
    auto next = llvm::dyn_cast<OpTy>(op);
    bool continues = next && areLevels(levels.back(), next) &&
                     next.getInterval() == factor * levels.back().getInterval();
    mlir::Value shared = continues ? getSharedOfLevels(next) : mlir::Value();
    if (!llvm::all_of(levels, [&](OpTy level) {
          return mayRunAfter(llvm::cast<mlir::DestinationStyleOpInterface>(
                                 level.getOperation()),
                             op, shared, aliases);
        }))
      break;
    if (continues)
      levels.push_back(next);
  }
  return levels;
}

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_INTERFACES_LEVELGROUPS_H
