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

/// Sorts `ops` into groups that are computed together where the last one
/// stands: later ops of the block past which all the earlier ones may be moved.
/// `isNext(last, next)` says whether `next` continues a group that ends in
/// `last`; `getShared` which destination all ops of a group add to, or null.
template <typename OpTy>
llvm::SmallVector<llvm::SmallVector<OpTy>>
groupLevels(llvm::ArrayRef<OpTy> ops, mlir::AliasAnalysis &aliases,
            llvm::function_ref<bool(OpTy, OpTy)> isNext,
            llvm::function_ref<mlir::Value(OpTy)> getShared) {
  llvm::DenseSet<mlir::Operation *> done;
  llvm::SmallVector<llvm::SmallVector<OpTy>> groups;
  for (OpTy first : ops) {
    if (!done.insert(first).second)
      continue;
    llvm::SmallVector<OpTy> &levels = groups.emplace_back();
    levels.push_back(first);
    for (mlir::Operation *op = first->getNextNode(); op;
         op = op->getNextNode()) {
      auto next = llvm::dyn_cast<OpTy>(op);
      bool continues =
          next && !done.contains(next) && isNext(levels.back(), next);
      mlir::Value shared = continues ? getShared(next) : mlir::Value();
      if (!llvm::all_of(levels, [&](OpTy level) {
            return mayRunAfter(llvm::cast<mlir::DestinationStyleOpInterface>(
                                   level.getOperation()),
                               op, shared, aliases);
          }))
        break;
      if (continues) {
        levels.push_back(next);
        done.insert(next);
      }
    }
  }
  return groups;
}

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_LEVELGROUPS_H
