//===- TreeTranspose.cpp - Transposes of functions on trees ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeTranspose.h"
#include "fovea/Differentiate/DifferentiableOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

using Values = SmallVector<Value>;
using Levels = TreeTranspose::Levels;

TreeTranspose::TreeTranspose(OpBuilder &builder, Operation *op, TreeAttr shape,
                             Value tree)
    : b(op->getLoc(), builder), op(op), shape(shape), tree(tree) {
  auto type = cast<RankedTensorType>(tree.getType());
  if (type.isDynamicDim(1)) {
    Value nodes = tensor::DimOp::create(b, tree, 1);
    Value perRoot = arith::ConstantIndexOp::create(b, shape.getNodesPerRoot());
    roots = arith::DivUIOp::create(b, nodes, perRoot).getResult();
  } else {
    roots = b.getIndexAttr(type.getDimSize(1) / shape.getNodesPerRoot());
  }
  width = type.getDimSize(2);
  batch = tensor::getMixedSize(b, b.getLoc(), tree, 0);
  state = getStateType(type.getElementType());
}

OpFoldResult TreeTranspose::count(int64_t perRoot) {
  if (std::optional<int64_t> known = getConstantIntValue(roots))
    return b.getIndexAttr(*known * perRoot);
  Value each = arith::ConstantIndexOp::create(b, perRoot);
  return arith::MulIOp::create(b, cast<Value>(roots), each).getResult();
}

Value TreeTranspose::asIndex(OpFoldResult count) {
  return getValueOrCreateConstantIndexOp(b, b.getLoc(), count);
}

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

/// What `body` makes of `inputs`, element by element, where `init` lies: that
/// of a `generic` operation would be forgotten, since no number depends on it.
Value TreeTranspose::map(Value init, ValueRange inputs,
                         function_ref<Value(ValueRange)> body) {
  return linalg::MapOp::create(
             b, inputs, init,
             [&](OpBuilder &nested, Location loc, ValueRange values) {
               OpBuilder::InsertionGuard guard(b);
               b.setInsertionPoint(nested.getInsertionBlock(),
                                   nested.getInsertionPoint());
               linalg::YieldOp::create(b, body(values));
             })
      ->getResult(0);
}

AffineMap TreeTranspose::project(unsigned numLoops, ArrayRef<unsigned> dims) {
  return AffineMap::getMultiDimMapWithTargets(numLoops, dims, b.getContext());
}

Value TreeTranspose::empty(OpFoldResult rows) {
  OpFoldResult sizes[] = {batch, rows, b.getIndexAttr(width)};
  return tensor::EmptyOp::create(b, sizes, state);
}

Value TreeTranspose::fillZeros(Value init) {
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(state));
  return linalg::FillOp::create(b, zero, init).getResult(0);
}

Value TreeTranspose::zeros(OpFoldResult rows) { return fillZeros(empty(rows)); }

Value TreeTranspose::slice(Value from, int64_t level) {
  auto type = cast<RankedTensorType>(from.getType());
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets = {zero, getFirstRow(level)};
  SmallVector<OpFoldResult> sizes = {batch, getNumRows(level)};
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

/// Puts the rows of a level where `slice` finds them.
Value TreeTranspose::insert(Value rows, Value nodes, int64_t level) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  OpFoldResult first = getFirstRow(level);
  OpFoldResult sizes[] = {batch, getNumRows(level), b.getIndexAttr(width)};
  return tensor::InsertSliceOp::create(b, rows, nodes, {zero, first, zero},
                                       sizes, {one, one, one});
}

