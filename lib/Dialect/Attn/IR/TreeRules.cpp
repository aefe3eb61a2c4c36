//===- TreeRules.cpp - Extents of trees that go together ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/TreeRules.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea::attn;

std::string TreeRule::describe() const {
  if (other.operand)
    return llvm::formatv("extent {0} of {1} must count {2} extent {3} of {4}",
                         extent.dim, extent.name, what, other.dim, other.name);
  return llvm::formatv("extent {0} of {1} must be a multiple of {2}, {3}",
                       extent.dim, extent.name, divisor, what);
}

namespace {
struct Rules {
  using Extent = TreeRule::Extent;

  TreeAttr shape;
  function_ref<void(const TreeRule &)> visit;

  void add(const TreeRule &rule) {
    auto isOpen = [](const Extent &extent) {
      return extent.operand && cast<ShapedType>(extent.operand.getType())
                                   .isDynamicDim(extent.dim);
    };
    if (isOpen(rule.extent) || isOpen(rule.other))
      visit(rule);
  }
  void isMultiple(Extent extent, int64_t divisor, StringRef what) {
    add(TreeRule{extent, {}, divisor, 0, 0, what});
  }
  void isTree(Extent nodes) {
    isMultiple(nodes, shape.getNodesPerRoot(), "the nodes of a root");
  }
  void isCount(Extent extent, StringRef what, Extent other, int64_t divisor,
               int64_t factor, int64_t addend = 0) {
    add(TreeRule{extent, other, divisor, factor, addend, what});
  }

  void visitOp(TreeBuildOp op) {
    Extent tokens{"input", op.getInput()};
    isMultiple(tokens, shape.getRootSegment(), "the tokens of a root");
    isCount({"tree", op.getTree()}, "the nodes over", tokens,
            shape.getRootSegment(), shape.getNodesPerRoot());
  }
  void visitOp(TreeMaterializeOp op) {
    Extent nodes{"tree", op.getTree()};
    isTree(nodes);
    isCount({"output", op.getOutput()}, "the tokens under", nodes,
            shape.getNodesPerRoot(), shape.getRootSegment());
  }
  void visitOp(TreeFetchOp op) { isTree({"tree", op.getTree()}); }
  void visitOp(TreeUpdateOp op) { isTree({"tree", op.getTree()}); }
  void visitOp(TreeSelectOp op) {
    Extent nodes{"tree", op.getTree()};
    isTree(nodes);
    int64_t splits = 0;
    for (int64_t budget : op.getBudgets())
      splits += budget;
    isCount({"level", op.getLevel()}, "the nodes that the budgets leave of",
            nodes, shape.getNodesPerRoot(), 1, splits * (shape.getRatio() - 1));
  }
  void visitOp(TreeSplitOp op) {
    int64_t added =
        static_cast<int64_t>(op.getSplit()) * (shape.getRatio() - 1);
    Extent listed{"new_level", op.getNewLevel()};
    Extent scores{"scores", op.getScores()};
    Extent frontier = op.getLevel() ? Extent{"level", op.getLevel()} : scores;
    if (frontier.operand)
      isCount(listed, "the nodes after a split of", frontier, 1, 1, added);
    // Without scores all are split.
    if (!op.getScores() && op.getSplit() > 0) {
      Extent children{"children", op.getChildren()};
      int64_t ratio = shape.getRatio();
      if (op.getCandidates())
        isCount(children, "the children of all of",
                {"candidates", op.getCandidates()}, 1, ratio);
      else
        isCount(children, "the children of all before the split in", listed, 1,
                ratio, -added * ratio);
    }
    if (!op.getCounts())
      return;
    Extent nodes{"counts", op.getCounts()};
    isTree(nodes);
    if (!op.getCandidates())
      isCount(listed, "the nodes after a split of the roots of", nodes,
              shape.getNodesPerRoot(), 1, added);
  }
};
} // namespace

void fovea::attn::forEachTreeRule(Operation *op,
                                  function_ref<void(const TreeRule &)> visit) {
  llvm::TypeSwitch<Operation *>(op)
      .Case<TreeBuildOp, TreeMaterializeOp, TreeFetchOp, TreeUpdateOp,
            TreeSelectOp, TreeSplitOp>(
          [&](auto tree) { Rules{tree.getShape(), visit}.visitOp(tree); });
}
