//===- ExpandQuantize.cpp - Masks and wide codebooks of attn.quantize -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys become as wide as the codebook, and copies of codewords are rounded
// behind. Absent tokens are quantized like others, and then get code -1.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/Dialect/Attn/Transforms/Presence.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

bool fovea::attn::detail::hasWiderCodebook(QuantizeOp op) {
  return getElementTypeOrSelf(op.getCodebook()) !=
         getElementTypeOrSelf(op.getKey());
}

namespace {
struct ExpandQuantize : OpRewritePattern<QuantizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(QuantizeOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    bool isWider = hasWiderCodebook(op);
    Value mask = op.getMask(), key = op.getKey(), rounded = op.getQuantized();
    if (!mask && !isWider)
      return rewriter.notifyMatchFailure(op, "kernels take it as it is");
    Location loc = op.getLoc();
    Value quantized = rounded;
    if (isWider) {
      auto type = cast<RankedTensorType>(key.getType())
                      .clone(getElementTypeOrSelf(op.getCodebook()));
      key = arith::ExtFOp::create(rewriter, loc, type, key);
      if (rounded)
        quantized = tensor::EmptyOp::create(
            rewriter, loc, tensor::getMixedSizes(rewriter, loc, rounded),
            type.getElementType());
    }
    SmallVector<Type> types = {op.getCodes().getType()};
    if (quantized)
      types.push_back(quantized.getType());
    auto found = QuantizeOp::create(rewriter, loc, types, key, op.getCodebook(),
                                    /*mask=*/Value(), op.getCodes(), quantized);
    SmallVector<Value> results(found->getResults());
    if (isWider && rounded)
      results[1] =
          arith::TruncFOp::create(rewriter, loc, rounded.getType(), results[1]);
    results[0] = keepInPlace(rewriter, loc, results[0], mask, /*absent=*/-1.0);
    if (rounded)
      results[1] = keepInPlace(rewriter, loc, results[1], mask);
    rewriter.replaceOp(op, results);
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandQuantizePatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandQuantize>(patterns.getContext());
}
