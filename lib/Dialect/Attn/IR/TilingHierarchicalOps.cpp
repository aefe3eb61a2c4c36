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
using attn::detail::Tiler;

static constexpr StringLiteral kSharedWeights = "shared weights";

// The iteration domain of a hierarchical op is (batch, head), both parallel:
// levels reach across the whole sequence, which is tiled after expansion.

//===----------------------------------------------------------------------===//
// SummarizeOp
//===----------------------------------------------------------------------===//

FailureOr<TilingResult>
SummarizeOp::getTiledImplementation(OpBuilder &builder,
                                    ArrayRef<OpFoldResult> offsets,
                                    ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, *this, offsets, sizes);
  if (failed(tiler))
    return failure();
  SmallVector<Value> operands = {tiler->sliceQueryLike(getInput())};
  for (Value sets : {getWeights(), getBias()}) {
    if (!sets)
      continue;
    FailureOr<Value> slice = tiler->sliceSets(sets, getInput(), kSharedWeights);
    if (failed(slice))
      return failure();
    operands.push_back(*slice);
  }
  operands.push_back(tiler->sliceQueryLike(getOutput()));
  return tiler->tile(operands);
}

//===----------------------------------------------------------------------===//
// Both forms of fast multipole attention
//===----------------------------------------------------------------------===//

/// Operands are, in this order, query, key and value, sets of weights and
/// biases that heads share, ready-made summaries, a mask of tokens, and
/// destinations.
template <typename OpTy>
static FailureOr<TilingResult> tileMultipole(OpTy op, OpBuilder &builder,
                                             ArrayRef<OpFoldResult> offsets,
                                             ArrayRef<OpFoldResult> sizes) {
  FailureOr<Tiler> tiler = Tiler::get(builder, op, offsets, sizes);
  if (failed(tiler) || failed(tiler->mapHeads(op.getQuery(), op.getKey())))
    return failure();
  SmallVector<Value> operands = {tiler->sliceQueryLike(op.getQuery()),
                                 tiler->sliceKeyLike(op.getKey()),
                                 tiler->sliceKeyLike(op.getValue())};
  SmallVector<Value> keySummaries(op.getKeySummaries()), querySummaries;
  llvm::append_range(keySummaries, op.getValueSummaries());
  if constexpr (std::is_same_v<OpTy, FastMultipoleLinearOp>)
    querySummaries = op.getQuerySummaries();
  unsigned numOthers = querySummaries.size() + keySummaries.size() +
                       (op.getMask() ? 1 : 0) + op.getNumDpsInits();
  for (Value sets : op->getOperands().drop_front(3).drop_back(numOthers)) {
    FailureOr<Value> slice =
        tiler->sliceSets(sets, op.getQuery(), kSharedWeights);
    if (failed(slice))
      return failure();
    operands.push_back(*slice);
  }
  for (Value summaries : querySummaries)
    operands.push_back(tiler->sliceQueryLike(summaries));
  for (Value summaries : keySummaries)
    operands.push_back(tiler->sliceKeyLike(summaries));
  if (op.getMask())
    operands.push_back(tiler->sliceBatch(op.getMask()));
  for (Value init : op.getDpsInits())
    operands.push_back(tiler->sliceQueryLike(init));
  return tiler->tile(operands);
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
