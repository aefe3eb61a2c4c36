//===- ExpandBackward.cpp - Expand gradients of patterns ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a pattern is that of its sources: attn.stream_backward over
// what the pattern itself expands to. Gradients of summaries then go back to
// the tokens, weights and biases that the summaries were made of.
//
//===----------------------------------------------------------------------===//

#include "MultipoleSources.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
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

/// An uninitialised tensor of the shape of `like` for sums of its elements.
static Value createSums(OpBuilder &builder, Location loc, Value like) {
  return tensor::EmptyOp::create(builder, loc,
                                 tensor::getMixedSizes(builder, loc, like),
                                 getStateType(getElementTypeOrSelf(like)));
}

static Value createZeros(OpBuilder &builder, Location loc, Value like) {
  Value sums = createSums(builder, loc, like);
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getFloatAttr(getElementTypeOrSelf(sums), 0.0));
  return linalg::FillOp::create(builder, loc, zero, sums).getResult(0);
}

/// `sums` in the element type of the destination `init`.
static Value roundTo(OpBuilder &builder, Location loc, Value sums, Value init) {
  if (sums.getType() == init.getType())
    return sums;
  return arith::TruncFOp::create(builder, loc, init.getType(), sums);
}

//===----------------------------------------------------------------------===//
// Dense
//===----------------------------------------------------------------------===//

namespace {
struct ExpandDenseBackward : OpRewritePattern<DenseBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DenseBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    RangeExprs exprs(getContext());
    StreamSources sources;
    sources.add(op.getKey(), op.getValue(), exprs.allRows(), op.getMaskOrNone(),
                op.getLogWeight(), op.getBias(), op.getLengths());
    sources.setSink(op.getSink());
    sources.setQueryLengths(op.getQueryLengths());
    sources.setScore(op.getScore(), op.getCaptures());
    StreamSources::Gradients gradients = {op.getDQuery(),
                                          {op.getDKey()},
                                          {op.getDValue()},
                                          {},
                                          {},
                                          op.getDSink(),
                                          llvm::to_vector(op.getDCaptures())};
    if (op.getDLogWeight())
      gradients.logWeights.push_back(op.getDLogWeight());
    if (op.getDBias())
      gradients.biases.push_back(op.getDBias());
    rewriter.replaceOp(
        op, sources.buildBackward(
                rewriter, op.getLoc(), op.getQuery(),
                {op.getOutput(), op.getLse(), op.getDOutput(), op.getDLse()},
                gradients, /*block=*/0, op.getScaleOrDefault()));
    return success();
  }
};

/// Rounds gradients behind the operation instead of in it.
template <typename OpTy> struct RoundGradients : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Location loc = op.getLoc();
    SmallVector<Value> destinations(op.getDpsInits());
    auto isNarrow = [](Value init) {
      Type type = getElementTypeOrSelf(init);
      return type != getStateType(type);
    };
    if (llvm::none_of(destinations, isNarrow))
      return rewriter.notifyMatchFailure(op, "nothing to round");
    rewriter.modifyOpInPlace(op, [&] {
      for (auto [init, result] :
           llvm::zip(op.getDpsInitsMutable(), op->getResults()))
        if (isNarrow(init.get())) {
          Value sums = createSums(rewriter, loc, init.get());
          if (op->template hasTrait<UpdatesInits>())
            sums = arith::ExtFOp::create(rewriter, loc, sums.getType(),
                                         init.get());
          init.assign(sums);
          result.setType(sums.getType());
        }
    });
    rewriter.setInsertionPointAfter(op);
    for (auto [destination, result] :
         llvm::zip(destinations, op->getResults())) {
      if (!isNarrow(destination))
        continue;
      Value rounded = roundTo(rewriter, loc, result, destination);
      rewriter.replaceAllUsesExcept(result, rounded, rounded.getDefiningOp());
    }
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

namespace {
/// One of query, key and value: what its summaries are made of, destinations,
/// and its gradients so far.
struct Summarized {
  SummaryOperands operands;
  OperandRange dWeights, dBiases, dReady;
  /// The sum of the gradients of the input.
  Value sum;
  SmallVector<Value> weightSums = {}, biasSums = {}, readySums = {};

