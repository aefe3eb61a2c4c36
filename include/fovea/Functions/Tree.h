//===- Tree.h - Trees of averages of arrays ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Long sequences, compressed around a few VIP tokens. Node x of level l stands
// for tokens x ratio^l up to (x + 1) ratio^l, and its row is their mean.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_TREE_H
#define FOVEA_FUNCTIONS_TREE_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Tokens.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>

namespace fovea {

/// A tree of averages, as `tree_build` returns it.
struct Tree {
  /// [B,n,F]: the rows of the roots and then, level by level, each parent's row
  /// minus the node's own.
  OwnedTensor nodes;
  /// [B,n] of i32, how many tokens of each node are present; empty without
  /// padding.
  OwnedTensor counts;
  int64_t ratio = 0, levels = 0;

  bool hasCounts() const { return counts.getData(); }
  int64_t getBatch() const { return nodes.getShape()[0]; }
  int64_t getWidth() const { return nodes.getShape()[2]; }
  /// Tokens of a node of `level`, and nodes of it.
  int64_t getSegment(int64_t level) const;
  int64_t getNumNodes(int64_t level) const;
  /// Where a level lies among the nodes.
  int64_t getFirstRow(int64_t level) const;
  int64_t getNumRoots() const { return getNumNodes(levels); }
  int64_t getNumTokens() const { return getNumNodes(0); }
};

struct TreeBuildOptions : TokenOptions {
  int64_t ratio = 2;
  /// As many as give one root, by default.
  std::optional<int64_t> levels;
  Target target = Target::CPU;
  /// Of nodes and counts.
  ResultMemory out;
};

/// The tree of averages of a sequence c [B,N,F].
llvm::Expected<Tree> tree_build(const TensorRef &c,
                                const TreeBuildOptions &options = {});

struct TreeFetchOptions {
  bool returnLogWeight = false;
  /// Count all tokens of a node with one that is present, not those alone.
  bool wholeSegments = false;
  Target target = Target::CPU;
  ResultMemory out;
};

struct TreeFetchResult {
  /// [B,r,F], and the logarithm of how many tokens each stands for, [B,r].
  OwnedTensor rows, logWeight;
};

/// Rows of the nodes (level, index), each [r] or [B,r] of i32. Where both are
/// -1 the node is absent: its row is zeros, its logarithm minus infinity.
llvm::Expected<TreeFetchResult>
tree_fetch(const Tree &tree, const TensorRef &level, const TensorRef &index,
           const TreeFetchOptions &options = {});

/// Moves the nodes (level, index) of a tree to `rows` [B,r,F], where it lies.
/// They must cover the sequence without overlap; the tree is unchanged
/// otherwise. Rows of absent nodes are ignored.
llvm::Error tree_update(Tree &tree, const TensorRef &level,
                        const TensorRef &index, const TensorRef &rows,
                        Target target = Target::CPU);

/// The same move, which leaves the tree as it is and returns the nodes of the
/// one after it.
llvm::Expected<OwnedTensor>
tree_updated(const Tree &tree, const TensorRef &level, const TensorRef &index,
             const TensorRef &rows, Target target = Target::CPU,
             const ResultMemory &out = {});

/// Fails unless these are the parts of a tree, which may have been stored.
llvm::Error tree_check(const TensorRef &nodes,
                       const std::optional<TensorRef> &counts, int64_t ratio,
                       int64_t levels);

/// The sequence [B,N,F] that a tree stands for.
llvm::Expected<OwnedTensor> tree_materialize(const Tree &tree,
                                             Target target = Target::CPU,
                                             const ResultMemory &out = {});

struct TreeScoreOptions {
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  /// [B,c], added to the scores.
  std::optional<TensorRef> logWeight;
  /// [B,np] of i1: the VIP tokens that are present.
  std::optional<TensorRef> mask;
  /// The logarithm of (53) instead, for one head.
  bool exponential = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// How much VIP tokens with queries [B,H,np,D] look at candidates with keys
/// [B,G,c,D]: [B,c].
llvm::Expected<OwnedTensor> tree_score(const TensorRef &query,
                                       const TensorRef &key,
                                       const TreeScoreOptions &options = {});

/// Nodes to split, by level.
using TreeBudgets = std::map<int64_t, int64_t>;
/// The rows [B,c,F] of the candidates of a level.
struct TreeRows : TensorRef {
  /// What owns them, for who wants to keep them; null where that is the tree.
  OwnedTensor *memory = nullptr;
};
/// The scores [B,c] of candidates.
using TreeScore = llvm::function_ref<llvm::Expected<OwnedTensor>(
    const TreeRows &rows, int64_t level)>;

struct TreeSelection {
  /// [B,r] of i32 each, in the order of the sequence.
  OwnedTensor level, index;
};

/// The nodes at which a sequence is read: from the roots down, the `budgets[l]`
/// candidates of level l with the highest score are split, or all that have
/// tokens where these are fewer: the lists of such a sequence end in -1.
llvm::Expected<TreeSelection>
tree_select(const Tree &tree, const TreeBudgets &budgets, TreeScore score,
            Target target = Target::CPU, const ResultMemory &out = {});
/// The same with (53) for VIP rows [B,np,F].
llvm::Expected<TreeSelection>
tree_select(const Tree &tree, const TreeBudgets &budgets, const TensorRef &vip,
            Target target = Target::CPU, const ResultMemory &out = {});

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The gradient of the sequence [B,N,F] that `tree` was built of, from that of
/// its nodes, dTree [B,n,F].
llvm::Expected<OwnedTensor> tree_build_backward(const TensorRef &dTree,
                                                const Tree &tree,
                                                Target target = Target::CPU,
                                                const ResultMemory &out = {});

/// The gradient [B,n,F] of the nodes of a tree, from that of the sequence that
/// it stands for, dC [B,N,F].
llvm::Expected<OwnedTensor>
tree_materialize_backward(const TensorRef &dC, const Tree &tree,
                          Target target = Target::CPU,
                          const ResultMemory &out = {});

struct TreeScoreGradients {
  OwnedTensor query, key;
  /// Like the log weights, if there were any.
  OwnedTensor logWeight;
};

/// The gradients of `tree_score` from that of its scores, dScore [B,c], which
/// are those of all candidates: what the scores choose has none, so this is
/// what a straight-through estimator passes on.
llvm::Expected<TreeScoreGradients>
tree_score_backward(const TensorRef &dScore, const TensorRef &query,
                    const TensorRef &key, const TreeScoreOptions &options = {},
                    const GradientMemory &gradients = {});

/// The gradient [B,n,F] of the nodes of a tree, from that of the rows of nodes
/// (level, index), dRows [B,r,F].
llvm::Expected<OwnedTensor>
tree_fetch_backward(const TensorRef &dRows, const Tree &tree,
                    const TensorRef &level, const TensorRef &index,
                    Target target = Target::CPU, const ResultMemory &out = {});

struct TreeUpdateGradients {
  /// Of the nodes before the update, [B,n,F], and of the rows, [B,r,F].
  OwnedTensor nodes, rows;
};

/// From the gradient of the nodes after the update, dTree [B,n,F].
llvm::Expected<TreeUpdateGradients>
tree_update_backward(const TensorRef &dTree, const Tree &tree,
                     const TensorRef &level, const TensorRef &index,
                     Target target = Target::CPU,
                     const GradientMemory &gradients = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_TREE_H
