//===- AttnTreeOps.cpp - Trees of averages of a compressed sequence -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::DropFullMasks;
using attn::detail::extent;
using attn::detail::verifyExtent;

//===----------------------------------------------------------------------===//
// TreeAttr
//===----------------------------------------------------------------------===//

LogicalResult TreeAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t ratio, int64_t levels) {
  if (ratio < 2)
    return emitError() << "expected a ratio of at least 2, but got " << ratio;
  if (levels < 1)
    return emitError() << "expected at least 1 level above the tokens, but got "
                       << levels;
  // Nodes are numbered with 32 bits.
  int64_t segment = 1;
  for (int64_t level = 0; level < levels; ++level)
    if (llvm::MulOverflow(segment, ratio, segment) || segment > INT32_MAX)
      return emitError() << "expected roots of at most 2147483647 tokens, but "
                            "got "
                         << ratio << " to the power of " << levels;
  return success();
}

int64_t TreeAttr::getSegment(int64_t level) const {
  int64_t segment = 1;
  for (int64_t i = 0; i < level; ++i)
    segment *= getRatio();
  return segment;
}

int64_t TreeAttr::getNodesPerRoot() const {
  return getFirstRow(/*level=*/-1, /*roots=*/1);
}

int64_t TreeAttr::getNumNodes(int64_t level, int64_t roots) const {
  return roots * getSegment(getLevels() - level);
}

int64_t TreeAttr::getFirstRow(int64_t level, int64_t roots) const {
  int64_t row = 0;
  for (int64_t above = getLevels(); above > level; --above)
    row += getNumNodes(above, roots);
  return row;
}

//===----------------------------------------------------------------------===//
// What the operations have in common
//===----------------------------------------------------------------------===//

/// Checks that `tree` has as many nodes as some number of roots, if that is
/// known.
static LogicalResult verifyTree(Operation *op, Value tree, TreeAttr shape) {
  int64_t nodes = extent(tree, 1);
  int64_t perRoot = shape.getNodesPerRoot();
  if (ShapedType::isDynamic(nodes))
    return success();
  if (nodes == 0 || nodes % perRoot != 0)
    return op->emitOpError()
           << "expects the nodes of tree to be a positive multiple of "
           << perRoot << " for " << shape << ", but got " << nodes;
  if (nodes > INT32_MAX)
    return op->emitOpError()
           << "expects at most 2147483647 nodes, but got " << nodes;
  return success();
}

/// `extent / interval * rank + addend` of what may be dynamic.
static int64_t count(int64_t extent, int64_t interval, int64_t rank,
                     int64_t addend = 0) {
  return ShapedType::isDynamic(extent) ? extent
                                       : extent / interval * rank + addend;
}

static int64_t countRoots(Value tree, TreeAttr shape) {
  return count(extent(tree, 1), shape.getNodesPerRoot(), 1);
}

/// The same as `verifyExtent` where it may be unknown what is needed.
static LogicalResult verifyIfKnown(Operation *op, StringRef name, Value operand,
                                   int64_t dim, int64_t needed,
                                   StringRef what) {
  return ShapedType::isDynamic(needed)
             ? success()
             : verifyExtent(op, name, operand, dim, needed, what);
}

//===----------------------------------------------------------------------===//
// TreeBuildOp
//===----------------------------------------------------------------------===//

