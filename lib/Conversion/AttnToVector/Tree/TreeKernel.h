//===- TreeKernel.h - Loops over trees of averages --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All loops over a tree go through its nodes in the order of the sequence and
// are vectorised over columns. Going down, a *path* keeps the row of the last
// node visited at each level, so that neighbours share the sums of their
// ancestors. Going up, the rows of the children of each open node wait in a
// small buffer until the last of them is there. Both are scratch memory of a
// thread, of a size that does not depend on the length of the sequence, and the
// data itself is touched once.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_TREE_TREEKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_TREE_TREEKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

struct TreeTarget {
  int64_t vectorBits;
  /// Tasks wanted of a parallel loop, where shapes allow it.
  int64_t minTasks;
};

/// One vector of columns; the last may have fewer of them, which a mask says.
struct Columns {
  mlir::Value first, mask;
};

/// What the loops of the operations share. Emits at the insertion point of
/// `builder`; scratch belongs to the parallel loop around it.
class TreeKernel {
protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  TreeKernel(mlir::OpBuilder &builder, mlir::Location loc, TreeAttr shape,
             Value tree, const TreeTarget &target);

  int64_t getLevels() const { return shape.getLevels(); }
  int64_t getRatio() const { return shape.getRatio(); }

  /// A parallel loop over batch entries and `numTasks` tasks of each.
  void forEachTask(Value numTasks, llvm::function_ref<void(Value task)> body);
  /// The same for a loop that writes `output` row by row and never reads it.
  /// The body is emitted twice where the output is large: for memory that is
  /// aligned `storeOutput` then goes past the caches.
  void forEachTask(Value numTasks, Value output,
                   llvm::function_ref<void(Value task)> body);

  /// Calls `body` for all columns from `begin` to `end`; `begin` is a multiple
  /// of the vector length.
  void forColumns(Value begin, Value end,
                  llvm::function_ref<void(const Columns &)> body);
  void forColumns(llvm::function_ref<void(const Columns &)> body) {
    forColumns(b.index(0), b.index(width), body);
  }
  Value load(Value memref, ValueRange indices, const Columns &columns);
  void store(Value numbers, Value memref, ValueRange indices,
             const Columns &columns);
  void storeOutput(Value numbers, Value memref, ValueRange indices,
                   const Columns &columns);
  /// Asks for numbers that are loaded later; the row may be past the last.
  void prefetch(Value memref, ValueRange indices, const Columns &columns);
  /// Rounds to the type that the tree is stored in.
  Value round(Value numbers);

  /// Integers kept in scratch memory.
  Value loadIndex(Value memref, ValueRange indices);
  void storeIndex(Value index, Value memref, ValueRange indices);
  /// A loop that goes on while `condition`; both take the carried values.
  Values loopWhile(ValueRange inits,
                   llvm::function_ref<Value(ValueRange)> condition,
                   llvm::function_ref<Values(ValueRange)> body);

  /// Makes the tables of a task: for each level, the tokens of a node and the
  /// row of the first one.
  void makeTables();
  Value segmentOf(Value level) { return loadIndex(segments, level); }
  Value rowOf(Value level, Value index) {
    return b.add(loadIndex(firstRows, level), index);
  }

  /// Starts the path of a task over columns `begin` to `end`, at most
  /// `columns`.
  void startPath(int64_t columns, Value begin, Value end);
  /// Makes the path lead to node `index` of level `level`, which is not that of
  /// the roots: its parent's row is then `getParentRow`.
  void walkTo(Value level, Value index);
  /// The parent's row of what was walked to.
  Value getParentRow(Value level, const Columns &columns) {
    return loadLocal(path, b.add(level, 1), columns);
  }
  Value loadLocal(Value buffer, Value row, const Columns &columns);
  void storeLocal(Value numbers, Value buffer, Value row,
                  const Columns &columns);

  KernelBuilder b;
  TreeAttr shape;
  Value tree;
  int64_t roots, width, lanes;
  mlir::FloatType elementType;
  TreeTarget target;

  /// The batch entry of the task.
  Value batch;
  /// The columns of the task, and where scratch rows start.
  Value firstColumn, endColumn;

private:
  /// Whether rows of `memref` can be stored past the caches, which is known at
  /// run time; null when never.
  Value canStream(Value memref);

  bool streams = false;
  Value segments, firstRows;
  /// Rows by level, and the nodes they are of.
  Value path, known;
};

void emitTreeKernel(mlir::OpBuilder &builder, TreeBuildOp op,
                    const TreeTarget &target);
void emitTreeKernel(mlir::OpBuilder &builder, TreeMaterializeOp op,
                    const TreeTarget &target);
void emitTreeKernel(mlir::OpBuilder &builder, TreeFetchOp op,
                    const TreeTarget &target);
void emitTreeKernel(mlir::OpBuilder &builder, TreeUpdateOp op,
                    const TreeTarget &target);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_TREE_TREEKERNEL_H
