//===- DifferentiateTree.cpp - Gradients of operations on trees -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "TreeTranspose.h"
#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

static LogicalResult differentiate(TreeBuildOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Value tree = op->getResult(0);
  TreeTranspose transpose(b, op, op.getShape(), tree);
  Value counts = op.getMask() ? op->getResult(1) : Value();
  adjoints.add(b, op.getInput(), transpose.build(adjoints.find(tree), counts));
  return success();
}

static LogicalResult differentiate(TreeMaterializeOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  TreeTranspose transpose(b, op, op.getShape(), op.getTree());
  Value dTokens = adjoints.find(op->getResult(0));
  adjoints.add(b, op.getTree(), transpose.materialize(dTokens));
  return success();
}

static LogicalResult differentiate(TreeFetchOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  TreeTranspose transpose(b, op, op.getShape(), op.getTree());
  TreeTranspose::List nodes = transpose.list(op.getLevel(), op.getIndex());
  Value dTree = transpose.zeros(transpose.getNumNodes());
  Value dRows = adjoints.find(op->getResult(0));
  adjoints.add(b, op.getTree(), transpose.fetch(dTree, dRows, nodes));
  return success();
}

static LogicalResult differentiate(TreeUpdateOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Value dTree = adjoints.find(op->getResult(0));
  TreeTranspose transpose(b, op, op.getShape(), op.getTree());
  TreeTranspose::List nodes = transpose.list(op.getLevel(), op.getIndex());
  Value dRows = transpose.updateRows(dTree, op.getCounts(), nodes);
  adjoints.add(b, op.getRows(), dRows);
  if (adjoints.isActive(op.getTree()))
    adjoints.add(b, op.getTree(), transpose.updateTree(dTree, dRows, nodes));
  return success();
}

/// Differentiates what `expand` puts before `op`, whose results it replaces;
/// `seed` gives adjoints to values of that.
static LogicalResult differentiateExpansion(Operation *op, OpBuilder &b,
                                            Adjoints &adjoints,
                                            function_ref<void()> expand,
                                            function_ref<void()> seed) {
  // Between these two.
  OpBuilder before(op);
  Operation *begin = arith::ConstantIndexOp::create(before, op->getLoc(), 0);
  before.setInsertionPointAfter(op);
  Operation *end = arith::ConstantIndexOp::create(before, op->getLoc(), 0);
  expand();
  SmallVector<Operation *> ops;
  for (Operation *added = begin->getNextNode(); added != end;
       added = added->getNextNode()) {
    adjoints.activateResults(added);
    ops.push_back(added);
  }
  begin->erase();
  end->erase();
  seed();
  return adjoints.emitVJPs(b, ops);
}

/// A score becomes attention, which has a gradient.
static LogicalResult differentiate(TreeScoreOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Value adjoint = adjoints.find(op->getResult(0)), score;
  return differentiateExpansion(
      op, b, adjoints,
      [&] {
        OpBuilder before(op);
        score = fovea::attn::detail::expandTreeScore(before, op);
        op->getResult(0).replaceAllUsesWith(score);
        op.erase();
      },
      [&] { adjoints.set(score, adjoint); });
}

/// Nothing goes through the choice; the factor of a node passes its gradient to
/// the scores that its ancestors were split for.
static LogicalResult differentiate(TreeSelectOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Location loc = op.getLoc();
  Value dFactor = adjoints.find(op->getResult(2)), tree = op.getTree();
  Type state = getElementTypeOrSelf(dFactor);
  // Factors as rows of one column.
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, dFactor);
  sizes.push_back(b.getIndexAttr(1));
  auto type = cast<RankedTensorType>(dFactor.getType());
  SmallVector<ReassociationIndices> columns = {{0}, {1, 2}};
  Value rows = tensor::ExpandShapeOp::create(
      b, loc,
      RankedTensorType::get({type.getDimSize(0), type.getDimSize(1), 1}, state),
      dFactor, columns, sizes);
  SmallVector<OpFoldResult> nodes = tensor::getMixedSizes(b, loc, tree);
  nodes.back() = b.getIndexAttr(1);
  TreeTranspose transpose(b, op, op.getShape(),
                          tensor::EmptyOp::create(b, loc, nodes, state));
  TreeTranspose::Levels below = transpose.sumBelow(
      rows, transpose.list(op->getResult(0), op->getResult(1)));

  SmallVector<fovea::attn::detail::ScoredLevel> scored;
  return differentiateExpansion(
      op, b, adjoints,
      [&] { scored = fovea::attn::detail::expandTreeSelect(op); },
      [&] {
        for (const fovea::attn::detail::ScoredLevel &level : scored) {
          Value sums = below[level.level];
          if (level.candidates)
            sums = transpose.pick(sums, level.candidates);
          auto scores = cast<RankedTensorType>(level.scores.getType());
          adjoints.add(b, level.scores,
                       tensor::CollapseShapeOp::create(
                           b, loc, scores.clone(state), sums, columns));
        }
      });
}

namespace {
/// The first result has an adjoint; counts and log weights depend on no row. Of
/// attn.tree_select the factor has.
template <typename OpTy>
struct TreeModel
    : DifferentiableOpInterface::ExternalModel<TreeModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    return differentiate(cast<OpTy>(op), builder, adjoints);
  }
  bool hasAdjoint(Operation *, OpResult result) const {
    return result.getResultNumber() ==
           (std::is_same_v<OpTy, TreeSelectOp> ? 2 : 0);
  }
};
} // namespace

template <typename... OpTys> static void attach(MLIRContext *context) {
  (OpTys::template attachInterface<TreeModel<OpTys>>(*context), ...);
}

void fovea::attn::registerTreeRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attach<TreeBuildOp, TreeFetchOp, TreeMaterializeOp, TreeScoreOp,
           TreeSelectOp, TreeUpdateOp>(context);
  });
}
