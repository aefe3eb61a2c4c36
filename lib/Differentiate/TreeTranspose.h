//===- TreeTranspose.h - Transposes of functions on trees -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions on trees are linear. Their transposes are sums over children and
// shares of parents, level by level, in time O(nodes F), and loops over listed
// nodes and their ancestors:
//
// - tree_materialize: sums of the tokens' adjoints under every node; what a
//   root gives, every other node takes away.
// - tree_fetch: a row's adjoint goes to its node and the ancestors, likewise.
// - tree_build: a row's adjoint is that of its own node, taken away, and of its
//   children, and a share of its parent's.
// - tree_update: a listed row's adjoint is a share of its parent's, less that
//   of its own node; the tree loses what a fetch of the rows would give it.
// - tree_select: a candidate's score gets the sum of the factors' adjoints
//   below it, of which there are none unless it is split.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIFFERENTIATE_TREETRANSPOSE_H
#define FOVEA_LIB_DIFFERENTIATE_TREETRANSPOSE_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {

class TreeTranspose {
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = llvm::SmallVector<Value>;

public:
  /// Rows of every level, the tokens' first, in the type of adjoints.
  using Levels = llvm::SmallVector<Value>;

  /// `tree` has the shape of the nodes.
  TreeTranspose(mlir::OpBuilder &builder, mlir::Operation *op, TreeAttr shape,
                Value tree);

  /// Nodes that an operation lists, `[B, r]` each.
  struct List {
    /// Level, index on it, row of the tree, and index of the level's last node.
    /// Absent nodes have row -1, and 0 otherwise.
    Value level, index, row, last;
  };
  List list(Value level, Value index);

  /// The adjoint of a tree, of that of its tokens.
  Value materialize(Value dTokens);
  /// That of the tokens that a tree was built of.
  Value build(Value dTree, Value counts);
  /// That of a tree, to which those of fetched rows are added.
  Value fetch(Value dTree, Value dRows, const List &nodes) {
    return addToPaths(dTree, dRows, nodes, /*isNegative=*/false);
  }
  /// Those of new rows, and of the tree before an update.
  Value updateRows(Value dTree, Value counts, const List &nodes);
  Value updateTree(Value dTree, Value dRows, const List &nodes) {
    return addToPaths(dTree, dRows, nodes, /*isNegative=*/true);
  }
  /// Sums of the rows of listed nodes over all below each node, not of its own.
  Levels sumBelow(Value rows, const List &nodes);
  /// The rows of listed nodes of a level, by their indices; zeros for absent
  /// ones.
  Value pick(Value level, Value indices);
  Value zeros(mlir::OpFoldResult rows);
  mlir::OpFoldResult getNumNodes() { return count(shape.getNodesPerRoot()); }

private:
  /// As many for each root.
  mlir::OpFoldResult count(int64_t perRoot);
  mlir::OpFoldResult getNumRows(int64_t level) {
    return count(shape.getNumNodes(level, /*roots=*/1));
  }
  mlir::OpFoldResult getFirstRow(int64_t level) {
    return count(shape.getFirstRow(level, /*roots=*/1));
  }
  /// One of them as a value.
  Value asIndex(mlir::OpFoldResult count);
  mlir::AffineMap project(unsigned numLoops, llvm::ArrayRef<unsigned> dims);
  Value empty(mlir::OpFoldResult rows);
  Value fillZeros(Value init);
  Value slice(Value from, int64_t level);
  Value insert(Value rows, Value nodes, int64_t level);
  Levels split(Value nodes);
  Value families(Value rows);
  Value addChildren(Value rows, Value children);
  Value shares(Value counts, int64_t level);
  Value inherit(Value nodes, Value parents, Value counts, int64_t level,
                Value init);
  Value innerRows(Value dTree, Value counts);
  Value addToPaths(Value dTree, Value dRows, const List &nodes,
                   bool isNegative);
  Value generic(Value init, llvm::ArrayRef<mlir::AffineMap> maps, bool reduces,
                ValueRange inputs, llvm::function_ref<Value(ValueRange)> body);
  Value map(Value init, ValueRange inputs,
            llvm::function_ref<Value(ValueRange)> body);
  Values loop(Value low, Value high, ValueRange inits,
              llvm::function_ref<Values(Value, ValueRange)> body);
  Value forEachNode(Value list, Value carried,
                    llvm::function_ref<Value(Value, Value, Value)> body);
  Value loadIndex(Value list, Value entry, Value j);
  std::pair<Value, Value> loadRow(const List &nodes, Value entry, Value j);
  Value getRow(Value rows, Value entry, Value row);
  Value setRow(Value rows, Value entry, Value row, ValueRange inputs,
               llvm::function_ref<Value(ValueRange)> body);
  Value addToRow(Value rows, Value entry, Value row, Value added,
                 llvm::function_ref<Value(ValueRange)> body);
  Value putRow(Value set, Value rows, Value entry, Value row);

  mlir::ImplicitLocOpBuilder b;
  mlir::Operation *op;
  TreeAttr shape;
  Value tree;
  /// Known where the type of the tree tells it.
  mlir::OpFoldResult roots;
  int64_t width;
  mlir::OpFoldResult batch;
  mlir::FloatType state;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIFFERENTIATE_TREETRANSPOSE_H