  /// Rows of summaries of `level` that the pattern reads.
  OpFoldResult getRows(OpBuilder &builder, Location loc, const Hierarchy &shape,
                       int64_t level) const {
    if (operands.ready.empty())
      return shape.rows(builder, loc, level);
    return affine::makeComposedFoldedAffineApply(
        builder, loc, builder.getAffineSymbolExpr(0) * shape.rank,
        tensor::getMixedSize(builder, loc, operands.ready[level - 1], 2));
  }

  /// Passes on `dSummaries`, the gradients of the summaries of `level`.
  void addLevel(OpBuilder &builder, Location loc, int64_t level,
                Value dSummaries) {
    if (!operands.ready.empty())
      return addReady(builder, loc, operands.ready[level - 1], dSummaries);
    Value levelWeights = operands.weights[level - 1];
    SmallVector<Value> inits = {sum, createZeros(builder, loc, levelWeights)};
    Value bias;
    if (!dBiases.empty()) {
      bias = createZeros(builder, loc, dBiases[level - 1]);
      inits.push_back(bias);
    }
    auto op = SummarizeBackwardOp::create(
        builder, loc, ValueRange(inits).getTypes(), operands.input,
        levelWeights, dSummaries, inits[0], inits[1], bias);
    sum = op->getResult(0);
    weightSums.push_back(op->getResult(1));
    if (bias)
      biasSums.push_back(op->getResult(2));
  }

  /// The gradients of what no level uses, which are zeros.
  void addUnused(OpBuilder &builder, Location loc) {
    for (auto [all, sums] :
         {std::pair{dWeights, &weightSums}, std::pair{dBiases, &biasSums},
          std::pair{dReady, &readySums}})
      for (Value unused : all.drop_front(sums->size()))
        sums->push_back(createZeros(builder, loc, unused));
  }

private:
  void addReady(OpBuilder &builder, Location loc, Value ready,
                Value dSummaries) {
    auto type = cast<RankedTensorType>(ready.getType());
    readySums.push_back(tensor::ExpandShapeOp::create(
        builder, loc, type.clone(getElementTypeOrSelf(dSummaries)), dSummaries,
        SmallVector<ReassociationIndices>{{0}, {1}, {2, 3}, {4}},
        tensor::getMixedSizes(builder, loc, ready)));
  }
};
} // namespace

template <typename OpTy>
static Summarized getKeyGradients(OpTy op, const PresentTokens &tokens,
                                  Value sum) {
  return {getKeyOperands(op, tokens), op.getDKeyWeights(), op.getDKeyBiases(),
          op.getDKeySummaries(), sum};
}

template <typename OpTy>
static Summarized getValueGradients(OpTy op, const PresentTokens &tokens,
                                    Value sum) {
  return {getValueOperands(op, tokens), op.getDValueWeights(),
          op.getDValueBiases(), op.getDValueSummaries(), sum};
}

/// Replaces `op` by its gradients, in the order of its destinations: inputs,
/// then all weights, all biases, and all ready-made summaries.
static void replaceByGradients(PatternRewriter &rewriter, Operation *op,
                               ValueRange inputs, Value mask,
                               ArrayRef<Summarized *> summarized) {
  SmallVector<Value> sums;
  for (Value input : inputs)
    sums.push_back(keepInPlace(rewriter, op->getLoc(), input, mask));
  for (Summarized *family : summarized)
    family->addUnused(rewriter, op->getLoc());
  for (Summarized *family : summarized)
    llvm::append_range(sums, family->weightSums);
  for (Summarized *family : summarized)
    llvm::append_range(sums, family->biasSums);
  for (Summarized *family : summarized)
    llvm::append_range(sums, family->readySums);
  SmallVector<Value> results;
  for (auto [sum, init] : llvm::zip_equal(
           sums, cast<DestinationStyleOpInterface>(op).getDpsInits()))
    results.push_back(roundTo(rewriter, op->getLoc(), sum, init));
  rewriter.replaceOp(op, results);
}

