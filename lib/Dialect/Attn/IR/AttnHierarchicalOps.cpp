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
#include "llvm/Support/MathExtras.h"
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

int64_t attn::detail::getSummaryRank(OperandRange weights,
                                     OperandRange summaries) {
  if (!weights.empty())
    return extent(weights[0], 1);
  return summaries.empty() ? 0 : extent(summaries[0], 3);
}

/// Checks the weights or summaries `of` a level, called `name`, which counts
/// from 0.
static LogicalResult verifyLevel(Operation *op, int64_t rows, int64_t group,
                                 int64_t level, const Twine &name, Value of,
                                 bool isReady) {
  int64_t interval = grow(group, level);
  if (!isReady) {
    if (int64_t found = extent(of, 2); found != interval)
      return op->emitOpError() << "expects " << name << " of level "
                               << level + 1 << " to cover intervals of "
                               << interval << " tokens, but got " << found;
    return success();
  }
  if (int64_t rank = extent(of, 3); group % rank != 0)
    return op->emitOpError()
           << "expects a group that is a multiple of the " << rank
           << " summaries of an interval in " << name << ", but got " << group;
  int64_t found = extent(of, 2);
  if (ShapedType::isDynamic(rows) || ShapedType::isDynamic(found))
    return success();
  int64_t needed = llvm::divideCeil(rows, interval);
  if (found != needed)
    return op->emitOpError() << "expects " << name << " of level " << level + 1
                             << " for " << needed << " intervals of "
                             << interval << " tokens, but got " << found;
  return success();
}

LogicalResult attn::detail::verifyLevels(Operation *op, Value query,
                                         int64_t group,
                                         ArrayRef<LevelOperands> operands) {
  int64_t rows = extent(query, 2);
  if (group < 1)
    return op->emitOpError()
           << "expects a group of at least 1 token, but got " << group;
  int64_t needed = ShapedType::isDynamic(rows) ? 0 : countLevels(rows, group);
  std::string firstName;
  int64_t levels = 0;
  for (const LevelOperands &operand : operands) {
    bool isReady = !operand.summaries.empty();
    std::string name =
        (operand.name + (isReady ? "_summaries" : "_weights")).str();
    OperandRange lists = isReady ? operand.summaries : operand.weights;
    int64_t found = lists.size(), numBiases = operand.biases.size();
    if (isReady && !(operand.weights.empty() && operand.biases.empty()))
      return op->emitOpError() << "expects no weights and no biases beside "
                               << name << ", but got both";
    if (found < needed)
      return op->emitOpError()
             << "expects " << name << " for " << needed << " levels (" << rows
             << " tokens in groups of " << group << "), but got " << found;
    if (firstName.empty()) {
      firstName = name;
      levels = found;
    }
    if (found != levels)
      return op->emitOpError()
             << "expects " << name << " for as many levels as " << firstName
             << " (" << levels << "), but got " << found;
    if (!isReady && numBiases != 0 && numBiases != levels)
      return op->emitOpError()
             << "expects no biases or one for each of the " << levels
             << " levels beside " << name << ", but got " << numBiases;
    for (auto [level, list] : llvm::enumerate(lists))
      if (failed(verifyLevel(op, rows, group, level, name, list, isReady)))
        return failure();
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
  return attn::detail::getSummaryRank(getKeyWeights(), getKeySummaries());
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
  return attn::detail::getSummaryRank(getKeyWeights(), getKeySummaries());
}

LogicalResult FastMultipoleLinearOp::verify() {
  return attn::detail::verifyLinearLevels(*this);
}

void FastMultipoleLinearOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<attn::detail::DropFullMasks<FastMultipoleLinearOp>,
               NoLevelsIsDense<FastMultipoleLinearOp>>(context);
}
