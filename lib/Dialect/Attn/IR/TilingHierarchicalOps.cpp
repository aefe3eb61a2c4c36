//===- TilingHierarchicalOps.cpp - Tiling of hierarchical ops -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tiler.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::getDomain;
using attn::detail::getExtent;
using attn::detail::Tiler;

// The iteration domain of a hierarchical op is (batch, head), both parallel:
// levels reach across the whole sequence, which is tiled after expansion.

static SmallVector<utils::IteratorType> getParallelLoops() {
  return SmallVector<utils::IteratorType>(2, utils::IteratorType::parallel);
}

/// Slices a tile in full along the other dimensions of result `number`.
static LogicalResult resultPosition(OpBuilder &builder, Location loc,
                                    Value init, ArrayRef<OpFoldResult> offsets,
                                    ArrayRef<OpFoldResult> sizes,
                                    SmallVector<OpFoldResult> &resultOffsets,
                                    SmallVector<OpFoldResult> &resultSizes) {
  resultOffsets.assign(offsets.begin(), offsets.end());
  resultSizes.assign(sizes.begin(), sizes.end());
  int64_t rank = cast<ShapedType>(init.getType()).getRank();
  for (int64_t dim = 2; dim < rank; ++dim) {
    resultOffsets.push_back(builder.getIndexAttr(0));
    resultSizes.push_back(getExtent(builder, loc, init, dim));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// SummarizeOp
//===----------------------------------------------------------------------===//

SmallVector<utils::IteratorType> SummarizeOp::getLoopIteratorTypes() {
  return getParallelLoops();
}

SmallVector<Range> SummarizeOp::getIterationDomain(OpBuilder &builder) {
  return getDomain(builder, getLoc(), getInput(), 2);
}

FailureOr<TilingResult>
SummarizeOp::getTiledImplementation(OpBuilder &builder,
                                    ArrayRef<OpFoldResult> offsets,
                                    ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError("can be tiled only on tensors");
  Tiler tiler(builder, getLoc(), offsets, sizes);
  FailureOr<Value> weights = tiler.sliceSets(getWeights(), getInput());
  FailureOr<Value> bias = Value();
  if (succeeded(weights) && getBias())
    bias = tiler.sliceSets(getBias(), getInput());
  if (failed(weights) || failed(bias))
    return emitOpError("with shared weights can be tiled only by one head or "
                       "all of them");
  Value input = tiler.sliceQueryLike(getInput());
  Value init = tiler.sliceQueryLike(getOutput());
  auto tiled = SummarizeOp::create(builder, getLoc(), init.getType(), input,
                                   *weights, *bias, init);
  return TilingResult{{tiled},
                      SmallVector<Value>(tiled->getResults()),
                      llvm::to_vector(tiler.getSlices())};
}

LogicalResult SummarizeOp::getResultTilePosition(
    OpBuilder &builder, unsigned number, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes, SmallVector<OpFoldResult> &resultOffsets,
    SmallVector<OpFoldResult> &resultSizes) {
  return resultPosition(builder, getLoc(), getOutput(), offsets, sizes,
                        resultOffsets, resultSizes);
}
