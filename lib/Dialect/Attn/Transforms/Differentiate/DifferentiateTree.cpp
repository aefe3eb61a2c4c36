//===- DifferentiateTree.cpp - Transposes of functions on trees -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions on trees are linear. Their transposes are sums over children and
// shares of parents, level by level, in time O(nodes F):
//
// - tree_materialize: sums of the tokens' adjoints under every node; what a
// root
//   gives, every other node takes away.
// - tree_fetch: sums of the rows' adjoints under every node, likewise.
// - tree_build: a row's adjoint is that of its own node, taken away, and of its
//   children, and a share of its parent's.
// - tree_update: tokens move by the difference of a node's new row and its old
//   one: tree_build's, then sums under the listed nodes.
// - tree_select: a candidate's score gets the sum of the adjoints of the
// factors
//   below it, of which there are none unless it is split.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "Expand/ExpandPatterns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Rows of every level, the tokens' first, in the type of adjoints.
using Levels = SmallVector<Value>;

class TreeTranspose {
public:
  /// `tree` has the shape of the nodes.
  TreeTranspose(OpBuilder &builder, Operation *op, TreeAttr shape, Value tree)
      : b(op->getLoc(), builder), op(op), shape(shape), tree(tree) {
    auto type = cast<RankedTensorType>(tree.getType());
    roots = type.getDimSize(1) / shape.getNodesPerRoot();
    width = type.getDimSize(2);
    batch = tensor::getMixedSize(b, b.getLoc(), tree, 0);
    state = getStateType(type.getElementType());
  }

  /// Sums over the tokens under every node.
  Levels sumUp(Value tokens);
  /// The adjoint of a tree, given these of its rows' adjoints.
  Value packSums(Levels sums);
  /// That of the tokens that a tree was built of.
  Value build(Value dTree, Value counts);
  /// That of the tree that rows were fetched from.
  Value fetch(Value dRows, Value positions);
  /// Sums of the rows of listed nodes over all below each node, not of its own.
  Levels sumBelow(Value rows, Value positions);
  /// The rows of listed nodes of a level, by their indices.
  Value pick(Value level, Value indices);
  /// The sums at listed nodes, like `rows`: zeros where no token is present.
  Value gather(const Levels &sums, Value positions, Value rows, Value counts);
  Value positions(Value level, Value index);

private:
  int64_t getNumRows(int64_t level) { return shape.getNumNodes(level, roots); }
  int64_t getNumNodes() { return roots * shape.getNodesPerRoot(); }
  AffineMap map(unsigned numLoops, ArrayRef<unsigned> dims);
  Value zeros(int64_t rows);
  Value slice(Value from, int64_t level);
  Levels split(Value nodes);
  Value families(Value rows);
  Value addChildren(Value rows, Value children);
  Value shares(Value counts, int64_t level);
  Value addParents(Value rows, Value parents, Value counts, int64_t level);
  Value generic(Value init, ArrayRef<AffineMap> maps, bool reduces,
                ValueRange inputs, function_ref<Value(ValueRange)> body);
  Value forEachNode(Value list, Value carried,
                    function_ref<Value(Value, Value, Value, Value)> body);
  Levels scatter(Value rows, Value positions);
  Value getRow(Value rows, Value entry, Value row);
  Value setRow(Value row, Value rows, Value entry, Value at);

  ImplicitLocOpBuilder b;
  Operation *op;
  TreeAttr shape;
  Value tree;
  int64_t roots, width;
  OpFoldResult batch;
  FloatType state;
};
} // namespace

//===----------------------------------------------------------------------===//
// Levels
//===----------------------------------------------------------------------===//

