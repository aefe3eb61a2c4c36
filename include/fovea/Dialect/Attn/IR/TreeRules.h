//===- TreeRules.h - Extents of trees that go together ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How many nodes, tokens and listed nodes there are follows from each other by
// the shape of a tree, which contracts do not know.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_TREERULES_H
#define FOVEA_DIALECT_ATTN_IR_TREERULES_H

#include "mlir/IR/Operation.h"
#include <string>

namespace fovea::attn {

/// A rule about an extent of an operand: it is a multiple of `divisor`, or, if
/// there is another operand, `other / divisor * factor + addend`.
struct TreeRule {
  struct Extent {
    llvm::StringRef name;
    mlir::Value operand;
    unsigned dim = 1;
  } extent, other = {};
  int64_t divisor, factor = 0, addend = 0;
  /// What is counted.
  llvm::StringRef what;

  /// "extent 1 of tree must count the nodes over extent 1 of input".
  std::string describe() const;
};

/// Calls `visit` for every rule of `op`, which may be any operation, about an
/// extent that its type leaves open.
void forEachTreeRule(mlir::Operation *op,
                     llvm::function_ref<void(const TreeRule &)> visit);

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_TREERULES_H
