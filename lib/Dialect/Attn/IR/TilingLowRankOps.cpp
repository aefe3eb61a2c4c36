//===- TilingLowRankOps.cpp - Tiling of low-rank ops ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tiler.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::partialHeadsError;
using attn::detail::Tiler;

static constexpr StringLiteral onBuffersError = "can be tiled only on tensors";

// The iteration domain of rope, polynomial_features and its gradient is (batch,
// head, row).

FailureOr<TilingResult>
RopeOp::getTiledImplementation(OpBuilder &builder,
                               ArrayRef<OpFoldResult> offsets,
                               ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError(onBuffersError);
  Tiler tiler(builder, getLoc(), offsets, sizes);
  Value input = tiler.sliceQueryLike(getInput());
  Value positions = tiler.sliceQueryLike(getPositions(), /*broadcasts=*/true);
  Value output = tiler.sliceQueryLike(getOutput());
  auto tiled = RopeOp::create(builder, getLoc(), TypeRange(output.getType()),
                              input, positions, output, getBaseAttr());
  return tiler.getResult(tiled);
}

FailureOr<TilingResult>
PolynomialFeaturesOp::getTiledImplementation(OpBuilder &builder,
                                             ArrayRef<OpFoldResult> offsets,
                                             ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError(onBuffersError);
  Tiler tiler(builder, getLoc(), offsets, sizes);
  Value input = tiler.sliceQueryLike(getInput());
  Value output = tiler.sliceQueryLike(getOutput());
  auto tiled = PolynomialFeaturesOp::create(
      builder, getLoc(), TypeRange(output.getType()), input, output,
      getDegreeAttr(), getScaleAttr());
  return tiler.getResult(tiled);
}

FailureOr<TilingResult> PolynomialFeaturesBackwardOp::getTiledImplementation(
    OpBuilder &builder, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError(onBuffersError);
  Tiler tiler(builder, getLoc(), offsets, sizes);
  Value input = tiler.sliceQueryLike(getInput());
  Value dOutput = tiler.sliceQueryLike(getDOutput());
  Value dInput = tiler.sliceQueryLike(getDInput());
  auto tiled = PolynomialFeaturesBackwardOp::create(
      builder, getLoc(), TypeRange(dInput.getType()), input, dOutput, dInput,
      getDegreeAttr(), getScaleAttr());
  return tiler.getResult(tiled);
}

// That of low_rank is (batch, head): rows share sums.

FailureOr<TilingResult>
LowRankOp::getTiledImplementation(OpBuilder &builder,
                                  ArrayRef<OpFoldResult> offsets,
                                  ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError(onBuffersError);
  Tiler tiler(builder, getLoc(), offsets, sizes);
  if (failed(tiler.mapHeads(getU1(), getU2())))
    return emitOpError(partialHeadsError);
  Value u1 = tiler.sliceQueryLike(getU1());
  Value u2 = tiler.sliceKeyLike(getU2());
  Value value = tiler.sliceKeyLike(getValue());
  SmallVector<Value> parts;
  for (Value part : getMaskParts())
    parts.push_back(tiler.sliceQueryLike(part, /*broadcasts=*/true));
  Value output = tiler.sliceQueryLike(getOutput());
  auto tiled = LowRankOp::create(builder, getLoc(), TypeRange(output.getType()),
                                 u1, u2, value, parts, output, getMaskAttr());
  return tiler.getResult(tiled);
}