namespace {
struct ExpandFastMultipoleBackward : OpRewritePattern<FastMultipoleBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(FastMultipoleBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Location loc = op.getLoc();
    Hierarchy shape = getHierarchy(rewriter, op, /*narrow=*/false);
    PresentTokens tokens(rewriter, op);
    StreamSources::Results results = keepResults(rewriter, op);
    if (shape.levels == 0) {
      replaceByDense(rewriter, op, shape, tokens, results);
      return success();
    }
    MultipoleSources multipole(rewriter, op, shape, tokens);
    auto sums = [&](Value like) { return createSums(rewriter, loc, like); };
    StreamSources::Gradients gradients = {
        sums(op.getQuery()),
        {sums(op.getKey()), sums(multipole.keys)},
        {sums(op.getValue()), sums(multipole.values)},
        {},
        {}};
    auto stream = multipole.sources.buildBackward(
        rewriter, loc, tokens.query, results, gradients, shape.group,
        op.getScaleOrDefault());
    Summarized keys = getKeyGradients(op, tokens, stream->getResult(1));
    Summarized values = getValueGradients(op, tokens, stream->getResult(3));
    for (auto [family, result] : {std::pair{&keys, 2}, std::pair{&values, 4}})
      for (int64_t level = 1; level <= shape.levels; ++level)
        family->addLevel(
            rewriter, loc, level,
            extractLevel(rewriter, loc, shape, stream->getResult(result), level,
                         family->getRows(rewriter, loc, shape, level)));
    replaceByGradients(rewriter, op,
                       {stream->getResult(0), keys.sum, values.sum},
                       tokens.mask, {&keys, &values});
    return success();
  }

private:
  /// What there is of absent rows: no result, and no gradient for it.
  static StreamSources::Results keepResults(OpBuilder &builder,
                                            FastMultipoleBackwardOp op) {
    Location loc = op.getLoc();
    Value mask = op.getMask(), dLse = op.getDLse();
    return {keepRows(builder, loc, op.getOutput(), mask),
            keepRows(builder, loc, op.getLse(), mask,
                     -std::numeric_limits<double>::infinity()),
            keepRows(builder, loc, op.getDOutput(), mask),
            dLse ? keepRows(builder, loc, dLse, mask) : Value()};
  }

  static void replaceByDense(PatternRewriter &rewriter,
                             FastMultipoleBackwardOp op, const Hierarchy &shape,
                             const PresentTokens &tokens,
                             const StreamSources::Results &results) {
    Location loc = op.getLoc();
    StreamSources sources;
    addNearField(rewriter, loc, sources, shape, tokens, op.getCausal());
    auto stream = sources.buildBackward(
        rewriter, loc, tokens.query, results,
        {op.getDQuery(), {op.getDKey()}, {op.getDValue()}, {}, {}},
        shape.getNearBlock(), op.getScaleOrDefault());
    Summarized keys = getKeyGradients(op, tokens, stream->getResult(1));
    Summarized values = getValueGradients(op, tokens, stream->getResult(2));
    replaceByGradients(rewriter, op,
                       {stream->getResult(0), keys.sum, values.sum},
                       tokens.mask, {&keys, &values});
  }
};

/// Every level is a stream of its own, whose results are computed again.
struct ExpandFastMultipoleLinearBackward
    : OpRewritePattern<FastMultipoleLinearBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(FastMultipoleLinearBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Location loc = op.getLoc();
    Hierarchy shape = getHierarchy(rewriter, op, /*narrow=*/false);
    PresentTokens tokens(rewriter, op);
    StreamSources near;
    addNearField(rewriter, loc, near, shape, tokens, op.getCausal());
    Value dOutput = keepRows(rewriter, loc, op.getDOutput(), tokens.mask);
    StreamBackwardOp stream =
        createPart(rewriter, op, shape, near, tokens.query, tokens.key,
                   tokens.value, dOutput, shape.getNearBlock());
    Summarized queries = {getQueryOperands(op, tokens), op.getDQueryWeights(),
                          op.getDQueryBiases(), op.getDQuerySummaries(),
                          stream->getResult(0)};
    Summarized keys = getKeyGradients(op, tokens, stream->getResult(1));
    Summarized values = getValueGradients(op, tokens, stream->getResult(2));
    SmallVector<StreamBackwardOp> streams;
    for (int64_t level = 1; level <= shape.levels; ++level) {
      LinearLevel parts(rewriter, op, shape, tokens, level);
      dOutput =
          sumRows(rewriter, loc, dOutput, level == 1 ? shape.segment(1) : 2);
      streams.push_back(createPart(
          rewriter, op, shape, parts.sources, parts.queries, parts.keys,
          parts.values,
          padRows(rewriter, loc, dOutput, shape.rows(rewriter, loc, level)),
          shape.rank));
    }
    Summarized *const families[] = {&queries, &keys, &values};
    for (auto [result, family] : llvm::enumerate(families))
      for (auto [index, part] : llvm::enumerate(streams))
        family->addLevel(rewriter, loc, index + 1, part->getResult(result));
    replaceByGradients(rewriter, op, {queries.sum, keys.sum, values.sum},
                       tokens.mask, families);
    return success();
  }