/// `[B, parents ratio(, F)]` as `[B, parents, ratio(, F)]`.
Value TreeTranspose::families(Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<int64_t> extents = {type.getDimSize(0), ShapedType::kDynamic,
                                  shape.getRatio()};
  SmallVector<OpFoldResult> sizes = {batch, OpFoldResult(),
                                     b.getIndexAttr(shape.getRatio())};
  if (type.isDynamicDim(1)) {
    Value rowCount = tensor::DimOp::create(b, rows, 1);
    Value ratio = arith::ConstantIndexOp::create(b, shape.getRatio());
    sizes[1] = arith::DivUIOp::create(b, rowCount, ratio).getResult();
  } else {
    extents[1] = type.getDimSize(1) / shape.getRatio();
    sizes[1] = b.getIndexAttr(extents[1]);
  }
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
  return generic(rows, {project(4, {0, 1, 2, 3}), project(4, {0, 1, 3})},
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
      init, {project(3, {0, 1, 2}), project(3, {0, 1}), project(3, {0, 1, 2})},
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

/// For every row of `level` its share of its parent's, less that of its node.
Value TreeTranspose::inherit(Value nodes, Value parents, Value counts,
                             int64_t level, Value init) {
  AffineMap all = project(4, {0, 1, 2, 3});
  SmallVector<AffineMap> maps = {all, project(4, {0, 1, 3}), all};
  SmallVector<Value> inputs = {families(nodes), parents};
  if (counts) {
    maps.insert(maps.begin(), project(4, {0, 1, 2}));
    inputs.insert(inputs.begin(), shares(counts, level));
  }
  Value rows = generic(
      families(init), maps, /*reduces=*/false, inputs,
      [&](ValueRange values) -> Value {
        Value share = values.front();
        if (counts)
          values = values.drop_front();
        else
          share = arith::ConstantOp::create(
              b, b.getFloatAttr(state, 1.0 / shape.getRatio()));
        Value part = arith::MulFOp::create(b, share, values[1]);
        if (counts) {
          // Nodes without a share do not read their parent's.
          Value zero = arith::ConstantOp::create(b, b.getZeroAttr(state));
          Value isNone =
              arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, share, zero);
          part = arith::SelectOp::create(b, isNone, zero, part);
        }
        return arith::SubFOp::create(b, part, values[0]);
      });
  return tensor::CollapseShapeOp::create(
      b, init.getType(), rows,
      SmallVector<ReassociationIndices>{{0}, {1, 2}, {3}});
}

Value TreeTranspose::materialize(Value dTokens) {
  Value nodes = createEmptyLike(b, b.getLoc(), tree, state), sums = dTokens;
  for (int64_t level = 0; level < shape.getLevels(); ++level) {
    Value taken = map(slice(nodes, level), sums, [&](ValueRange numbers) {
      return arith::NegFOp::create(b, numbers[0]).getResult();
    });
    nodes = insert(taken, nodes, level);
    bool isRoot = level + 1 == shape.getLevels();
    Value above =
        isRoot ? slice(nodes, level + 1) : empty(getNumRows(level + 1));
    sums = addChildren(fillZeros(above), sums);
  }
  return insert(sums, nodes, shape.getLevels());
}

/// The adjoints of the rows of all levels but the tokens', coarsest first like
/// in a tree.
Value TreeTranspose::innerRows(Value dTree, Value counts) {
  Levels nodes = split(dTree);
  Value rows = empty(getFirstRow(0));
  for (int64_t level = shape.getLevels(); level > 0; --level) {
    // A row is in its own node and in those of its children.
    Value own = nodes[level];
    if (level < shape.getLevels())
      own = inherit(own, slice(rows, level + 1), counts, level,
                    slice(rows, level));
    rows = insert(addChildren(own, nodes[level - 1]), rows, level);
  }
  return rows;
}

Value TreeTranspose::build(Value dTree, Value counts) {
  Value parents = slice(innerRows(dTree, counts), 1);
  return inherit(slice(dTree, 0), parents, counts, 0, empty(getNumRows(0)));
}

//===----------------------------------------------------------------------===//
// Listed nodes
//===----------------------------------------------------------------------===//

/// A list of nodes that the tree does not have fails the invocation: the
/// operation that this is the gradient of may not be run.
TreeTranspose::List TreeTranspose::list(Value level, Value index) {
  auto type = cast<RankedTensorType>(level.getType());
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, /*width=*/32);
  };
  auto perNode = [&](int64_t absent, function_ref<Value(ValueRange)> number) {
    Value init = createEmptyLike(b, b.getLoc(), level, b.getI32Type());
    SmallVector<AffineMap> maps(3, b.getMultiDimIdentityMap(2));
    return generic(init, maps, /*reduces=*/false, {level, index},
                   [&](ValueRange node) -> Value {
                     auto isNone = [&](Value entry) -> Value {
                       return arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                    entry, constant(-1));
                     };
                     Value isAbsent = arith::AndIOp::create(b, isNone(node[0]),
                                                            isNone(node[1]));
                     return arith::SelectOp::create(
                         b, isAbsent, constant(absent), number(node));
                   });
  };
  auto perLevel = [&](Value own, function_ref<OpFoldResult(int64_t)> number) {
    auto numberOf = [&](int64_t l) -> Value {
      OpFoldResult found = number(l);
      if (std::optional<int64_t> known = getConstantIntValue(found))
        return constant(*known);
      return arith::IndexCastOp::create(b, b.getI32Type(), cast<Value>(found));
    };
    Value found = numberOf(0);
    for (int64_t l = 1; l <= shape.getLevels(); ++l) {
      Value isLevel =
          arith::CmpIOp::create(b, arith::CmpIPredicate::eq, own, constant(l));
      found = arith::SelectOp::create(b, isLevel, numberOf(l), found);
    }
    return found;
  };
  Value last = perNode(/*absent=*/0, [&](ValueRange node) -> Value {
    Value rows = perLevel(node[0], [&](int64_t l) { return getNumRows(l); });
    return arith::SubIOp::create(b, rows, constant(1));
  });
  Value row = perNode(/*absent=*/-1, [&](ValueRange node) -> Value {
    Value first = perLevel(node[0], [&](int64_t l) { return getFirstRow(l); });
    return arith::AddIOp::create(b, first, node[1]);
  });
  Value nodeLevel = perNode(0, [](ValueRange node) { return node[0]; });
  Value nodeIndex = perNode(0, [](ValueRange node) { return node[1]; });
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
  CheckCodesOp::create(b, lead(nodeLevel), numLevels, name + ": level");
  Value numTokens = asIndex(getNumRows(0));
  CheckIntervalsOp::create(b, lead(nodeIndex), lead(last), numTokens,
                           name + ": nodes, index and last");
  return {nodeLevel, nodeIndex, row, last};
}