/// An operation whose loops are batch, parent, child and, with rows, column;
/// `reduces` adds up the children.
Value TreeTranspose::generic(Value init, ArrayRef<AffineMap> maps, bool reduces,
                             ValueRange inputs,
                             function_ref<Value(ValueRange)> body) {
  SmallVector<utils::IteratorType> loops(maps[0].getNumDims(),
                                         utils::IteratorType::parallel);
  if (reduces)
    loops[2] = utils::IteratorType::reduction;
  return linalg::GenericOp::create(
             b, TypeRange(init.getType()), inputs, ValueRange(init), maps,
             loops,
             [&](OpBuilder &nested, Location loc, ValueRange values) {
               OpBuilder::InsertionGuard guard(b);
               b.setInsertionPoint(nested.getInsertionBlock(),
                                   nested.getInsertionPoint());
               linalg::YieldOp::create(b, body(values));
             })
      .getResult(0);
}

AffineMap TreeTranspose::map(unsigned numLoops, ArrayRef<unsigned> dims) {
  return AffineMap::getMultiDimMapWithTargets(numLoops, dims, b.getContext());
}

Value TreeTranspose::zeros(int64_t rows) {
  OpFoldResult sizes[] = {batch, b.getIndexAttr(rows), b.getIndexAttr(width)};
  Value empty = tensor::EmptyOp::create(b, sizes, state);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(state));
  return linalg::FillOp::create(b, zero, empty).getResult(0);
}

Value TreeTranspose::slice(Value from, int64_t level) {
  auto type = cast<RankedTensorType>(from.getType());
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets = {
      zero, b.getIndexAttr(shape.getFirstRow(level, roots))};
  SmallVector<OpFoldResult> sizes = {batch, b.getIndexAttr(getNumRows(level))};
  if (type.getRank() == 3) {
    offsets.push_back(zero);
    sizes.push_back(b.getIndexAttr(width));
  }
  SmallVector<OpFoldResult> strides(sizes.size(), one);
  return tensor::ExtractSliceOp::create(b, from, offsets, sizes, strides);
}

Levels TreeTranspose::split(Value nodes) {
  Levels levels;
  for (int64_t level = 0; level <= shape.getLevels(); ++level)
    levels.push_back(slice(nodes, level));
  return levels;
}

Value TreeTranspose::packSums(Levels sums) {
  // What the roots give, every other node takes away.
  for (Value &level : MutableArrayRef(sums).drop_back())
    level = arith::NegFOp::create(b, level);
  Value nodes = createEmptyLike(b, b.getLoc(), tree, state);
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  for (auto [level, rows] : llvm::enumerate(sums)) {
    OpFoldResult first = b.getIndexAttr(shape.getFirstRow(level, roots));
    OpFoldResult sizes[] = {batch, b.getIndexAttr(getNumRows(level)),
                            b.getIndexAttr(width)};
    nodes = tensor::InsertSliceOp::create(b, rows, nodes, {zero, first, zero},
                                          sizes, {one, one, one});
  }
  return nodes;
}

/// `[B, parents ratio(, F)]` as `[B, parents, ratio(, F)]`.
Value TreeTranspose::families(Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<int64_t> extents = {type.getDimSize(0),
                                  type.getDimSize(1) / shape.getRatio(),
                                  shape.getRatio()};
  SmallVector<OpFoldResult> sizes = {batch, b.getIndexAttr(extents[1]),
                                     b.getIndexAttr(extents[2])};
  SmallVector<ReassociationIndices> groups = {{0}, {1, 2}};
  if (type.getRank() == 3) {
    extents.push_back(width);
    sizes.push_back(b.getIndexAttr(width));
    groups.push_back({3});
  }
  return tensor::ExpandShapeOp::create(
      b, RankedTensorType::get(extents, type.getElementType()), rows, groups,
      sizes);
}

/// Adds to every row the sum of its children's.
Value TreeTranspose::addChildren(Value rows, Value children) {
  return generic(rows, {map(4, {0, 1, 2, 3}), map(4, {0, 1, 3})},
                 /*reduces=*/true, families(children), [&](ValueRange values) {
                   return arith::AddFOp::create(b, values[1], values[0]);
                 });
}

