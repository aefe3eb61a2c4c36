//===- TilingConvOps.cpp - Tiling of sums of convolutions -----------------===//
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

// The iteration domain is (batch, head): a head is searched as a whole.

/// Cuts the first operand and the destinations along the loops, and the other
/// operands along the heads that are read, or, where they say something about
/// tokens, along the batch.
template <typename OpTy>
static FailureOr<TilingResult> tileHeads(OpTy op, OpBuilder &builder,
                                         ArrayRef<OpFoldResult> offsets,
                                         ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, op, offsets, sizes);
  if (failed(tiler) || failed(tiler->mapHeads(op.getQuery(), op.getKey())))
    return failure();
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands()) {
    bool hasHeads = operand.getOperandNumber() == 0 || op.isDpsInit(&operand);
    bool hasKeyHeads = cast<ShapedType>(operand.get().getType()).getRank() == 4;
    operands.push_back(hasHeads      ? tiler->sliceQueryLike(operand.get())
                       : hasKeyHeads ? tiler->sliceKeyLike(operand.get())
                                     : tiler->sliceBatch(operand.get()));
  }
  return tiler->tile(operands);
}

FailureOr<TilingResult>
ConvRecoverOp::getTiledImplementation(OpBuilder &builder,
                                      ArrayRef<OpFoldResult> offsets,
                                      ArrayRef<OpFoldResult> sizes) {
  return tileHeads(*this, builder, offsets, sizes);
}

FailureOr<TilingResult>
ConvOp::getTiledImplementation(OpBuilder &builder,
                               ArrayRef<OpFoldResult> offsets,
                               ArrayRef<OpFoldResult> sizes) {
  return tileHeads(*this, builder, offsets, sizes);
}
