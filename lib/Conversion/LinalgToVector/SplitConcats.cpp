//===- SplitConcats.cpp - Elementwise operations on concatenations --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rotary embedding, as models write it, is
//
//   x * cos + concat(-x[.., d/2:], x[.., :d/2]) * sin
//
// Read part by part, the concatenation need not be written: each part of the
// result is an elementwise operation on slices, which writes to its place.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

/// Parts of fewer elements are no vectors.
static constexpr int64_t kLeastPart = 8;

/// A concatenation that is reshaped along other dimensions alone is one of
/// reshaped parts.
static LogicalResult reshapeParts(tensor::CollapseShapeOp op,
                                  PatternRewriter &rewriter) {
  auto concat = op.getSrc().getDefiningOp<tensor::ConcatOp>();
  if (!concat || !concat->hasOneUse() || !concat.getType().hasStaticShape())
    return failure();
  SmallVector<ReassociationIndices> groups = op.getReassociationIndices();
  const auto *group = llvm::find_if(groups, [&](ArrayRef<int64_t> dims) {
    return llvm::is_contained(dims, static_cast<int64_t>(concat.getDim()));
  });
  if (group == groups.end() || group->size() != 1)
    return failure();
  SmallVector<Value> parts;
  for (Value part : concat.getInputs()) {
    if (!cast<RankedTensorType>(part.getType()).hasStaticShape())
      return failure();
    parts.push_back(
        tensor::CollapseShapeOp::create(rewriter, op.getLoc(), part, groups));
  }
  rewriter.replaceOpWithNewOp<tensor::ConcatOp>(op, op.getType(),
                                                group - groups.begin(), parts);
  return success();
}

/// Whether `groups` of a tensor only drop dimensions of extent 1.
static bool dropsUnits(RankedTensorType type,
                       ArrayRef<ReassociationIndices> groups) {
  return llvm::all_of(groups, [&](ArrayRef<int64_t> dims) {
    return llvm::count_if(dims, [&](int64_t dim) {
             return type.getDimSize(dim) != 1;
           }) <= 1;
  });
}

/// And one of parts that are all reshaped alike is reshaped itself: these are
/// then computed where they belong. Of other parts, such as the columns that a
/// rotary embedding passes on, dimensions of extent 1 are dropped.
static LogicalResult reshapeWhole(tensor::ConcatOp op,
                                  PatternRewriter &rewriter) {
  if (!op.getType().hasStaticShape())
    return failure();
  auto getReshape = [](Value input) {
    auto part = input.getDefiningOp<tensor::ExpandShapeOp>();
    return part && part->hasOneUse() ? part : tensor::ExpandShapeOp();
  };
  SmallVector<ReassociationIndices> groups;
  for (Value input : op.getInputs())
    if (auto part = getReshape(input))
      groups = part.getReassociationIndices();
  auto *group = llvm::find(
      groups, ReassociationIndices{static_cast<int64_t>(op.getDim())});
  if (group == groups.end())
    return failure();
  for (Value input : op.getInputs()) {
    auto part = getReshape(input);
    auto type = cast<RankedTensorType>(input.getType());
    if (!type.hasStaticShape() ||
        (part ? part.getReassociationIndices() != groups
              : !dropsUnits(type, groups)))
      return failure();
  }
  SmallVector<Value> parts;
  for (Value input : op.getInputs()) {
    auto part = getReshape(input);
    parts.push_back(part ? part.getSrc()
                         : tensor::CollapseShapeOp::create(
                               rewriter, op.getLoc(), input, groups));
  }
  Value whole = tensor::ConcatOp::create(rewriter, op.getLoc(),
                                         group - groups.begin(), parts);
  rewriter.replaceOpWithNewOp<tensor::ExpandShapeOp>(op, op.getType(), whole,
                                                     groups);
  return success();
}

