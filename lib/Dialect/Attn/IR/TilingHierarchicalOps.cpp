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
using attn::detail::partialHeadsError;
using attn::detail::Tiler;

// The iteration domain of a hierarchical op is (batch, head), both parallel:
// levels reach across the whole sequence, which is tiled after expansion.

//===----------------------------------------------------------------------===//
// SummarizeOp
//===----------------------------------------------------------------------===//

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
  return tiler.getResult(tiled);
}

//===----------------------------------------------------------------------===//
// Both forms of fast multipole attention
//===----------------------------------------------------------------------===//

/// Operands are, in this order, query, key and value, sets of weights and
/// biases that heads share, and destinations.
template <typename OpTy>
static FailureOr<TilingResult> tileMultipole(OpTy op, OpBuilder &builder,
                                             ArrayRef<OpFoldResult> offsets,
                                             ArrayRef<OpFoldResult> sizes) {
  if (!op.hasPureTensorSemantics())
    return op.emitOpError("cannot be tiled on memrefs, only on tensors");
  Location loc = op.getLoc();
  Tiler tiler(builder, loc, offsets, sizes);
  if (failed(tiler.mapHeads(op.getQuery(), op.getKey())))
    return op.emitOpError(partialHeadsError);
  SmallVector<Value> operands = {tiler.sliceQueryLike(op.getQuery()),
                                 tiler.sliceKeyLike(op.getKey()),
                                 tiler.sliceKeyLike(op.getValue())};
  unsigned numInits = op.getNumDpsInits();
  for (Value weights : op->getOperands().drop_front(3).drop_back(numInits)) {
    FailureOr<Value> sets = tiler.sliceSets(weights, op.getQuery());
    if (failed(sets))
      return op.emitOpError("with shared weights can be tiled only by one head "
                            "or all of them");
    operands.push_back(*sets);
  }
  SmallVector<Type> types;
  for (Value init : op.getDpsInits()) {
    operands.push_back(tiler.sliceQueryLike(init));
    types.push_back(operands.back().getType());
  }
  Operation *tiled = clone(builder, op, types, operands);
  return tiler.getResult(tiled);
}

FailureOr<TilingResult>
FastMultipoleOp::getTiledImplementation(OpBuilder &builder,
                                        ArrayRef<OpFoldResult> offsets,
                                        ArrayRef<OpFoldResult> sizes) {
  return tileMultipole(*this, builder, offsets, sizes);
}

FailureOr<TilingResult>
FastMultipoleLinearOp::getTiledImplementation(OpBuilder &builder,
                                              ArrayRef<OpFoldResult> offsets,
                                              ArrayRef<OpFoldResult> sizes) {
  return tileMultipole(*this, builder, offsets, sizes);
}