/// The row of a listed node, 0 for an absent one, and whether it is absent.
std::pair<Value, Value> TreeTranspose::loadRow(const List &nodes, Value entry,
                                               Value j) {
  Value row = loadIndex(nodes.row, entry, j);
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value isAbsent =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, zero);
  return {arith::MaxSIOp::create(b, row, zero), isAbsent};
}

Value TreeTranspose::loadIndex(Value list, Value entry, Value j) {
  Value number = tensor::ExtractOp::create(b, list, ValueRange{entry, j});
  return arith::IndexCastOp::create(b, b.getIndexType(), number);
}

/// A loop that carries `inits`.
Values TreeTranspose::loop(Value low, Value high, ValueRange inits,
                           function_ref<Values(Value, ValueRange)> body) {
  Value one = arith::ConstantIndexOp::create(b, 1);
  auto loopOp = scf::ForOp::create(b, low, high, one, inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loopOp.getBody());
  scf::YieldOp::create(
      b, body(loopOp.getInductionVar(), loopOp.getRegionIterArgs()));
  return Values(loopOp.getResults());
}

/// Loops over listed nodes, one after the other, while carrying a tensor:
/// `body` is given batch entry, number in the list, and the tensor.
Value TreeTranspose::forEachNode(
    Value list, Value carried, function_ref<Value(Value, Value, Value)> body) {
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value batches = tensor::DimOp::create(b, list, 0);
  Value count = tensor::DimOp::create(b, list, 1);
  return loop(zero, batches, carried,
              [&](Value entry, ValueRange outer) {
                return loop(zero, count, outer, [&](Value j, ValueRange inner) {
                  return Values{body(entry, j, inner.front())};
                });
              })
      .front();
}

