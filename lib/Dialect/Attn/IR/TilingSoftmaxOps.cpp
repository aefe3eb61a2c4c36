//===- TilingSoftmaxOps.cpp - Tiling of dense and streaming soft-max -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

// The iteration domain of an attention op is (batch, query head, query row),
// all parallel. Keys are never cut: a tile reads what its rows admit.

/// Extent `dim` of a tensor or memref.
static OpFoldResult getExtent(OpBuilder &builder, Location loc, Value operand,
                              int64_t dim) {
  return isa<MemRefType>(operand.getType())
             ? memref::getMixedSize(builder, loc, operand, dim)
             : tensor::getMixedSize(builder, loc, operand, dim);
}

/// True when `size` is known to be all of extent `dim` of a tensor.
static bool isWholeExtent(OpFoldResult size, Value operand, int64_t dim) {
  auto type = cast<RankedTensorType>(operand.getType());
  if (!type.isDynamicDim(dim))
    return getConstantIntValue(size) == type.getDimSize(dim);
  auto value = dyn_cast<Value>(size);
  auto extent = value ? value.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  return extent && extent.getSource() == operand &&
         extent.getConstantIndex() == dim;
}

static SmallVector<Range> getDomain(OpBuilder &builder, Location loc,
                                    Value query) {
  SmallVector<Range> domain;
  for (int64_t dim : {0, 1, 2})
    domain.push_back(Range{builder.getIndexAttr(0),
                           getExtent(builder, loc, query, dim),
                           builder.getIndexAttr(1)});
  return domain;
}

static SmallVector<utils::IteratorType> getParallelLoops() {
  return SmallVector<utils::IteratorType>(3, utils::IteratorType::parallel);
}

namespace {
/// Cuts the operands of an attention op to one tile of its domain.
class Tiler {
public:
  Tiler(OpBuilder &builder, Location loc, ArrayRef<OpFoldResult> offsets,
        ArrayRef<OpFoldResult> sizes)
      : builder(builder), loc(loc), offsets(offsets), sizes(sizes) {}

  /// Finds the key/value heads that the tile's query heads read. Fails unless
  /// the tile has one head, all heads, or every head has keys of its own.
  LogicalResult mapHeads(Value query, Value key) {
    int64_t heads = cast<ShapedType>(query.getType()).getDimSize(1);
    int64_t keyHeads = cast<ShapedType>(key.getType()).getDimSize(1);
    OpFoldResult numKeyHeads = tensor::getMixedSize(builder, loc, key, 1);
    if (!ShapedType::isDynamic(heads) && heads == keyHeads) {
      keyHeadOffset = offsets[1];
      keyHeadSize = sizes[1];
      return success();
    }
    if (isWholeExtent(sizes[1], query, 1)) {
      keyHeadOffset = builder.getIndexAttr(0);
      keyHeadSize = numKeyHeads;
      return success();
    }
    if (getConstantIntValue(sizes[1]) != 1)
      return failure();
    OpFoldResult numHeads = tensor::getMixedSize(builder, loc, query, 1);
    AffineExpr head, all, shared;
    bindDims(builder.getContext(), head);
    bindSymbols(builder.getContext(), all, shared);
    keyHeadOffset = affine::makeComposedFoldedAffineApply(
        builder, loc, head.floorDiv(all.floorDiv(shared)),
        {offsets[1], numHeads, numKeyHeads});
    keyHeadSize = builder.getIndexAttr(1);
    return success();
  }

  /// `[B, H, N, ...]`, or `[B, H, N]`.
  Value sliceQueryLike(Value operand, bool broadcasts = false) {
    return slice(operand, offsets, sizes, broadcasts);
  }

  /// `[B, G, M, ...]`: the rows stay whole.
  Value sliceKeyLike(Value operand, bool broadcasts = false) {
    return slice(operand, {offsets[0], keyHeadOffset}, {sizes[0], keyHeadSize},
                 broadcasts);
  }

