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
  if (!op.hasPureTensorSemantics())
    return op.emitOpError("can be tiled only on tensors");
  Tiler tiler(builder, op.getLoc(), offsets, sizes);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(tiler.sliceQueryLike(operand));
  unsigned numInits = op.getNumDpsInits();
  auto types = ValueRange(operands).take_back(numInits).getTypes();
  auto tiled = OpTy::create(builder, op.getLoc(), TypeRange(types),
                            ValueRange(operands), op->getAttrs());
  return tiler.getResult(tiled);
}

//===----------------------------------------------------------------------===//
// QuantizeOp
//===----------------------------------------------------------------------===//

// The iteration domain is (batch, head, key).

FailureOr<TilingResult>
QuantizeOp::getTiledImplementation(OpBuilder &builder,
                                   ArrayRef<OpFoldResult> offsets,
                                   ArrayRef<OpFoldResult> sizes) {
  if (!hasPureTensorSemantics())
    return emitOpError("can be tiled only on tensors");
  Tiler tiler(builder, getLoc(), offsets, sizes);
  FailureOr<Value> codebook = tiler.sliceSets(getCodebook(), getKey());
  if (failed(codebook))
    return emitOpError(
        "with a dynamic number of codebooks can be tiled only by "
        "one head or all of them");
  Value key = tiler.sliceQueryLike(getKey());
  SmallVector<Value> inits = {tiler.sliceQueryLike(getCodes())};
  if (getQuantized())
    inits.push_back(tiler.sliceQueryLike(getQuantized()));
  auto tiled = QuantizeOp::create(
      builder, getLoc(), TypeRange(ValueRange(inits).getTypes()), key,
      *codebook, inits.front(), getQuantized() ? inits.back() : Value());
  return tiler.getResult(tiled);
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
