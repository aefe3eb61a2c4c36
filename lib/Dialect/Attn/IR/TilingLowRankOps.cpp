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
using attn::detail::Tiler;

// The iteration domain of maps of rows, and of their gradients, is (batch,
// head, row). All of their operands have these dimensions; only `positions` may
// broadcast.

template <typename OpTy>
static FailureOr<TilingResult>
tileRows(OpTy op, Value positions, OpBuilder &builder,
         ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, op, offsets, sizes);
  if (failed(tiler))
    return failure();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(
        tiler->sliceQueryLike(operand, /*broadcasts=*/operand == positions));
  return tiler->tile(operands);
}

FailureOr<TilingResult>
RopeOp::getTiledImplementation(OpBuilder &builder,
                               ArrayRef<OpFoldResult> offsets,
                               ArrayRef<OpFoldResult> sizes) {
  return tileRows(*this, getPositions(), builder, offsets, sizes);
}

FailureOr<TilingResult>
PolynomialFeaturesOp::getTiledImplementation(OpBuilder &builder,
                                             ArrayRef<OpFoldResult> offsets,
                                             ArrayRef<OpFoldResult> sizes) {
  return tileRows(*this, /*positions=*/Value(), builder, offsets, sizes);
}

FailureOr<TilingResult> PolynomialFeaturesBackwardOp::getTiledImplementation(
    OpBuilder &builder, ArrayRef<OpFoldResult> offsets,
    ArrayRef<OpFoldResult> sizes) {
  return tileRows(*this, /*positions=*/Value(), builder, offsets, sizes);
}

// That of low_rank is (batch, head): rows share sums.

FailureOr<TilingResult>
LowRankOp::getTiledImplementation(OpBuilder &builder,
                                  ArrayRef<OpFoldResult> offsets,
                                  ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, *this, offsets, sizes);
  if (failed(tiler) || failed(tiler->mapHeads(getU1(), getU2())))
    return failure();
  SmallVector<Value> operands = {tiler->sliceQueryLike(getU1()),
                                 tiler->sliceKeyLike(getU2()),
                                 tiler->sliceKeyLike(getValue())};
  for (Value part : getMaskParts())
    operands.push_back(tiler->sliceQueryLike(part, /*broadcasts=*/true));
  for (Value mask : {getQueryMask(), getKeyMask()})
    if (mask)
      operands.push_back(tiler->sliceBatch(mask));
  operands.push_back(tiler->sliceQueryLike(getOutput()));
  return tiler->tile(operands);
}
