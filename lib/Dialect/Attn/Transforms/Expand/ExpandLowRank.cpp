//===- ExpandLowRank.cpp - Masks of tokens of attn.low_rank ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of zeros have no weight: factors of absent tokens become zeros, and so
// do their values, which a weight of zero would not take away if they are NaN.
// Rows of results that belong to absent tokens become zeros as well: zero times
// an infinity of another token is NaN, and a weight of zero has a gradient,
// unlike one that is not there.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/Dialect/Attn/Transforms/Presence.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// Replaces what an operand has of absent tokens, unless `mask` is null.
static void keepRows(PatternRewriter &rewriter, OpOperand &operand,
                     Value mask) {
  operand.set(
      keepRows(rewriter, operand.getOwner()->getLoc(), operand.get(), mask));
}

/// Zeros in place of the factors and values of absent tokens.
template <typename OpTy>
static void keepFactors(PatternRewriter &rewriter, OpTy op) {
  keepRows(rewriter, op.getU1Mutable(), op.getQueryMask());
  keepRows(rewriter, op.getU2Mutable(), op.getKeyMask());
  keepRows(rewriter, op.getValueMutable(), op.getKeyMask());
}

template <typename OpTy>
static LogicalResult canExpand(PatternRewriter &rewriter, OpTy op) {
  if (!op.hasPureTensorSemantics())
    return rewriter.notifyMatchFailure(op, "not on tensors");
  if (!op.getQueryMask() && !op.getKeyMask())
    return rewriter.notifyMatchFailure(op, "all tokens are present");
  return success();
}

/// Drops the masks, and makes rows of absent tokens zeros in each result, whose
/// tokens are those of the mask beside it.
template <typename OpTy>
static void dropMasks(PatternRewriter &rewriter, OpTy op,
                      ArrayRef<Value> masks) {
  rewriter.modifyOpInPlace(op, [&] {
    op.getQueryMaskMutable().clear();
    op.getKeyMaskMutable().clear();
  });
  rewriter.setInsertionPointAfter(op);
  for (auto [result, mask] : llvm::zip_equal(op->getResults(), masks)) {
    if (!mask)
      continue;
    Value kept = keepInPlace(rewriter, op.getLoc(), result, mask);
    rewriter.replaceAllUsesExcept(result, kept, kept.getDefiningOp());
  }
}

namespace {
struct ExpandLowRank : OpRewritePattern<LowRankOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LowRankOp op,
                                PatternRewriter &rewriter) const override {
    if (failed(canExpand(rewriter, op)))
      return failure();
    rewriter.modifyOpInPlace(op, [&] { keepFactors(rewriter, op); });
    dropMasks(rewriter, op, {op.getQueryMask()});
    return success();
  }
};

struct ExpandLowRankBackward : OpRewritePattern<LowRankBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LowRankBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (failed(canExpand(rewriter, op)))
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      keepFactors(rewriter, op);
      keepRows(rewriter, op.getOutputMutable(), op.getQueryMask());
      keepRows(rewriter, op.getDOutputMutable(), op.getQueryMask());
    });
    Value keyMask = op.getKeyMask();
    dropMasks(rewriter, op, {op.getQueryMask(), keyMask, keyMask});
    return success();
    // A weight of zero has a gradient, unlike one that is not there.
    rewriter.setInsertionPointAfter(op);
    Value dU2 = op.getResult(1);
    Value kept = keepRows(rewriter, op.getLoc(), dU2, keyMask);
    rewriter.replaceAllUsesExcept(dU2, kept, kept.getDefiningOp());
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandLowRankPatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandLowRank, ExpandLowRankBackward>(patterns.getContext());
}
