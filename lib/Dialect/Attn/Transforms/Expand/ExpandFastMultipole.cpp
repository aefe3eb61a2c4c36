//===- ExpandFastMultipole.cpp - Expand multipole patterns ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MultipoleSources.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

static int64_t extent(Value value, int64_t dim) {
  return cast<ShapedType>(value.getType()).getDimSize(dim);
}

namespace {
/// One stream of two sources: the near field, and a pool of all summaries.
struct ExpandFastMultipole : OpRewritePattern<FastMultipoleOp> {
  ExpandFastMultipole(MLIRContext *context, bool narrow)
      : OpRewritePattern(context), narrow(narrow) {}

  LogicalResult matchAndRewrite(FastMultipoleOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Hierarchy shape = getHierarchy(rewriter, op, narrow);
    Location loc = op.getLoc();
    PresentTokens tokens(rewriter, op);
    StreamSources sources;
    if (shape.levels == 0)
      addNearField(rewriter, loc, sources, shape, tokens, op.getCausal());
    else
      sources = MultipoleSources(rewriter, op, shape, tokens).sources;
    StreamOp stream =
        sources.build(rewriter, loc, tokens.query, op.getOutput(), op.getLse(),
                      shape.getNearBlock(), op.getScaleOrDefault());
    SmallVector<Value> results = {
        keepInPlace(rewriter, loc, stream->getResult(0), tokens.mask)};
    if (op.getLse())
      results.push_back(keepInPlace(rewriter, loc, stream->getResult(1),
                                    tokens.mask,
                                    -std::numeric_limits<double>::infinity()));
    rewriter.replaceOp(op, results);
    return success();
  }

private:
  bool narrow;
};

/// One stream per level, over summarised queries; the sum of all of them.
struct ExpandFastMultipoleLinear : OpRewritePattern<FastMultipoleLinearOp> {
  ExpandFastMultipoleLinear(MLIRContext *context, bool narrow)
      : OpRewritePattern(context), narrow(narrow) {}

  LogicalResult matchAndRewrite(FastMultipoleLinearOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Hierarchy shape = getHierarchy(rewriter, op, narrow);
    Location loc = op.getLoc();
    PresentTokens tokens(rewriter, op);
    StreamSources near;
    addNearField(rewriter, loc, near, shape, tokens, op.getCausal());
    Value nearInit = op.getOutput();
    if (shape.levels != 0)
      nearInit = createEmpty(rewriter, loc, shape, op.getQuery(), shape.tokens,
                             extent(op.getValue(), 3));
    SmallVector<Value> parts = {
        near.build(rewriter, loc, tokens.query, nearInit, /*lse=*/Value(),
                   shape.getNearBlock(), op.getScaleOrDefault())
            ->getResult(0)};
    for (int64_t level = 1; level <= shape.levels; ++level)
      parts.push_back(createLevel(rewriter, op, shape, tokens, level));
    Value sum = shape.levels == 0 ? parts.front()
                                  : createSum(rewriter, op, shape, parts);
    rewriter.replaceOp(op, keepInPlace(rewriter, loc, sum, tokens.mask));
    return success();
  }

private:
  /// The output rows of the summarised queries of one level.
  static Value createLevel(OpBuilder &builder, FastMultipoleLinearOp op,
                           const Hierarchy &shape, const PresentTokens &tokens,
                           int64_t level) {
    LinearLevel parts(builder, op, shape, tokens, level);
    Value init = createEmpty(builder, op.getLoc(), shape, op.getQuery(),
                             shape.rows(builder, op.getLoc(), level),
                             extent(op.getValue(), 3));
    return parts.sources
        .build(builder, op.getLoc(), parts.queries, init, /*lse=*/Value(),
               shape.rank, op.getScaleOrDefault())
        ->getResult(0);
  }

  /// The sum of `parts`, level 0 first: token `i` takes row `i p / m_l` of
  /// level `l`. Added in the state type and rounded once.
  static Value createSum(OpBuilder &builder, FastMultipoleLinearOp op,
                         const Hierarchy &shape, SmallVector<Value> parts) {
    Location loc = op.getLoc();
    SmallVector<AffineExpr> dims(4);
    bindDimsList(op.getContext(), MutableArrayRef(dims));
    auto identity = AffineMap::getMultiDimIdentityMap(4, op.getContext());
    SmallVector<AffineMap> maps = {identity};
    for (int64_t level = 1; level <= shape.levels; ++level) {
      maps.push_back(AffineMap::get(
          4, 0,
          {dims[0], dims[1], dims[2].floorDiv(shape.segment(level)), dims[3]},
          op.getContext()));
      // One row per token: the rows of absent tokens have to go.
      if (shape.segment(level) == 1 &&
          shape.rows(builder, loc, level) != shape.tokens) {
        SmallVector<OpFoldResult> sizes =
            tensor::getMixedSizes(builder, loc, parts[0]);
        SmallVector<OpFoldResult> zeros(4, builder.getIndexAttr(0));
        SmallVector<OpFoldResult> ones(4, builder.getIndexAttr(1));
        sizes[2] = shape.tokens;
        parts[level] = tensor::ExtractSliceOp::create(
            builder, loc, parts[level], zeros, sizes, ones);
      }
    }
    maps.push_back(identity);

    Type elementType = getElementTypeOrSelf(op.getOutput());
    Type stateType = getStateType(elementType);
    auto addParts = [&](OpBuilder &nested, Location loc, ValueRange args) {
      Value sum;
      for (Value part : args.drop_back()) {
        if (part.getType() != stateType)
          part = arith::ExtFOp::create(nested, loc, stateType, part);
        sum = sum ? arith::AddFOp::create(nested, loc, sum, part) : part;
      }
      if (sum.getType() != elementType)
        sum = arith::TruncFOp::create(nested, loc, elementType, sum);
      linalg::YieldOp::create(nested, loc, sum);
    };
    SmallVector<utils::IteratorType> iterators(4,
                                               utils::IteratorType::parallel);
    return linalg::GenericOp::create(builder, loc, op.getOutput().getType(),
                                     parts, op.getOutput(), maps, iterators,
                                     addParts)
        .getResult(0);
  }

  bool narrow;
};
} // namespace

void fovea::attn::detail::populateExpandFastMultipolePatterns(
    RewritePatternSet &patterns, bool narrowSummaries) {
  patterns.add<ExpandFastMultipole, ExpandFastMultipoleLinear>(
      patterns.getContext(), narrowSummaries);
}