/// How much of its parent's row every node of `level` is, by family: the share
/// of its tokens, or of nodes where there are no tokens.
Value TreeTranspose::shares(Value counts, int64_t level) {
  Value children = families(slice(counts, level));
  Value parents = slice(counts, level + 1);
  Value init = createEmptyLike(b, b.getLoc(), children, state);
  return generic(
      init, {map(3, {0, 1, 2}), map(3, {0, 1}), map(3, {0, 1, 2})},
      /*reduces=*/false, {children, parents}, [&](ValueRange values) -> Value {
        Value child = arith::SIToFPOp::create(b, state, values[0]);
        Value parent = arith::SIToFPOp::create(b, state, values[1]);
        auto number = [&](double value) {
          return arith::ConstantOp::create(b, b.getFloatAttr(state, value));
        };
        Value one = number(1.0);
        Value share = arith::DivFOp::create(
            b, child, arith::MaximumFOp::create(b, parent, one));
        Value isEmpty =
            arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, parent, one);
        return arith::SelectOp::create(b, isEmpty,
                                       number(1.0 / shape.getRatio()), share);
      });
}

/// Adds to every row of `level` its share of its parent's.
Value TreeTranspose::addParents(Value rows, Value parents, Value counts,
                                int64_t level) {
  AffineMap all = map(4, {0, 1, 2, 3});
  SmallVector<AffineMap> maps = {map(4, {0, 1, 3}), all};
  SmallVector<Value> inputs = {parents};
  if (counts) {
    maps.insert(maps.begin(), map(4, {0, 1, 2}));
    inputs.insert(inputs.begin(), shares(counts, level));
  }
  Value sums =
      generic(families(rows), maps, /*reduces=*/false, inputs,
              [&](ValueRange values) -> Value {
                Value share = values.front();
                if (!counts)
                  share = arith::ConstantOp::create(
                      b, b.getFloatAttr(state, 1.0 / shape.getRatio()));
                Value part =
                    arith::MulFOp::create(b, share, values.drop_back().back());
                return arith::AddFOp::create(b, values.back(), part);
              });
  return tensor::CollapseShapeOp::create(
      b, rows.getType(), sums,
      SmallVector<ReassociationIndices>{{0}, {1, 2}, {3}});
}

Levels TreeTranspose::sumUp(Value tokens) {
  Levels sums = {tokens};
  for (int64_t level = 1; level <= shape.getLevels(); ++level)
    sums.push_back(addChildren(zeros(getNumRows(level)), sums.back()));
  return sums;
}

Value TreeTranspose::build(Value dTree, Value counts) {
  Levels nodes = split(dTree), rows = nodes;
  // A row is in its own node and in those of its children.
  for (int64_t level = 0; level <= shape.getLevels(); ++level) {
    if (level < shape.getLevels())
      rows[level] = arith::NegFOp::create(b, rows[level]);
    if (level > 0)
      rows[level] = addChildren(rows[level], nodes[level - 1]);
  }
  for (int64_t level = shape.getLevels() - 1; level >= 0; --level)
    rows[level] = addParents(rows[level], rows[level + 1], counts, level);
  return rows.front();
}

//===----------------------------------------------------------------------===//
// Listed nodes
//===----------------------------------------------------------------------===//

