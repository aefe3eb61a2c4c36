//===- TreeKernel.h - Loops over trees of averages --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All loops over a tree go through its nodes in the order of the sequence and
// divide columns among the lanes of a team. Going down, a *path* keeps the row
// of the last node visited at each level, so that neighbours share the sums of
// their ancestors. Going up, the rows of the children of each open node wait in
// a small buffer until the last of them is there. Both are memory of a team, of
// a size that does not depend on the length of the sequence, and the data
// itself is touched once.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOTEAMS_TREE_TREEKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOTEAMS_TREE_TREEKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

/// What the loops of the operations share. Buffers belong to the team that
/// works on a task.
class TreeKernel {
protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;
  using PathBody =
      llvm::function_ref<void(KernelBuilder &, Value column, Value pathColumn)>;

  TreeKernel(TeamBuilder &builder, TreeAttr shape, Value tree);

  int64_t getLevels() const { return shape.getLevels(); }
  int64_t getRatio() const { return shape.getRatio(); }

  /// Nodes of a level, of all roots; and the row of the first one.
  Value numNodesOf(int64_t level) {
    return b.mul(roots, shape.getNumNodes(level, /*roots=*/1));
  }
  Value firstRowOf(int64_t level) {
    return b.mul(roots, shape.getFirstRow(level, /*roots=*/1));
  }

  /// How many of `total` items a task takes: `many`, or fewer where that would
  /// leave teams without one.
  Value getTaskSize(Value total, Value many);
  /// How many tasks of `perTask` items there are.
  Value getNumTasks(Value total, Value perTask) {
    return b.div(b.add(total, b.sub(perTask, b.index(1))), perTask);
  }
  /// A team for each batch entry and each of `numTasks` tasks of it.
  void forEachTask(Value numTasks, llvm::function_ref<void(Value task)> body);
  /// The same for a loop that writes `output` row by row and never reads it.
  /// The body is emitted twice where the output is large: for memory that is
  /// aligned `storeOutput` then goes past the caches.
  void forEachTask(Value numTasks, Value output,
                   llvm::function_ref<void(Value task)> body);
  void storeOutput(KernelBuilder &k, Value numbers, Value memref,
                   ValueRange indices) {
    k.storeVector(numbers, memref, indices, streams);
  }
  /// Asks for numbers that a thread loads later; the row may be past the last.
  void prefetch(KernelBuilder &k, Value memref, ValueRange indices);
  /// Rounds to the type that the tree is stored in.
  Value round(KernelBuilder &k, Value numbers);

  /// Makes the tables of a task: for each level, the tokens of a node and the
  /// row of the first one.
  void makeTables();
  Value segmentOf(Value level) { return b.loadIndex(segments, level); }
  Value rowOf(Value level, Value index) {
    return b.add(b.loadIndex(firstRows, level), index);
  }
  /// The slot of a node in a buffer of siblings by level.
  Value getSlot(Value level, Value index) {
    return b.add(b.mul(level, getRatio()), b.rem(index, getRatio()));
  }
  Value isLastSibling(Value index) {
    return b.equal(b.rem(index, getRatio()), b.index(getRatio() - 1));
  }

  /// A team for each batch entry, task and slice of at most `columns` columns,
  /// with tables and a path of these.
  void forEachPath(Value numTasks, int64_t columns,
                   llvm::function_ref<void(Value task)> body);
  /// Starts the path of a task: for all columns, or from `begin` on for at most
  /// `columns` of them, which the path counts from zero.
  void startPath() { startPath(b.index(0), width); }
  void startPath(Value begin, int64_t columns);
  void forPathColumns(PathBody body);
  /// Makes the path lead to node `index` of level `level`, which is not that of
  /// the roots: its parent's row is then `getParentRow`.
  void walkTo(Value level, Value index);
  /// The parent's row of what was walked to.
  Value getParentRow(KernelBuilder &k, Value level, Value pathColumn) {
    return k.loadVector(path, {k.add(level, 1), pathColumn});
  }

  TeamBuilder &b;
  TreeAttr shape;
  Value tree;
  /// A constant where the type of the tree tells it.
  Value roots;
  int64_t width;

  /// The batch entry of the task.
  Value batch;

private:
  /// Whether rows of `memref` can be stored past the caches, which is known at
  /// run time; null when never.
  Value canStream(Value memref);

  bool streams = false;
  Value segments, firstRows;
  /// The columns of the path.
  Value firstColumn, numColumns;
  /// Rows by level, and the nodes they are of.
  Value path, known;
};

llvm::LogicalResult lowerToTeams(TreeBuildOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(TreeMaterializeOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(TreeFetchOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(TreeUpdateOp op, TeamBuilder &builder);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOTEAMS_TREE_TREEKERNEL_H
