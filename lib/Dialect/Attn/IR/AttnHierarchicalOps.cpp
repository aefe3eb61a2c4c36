//===- AttnHierarchicalOps.cpp - Fast multipole operations ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::extent;

//===----------------------------------------------------------------------===//
// SummarizeOp
//===----------------------------------------------------------------------===//

MutableOperandRange SummarizeOp::getDpsInitsMutable() {
  return getOutputMutable();
}

int64_t SummarizeOp::getInterval() { return extent(getWeights(), 2); }
int64_t SummarizeOp::getRank() { return extent(getWeights(), 1); }

//===----------------------------------------------------------------------===//
// Both forms of fast multipole attention
//===----------------------------------------------------------------------===//

/// The least `L` with `group 2^(L+1) >= rows`. Shifts the number of rows down
/// instead of the group up, which could overflow.
static int64_t countLevels(int64_t rows, int64_t group) {
  int64_t levels = 0;
  while ((rows - 1) >> (levels + 1) >= group)
    ++levels;
  return levels;
}

LogicalResult attn::detail::verifyLevels(Operation *op, Value query,
                                         int64_t group,
                                         ArrayRef<LevelWeights> operands) {
  int64_t rows = extent(query, 2);
  if (group < 1)
    return op->emitOpError()
           << "expects a group of at least 1 token, but got " << group;
  if (ShapedType::isDynamic(rows))
    return op->emitOpError("expects a static number of tokens, which fixes the "
                           "number of levels");
  int64_t levels = countLevels(rows, group);
  for (const LevelWeights &operand : operands) {
    int64_t numWeights = operand.weights.size();
    int64_t numBiases = operand.biases.size();
    if (numWeights != levels)
      return op->emitOpError()
             << "expects " << operand.name << " for " << levels << " levels ("
             << rows << " tokens in groups of " << group << "), but got "
             << numWeights;
    if (numBiases != 0 && numBiases != numWeights)
      return op->emitOpError()
             << "expects no biases or one for each of the " << levels
             << " levels beside " << operand.name << ", but got " << numBiases;
    for (int64_t level = 0; level < levels; ++level) {
      int64_t interval = extent(operand.weights[level], 2);
      if (interval != group << level)
        return op->emitOpError()
               << "expects " << operand.name << " of level " << level + 1
               << " to cover intervals of " << (group << level)
               << " tokens, but got " << interval;
    }
  }
  return success();
}

namespace {
/// Without levels every group neighbours every other: dense attention.
template <typename OpTy> struct NoLevelsIsDense : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (op.getNumLevels() != 0 || op.getMask())
      return failure();
    Value lse;
    if constexpr (std::is_same_v<OpTy, FastMultipoleOp>)
      lse = op.getLse();
    MaskAttr mask;
    if (op.getCausal())
      mask = MaskAttr::get(op.getContext(), /*causal=*/true, /*window=*/0);
    rewriter.replaceOpWithNewOp<DenseOp>(
        op, op.getResultTypes(), op.getQuery(), op.getKey(), op.getValue(),
        /*log_weight=*/Value(), /*bias=*/Value(), /*sink=*/Value(),
        op.getOutput(), lse, op.getScaleAttr(), mask);
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// FastMultipoleOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleOp::getDpsInitsMutable() {
  unsigned numInits = getLse() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

double FastMultipoleOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleOp::getRank() {
  return getKeyWeights().empty() ? 0 : extent(getKeyWeights()[0], 1);
}

LogicalResult FastMultipoleOp::verify() {
  return attn::detail::verifyMultipoleLevels(*this);
}

void FastMultipoleOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *context) {
  patterns.add<attn::detail::DropFullMasks<FastMultipoleOp>,
               NoLevelsIsDense<FastMultipoleOp>>(context);
}

//===----------------------------------------------------------------------===//
// FastMultipoleLinearOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleLinearOp::getDpsInitsMutable() {
  return getOutputMutable();
}

double FastMultipoleLinearOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleLinearOp::getRank() {
  return getKeyWeights().empty() ? 0 : extent(getKeyWeights()[0], 1);
}

LogicalResult FastMultipoleLinearOp::verify() {
  return attn::detail::verifyLinearLevels(*this);
}

void FastMultipoleLinearOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<attn::detail::DropFullMasks<FastMultipoleLinearOp>,
               NoLevelsIsDense<FastMultipoleLinearOp>>(context);
}