/// Positions of listed nodes among the rows of the tree, `[B, r]`. A list of
/// nodes that the tree does not have fails the invocation: the operation that
/// this is the gradient of may not be run.
Value TreeTranspose::positions(Value level, Value index) {
  auto type = cast<RankedTensorType>(level.getType());
  auto perLevel = [&](function_ref<int64_t(int64_t)> number, bool addsIndex) {
    Value init = createEmptyLike(b, b.getLoc(), level, b.getI32Type());
    AffineMap all = map(2, {0, 1});
    SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
    return linalg::GenericOp::create(
               b, TypeRange(init.getType()), ValueRange{level, index},
               ValueRange(init), {all, all, all}, loops,
               [&](OpBuilder &nested, Location loc, ValueRange values) {
                 auto constant = [&](int64_t value) -> Value {
                   return arith::ConstantIntOp::create(nested, loc, value, 32);
                 };
                 Value found = constant(number(0));
                 for (int64_t l = 1; l <= shape.getLevels(); ++l) {
                   Value isLevel = arith::CmpIOp::create(
                       nested, loc, arith::CmpIPredicate::eq, values[0],
                       constant(l));
                   found = arith::SelectOp::create(nested, loc, isLevel,
                                                   constant(number(l)), found);
                 }
                 if (addsIndex)
                   found = arith::AddIOp::create(nested, loc, found, values[1]);
                 linalg::YieldOp::create(nested, loc, found);
               })
        .getResult(0);
  };
  Value last = perLevel([&](int64_t l) { return getNumRows(l) - 1; }, false);
  // Checks take lists of rank 3.
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), level);
  sizes.insert(sizes.begin(), b.getIndexAttr(1));
  auto lead = [&](Value list) -> Value {
    auto led = RankedTensorType::get(
        {1, type.getDimSize(0), type.getDimSize(1)}, b.getI32Type());
    return tensor::ExpandShapeOp::create(
        b, led, list, SmallVector<ReassociationIndices>{{0, 1}, {2}}, sizes);
  };
  std::string name = op->getName().getStringRef().str();
  Value numLevels = arith::ConstantIndexOp::create(b, shape.getLevels() + 1);
  CheckCodesOp::create(b, lead(level), numLevels, name + ": level");
  Value numTokens = arith::ConstantIndexOp::create(b, getNumRows(0));
  CheckIntervalsOp::create(b, lead(index), lead(last), numTokens,
                           name + ": nodes, index and last");
  return perLevel([&](int64_t l) { return shape.getFirstRow(l, roots); }, true);
}

/// Loops over listed nodes, one after the other, while carrying a tensor:
/// `body` is given batch entry, number in the list, position, and the tensor.
Value TreeTranspose::forEachNode(
    Value list, Value carried,
    function_ref<Value(Value, Value, Value, Value)> body) {
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value one = arith::ConstantIndexOp::create(b, 1);
  auto loop = [&](Value bound, Value init,
                  function_ref<Value(Value, Value)> inner) -> Value {
    auto loopOp = scf::ForOp::create(b, zero, bound, one, ValueRange(init));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loopOp.getBody());
    scf::YieldOp::create(
        b, inner(loopOp.getInductionVar(), loopOp.getRegionIterArg(0)));
    return loopOp.getResult(0);
  };
  Value batches = tensor::DimOp::create(b, list, 0);
  Value count = tensor::DimOp::create(b, list, 1);
  return loop(batches, carried, [&](Value entry, Value outer) {
    return loop(count, outer, [&](Value j, Value inner) {
      Value at = tensor::ExtractOp::create(b, list, ValueRange{entry, j});
      at = arith::IndexCastOp::create(b, b.getIndexType(), at);
      return body(entry, j, at, inner);
    });
  });
}

/// The row `[1, 1, F]` of `rows` at `[entry, row]`.
Value TreeTranspose::getRow(Value rows, Value entry, Value row) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return tensor::ExtractSliceOp::create(b, rows, {entry, row, zero},
                                        {one, one, b.getIndexAttr(width)},
                                        {one, one, one});
}
Value TreeTranspose::setRow(Value row, Value rows, Value entry, Value at) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return tensor::InsertSliceOp::create(b, row, rows, {entry, at, zero},
                                       {one, one, b.getIndexAttr(width)},
                                       {one, one, one});
}

/// Rows of listed nodes at their nodes, zeros at others.
Levels TreeTranspose::scatter(Value rows, Value positions) {
  // A node may be listed twice.
  Value nodes = zeros(getNumNodes());
  return split(forEachNode(
      positions, nodes, [&](Value entry, Value j, Value at, Value sums) {
        Value sum = arith::AddFOp::create(b, getRow(sums, entry, at),
                                          getRow(rows, entry, j));
        return setRow(sum, sums, entry, at);
      }));
}

Value TreeTranspose::fetch(Value dRows, Value positions) {
  Levels sums = scatter(dRows, positions);
  for (int64_t level = 1; level <= shape.getLevels(); ++level)
    sums[level] = addChildren(sums[level], sums[level - 1]);
  return packSums(sums);
}