/// The row `[1, 1, F]` of `rows` at `[entry, row]`.
Value TreeTranspose::getRow(Value rows, Value entry, Value row) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return tensor::ExtractSliceOp::create(b, rows, {entry, row, zero},
                                        {one, one, b.getIndexAttr(width)},
                                        {one, one, one});
}

/// Replaces that row by what `body` makes of the numbers of `inputs`.
Value TreeTranspose::setRow(Value rows, Value entry, Value row,
                            ValueRange inputs,
                            function_ref<Value(ValueRange)> body) {
  return putRow(map(getRow(rows, entry, row), inputs, body), rows, entry, row);
}

/// The same, but of those of `added` and its own.
Value TreeTranspose::addToRow(Value rows, Value entry, Value row, Value added,
                              function_ref<Value(ValueRange)> body) {
  SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(3));
  Value sum =
      generic(getRow(rows, entry, row), maps, /*reduces=*/false, added, body);
  return putRow(sum, rows, entry, row);
}

Value TreeTranspose::putRow(Value set, Value rows, Value entry, Value row) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return tensor::InsertSliceOp::create(b, set, rows, {entry, row, zero},
                                       {one, one, b.getIndexAttr(width)},
                                       {one, one, one});
}

/// Adds every row to its node and to the ancestors. What the roots get, other
/// nodes lose; with `isNegative` it is the other way round.
Value TreeTranspose::addToPaths(Value dTree, Value dRows, const List &nodes,
                                bool isNegative) {
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value ratio = arith::ConstantIndexOp::create(b, shape.getRatio());
  Value end = arith::ConstantIndexOp::create(b, shape.getLevels() + 1);
  return forEachNode(
      nodes.row, dTree, [&](Value entry, Value j, Value tree) -> Value {
        Value added = getRow(dRows, entry, j);
        Value index = loadIndex(nodes.index, entry, j);
        auto [row, isAbsent] = loadRow(nodes, entry, j);
        Value first = arith::SubIOp::create(b, row, index);
        Value last = loadIndex(nodes.last, entry, j);
        // Of every level: index, row of the first node, index of the last.
        Values inits = {tree, index, first, last};
        auto step = [&](Value, ValueRange state) {
          Value row = arith::AddIOp::create(b, state[2], state[1]);
          Value isRoot = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                               state[2], zero);
          Value sums = addToRow(
              state[0], entry, row, added, [&](ValueRange numbers) -> Value {
                Value more = arith::AddFOp::create(b, numbers[1], numbers[0]);
                Value less = arith::SubFOp::create(b, numbers[1], numbers[0]);
                return isNegative
                           ? arith::SelectOp::create(b, isRoot, less, more)
                           : arith::SelectOp::create(b, isRoot, more, less);
              });
          // The last parent is that of the last node, and the parents lie
          // before their children.
          Value parent = arith::DivUIOp::create(b, state[1], ratio);
          Value lastParent = arith::DivUIOp::create(b, state[3], ratio);
          Value firstParent = arith::SubIOp::create(b, state[2], lastParent);
          firstParent = arith::SubIOp::create(
              b, firstParent, arith::ConstantIndexOp::create(b, 1));
          return Values{sums, parent, firstParent, lastParent};
        };
        Value level = arith::SelectOp::create(b, isAbsent, end,
                                              loadIndex(nodes.level, entry, j));
        return loop(level, end, inits, step).front();
      });
}

