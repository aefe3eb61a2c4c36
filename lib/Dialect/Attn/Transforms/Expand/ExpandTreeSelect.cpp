//===- ExpandTreeSelect.cpp - Expand attn.tree_select level by level ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {
#define GEN_PASS_DEF_EXPANDTREESELECTPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
class Expander {
public:
  explicit Expander(TreeSelectOp op)
      : op(op), b(op.getLoc(), op),
        batch(tensor::getMixedSize(b, op.getLoc(), op.getTree(), 0)),
        treeType(cast<RankedTensorType>(op.getTree().getType())) {}

  SmallVector<fovea::attn::detail::ScoredLevel> expand() {
    SmallVector<fovea::attn::detail::ScoredLevel> scored;
    TreeAttr shape = op.getShape();
    int64_t ratio = shape.getRatio();
    OpFoldResult candidates = countRoots(), roots = candidates;
    int64_t added = 0;
    Value indices, frontierLevel, frontierIndex;
    for (int64_t level = shape.getLevels(); level >= 1; --level) {
      int64_t budget = op.getBudget(level);
      // Without a split there are no candidates further down.
      if (budget == 0 && frontierLevel)
        break;
      Value scores;
      // Of how many roots there may be more than are split is not known.
      if (budget != 0 && !isConstantIntValue(candidates, budget)) {
        scores = score(level, candidates, indices);
        scored.push_back({level, scores, indices});
      }
      added += budget * (ratio - 1);
      bool isLast = level == 1 || op.getBudget(level - 1) == 0;
      OpFoldResult listed = plus(roots, added);
      Value newLevel = isLast ? op.getLevel() : makeList(listed);
      Value newIndex = isLast ? op.getIndex() : makeList(listed);
      Value children = makeList(b.getIndexAttr(budget * ratio));
      auto split = TreeSplitOp::create(
          b, {newLevel.getType(), newIndex.getType(), children.getType()},
          asList(scores), indices, frontierLevel, frontierIndex, op.getCounts(),
          newLevel, newIndex, children, shape, b.getI64IntegerAttr(level),
          b.getI64IntegerAttr(budget));
      frontierLevel = split.getResult(0);
      frontierIndex = split.getResult(1);
      indices = split.getResult(2);
      candidates = b.getIndexAttr(budget * ratio);
    }
    SmallVector<Value> results = {frontierLevel, frontierIndex};
    if (Value factor = op.getFactor()) {
      Value one = arith::ConstantOp::create(
          b, b.getFloatAttr(getStateType(), /*value=*/1.0));
      results.push_back(linalg::FillOp::create(b, one, factor).getResult(0));
    }
    op.replaceAllUsesWith(results);
    op.erase();
    return scored;
  }

private:
  Value makeEmpty(ArrayRef<OpFoldResult> sizes, Type type) {
    return tensor::EmptyOp::create(b, sizes, type);
  }
  Value makeList(OpFoldResult count) {
    return makeEmpty({batch, count}, b.getI32Type());
  }

  OpFoldResult countRoots() {
    int64_t known = op.getNumRoots();
    if (!ShapedType::isDynamic(known))
      return b.getIndexAttr(known);
    Value perRoot =
        arith::ConstantIndexOp::create(b, op.getShape().getNodesPerRoot());
    Value nodes = tensor::DimOp::create(b, op.getTree(), 1);
    return arith::DivUIOp::create(b, nodes, perRoot).getResult();
  }
  OpFoldResult plus(OpFoldResult count, int64_t added) {
    if (std::optional<int64_t> known = getConstantIntValue(count))
      return b.getIndexAttr(*known + added);
    Value more = arith::ConstantIndexOp::create(b, added);
    return arith::AddIOp::create(b, cast<Value>(count), more).getResult();
  }

  /// The scores of the candidates of a level; without `indices`, of the roots.
  Value score(int64_t level, OpFoldResult count, Value indices) {
    OpFoldResult width = b.getIndexAttr(treeType.getDimSize(2));
    bool wantsWeights = op.getScore().front().getNumArguments() == 2;
    Value rows, weights;
    if (!indices && !wantsWeights) {
      // The rows of the roots are a view of the tree.
      OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
      rows = tensor::ExtractSliceOp::create(
          b, op.getTree(), ArrayRef<OpFoldResult>{zero, zero, zero},
          ArrayRef<OpFoldResult>{batch, count, width},
          ArrayRef<OpFoldResult>{one, one, one});
    } else {
      if (!indices)
        indices = countUp(makeList(count));
      Value levels = levelsOf(indices, level, count);
      SmallVector<Value> inits = {
          makeEmpty({batch, count, width}, treeType.getElementType())};
      if (wantsWeights)
        inits.push_back(makeEmpty({batch, count}, getStateType()));
      auto fetch =
          TreeFetchOp::create(b, ValueRange(inits).getTypes(), op.getTree(),
                              levels, indices, op.getCounts(), inits[0],
                              wantsWeights ? inits[1] : Value(), op.getShape(),
                              /*whole_segments=*/nullptr);
      rows = fetch.getResult(0);
      if (wantsWeights)
        weights = fetch.getResult(1);
    }
    return inlineRegion(rows, weights, count);
  }