private:
  /// One part of the output once more, and its gradient.
  static StreamBackwardOp
  createPart(OpBuilder &builder, FastMultipoleLinearBackwardOp op,
             const Hierarchy &shape, const StreamSources &sources, Value query,
             Value key, Value value, Value dOutput, int64_t block) {
    Location loc = op.getLoc();
    SmallVector<OpFoldResult> rows = tensor::getMixedSizes(builder, loc, query);
    rows.pop_back();
    Value lse = tensor::EmptyOp::create(builder, loc, rows, shape.sumType);
    Value output = createEmpty(builder, loc, shape, query,
                               tensor::getMixedSize(builder, loc, query, 2),
                               extent(value, 3));
    StreamOp forward = sources.build(builder, loc, query, output, lse, block,
                                     op.getScaleOrDefault());
    StreamSources::Gradients gradients = {createSums(builder, loc, query),
                                          {createSums(builder, loc, key)},
                                          {createSums(builder, loc, value)},
                                          {},
                                          {}};
    return sources.buildBackward(builder, loc, query,
                                 {forward->getResult(0), forward->getResult(1),
                                  dOutput, /*dLse=*/Value()},
                                 gradients, block, op.getScaleOrDefault());
  }

  /// Sums of `count` consecutive rows: summaries with weights of one.
  static Value sumRows(OpBuilder &builder, Location loc, Value rows,
                       int64_t count) {
    auto type = cast<RankedTensorType>(rows.getType());
    auto weightsType = RankedTensorType::get({1, 1, count, type.getDimSize(3)},
                                             type.getElementType());
    Value ones = arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(
            weightsType, builder.getFloatAttr(type.getElementType(), 1.0)));
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, rows);
    sizes[2] = ceilDiv(builder, loc, sizes[2], count);
    Value init = tensor::EmptyOp::create(builder, loc, sizes,
                                         getStateType(type.getElementType()));
    return SummarizeOp::create(builder, loc, init.getType(), rows, ones,
                               /*bias=*/Value(), init)
        ->getResult(0);
  }

  /// `rows` with rows of zeros behind them, `count` in all: those of summaries
  /// that stand for no token.
  static Value padRows(OpBuilder &builder, Location loc, Value rows,
                       OpFoldResult count) {
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, rows);
    if (sizes[2] == count)
      return rows;
    SmallVector<OpFoldResult> padded = sizes,
                              offsets(4, builder.getIndexAttr(0)),
                              strides(4, builder.getIndexAttr(1));
    padded[2] = count;
    Value empty = tensor::EmptyOp::create(builder, loc, padded,
                                          getElementTypeOrSelf(rows));
    return tensor::InsertSliceOp::create(builder, loc, rows,
                                         createZeros(builder, loc, empty),
                                         offsets, sizes, strides);
  }
};
} // namespace

void fovea::attn::detail::populateExpandBackwardPatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandDenseBackward, ExpandFastMultipoleBackward,
               ExpandFastMultipoleLinearBackward>(patterns.getContext());
}

void fovea::attn::detail::populateRoundGradientsPatterns(
    RewritePatternSet &patterns) {
  patterns.add<RoundGradients<StreamBackwardOp>,
               RoundGradients<SummarizeBackwardOp>,
               RoundGradients<LowRankBackwardOp>>(patterns.getContext());
}