Value TreeTranspose::updateRows(Value dTree, Value counts, const List &nodes) {
  Value inner = innerRows(dTree, counts);
  Value roots = asIndex(this->roots);
  Value ratio = arith::ConstantIndexOp::create(b, shape.getRatio());
  Value one = arith::ConstantIndexOp::create(b, 1);
  SmallVector<OpFoldResult> sizes = {
      batch, tensor::getMixedSize(b, b.getLoc(), nodes.row, 1),
      b.getIndexAttr(width)};
  Value init = tensor::EmptyOp::create(b, sizes, state);
  return forEachNode(
      nodes.row, init, [&](Value entry, Value j, Value rows) -> Value {
        auto [row, isEmpty] = loadRow(nodes, entry, j);
        Value index = loadIndex(nodes.index, entry, j);
        Value last = loadIndex(nodes.last, entry, j);
        Value isRoot =
            arith::CmpIOp::create(b, arith::CmpIPredicate::ult, row, roots);
        // As in addToPaths; roots have no parent, but some row must be read.
        Value parent = arith::SubIOp::create(b, row, index);
        parent = arith::SubIOp::create(b, parent,
                                       arith::DivUIOp::create(b, last, ratio));
        parent = arith::SubIOp::create(b, parent, one);
        parent = arith::AddIOp::create(b, parent,
                                       arith::DivUIOp::create(b, index, ratio));
        parent = arith::SelectOp::create(b, isRoot, row, parent);
        Value share = arith::ConstantOp::create(
            b, b.getFloatAttr(state, 1.0 / shape.getRatio()));
        if (counts) {
          auto count = [&](Value at) -> Value {
            Value tokens =
                tensor::ExtractOp::create(b, counts, ValueRange{entry, at});
            return arith::SIToFPOp::create(b, state, tokens);
          };
          Value own = count(row);
          Value hasNone = arith::CmpFOp::create(
              b, arith::CmpFPredicate::OEQ, own,
              arith::ConstantOp::create(b, b.getZeroAttr(state)));
          isEmpty = arith::OrIOp::create(b, isEmpty, hasNone);
          share = arith::DivFOp::create(b, own, count(parent));
        }
        Value inputs[] = {getRow(dTree, entry, row),
                          getRow(inner, entry, parent)};
        return setRow(
            rows, entry, j, inputs,
            [&, isEmpty = isEmpty](ValueRange numbers) -> Value {
              Value part = arith::MulFOp::create(b, share, numbers[1]);
              Value rest = arith::SubFOp::create(b, part, numbers[0]);
              Value found =
                  arith::SelectOp::create(b, isRoot, numbers[0], rest);
              // New rows of absent nodes and of those without a present token
              // are ignored.
              Value none = arith::ConstantOp::create(b, b.getZeroAttr(state));
              return arith::SelectOp::create(b, isEmpty, none, found);
            });
      });
}

Levels TreeTranspose::sumBelow(Value rows, const List &nodes) {
  // A node may be listed twice.
  Value own = forEachNode(
      nodes.row, zeros(getNumNodes()), [&](Value entry, Value j, Value sums) {
        auto [row, isAbsent] = loadRow(nodes, entry, j);
        auto add = [&, isAbsent = isAbsent](ValueRange numbers) -> Value {
          Value sum = arith::AddFOp::create(b, numbers[1], numbers[0]);
          return arith::SelectOp::create(b, isAbsent, numbers[1], sum);
        };
        return addToRow(sums, entry, row, getRow(rows, entry, j), add);
      });
  Levels sums = split(own), below = {zeros(getNumRows(0))};
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
  return forEachNode(
      indices, tensor::EmptyOp::create(b, sizes, state),
      [&](Value entry, Value j, Value picked) {
        Value from = loadIndex(indices, entry, j);
        Value zero = arith::ConstantIndexOp::create(b, 0);
        Value isAbsent =
            arith::CmpIOp::create(b, arith::CmpIPredicate::slt, from, zero);
        Value row = arith::MaxSIOp::create(b, from, zero);
        return setRow(picked, entry, j, getRow(level, entry, row),
                      [&](ValueRange numbers) -> Value {
                        Value none =
                            arith::ConstantOp::create(b, b.getZeroAttr(state));
                        return arith::SelectOp::create(b, isAbsent, none,
                                                       numbers.front());
                      });
      });
}
