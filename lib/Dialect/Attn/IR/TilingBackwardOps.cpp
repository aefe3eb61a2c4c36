//===- TilingBackwardOps.cpp - Tiling of gradients ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tiler.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

using namespace mlir;
using namespace fovea::attn;
using fovea::attn::detail::Tiler;

// The iteration domain of a gradient is the batch. Log weights and biases that
// batch entries share have one gradient for all of them, which no tile knows.

template <typename OpTy>
static FailureOr<TilingResult>
tileByBatch(OpTy op, ValueRange terms, ValueRange termGradients,
            OpBuilder &builder, ArrayRef<OpFoldResult> offsets,
            ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, op, offsets, sizes);
  if (failed(tiler))
    return failure();
  if (!op.getDCaptures().empty())
    return op.emitOpError("cannot be tiled with gradients of captures, which "
                          "batch entries share");
  int64_t batch = cast<ShapedType>(op.getQuery().getType()).getDimSize(0);
  for (Value gradient : termGradients)
    if (cast<ShapedType>(gradient.getType()).getDimSize(0) == 1 && batch != 1)
      return op.emitOpError(
          "cannot be tiled with a gradient of a log weight, bias or "
          "sink that batch entries share");
  SmallVector<Value> operands;
  MutableOperandRange captures = op.getCapturesMutable();
  for (OpOperand &operand : op->getOpOperands())
    if (llvm::any_of(captures,
                     [&](OpOperand &each) { return &each == &operand; }))
      operands.push_back(operand.get());
    else
      operands.push_back(tiler->sliceQueryLike(
          operand.get(),
          /*broadcasts=*/llvm::is_contained(terms, operand.get())));
  TilingResult result = tiler->tile(operands);
  auto tiled = cast<OpTy>(result.tiledOps.front());
  Location loc = op.getLoc();
  offsetScoreRegions(tiled->getRegions(), tiled.getCapturesMutable(),
                     getValueOrCreateConstantIndexOp(builder, loc, offsets[0]),
                     arith::ConstantIndexOp::create(builder, loc, 0));
  return result;
}

FailureOr<TilingResult>
DenseBackwardOp::getTiledImplementation(OpBuilder &builder,
                                        ArrayRef<OpFoldResult> offsets,
                                        ArrayRef<OpFoldResult> sizes) {
  SmallVector<Value> terms, gradients;
  for (Value term : {getLogWeight(), getBias(), getSink()})
    if (term)
      terms.push_back(term);
  for (Value gradient : {getDLogWeight(), getDBias(), getDSink()})
    if (gradient)
      gradients.push_back(gradient);
  return tileByBatch(*this, terms, gradients, builder, offsets, sizes);
}

FailureOr<TilingResult>
StreamBackwardOp::getTiledImplementation(OpBuilder &builder,
                                         ArrayRef<OpFoldResult> offsets,
                                         ArrayRef<OpFoldResult> sizes) {
  SmallVector<Value> terms(getLogWeights()), gradients(getDLogWeights());
  llvm::append_range(terms, getBiases());
  llvm::append_range(gradients, getDBiases());
  if (getSink())
    terms.push_back(getSink());
  if (getDSink())
    gradients.push_back(getDSink());
  return tileByBatch(*this, terms, gradients, builder, offsets, sizes);
}
