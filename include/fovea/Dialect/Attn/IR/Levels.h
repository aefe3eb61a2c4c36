//===- Levels.h - Levels of fast multipole attention ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_LEVELS_H
#define FOVEA_DIALECT_ATTN_IR_LEVELS_H

#include "mlir/IR/BuiltinTypeInterfaces.h"
#include "llvm/Support/Casting.h"
#include <cstdint>

namespace fovea::attn {

/// The levels that `tokens` tokens in groups of `group` need: the least `L`
/// with `group 2^(L+1) >= tokens`.
int64_t countLevels(int64_t tokens, int64_t group);

/// The most tokens that `levels` levels are enough for; the greatest number
/// stands for greater ones.
int64_t getMostTokens(int64_t group, int64_t levels);

/// The levels that the queries of a multipole operation may read: all that
/// there are weights for where only the call knows how many tokens there are.
template <typename OpTy> int64_t getUsedLevels(OpTy op) {
  auto query = llvm::cast<mlir::ShapedType>(op.getQuery().getType());
  return query.isDynamicDim(2)
             ? op.getNumLevels()
             : countLevels(query.getDimSize(2), op.getGroup());
}

/// Whether every group neighbours every other in it, for all calls.
template <typename OpTy> bool hasNoLevels(OpTy op) {
  auto query = llvm::cast<mlir::ShapedType>(op.getQuery().getType());
  return !query.isDynamicDim(2) && getUsedLevels(op) == 0;
}

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_LEVELS_H
