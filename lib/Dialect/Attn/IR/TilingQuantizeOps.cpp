//===- TilingQuantizeOps.cpp - Tiling of codebook ops ---------------------===//
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

/// Cuts every operand along its leading dimensions, which are the loops.
template <typename OpTy>
static FailureOr<TilingResult> tileOperands(OpTy op, OpBuilder &builder,
                                            ArrayRef<OpFoldResult> offsets,
                                            ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, op, offsets, sizes);
  if (failed(tiler))
    return failure();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(tiler->sliceQueryLike(operand));
  return tiler->tile(operands);
}

//===----------------------------------------------------------------------===//
// QuantizeOp
//===----------------------------------------------------------------------===//

// The iteration domain is (batch, head, key).

FailureOr<TilingResult>
QuantizeOp::getTiledImplementation(OpBuilder &builder,
                                   ArrayRef<OpFoldResult> offsets,
                                   ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, *this, offsets, sizes);
  if (failed(tiler))
    return failure();
  FailureOr<Value> codebook = tiler->sliceSets(getCodebook(), getKey(),
                                               "a dynamic number of codebooks");
  if (failed(codebook))
    return failure();
  SmallVector<Value> operands = {tiler->sliceQueryLike(getKey()), *codebook};
  if (getMask())
    operands.push_back(tiler->sliceBatchRows(getMask()));
  for (Value init : getDpsInits())
    operands.push_back(tiler->sliceQueryLike(init));
  return tiler->tile(operands);
}

//===----------------------------------------------------------------------===//
// CodebookAccumulateOp and CodebookScanOp
//===----------------------------------------------------------------------===//

// The iteration domain is (batch, head): tokens are taken in one after the
// other.

FailureOr<TilingResult>
CodebookAccumulateOp::getTiledImplementation(OpBuilder &builder,
                                             ArrayRef<OpFoldResult> offsets,
                                             ArrayRef<OpFoldResult> sizes) {
  return tileOperands(*this, builder, offsets, sizes);
}

FailureOr<TilingResult>
CodebookScanOp::getTiledImplementation(OpBuilder &builder,
                                       ArrayRef<OpFoldResult> offsets,
                                       ArrayRef<OpFoldResult> sizes) {
  return tileOperands(*this, builder, offsets, sizes);
}