MutableOperandRange TreeBuildOp::getDpsInitsMutable() {
  unsigned numInits = getCounts() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult TreeBuildOp::verify() {
  if (failed(verifyTree(*this, getTree(), getShape())))
    return failure();
  int64_t tokens = extent(getInput(), 1);
  int64_t segment = getShape().getRootSegment();
  bool isKnown = !ShapedType::isDynamic(tokens);
  if (isKnown && (tokens == 0 || tokens % segment != 0))
    return emitOpError() << "expects extent 1 of input to be a positive "
                            "multiple of "
                         << segment << ", the tokens of a root, but got "
                         << tokens;
  // There are more nodes than tokens.
  if (isKnown && tokens > INT32_MAX)
    return emitOpError() << "expects at most 2147483647 tokens, but got "
                         << tokens;
  if (!getMask() != !getCounts())
    return emitOpError("expects counts in outs with a mask, and none without");
  return verifyIfKnown(*this, "tree", getTree(), 1,
                       count(tokens, segment, getShape().getNodesPerRoot()),
                       "nodes over the tokens of input");
}

//===----------------------------------------------------------------------===//
// TreeFetchOp, TreeUpdateOp, TreeMaterializeOp
//===----------------------------------------------------------------------===//

MutableOperandRange TreeFetchOp::getDpsInitsMutable() {
  unsigned numInits = getLogWeight() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult TreeFetchOp::verify() {
  return verifyTree(*this, getTree(), getShape());
}

MutableOperandRange TreeUpdateOp::getDpsInitsMutable() {
  return getTreeMutable();
}

LogicalResult TreeUpdateOp::verify() {
  if (failed(verifyTree(*this, getTree(), getShape())))
    return failure();
  // Every split adds ratio - 1 nodes to the roots.
  int64_t listed = extent(getRows(), 1);
  int64_t roots = countRoots(getTree(), getShape());
  int64_t added = getShape().getRatio() - 1;
  if (!ShapedType::isDynamic(listed) && !ShapedType::isDynamic(roots) &&
      (listed < roots || (listed - roots) % added != 0 ||
       listed > roots * getShape().getRootSegment()))
    return emitOpError() << "expects a number of nodes that can cover the "
                            "sequence, "
                         << roots << " and a multiple of " << added << " up to "
                         << roots * getShape().getRootSegment()
                         << " in all, but got " << listed;
  return success();
}

MutableOperandRange TreeMaterializeOp::getDpsInitsMutable() {
  return getOutputMutable();
}

LogicalResult TreeMaterializeOp::verify() {
  if (failed(verifyTree(*this, getTree(), getShape())))
    return failure();
  int64_t tokens = count(extent(getTree(), 1), getShape().getNodesPerRoot(),
                         getShape().getRootSegment());
  return verifyIfKnown(*this, "output", getOutput(), 1, tokens,
                       "tokens under the nodes of tree");
}

//===----------------------------------------------------------------------===//
// TreeSelectOp
//===----------------------------------------------------------------------===//

MutableOperandRange TreeSelectOp::getDpsInitsMutable() {
  unsigned numInits = getFactor() ? 3 : 2;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

int64_t TreeSelectOp::getNumRoots() {
  return countRoots(getTree(), getShape());
}

/// Checks that an argument or the result of the region can be `[B, c, ...]` at
/// a level with `expected` extents.
static bool canBe(Type type, ArrayRef<int64_t> expected, Type elementType) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType() == elementType &&
         tensor.getRank() == static_cast<int64_t>(expected.size()) &&
         llvm::all_of(llvm::zip(tensor.getShape(), expected), [](auto pair) {
           return ShapedType::isDynamic(std::get<0>(pair)) ||
                  ShapedType::isDynamic(std::get<1>(pair)) ||
                  std::get<0>(pair) == std::get<1>(pair);
         });
}

LogicalResult TreeSelectOp::verify() {
  TreeAttr shape = getShape();
  if (failed(verifyTree(*this, getTree(), shape)))
    return failure();
  if (static_cast<int64_t>(getBudgets().size()) != shape.getLevels())
    return emitOpError() << "expects a budget for each of the "
                         << shape.getLevels() << " levels from 1 on, but got "
                         << getBudgets().size();
  auto type = cast<ShapedType>(getTree().getType());
  Block &block = getScore().front();
  unsigned numArguments = block.getNumArguments();
  if (numArguments != 1 && numArguments != 2)
    return emitOpError() << "expects a region of 1 or 2 arguments, the rows "
                            "and log weights of candidates, but got "
                         << numArguments;
  // What is inside has not been verified yet.
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || yield->getNumOperands() != 1 ||
      !isa<RankedTensorType>(yield->getOperand(0).getType()))
    return emitOpError(
        "expects a region that ends in attn.yield of one tensor");
  Type state = type.getElementType().isF64() ? type.getElementType()
                                             : Float32Type::get(getContext());
  Type scoreType = yield.getScores().getType();
  Type scoreElement = cast<RankedTensorType>(scoreType).getElementType();
  if (!scoreElement.isF32() && !scoreElement.isF64())
    return emitOpError() << "expects scores of f32 or f64, but got "
                         << scoreType;

  int64_t candidates = getNumRoots(), added = 0;
  for (int64_t level = shape.getLevels(); level >= 1; --level) {
    int64_t budget = getBudget(level);
    int64_t most = ShapedType::isDynamic(candidates) ? INT32_MAX : candidates;
    if (budget < 0 || budget > most)
      return emitOpError() << "expects a budget of 0 to " << most
                           << " at level " << level
                           << ", which has as many candidates, but got "
                           << budget;
    std::string number =
        ShapedType::isDynamic(candidates) ? "?" : std::to_string(candidates);
    if (budget != 0 && budget != candidates) {
      int64_t batch = type.getDimSize(0);
      if (!canBe(block.getArgument(0).getType(),
                 {batch, candidates, type.getDimSize(2)},
                 type.getElementType()))
        return emitOpError() << "expects a region that takes rows of the "
                             << number << " candidates of level " << level
                             << ", but got " << block.getArgument(0).getType();
      if (numArguments == 2 &&
          !canBe(block.getArgument(1).getType(), {batch, candidates}, state))
        return emitOpError()
               << "expects a region that takes " << state
               << " log weights of the " << number << " candidates of level "
               << level << ", but got " << block.getArgument(1).getType();
      if (!canBe(scoreType, {batch, candidates}, scoreElement))
        return emitOpError()
               << "expects scores of the " << number << " candidates of level "
               << level << ", but got " << scoreType;
    }
    added += budget * (shape.getRatio() - 1);
    candidates = budget * shape.getRatio();
  }
  int64_t listed = count(getNumRoots(), 1, 1, added);
  if (!isa<TensorType>(getTree().getType()))
    return emitOpError("expects tensors: expand it before bufferization");
  for (auto [name, operand] : {std::pair<StringRef, Value>{"level", getLevel()},
                               {"index", getIndex()},
                               {"factor", getFactor()}})
    if (operand && failed(verifyIfKnown(*this, name, operand, 1, listed,
                                        "nodes that the budgets leave")))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// TreeSplitOp
//===----------------------------------------------------------------------===//

MutableOperandRange TreeSplitOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

int64_t TreeSplitOp::getNumFrontier() {
  int64_t added =
      static_cast<int64_t>(getSplit()) * (getShape().getRatio() - 1);
  int64_t listed = count(extent(getNewLevel(), 1), 1, 1, -added);
  Value other = getLevel() ? getLevel() : getScores();
  return ShapedType::isDynamic(listed) && other ? extent(other, 1) : listed;
}

int64_t TreeSplitOp::getNumCandidates() {
  return getCandidates() ? extent(getCandidates(), 1) : getNumFrontier();
}

int64_t TreeSplitOp::getNumRoots() {
  if (getCounts())
    return countRoots(getCounts(), getShape());
  return getCandidates() ? ShapedType::kDynamic : getNumFrontier();
}

/// Checks the numbers of nodes of an attn.tree_split, where they are known.
static LogicalResult verifyFrontier(TreeSplitOp op) {
  TreeAttr shape = op.getShape();
  int64_t split = op.getSplit(), candidates = op.getNumCandidates();
  int64_t listed = op.getNumFrontier();
  bool areKnown = !ShapedType::isDynamic(candidates);
  if (areKnown && split > candidates)
    return op.emitOpError() << "expects to split 0 to " << candidates
                            << " candidates, but got " << split;
  if (!op.getScores() && split != 0 && areKnown && split != candidates)
    return op.emitOpError() << "expects scores to choose " << split << " of "
                            << candidates << " candidates";
  if (op.getLevel() && failed(verifyIfKnown(op, "level", op.getLevel(), 1,
                                            listed, "nodes of the frontier")))
    return failure();
  bool isListed = !ShapedType::isDynamic(listed);
  if (isListed && ((areKnown && listed < candidates) || listed < 1))
    return op.emitOpError() << "expects a frontier of at least " << candidates
                            << " nodes, but got " << listed;
  if (op.getScores() && failed(verifyIfKnown(op, "scores", op.getScores(), 1,
                                             candidates, "candidates")))
    return failure();
  if (failed(verifyExtent(op, "children", op.getChildren(), 1,
                          split * shape.getRatio(),
                          "children of the split nodes")))
    return failure();
  Value counts = op.getCounts();
  int64_t nodes = counts ? extent(counts, 1) : ShapedType::kDynamic;
  int64_t perRoot = shape.getNodesPerRoot();
  if (ShapedType::isDynamic(nodes))
    return success();
  if (nodes % perRoot != 0)
    return op.emitOpError()
           << "expects the nodes of counts to be a positive "
              "multiple of "
           << perRoot << " for " << shape << ", but got " << counts.getType();
  if (!op.getCandidates() && isListed && nodes / perRoot != listed)
    return op.emitOpError() << "expects counts of a tree with " << listed
                            << " roots, but got " << nodes / perRoot;
  return success();
}

LogicalResult TreeSplitOp::verify() {
  TreeAttr shape = getShape();
  int64_t at = getAt(), split = getSplit();
  int64_t listed = extent(getNewLevel(), 1);
  int64_t most = ShapedType::isDynamic(listed) ? INT32_MAX : listed;
  if (!getCandidates() != !getLevel() || !getLevel() != !getIndex())
    return emitOpError("expects a frontier of candidates, level and index");
  // It may be empty.
  if (ShapedType::isDynamic(extent(getChildren(), 1)))
    return emitOpError("expects a static extent 1 of children");
  if (most > INT32_MAX)
    return emitOpError() << "expects at most 2147483647 nodes of new_level, "
                            "but got "
                         << most;
  if (at < 1 || at > shape.getLevels())
    return emitOpError() << "expects a level of 1 to " << shape.getLevels()
                         << " to split, but got " << at;
  if (!getCandidates() && at != shape.getLevels())
    return emitOpError() << "expects a frontier to split level " << at
                         << ", which is not that of the roots";
  if (split < 0 || split > most)
    return emitOpError() << "expects to split 0 to " << most
                         << " nodes, but got " << split;
  return verifyFrontier(*this);
}

//===----------------------------------------------------------------------===//
// TreeScoreOp
//===----------------------------------------------------------------------===//

MutableOperandRange TreeScoreOp::getDpsInitsMutable() {
  return getOutputMutable();
}

double TreeScoreOp::getScaleOrDefault() {
  if (std::optional<APFloat> scale = getScale())
    return scale->convertToDouble();
  return 1.0 / std::sqrt(static_cast<double>(extent(getQuery(), 3)));
}

void TreeScoreOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                              MLIRContext *context) {
  patterns.add<DropFullMasks<TreeScoreOp>>(context);
}

LogicalResult TreeScoreOp::verify() {
  int64_t heads = extent(getQuery(), 1);
  if (getExponential() && heads != 1)
    return emitOpError() << "expects one head with exponential, but got "
                         << heads;
  if (getExponential() && getLogWeight())
    return emitOpError("expects no log weights with exponential");
  return success();
}