  Type getStateType() {
    Type type = treeType.getElementType();
    return type.isF64() ? type : Type(b.getF32Type());
  }

  /// 0, 1, 2, ... in every batch entry.
  Value countUp(Value list) {
    AffineMap identity = b.getMultiDimIdentityMap(2);
    SmallVector<utils::IteratorType> parallel(2, utils::IteratorType::parallel);
    return linalg::GenericOp::create(
               b, list.getType(), ValueRange(), list, identity, parallel,
               [&](OpBuilder &, Location, ValueRange) {
                 Value number = linalg::IndexOp::create(b, 1);
                 Value entry =
                     arith::IndexCastOp::create(b, b.getI32Type(), number);
                 linalg::YieldOp::create(b, entry);
               })
        .getResult(0);
  }

  /// `scores` one after the other in memory, as a split reads them: a view of
  /// rows, such as one of their columns, is copied.
  Value asList(Value scores) {
    Value source = scores;
    while (source && source.getDefiningOp<tensor::CastOp>())
      source = source.getDefiningOp<tensor::CastOp>().getSource();
    if (!source || source.getDefiningOp<DestinationStyleOpInterface>())
      return scores;
    return bufferization::AllocTensorOp::create(
        b, cast<RankedTensorType>(scores.getType()),
        /*dynamicSizes=*/ValueRange(), /*copy=*/scores);
  }

  /// The level of every candidate: -1 where it is absent.
  Value levelsOf(Value indices, int64_t level, OpFoldResult candidates) {
    AffineMap identity = b.getMultiDimIdentityMap(2);
    SmallVector<utils::IteratorType> parallel(2, utils::IteratorType::parallel);
    Value list = makeList(candidates);
    return linalg::GenericOp::create(
               b, list.getType(), indices, list, {identity, identity}, parallel,
               [&](OpBuilder &, Location, ValueRange numbers) {
                 Value at = arith::ConstantIntOp::create(b, level, 32);
                 Value absent = arith::ConstantIntOp::create(b, -1, 32);
                 Value isThere = arith::CmpIOp::create(
                     b, arith::CmpIPredicate::sgt, numbers[0], absent);
                 Value entry = arith::SelectOp::create(b, isThere, at, absent);
                 linalg::YieldOp::create(b, entry);
               })
        .getResult(0);
  }

  Value castTo(Value tensor, Type type) {
    return tensor.getType() == type
               ? tensor
               : tensor::CastOp::create(b, type, tensor).getResult();
  }

  Value inlineRegion(Value rows, Value weights, OpFoldResult candidates) {
    Block &block = op.getScore().front();
    IRMapping mapping;
    mapping.map(block.getArgument(0),
                castTo(rows, block.getArgument(0).getType()));
    if (weights)
      mapping.map(block.getArgument(1),
                  castTo(weights, block.getArgument(1).getType()));
    for (Operation &inner : block.without_terminator())
      b.clone(inner, mapping);
    Value scores = mapping.lookupOrDefault(
        cast<YieldOp>(block.getTerminator()).getScores());
    auto type = RankedTensorType::get(
        {treeType.getDimSize(0),
         getConstantIntValue(candidates).value_or(ShapedType::kDynamic)},
        cast<RankedTensorType>(scores.getType()).getElementType());
    return castTo(scores, type);
  }

  TreeSelectOp op;
  ImplicitLocOpBuilder b;
  OpFoldResult batch;
  RankedTensorType treeType;
};

} // namespace

SmallVector<fovea::attn::detail::ScoredLevel>
fovea::attn::detail::expandTreeSelect(TreeSelectOp op) {
  return Expander(op).expand();
}

namespace {
struct ExpandTreeSelectPass
    : fovea::attn::impl::ExpandTreeSelectPassBase<ExpandTreeSelectPass> {
  void runOnOperation() override {
    SmallVector<TreeSelectOp> ops;
    getOperation().walk([&](TreeSelectOp op) { ops.push_back(op); });
    for (TreeSelectOp op : ops)
      fovea::attn::detail::expandTreeSelect(op);
  }
};
} // namespace
