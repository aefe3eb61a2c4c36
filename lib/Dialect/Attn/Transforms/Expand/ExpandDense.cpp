//===- ExpandDense.cpp - Expand attn.dense to attn.stream -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

namespace {
/// One source, all of whose rows every query reads.
struct ExpandDense : OpRewritePattern<DenseOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DenseOp op,
                                PatternRewriter &rewriter) const override {
    RangeExprs exprs(getContext());
    StreamSources sources;
    sources.add(op.getKey(), op.getValue(), exprs.allRows(), op.getMaskOrNone(),
                op.getLogWeight(), op.getBias(), op.getLengths());
    sources.setSink(op.getSink());
    sources.setQueryLengths(op.getQueryLengths());
    sources.setScore(op.getScore(), op.getCaptures());
    StreamOp stream =
        sources.build(rewriter, op.getLoc(), op.getQuery(), op.getOutput(),
                      op.getLse(), /*block=*/0, op.getScaleOrDefault());
    rewriter.replaceOp(op, stream);
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandDensePatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandDense>(patterns.getContext());
}
