//===- AttnHierarchicalOps.cpp - Fast multipole operations ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "llvm/ADT/bit.h"
#include <limits>

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

int64_t attn::countLevels(int64_t tokens, int64_t group) {
  // Shifts the number of tokens down instead of the group up, which could
  // overflow.
  int64_t levels = 0;
  while ((tokens - 1) >> (levels + 1) >= group)
    ++levels;
  return levels;
}

/// `group 2^power`, or the greatest number where that is greater.
static int64_t grow(int64_t group, int64_t power) {
  int64_t freeBits = llvm::countl_zero(static_cast<uint64_t>(group)) - 1;
  return power <= freeBits ? group << power
                           : std::numeric_limits<int64_t>::max();
}

int64_t attn::getMostTokens(int64_t group, int64_t levels) {
  return grow(group, levels + 1);
}

LogicalResult attn::detail::verifyLevels(Operation *op, Value query,
                                         int64_t group,
                                         ArrayRef<LevelWeights> operands) {
  int64_t rows = extent(query, 2);
  if (group < 1)
    return op->emitOpError()
           << "expects a group of at least 1 token, but got " << group;
  const LevelWeights &first = operands.front();
  int64_t levels = first.weights.size();
  int64_t needed = ShapedType::isDynamic(rows) ? 0 : countLevels(rows, group);
  for (const LevelWeights &operand : operands) {
    int64_t numWeights = operand.weights.size();
    int64_t numBiases = operand.biases.size();
    if (numWeights < needed)
      return op->emitOpError()
             << "expects " << operand.name << " for " << needed << " levels ("
             << rows << " tokens in groups of " << group << "), but got "
             << numWeights;
    if (numWeights != levels)
      return op->emitOpError()
             << "expects " << operand.name << " for as many levels as "
             << first.name << " (" << levels << "), but got " << numWeights;
    if (numBiases != 0 && numBiases != numWeights)
      return op->emitOpError()
             << "expects no biases or one for each of the " << levels
             << " levels beside " << operand.name << ", but got " << numBiases;
    for (int64_t level = 0; level < levels; ++level) {
      int64_t interval = extent(operand.weights[level], 2);
      if (interval != grow(group, level))
        return op->emitOpError()
               << "expects " << operand.name << " of level " << level + 1
               << " to cover intervals of " << grow(group, level)
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
    if (!hasNoLevels(op) || op.getMask())
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
        /*lengths=*/Value(), /*query_lengths=*/Value(),
        /*captures=*/ValueRange(), op.getOutput(), lse, op.getScaleAttr(), mask,
        /*scoreCount=*/0);
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