  ArrayRef<Operation *> getSlices() const { return slices; }

private:
  Value slice(Value operand, ArrayRef<OpFoldResult> leadingOffsets,
              ArrayRef<OpFoldResult> leadingSizes, bool broadcasts) {
    auto type = cast<RankedTensorType>(operand.getType());
    SmallVector<OpFoldResult> allOffsets(type.getRank(),
                                         builder.getIndexAttr(0)),
        allSizes = tensor::getMixedSizes(builder, loc, operand),
        strides(type.getRank(), builder.getIndexAttr(1));
    for (auto [dim, offset, size] :
         llvm::enumerate(leadingOffsets, leadingSizes)) {
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

  OpBuilder &builder;
  Location loc;
  ArrayRef<OpFoldResult> offsets, sizes;
  OpFoldResult keyHeadOffset, keyHeadSize;
  SmallVector<Operation *> slices;
};
} // namespace

static constexpr StringLiteral partialHeadsError =
    "with shared key heads can be tiled only by one query head or all of them";

/// Where the tile's result lies in result `number`.
static LogicalResult resultPosition(OpBuilder &builder, Location loc,
                                    Value output, unsigned number,
                                    ArrayRef<OpFoldResult> offsets,
                                    ArrayRef<OpFoldResult> sizes,
                                    SmallVector<OpFoldResult> &resultOffsets,
                                    SmallVector<OpFoldResult> &resultSizes) {
  resultOffsets.assign(offsets.begin(), offsets.end());
  resultSizes.assign(sizes.begin(), sizes.end());
  if (number == 0) {
    resultOffsets.push_back(builder.getIndexAttr(0));
    resultSizes.push_back(getExtent(builder, loc, output, 3));
  }
  return success();
}

/// Types of the tile's results: those of its destinations.
static SmallVector<Type> tensorTypes(ValueRange destinations) {
  return llvm::to_vector(destinations.getTypes());
}

//===----------------------------------------------------------------------===//
// DenseOp
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> DenseOp::getLoopIteratorTypes() {
  return getParallelLoops();
}

SmallVector<Range> DenseOp::getIterationDomain(OpBuilder &builder) {
  return getDomain(builder, getLoc(), getQuery());
}

FailureOr<TilingResult>
DenseOp::getTiledImplementation(OpBuilder &builder,
                                ArrayRef<OpFoldResult> offsets,
                                ArrayRef<OpFoldResult> sizes) {
  if (!isa<TensorType>(getQuery().getType()))
    return emitOpError("cannot be tiled on memrefs, only on tensors");
  // A mask counts query rows from the end of the sequence, which a tile of rows
  // does not know. attn.stream does.
  if (!getMaskOrNone().isTrivial() && !isWholeExtent(sizes[2], getQuery(), 2))
    return emitOpError("with a mask cannot be tiled along its query rows; "
                       "expand it to attn.stream first");
  Tiler tiler(builder, getLoc(), offsets, sizes);
  if (failed(tiler.mapHeads(getQuery(), getKey())))
    return emitOpError(partialHeadsError);
  Value query = tiler.sliceQueryLike(getQuery());
  Value key = tiler.sliceKeyLike(getKey());
  Value value = tiler.sliceKeyLike(getValue());
  Value weight, bias, lse;
  if (getLogWeight())
    weight = tiler.sliceKeyLike(getLogWeight(), /*broadcasts=*/true);
  if (getBias())
    bias = tiler.sliceQueryLike(getBias(), /*broadcasts=*/true);
  SmallVector<Value> inits = {tiler.sliceQueryLike(getOutput())};
  if (getLse())
    inits.push_back(lse = tiler.sliceQueryLike(getLse()));
  auto tiled = DenseOp::create(builder, getLoc(), tensorTypes(inits), query,
                               key, value, weight, bias, inits[0], lse,
                               getScaleAttr(), getMaskAttr());
  return TilingResult{{tiled},
                      SmallVector<Value>(tiled->getResults()),
                      llvm::to_vector(tiler.getSlices())};
}

LogicalResult DenseOp::getResultTilePosition(
    OpBuilder &builder, unsigned number, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  return resultPosition(builder, getLoc(), getOutput(), number, offsets, sizes,
                        resultOffsets, resultSizes);
}

//===----------------------------------------------------------------------===//
// StreamOp
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> StreamOp::getLoopIteratorTypes() {
  return getParallelLoops();
}

SmallVector<Range> StreamOp::getIterationDomain(OpBuilder &builder) {
  return getDomain(builder, getLoc(), getQuery());
}

FailureOr<TilingResult>
StreamOp::getTiledImplementation(OpBuilder &builder,
                                 ArrayRef<OpFoldResult> offsets,
                                 ArrayRef<OpFoldResult> sizes) {
  if (!isa<TensorType>(getQuery().getType()))
    return emitOpError("cannot be tiled on memrefs, only on tensors");
  Location loc = getLoc();
  Tiler tiler(builder, loc, offsets, sizes);
  if (failed(tiler.mapHeads(getQuery(), getKeys().front())))
    return emitOpError(partialHeadsError);
  SmallVector<Value> keys, values, weights, biases;
  for (const Source &source : getSourceList()) {
    keys.push_back(tiler.sliceKeyLike(source.keys));
    values.push_back(tiler.sliceKeyLike(source.values));
    if (source.logWeight)
      weights.push_back(tiler.sliceKeyLike(source.logWeight, true));
    if (source.bias)
      biases.push_back(tiler.sliceQueryLike(source.bias, true));
  }
  Value query = tiler.sliceQueryLike(getQuery()), lse;
  SmallVector<Value> inits = {tiler.sliceQueryLike(getOutput())};
  if (getLse())
    inits.push_back(lse = tiler.sliceQueryLike(getLse()));

  // Rows of a tile of a tile count from the start of the whole sequence.
  Value firstRow = getValueOrCreateConstantIndexOp(builder, loc, offsets[2]);
  Value numRows = getNumRows();
  if (getFirstRow())
    firstRow = arith::AddIOp::create(builder, loc, getFirstRow(), firstRow);
  else
    numRows = getValueOrCreateConstantIndexOp(
        builder, loc, tensor::getMixedSize(builder, loc, getQuery(), 2));
  auto tiled = StreamOp::create(builder, loc, tensorTypes(inits), query, keys,
                                values, weights, biases, firstRow, numRows,
                                inits[0], lse, getSourcesAttr(), getBlockAttr(),
                                getScaleAttr(), getTilesAttr());
  return TilingResult{{tiled},
                      SmallVector<Value>(tiled->getResults()),
                      llvm::to_vector(tiler.getSlices())};
}

LogicalResult StreamOp::getResultTilePosition(
    OpBuilder &builder, unsigned number, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  return resultPosition(builder, getLoc(), getOutput(), number, offsets, sizes,
                        resultOffsets, resultSizes);
}
