//===- NeighbourPairs.cpp - Pairs of neighbours, taken apart and joined ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rotary embedding that turns neighbours is
//
//   stack(x[.., ::2] * cos - x[.., 1::2] * sin, ..., -1).flatten(-2)
//
// Slices of every other element become operands of a dimension of extent 2,
//
//   affine_map<(.., i) -> (.., i, 1)> of x as [.., D / 2, 2]
//
// and a stack of two becomes an elementwise operation with such a result, which
// chooses by `linalg.index`. Vectors then have both elements of each pair. What
// is concatenated with other columns has a place among them, seen as pairs.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fovea::attn;

/// Each of `count` dimensions for itself, but the last two, which are one.
static SmallVector<ReassociationIndices> joinLastTwo(int64_t count) {
  SmallVector<ReassociationIndices> groups;
  for (int64_t dim = 0; dim < count; ++dim)
    if (dim + 1 < count || count < 2)
      groups.push_back({dim});
    else
      groups.back().push_back(dim);
  return groups;
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

/// `[.., n, 2]`, of two tensors `[.., n]`.
static Value stackPairs(OpBuilder &b, Location loc, Value first, Value second) {
  auto type = cast<RankedTensorType>(first.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, first);
  int64_t rank = type.getRank();
  sizes.push_back(b.getIndexAttr(2));
  Value empty = tensor::EmptyOp::create(b, loc, sizes, type.getElementType());
  AffineMap whole = b.getMultiDimIdentityMap(rank + 1);
  AffineMap part = whole.dropResult(rank);
  SmallVector<utils::IteratorType> loops(rank + 1,
                                         utils::IteratorType::parallel);
  auto stack = linalg::GenericOp::create(
      b, loc, empty.getType(), ValueRange{first, second}, empty,
      ArrayRef{part, part, whole}, loops,
      [&](OpBuilder &inner, Location loc, ValueRange arguments) {
        Value half = linalg::IndexOp::create(inner, loc, rank);
        Value zero = arith::ConstantIndexOp::create(inner, loc, 0);
        Value isFirst = arith::CmpIOp::create(
            inner, loc, arith::CmpIPredicate::eq, half, zero);
        Value chosen = arith::SelectOp::create(inner, loc, isFirst,
                                               arguments[0], arguments[1]);
        linalg::YieldOp::create(inner, loc, chosen);
      });
  return stack.getResult(0);
}

static LogicalResult stackConcat(tensor::ConcatOp op,
                                 PatternRewriter &rewriter) {
  int64_t rank = op.getRank();
  if (op.getInputs().size() != 2 || rank < 2 ||
      static_cast<int64_t>(op.getDim()) != rank - 1)
    return failure();
  SmallVector<Value> parts;
  for (Value input : op.getInputs()) {
    if (cast<RankedTensorType>(input.getType()).getDimSize(rank - 1) != 1)
      return failure();
    parts.push_back(input);
  }
  for (Value &part : parts)
    part = tensor::CollapseShapeOp::create(rewriter, op.getLoc(), part,
                                           joinLastTwo(rank));
  Value stack = stackPairs(rewriter, op.getLoc(), parts[0], parts[1]);
  rewriter.replaceOp(
      op, tensor::CastOp::create(rewriter, op.getLoc(), op.getType(), stack));
  return success();
}

/// Whether `op` fills every other element of its result's rows, from `offset`.
static bool fillsOther(tensor::InsertSliceOp op, int64_t offset) {
  RankedTensorType whole = op.getDestType();
  int64_t last = whole.getRank() - 1;
  if (last < 0 || op.getSourceType().getRank() != whole.getRank() ||
      op.getStaticOffsets()[last] != offset ||
      op.getStaticStrides()[last] != 2 ||
      ShapedType::isDynamic(whole.getDimSize(last)) ||
      2 * op.getStaticSizes()[last] != whole.getDimSize(last))
    return false;
  for (int64_t dim = 0; dim < last; ++dim)
    if (op.getStaticOffsets()[dim] != 0 || op.getStaticStrides()[dim] != 1 ||
        ShapedType::isDynamic(whole.getDimSize(dim)) ||
        op.getStaticSizes()[dim] != whole.getDimSize(dim))
      return false;
  return true;
}

/// Two insertions that fill all of a tensor are a stack.
static LogicalResult stackInsertions(tensor::InsertSliceOp op,
                                     PatternRewriter &rewriter) {
  auto other = op.getDest().getDefiningOp<tensor::InsertSliceOp>();
  if (!other || !other->hasOneUse())
    return failure();
  bool isSecond = fillsOther(op, 1) && fillsOther(other, 0);
  if (!isSecond && !(fillsOther(op, 0) && fillsOther(other, 1)))
    return failure();
  Value first = other.getSource(), second = op.getSource();
  if (!isSecond)
    std::swap(first, second);
  Value stack = stackPairs(rewriter, op.getLoc(), first, second);
  rewriter.replaceOpWithNewOp<tensor::CollapseShapeOp>(
      op, op.getType(), stack, joinLastTwo(op.getDestType().getRank() + 1));
  return success();
}

bool fovea::attn::isOfPairs(OpOperand &operand) {
  auto reader = dyn_cast<linalg::GenericOp>(operand.getOwner());
  auto joined = operand.get().getDefiningOp<tensor::CollapseShapeOp>();
  if (!reader || !joined || !joined->hasOneUse() ||
      reader.getNumParallelLoops() != reader.getNumLoops() ||
      joined.getReassociationIndices().back().size() != 2)
    return false;
  auto stack = joined.getSrc().getDefiningOp<linalg::GenericOp>();
  if (!stack || !stack->hasOneUse() ||
      joined.getSrcType().getShape().back() != 2)
    return false;
  return llvm::any_of(stack.getBody()->getOps<linalg::IndexOp>(),
                      [&](linalg::IndexOp index) {
                        return index.getDim() + 1 == stack.getNumLoops();
                      });
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

namespace {
/// Pairs that a tensor has one element of each of, `[.., n]` of `[.., n, 2]`.
struct Half {
  Value pairs;
  int64_t which;
};
} // namespace

/// As many pairs as `slice` has elements, which are every other one of rows.
static std::optional<Half> pairRows(OpBuilder &b,
                                    tensor::ExtractSliceOp slice) {
  int64_t last = slice.getSourceType().getRank() - 1;
  if (last < 0 || slice.getType().getRank() != last + 1)
    return std::nullopt;
  int64_t offset = slice.getStaticOffsets()[last],
          count = slice.getStaticSizes()[last],
          extent = slice.getSourceType().getDimSize(last);
  if (slice.getStaticStrides()[last] != 2 ||
      ShapedType::isDynamicShape({offset, count, extent}))
    return std::nullopt;
  int64_t which = offset % 2;
  offset -= which;
  // An odd row ends before the second element of its last pair.
  if (offset + 2 * count > extent)
    return std::nullopt;
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets(),
                            sizes = slice.getMixedSizes(),
                            strides = slice.getMixedStrides();
  offsets[last] = b.getIndexAttr(offset);
  sizes[last] = b.getIndexAttr(2 * count);
  strides[last] = b.getIndexAttr(1);
  Location loc = slice.getLoc();
  Value rows = tensor::ExtractSliceOp::create(b, loc, slice.getSource(),
                                              offsets, sizes, strides);
  sizes.back() = b.getIndexAttr(count);
  sizes.push_back(b.getIndexAttr(2));
  SmallVector<int64_t> shape(slice.getType().getShape());
  shape.push_back(2);
  Value pairs = tensor::ExpandShapeOp::create(
      b, loc, slice.getType().clone(shape), rows, joinLastTwo(last + 2), sizes);
  return Half{pairs, which};
}

/// The pairs of which `slice` has one element each, as `[.., n, 1]` or `[..,
/// n]`.
static std::optional<Half> takeWholePairs(OpBuilder &b,
                                          tensor::ExtractSliceOp slice) {
  int64_t last = slice.getSourceType().getRank() - 1;
  if (last < 1 || slice.getSourceType().getDimSize(last) != 2 ||
      slice.getStaticSizes()[last] != 1)
    return std::nullopt;
  int64_t which = slice.getStaticOffsets()[last];
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  bool isDropped = dropped.test(last);
  if (ShapedType::isDynamic(which) ||
      dropped.count() != static_cast<size_t>(isDropped))
    return std::nullopt;
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets(),
                            sizes = slice.getMixedSizes(),
                            strides = slice.getMixedStrides();
  offsets[last] = b.getIndexAttr(0);
  sizes[last] = b.getIndexAttr(2);
  strides[last] = b.getIndexAttr(1);
  Value pairs = tensor::ExtractSliceOp::create(
      b, slice.getLoc(), slice.getSource(), offsets, sizes, strides);
  return Half{pairs, which};
}

/// The pairs that `value` has one element each of, along its last dimension.
static std::optional<Half> findPairs(OpBuilder &b, Value value) {
  auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
  auto slice = (collapse ? collapse.getSrc() : value)
                   .getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice)
    return std::nullopt;
  int64_t rank = slice.getType().getRank();
  SmallVector<ReassociationIndices> groups;
  if (collapse)
    groups = collapse.getReassociationIndices();
  else
    for (int64_t dim = 0; dim < rank; ++dim)
      groups.push_back({dim});
  if (groups.empty())
    return std::nullopt;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(slice);
  std::optional<Half> half;
  if (groups.back().size() == 1) {
    half = pairRows(b, slice);
    if (!half && slice.getSourceType().getRank() == rank + 1)
      half = takeWholePairs(b, slice);
    groups.push_back({rank});
  } else if (groups.back() == ReassociationIndices{rank - 2, rank - 1} &&
             slice.getSourceType().getRank() == rank) {
    half = takeWholePairs(b, slice);
    groups.back().pop_back();
    groups.push_back({rank - 1});
  }
  if (half && collapse) {
    b.setInsertionPoint(collapse);
    half->pairs = tensor::CollapseShapeOp::create(b, collapse.getLoc(),
                                                  half->pairs, groups);
  }
  return half;
}

/// Reads slices of every other element as pairs.
static LogicalResult readPairs(linalg::GenericOp op,
                               PatternRewriter &rewriter) {
  if (!op.hasPureTensorSemantics() ||
      op.getNumParallelLoops() != op.getNumLoops())
    return failure();
  bool isChanged = false;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (OpOperand *input : op.getDpsInputOperands()) {
    std::optional<Half> half = findPairs(rewriter, input->get());
    if (!half)
      continue;
    AffineMap &map = maps[input->getOperandNumber()];
    SmallVector<AffineExpr> results(map.getResults());
    results.push_back(rewriter.getAffineConstantExpr(half->which));
    map = AffineMap::get(map.getNumDims(), /*symbolCount=*/0, results,
                         op.getContext());
    rewriter.modifyOpInPlace(op, [&] { input->set(half->pairs); });
    isChanged = true;
  }
  if (!isChanged)
    return failure();
  rewriter.modifyOpInPlace(op, [&] {
    op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
  });
  return success();
}

/// The operation that computes the pairs whose rows `value` has, where one
/// operation alone reads these, before which that can stand.
static linalg::GenericOp findJoinedPairs(Value value) {
  auto joined = value.getDefiningOp<tensor::CollapseShapeOp>();
  if (!joined || !joined->hasOneUse() || !joined.getSrc().hasOneUse() ||
      joined.getSrcType().getShape().back() != 2 ||
      joined.getReassociationIndices() !=
          joinLastTwo(joined.getSrcType().getRank()))
    return {};
  auto pairs = joined.getSrc().getDefiningOp<linalg::GenericOp>();
  return pairs && pairs.getNumResults() == 1 && isPure(pairs) &&
                 pairs->getBlock() == joined->user_begin()->getBlock() &&
                 pairs.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>()
             ? pairs
             : linalg::GenericOp();
}

/// Concatenates rows of pairs with others, as a rotary embedding of some
/// columns does: the others, and then, to the result as pairs, the pairs. What
/// computes either can write to its place in the result, which comes before.
static LogicalResult insertPairs(tensor::ConcatOp op,
                                 PatternRewriter &rewriter) {
  int64_t last = op.getRank() - 1;
  auto computed = llvm::map_to_vector(op.getInputs(), findJoinedPairs);
  if (static_cast<int64_t>(op.getDim()) != last ||
      llvm::none_of(computed, [](linalg::GenericOp each) { return each; }))
    return failure();
  SmallVector<int64_t> columns = {0};
  for (Value part : op.getInputs()) {
    int64_t count = cast<RankedTensorType>(part.getType()).getDimSize(last);
    if (ShapedType::isDynamic(count) || count % 2 != 0)
      return failure();
    columns.push_back(columns.back() + count);
  }
  Location loc = op.getLoc();
  auto insert = [&](Value part, Value into, int64_t column) -> Value {
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(rewriter, loc, part);
    SmallVector<OpFoldResult> offsets(sizes.size(), rewriter.getIndexAttr(0)),
        strides(sizes.size(), rewriter.getIndexAttr(1));
    offsets[last] = rewriter.getIndexAttr(column);
    return tensor::InsertSliceOp::create(rewriter, loc, part, into, offsets,
                                         sizes, strides);
  };
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(rewriter, loc,
                            computed.front() ? computed.front().getDpsInits()[0]
                                             : op.getInputs().front());
  sizes.resize(last + 1);
  sizes[last] = rewriter.getIndexAttr(columns.back());
  Value whole = tensor::EmptyOp::create(rewriter, loc, sizes,
                                        op.getType().getElementType());
  for (auto [part, pairs, column] :
       llvm::zip(op.getInputs(), computed, columns))
    if (!pairs)
      whole = insert(part, whole, column);
  SmallVector<ReassociationIndices> groups = joinLastTwo(last + 2);
  auto type = cast<RankedTensorType>(whole.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[last] /= 2;
  shape.push_back(2);
  sizes[last] = rewriter.getIndexAttr(shape[last]);
  sizes.push_back(rewriter.getIndexAttr(2));
  whole = tensor::ExpandShapeOp::create(rewriter, loc, type.clone(shape), whole,
                                        groups, sizes);
  SmallVector<Operation *> joined;
  for (auto [part, pairs, column] :
       llvm::zip(op.getInputs(), computed, columns)) {
    if (!pairs)
      continue;
    joined.push_back(part.getDefiningOp());
    rewriter.moveOpBefore(pairs, op);
    whole = insert(pairs.getResult(0), whole, column / 2);
  }
  whole = tensor::CollapseShapeOp::create(rewriter, loc, type, whole, groups);
  rewriter.replaceOpWithNewOp<tensor::CastOp>(op, op.getType(), whole);
  for (Operation *each : joined)
    rewriter.eraseOp(each);
  return success();
}

void fovea::attn::populateStackPatterns(RewritePatternSet &patterns) {
  patterns.add(stackConcat);
  patterns.add(stackInsertions);
}

void fovea::attn::populateInsertPairsPatterns(RewritePatternSet &patterns) {
  // Before all concatenations become insertions.
  patterns.add(insertPairs, /*benefit=*/2);
}

void fovea::attn::populateReadPairsPatterns(RewritePatternSet &patterns) {
  patterns.add(readPairs);
}
