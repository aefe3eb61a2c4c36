//===- TreeArguments.h - Checks of trees and lists of nodes -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_TREEARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_TREEARGUMENTS_H

#include "Call.h"
#include "fovea/Functions/Tree.h"

namespace fovea::functions {

/// Two contiguous arrays [B,r] of nodes that a tree has.
struct NodeList {
  OwnedTensor level, index;

  int64_t size() const { return level.getShape()[1]; }
  /// Whether kernels alone read and check it: views of a caller's lists, of i32
  /// or i64.
  bool isOnDevice = false;
  int32_t getLevel(int64_t at) const { return level.getDataAs<int32_t>()[at]; }
  int32_t getIndex(int64_t at) const { return index.getDataAs<int32_t>()[at]; }
};

/// An array [B,r] of i32, all zeros.
llvm::Expected<OwnedTensor> allocateList(int64_t batch, int64_t size);

constexpr int64_t kMaxNodes = std::numeric_limits<int32_t>::max();
/// ratio^levels, or more than any tree has.
int64_t getPower(int64_t ratio, int64_t levels);

/// [B,N,F].
Shape getSequenceShape(const Tree &tree);

/// Checks that `tree` is one, as `tree_build` returns it.
void checkTree(Checker &check, const Tree &tree);

/// Lists of shape [r] or [B,r]. Says so where the tree lacks a node, unless a
/// list is on a device.
llvm::Expected<NodeList> checkNodes(Checker &check, const Tree &tree,
                                    const TensorRef &level,
                                    const TensorRef &index, Target target);

/// Level and index, an operand each.
void addNodes(Call &call, const NodeList &nodes);
/// `shape = #attn.tree<...>`.
void addTreeShape(Call &call, const Tree &tree);
/// The counts of a tree, if it has them.
void addCounts(Call &call, const Tree &tree);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_TREEARGUMENTS_H