Levels TreeTranspose::sumBelow(Value rows, Value positions) {
  Levels sums = scatter(rows, positions), below = {zeros(getNumRows(0))};
  for (int64_t level = 1; level <= shape.getLevels(); ++level) {
    below.push_back(addChildren(zeros(getNumRows(level)), sums[level - 1]));
    sums[level] = arith::AddFOp::create(b, sums[level], below[level]);
  }
  return below;
}

Value TreeTranspose::pick(Value level, Value indices) {
  OpFoldResult sizes[] = {batch,
                          tensor::getMixedSize(b, b.getLoc(), indices, 1),
                          b.getIndexAttr(width)};
  return forEachNode(indices, tensor::EmptyOp::create(b, sizes, state),
                     [&](Value entry, Value j, Value at, Value picked) {
                       return setRow(getRow(level, entry, at), picked, entry,
                                     j);
                     });
}

Value TreeTranspose::gather(const Levels &sums, Value positions, Value rows,
                            Value counts) {
  // As a tree: with the opposite of what it holds below the roots.
  Value nodes = packSums(sums);
  Value firstBelow =
      arith::ConstantIndexOp::create(b, getNumRows(shape.getLevels()));
  Value one = arith::ConstantOp::create(b, b.getFloatAttr(state, 1.0));
  Value minusOne = arith::ConstantOp::create(b, b.getFloatAttr(state, -1.0));
  Value none = arith::ConstantOp::create(b, b.getFloatAttr(state, 0.0));
  Value init = createEmptyLike(b, b.getLoc(), rows, state);
  return forEachNode(
      positions, init, [&](Value entry, Value j, Value at, Value gathered) {
        Value isRoot =
            arith::CmpIOp::create(b, arith::CmpIPredicate::slt, at, firstBelow);
        Value factor = arith::SelectOp::create(b, isRoot, one, minusOne);
        if (counts) {
          // New rows of nodes without a present token are ignored.
          Value count =
              tensor::ExtractOp::create(b, counts, ValueRange{entry, at});
          Value isEmpty =
              arith::CmpIOp::create(b, arith::CmpIPredicate::eq, count,
                                    arith::ConstantIntOp::create(b, 0, 32));
          factor = arith::SelectOp::create(b, isEmpty, none, factor);
        }
        Value row = getRow(nodes, entry, at);
        Value factors = tensor::SplatOp::create(b, factor, row.getType());
        return setRow(arith::MulFOp::create(b, row, factors), gathered, entry,
                      j);
      });
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

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
  Levels sums = transpose.sumUp(adjoints.find(op->getResult(0)));
  adjoints.add(b, op.getTree(), transpose.packSums(sums));
  return success();
}

static LogicalResult differentiate(TreeFetchOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  TreeTranspose transpose(b, op, op.getShape(), op.getTree());
  Value positions = transpose.positions(op.getLevel(), op.getIndex());
  adjoints.add(b, op.getTree(),
               transpose.fetch(adjoints.find(op->getResult(0)), positions));
  return success();
}

static LogicalResult differentiate(TreeUpdateOp op, OpBuilder &b,
                                   Adjoints &adjoints) {
  Value dTree = adjoints.find(op->getResult(0));
  TreeTranspose transpose(b, op, op.getShape(), op.getTree());
  Value positions = transpose.positions(op.getLevel(), op.getIndex());
  // Tokens move by the difference of a node's new row and its old one.
  Levels sums = transpose.sumUp(transpose.build(dTree, op.getCounts()));
  Value dRows = transpose.gather(sums, positions, op.getRows(), op.getCounts());
  adjoints.add(b, op.getRows(), dRows);
  if (adjoints.isActive(op.getTree())) {
    Value dOld = transpose.fetch(dRows, positions);
    adjoints.add(b, op.getTree(),
                 arith::SubFOp::create(b, op.getLoc(), dTree, dOld));
  }
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
  Levels below = transpose.sumBelow(
      rows, transpose.positions(op->getResult(0), op->getResult(1)));

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
