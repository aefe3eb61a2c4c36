//===- LevelGroups.h - Levels that are computed together --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_LEVELGROUPS_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_LEVELGROUPS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Analysis/AliasAnalysis.h"

namespace fovea::attn {

/// Whether `first` may run as late as `op`: nothing writes what it reads and
/// nothing touches what it writes, except `shared`, which may be null.
bool mayRunAfter(mlir::DestinationStyleOpInterface first, mlir::Operation *op,
                 mlir::Value shared, mlir::AliasAnalysis &aliases);

/// `first` and the operations after it in its block that continue it level by
/// level, each the next one of the one before by `isNext`, if all may run where
/// the last one is. Levels share what `getShared` says.
template <typename OpTy>
llvm::SmallVector<OpTy>
findLevels(OpTy first, mlir::AliasAnalysis &aliases,
           llvm::function_ref<bool(OpTy, OpTy)> isNext,
           llvm::function_ref<mlir::Value(OpTy)> getShared) {
  llvm::SmallVector<OpTy> levels = {first};
  for (mlir::Operation *op = first->getNextNode(); op; op = op->getNextNode()) {
    auto next = llvm::dyn_cast<OpTy>(op);
    bool continues = next && isNext(levels.back(), next);
    mlir::Value shared = continues ? getShared(next) : mlir::Value();
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

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_LEVELGROUPS_H