/// The loop of `op` along which `operand` is concatenated, if `op` may be done
/// part by part.
static std::optional<unsigned> findSplitLoop(linalg::GenericOp op,
                                             OpOperand &operand,
                                             tensor::ConcatOp concat) {
  if (!concat->hasOneUse() || !op.hasPureTensorSemantics() ||
      op.getNumResults() != 1 || op.getNumParallelLoops() != op.getNumLoops() ||
      !op.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>() ||
      op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)) ||
      !llvm::all_of(op.getBody()->without_terminator(), [](Operation &inner) {
        return isMemoryEffectFree(&inner) &&
               !isa<linalg::IndexOp, tensor::ExtractOp>(inner);
      }))
    return std::nullopt;
  if (!llvm::all_of(op.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isProjectedPermutation(); }))
    return std::nullopt;
  AffineMap result = op.getIndexingMapMatchingResult(op->getResult(0));
  AffineMap map = op.getMatchingIndexingMap(&operand);
  if (!result.isPermutation() || !map.isPermutation())
    return std::nullopt;
  unsigned loop = map.getDimPosition(concat.getDim());
  bool isInner = result.getDimPosition(result.getNumResults() - 1) == loop;
  for (Value part : concat.getInputs()) {
    auto type = cast<RankedTensorType>(part.getType());
    int64_t size = type.getDimSize(concat.getDim());
    if (ShapedType::isDynamic(size) || (isInner && size < kLeastPart))
      return std::nullopt;
  }
  return loop;
}

/// The part of `value` along the loop, where `map` has it.
static Value slice(OpBuilder &b, Location loc, Value value, AffineMap map,
                   unsigned loop, int64_t offset, int64_t size) {
  std::optional<unsigned> dim = map.getResultPosition(b.getAffineDimExpr(loop));
  if (!dim)
    return value;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, value);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(sizes.size(), b.getIndexAttr(1));
  offsets[*dim] = b.getIndexAttr(offset);
  sizes[*dim] = b.getIndexAttr(size);
  return tensor::ExtractSliceOp::create(b, loc, value, offsets, sizes, strides);
}

/// Parts that are concatenated once more along the same dimension, as a rotary
/// embedding of some columns is with the others, are parts of that.
static LogicalResult flatten(tensor::ConcatOp op, PatternRewriter &rewriter) {
  auto getParts = [&](Value input) {
    auto inner = input.getDefiningOp<tensor::ConcatOp>();
    return inner && inner->hasOneUse() && inner.getDim() == op.getDim()
               ? inner
               : tensor::ConcatOp();
  };
  if (llvm::none_of(op.getInputs(), getParts))
    return failure();
  SmallVector<Value> parts;
  for (Value input : op.getInputs())
    if (auto inner = getParts(input))
      llvm::append_range(parts, inner.getInputs());
    else
      parts.push_back(input);
  rewriter.replaceOpWithNewOp<tensor::ConcatOp>(op, op.getType(), op.getDim(),
                                                parts);
  return success();
}

static LogicalResult splitConcat(linalg::GenericOp op,
                                 PatternRewriter &rewriter) {
  tensor::ConcatOp concat;
  OpOperand *operand = nullptr;
  std::optional<unsigned> loop;
  for (OpOperand *input : op.getDpsInputOperands()) {
    concat = input->get().getDefiningOp<tensor::ConcatOp>();
    if (concat && (loop = findSplitLoop(op, *input, concat))) {
      operand = input;
      break;
    }
  }
  if (!loop)
    return failure();
  Location loc = op.getLoc();
  AffineMap map = op.getIndexingMapMatchingResult(op->getResult(0));
  unsigned dim = *map.getResultPosition(rewriter.getAffineDimExpr(*loop));
  Value whole = op.getDpsInits()[0];
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, whole);
  SmallVector<Value> parts;
  int64_t offset = 0;
  for (Value part : concat.getInputs()) {
    int64_t size =
        cast<RankedTensorType>(part.getType()).getDimSize(concat.getDim());
    SmallVector<Value> operands;
    for (OpOperand &each : op->getOpOperands())
      if (!op.isDpsInit(&each))
        operands.push_back(&each == operand
                               ? part
                               : slice(rewriter, loc, each.get(),
                                       op.getMatchingIndexingMap(&each), *loop,
                                       offset, size));
    sizes[dim] = rewriter.getIndexAttr(size);
    operands.push_back(tensor::EmptyOp::create(
        rewriter, loc, sizes, getElementTypeOrSelf(whole.getType())));
    Operation *own =
        mlir::clone(rewriter, op, operands.back().getType(), operands);
    parts.push_back(own->getResult(0));
    offset += size;
  }
  rewriter.replaceOpWithNewOp<tensor::ConcatOp>(op, whole.getType(), dim,
                                                parts);
  return success();
}

void fovea::attn::populateSplitConcatPatterns(RewritePatternSet &patterns) {
  patterns.add(reshapeParts);
  patterns.add(reshapeWhole);
  patterns.add(flatten);
  patterns.add(splitConcat);
}
