//===- Tiler.cpp - One tile of an attention op ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tiler.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::Tiler;

OpFoldResult attn::detail::getExtent(OpBuilder &builder, Location loc,
                                     Value operand, int64_t dim) {
  return isa<MemRefType>(operand.getType())
             ? memref::getMixedSize(builder, loc, operand, dim)
             : tensor::getMixedSize(builder, loc, operand, dim);
}

bool attn::detail::isWholeExtent(OpFoldResult size, Value operand,
                                 int64_t dim) {
  auto type = cast<RankedTensorType>(operand.getType());
  if (!type.isDynamicDim(dim))
    return getConstantIntValue(size) == type.getDimSize(dim);
  auto value = dyn_cast<Value>(size);
  auto extent = value ? value.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  return extent && extent.getSource() == operand &&
         extent.getConstantIndex() == dim;
}

SmallVector<Range> attn::detail::getDomain(OpBuilder &builder, Location loc,
                                           Value operand, int64_t rank) {
  SmallVector<Range> domain;
  for (int64_t dim = 0; dim < rank; ++dim)
    domain.push_back(Range{builder.getIndexAttr(0),
                           getExtent(builder, loc, operand, dim),
                           builder.getIndexAttr(1)});
  return domain;
}

SmallVector<utils::IteratorType>
attn::detail::getParallelLoops(unsigned count) {
  return SmallVector<utils::IteratorType>(count, utils::IteratorType::parallel);
}

LogicalResult
attn::detail::getResultTile(OpBuilder &builder, Location loc, Value init,
                            ArrayRef<OpFoldResult> offsets,
                            ArrayRef<OpFoldResult> sizes,
                            SmallVector<OpFoldResult> &resultOffsets,
                            SmallVector<OpFoldResult> &resultSizes) {
  resultOffsets.assign(offsets.begin(), offsets.end());
  resultSizes.assign(sizes.begin(), sizes.end());
  int64_t rank = cast<ShapedType>(init.getType()).getRank();
  for (int64_t dim = offsets.size(); dim < rank; ++dim) {
    resultOffsets.push_back(builder.getIndexAttr(0));
    resultSizes.push_back(getExtent(builder, loc, init, dim));
  }
  return success();
}

FailureOr<Tiler> Tiler::get(OpBuilder &builder, DestinationStyleOpInterface op,
                            ArrayRef<OpFoldResult> offsets,
                            ArrayRef<OpFoldResult> sizes) {
  if (!op.hasPureTensorSemantics())
    return op->emitOpError("can be tiled only on tensors");
  return Tiler(builder, op, offsets, sizes);
}

TilingResult Tiler::tile(ValueRange operands) {
  auto types = operands.take_back(op.getNumDpsInits()).getTypes();
  return getResult(clone(builder, op, TypeRange(types), operands));
}

TilingResult Tiler::getResult(Operation *tiled) const {
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult Tiler::mapHeads(Value query, Value key) {
  if (succeeded(mapGroups(query, getExtent(builder, loc, key, 1),
                          cast<ShapedType>(key.getType()).getDimSize(1),
                          keyHeadOffset, keyHeadSize)))
    return success();
  return op->emitOpError("with shared key heads can be tiled only by one query "
                         "head or all of them");
}

LogicalResult Tiler::mapGroups(Value query, OpFoldResult numGroups,
                               int64_t groups, OpFoldResult &offset,
                               OpFoldResult &size) {
  int64_t heads = cast<ShapedType>(query.getType()).getDimSize(1);
  if (!ShapedType::isDynamic(heads) && heads == groups) {
    offset = offsets[1];
    size = sizes[1];
    return success();
  }
  if (isWholeExtent(sizes[1], query, 1) || groups == 1) {
    offset = builder.getIndexAttr(0);
    size = numGroups;
    return success();
  }
  if (getConstantIntValue(sizes[1]) != 1)
    return failure();
  OpFoldResult numHeads = tensor::getMixedSize(builder, loc, query, 1);
  AffineExpr head, all, shared;
  bindDims(builder.getContext(), head);
  bindSymbols(builder.getContext(), all, shared);
  offset = affine::makeComposedFoldedAffineApply(
      builder, loc, head.floorDiv(all.floorDiv(shared)),
      {offsets[1], numHeads, numGroups});
  size = builder.getIndexAttr(1);
  return success();
}

FailureOr<Value> Tiler::sliceSets(Value operand, Value heads, StringRef what) {
  OpFoldResult offset, size;
  int64_t sets = cast<ShapedType>(operand.getType()).getDimSize(0);
  if (failed(mapGroups(heads, builder.getIndexAttr(sets), sets, offset, size)))
    return op->emitOpError() << "with " << what
                             << " can be tiled only by one head or all of them";
  return slice(operand, {offset}, {size}, /*broadcasts=*/false);
}

FailureOr<Value> Tiler::sliceLists(Value lists, Value query) {
  OpFoldResult offset, size;
  if (failed(mapGroups(query, getExtent(builder, loc, lists, 1),
                       cast<ShapedType>(lists.getType()).getDimSize(1), offset,
                       size)))
    return op->emitOpError("with lists of rows that heads share can be tiled "
                           "only by one head or all of them");
  return slice(lists, {offsets[0], offset}, {sizes[0], size},
               /*broadcasts=*/true);
}

Value Tiler::sliceQueryLike(Value operand, bool broadcasts) {
  return slice(operand, offsets, sizes, broadcasts);
}

Value Tiler::sliceKeyLike(Value operand, bool broadcasts) {
  return slice(operand, {offsets[0], keyHeadOffset}, {sizes[0], keyHeadSize},
               broadcasts);
}

Value Tiler::sliceHeads(Value operand) {
  return slice(operand, offsets[1], sizes[1], /*broadcasts=*/true);
}

Value Tiler::sliceBatch(Value operand) {
  return slice(operand, offsets[0], sizes[0], /*broadcasts=*/false);
}

Value Tiler::sliceBatchRows(Value operand) {
  return slice(operand, {offsets[0], offsets[2]}, {sizes[0], sizes[2]},
               /*broadcasts=*/false);
}

Value Tiler::slice(Value operand, ArrayRef<OpFoldResult> leadingOffsets,
                   ArrayRef<OpFoldResult> leadingSizes, bool broadcasts) {
  auto type = cast<RankedTensorType>(operand.getType());
  SmallVector<OpFoldResult> allOffsets(type.getRank(), builder.getIndexAttr(0)),
      allSizes = tensor::getMixedSizes(builder, loc, operand),
      strides(type.getRank(), builder.getIndexAttr(1));
  for (auto [dim, offset, size] :
       llvm::enumerate(leadingOffsets.take_front(type.getRank()),
                       leadingSizes.take_front(type.getRank()))) {
    if (broadcasts && type.getDimSize(dim) == 1)
      continue;
    allOffsets[dim] = offset;
    allSizes[dim] = size;
  }
  auto op = tensor::ExtractSliceOp::create(builder, loc, operand, allOffsets,
                                           allSizes, strides);
  slices.push_back(op);
  return op;
}
