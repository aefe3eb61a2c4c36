//===- ExpandPatterns.cpp - Expand patterns to attn.stream ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_EXPANDPATTERNSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

RangeExprs::RangeExprs(MLIRContext *context)
    : block(getAffineDimExpr(0, context)),
      rows(getAffineSymbolExpr(0, context)),
      queries(getAffineSymbolExpr(1, context)),
      zero(getAffineConstantExpr(0, context)) {}

AffineMap RangeExprs::range(AffineExpr begin, AffineExpr end) const {
  return AffineMap::get(/*dimCount=*/1, /*symbolCount=*/2, {begin, end},
                        block.getContext());
}

AffineMap RangeExprs::rangeInPool(AffineExpr begin, AffineExpr end,
                                  AffineExpr offset, AffineExpr count) const {
  return AffineMap::get(
      /*dimCount=*/1, /*symbolCount=*/2,
      {begin + offset, end + offset, offset, offset + count},
      begin.getContext());
}

void StreamSources::add(Value newKeys, Value newValues,
                        ArrayRef<AffineMap> ranges, MaskAttr mask,
                        Value logWeight, Value bias, Value newLengths) {
  add({newKeys, newValues, logWeight, bias, /*codes=*/Value(), SourceAttr(),
       newLengths},
      ranges, mask);
}

void StreamSources::add(const StreamOp::Source &source,
                        ArrayRef<AffineMap> ranges, MaskAttr mask,
                        bool hasLocalBias, AffineMap origin) {
  MLIRContext *context = source.keys.getContext();
  if (!mask)
    mask = MaskAttr::get(context, /*causal=*/false, /*window=*/0);
  keys.push_back(source.keys);
  values.push_back(source.values);
  if (source.logWeight)
    logWeights.push_back(source.logWeight);
  if (source.bias)
    biases.push_back(source.bias);
  if (source.codes)
    codes.push_back(source.codes);
  if (source.lengths)
    lengths.push_back(source.lengths);
  if (source.rowList)
    rowLists.push_back(source.rowList);
  if (source.relativeKeys) {
    relativeKeys.push_back(source.relativeKeys);
    relativeBiases.push_back(source.relativeBias);
  }
  if (source.distanceBias)
    distanceBiases.push_back(source.distanceBias);
  attrs.push_back(
      SourceAttr::get(context, ranges, mask,
                      /*hasLogWeight=*/source.logWeight != nullptr,
                      /*hasBias=*/source.bias != nullptr,
                      /*hasCodes=*/source.codes != nullptr, hasLocalBias,
                      /*hasLengths=*/source.lengths != nullptr,
                      /*hasRelative=*/bool(source.relativeKeys),
                      /*hasDistanceBias=*/bool(source.distanceBias), origin,
                      source.attr ? source.attr.getUnit() : 0,
                      source.attr && source.attr.getHasListedPositions(),
                      /*hasScore=*/false));
}

StreamOp StreamSources::build(OpBuilder &builder, Location loc, Value query,
                              Value output, Value lse, int64_t block,
                              double scale, Weighting weighting, Value firstRow,
                              Value numRows) const {
  SmallVector<Type> resultTypes;
  for (Value init : {output, lse})
    if (init && isa<TensorType>(init.getType()))
      resultTypes.push_back(init.getType());
  auto op = StreamOp::create(
      builder, loc, resultTypes, query, keys, values, logWeights, biases, codes,
      lengths, rowLists, relativeKeys, relativeBiases, distanceBiases, sink,
      queryLengths, captures, firstRow, numRows, output, lse,
      builder.getArrayAttr(attrs), builder.getI64IntegerAttr(block),
      builder.getF64FloatAttr(scale),
      WeightingAttr::get(builder.getContext(), weighting), /*tiles=*/nullptr,
      score.size());
  cloneScoreRegions(score, op.getScores());
  return op;
}

StreamBackwardOp
StreamSources::buildBackward(OpBuilder &builder, Location loc, Value query,
                             const Results &results, const Gradients &gradients,
                             int64_t block, double scale) const {
  SmallVector<Type> types = {gradients.query.getType()};
  for (ArrayRef<Value> group :
       {ArrayRef(gradients.keys), ArrayRef(gradients.values),
        ArrayRef(gradients.logWeights), ArrayRef(gradients.biases)})
    llvm::append_range(types, ValueRange(group).getTypes());
  if (gradients.sink)
    types.push_back(gradients.sink.getType());
  llvm::append_range(types, ValueRange(gradients.captures).getTypes());
  auto op = StreamBackwardOp::create(
      builder, loc, types, query, keys, values, logWeights, biases, lengths,
      rowLists, sink, queryLengths, captures, results.output, results.lse,
      results.dOutput, results.dLse, gradients.query, gradients.keys,
      gradients.values, gradients.logWeights, gradients.biases, gradients.sink,
      gradients.captures, builder.getArrayAttr(attrs),
      builder.getI64IntegerAttr(block), builder.getF64FloatAttr(scale),
      /*tiles=*/nullptr, score.size());
  cloneScoreRegions(score, op.getScores());
  return op;
}

MaskAttr fovea::attn::detail::getCausalMask(MLIRContext *context, bool causal) {
  return causal ? MaskAttr::get(context, /*causal=*/true, /*window=*/0)
                : MaskAttr();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Whether `op` is one of these operations with a mask of tokens.
template <typename... OpTys> static bool hasTokenMask(Operation *op) {
  auto hasMask = [](auto op) {
    return op && (op.getQueryMask() || op.getKeyMask());
  };
  return (hasMask(dyn_cast<OpTys>(op)) || ...);
}

static bool hasSinkGradient(Operation *op) {
  auto backward = dyn_cast<StreamBackwardOp>(op);
  return backward && backward.getDSink();
}

/// Whether `op` is an attn.quantize that kernels do not take as it is.
static bool isUnexpandedQuantize(Operation *op) {
  auto quantize = dyn_cast<QuantizeOp>(op);
  return quantize && (quantize.getMask() || hasWiderCodebook(quantize));
}

namespace {
struct ExpandPatternsPass
    : fovea::attn::impl::ExpandPatternsPassBase<ExpandPatternsPass> {
  using ExpandPatternsPassBase::ExpandPatternsPassBase;

  void runOnOperation() override {
    // Scores of trees become attn.dense.
    RewritePatternSet scores(&getContext());
    populateExpandTreePatterns(scores);
    walkAndApplyPatterns(getOperation(), std::move(scores));

    RewritePatternSet patterns(&getContext());
    populateExpandDensePatterns(patterns);
    populateExpandFastMultipolePatterns(patterns, narrowSummaries);
    populateExpandLowRankPatterns(patterns);
    populateExpandQuantizePatterns(patterns);
    populateExpandVQPatterns(patterns, reduction, autoReduction,
                             narrowSummaries);
    populateExpandBackwardPatterns(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));

    RewritePatternSet mixing(&getContext());
    populateExpandMixingPatterns(mixing);
    walkAndApplyPatterns(getOperation(), std::move(mixing));

    RewritePatternSet sinks(&getContext());
    populateExpandSinkPatterns(sinks);
    walkAndApplyPatterns(getOperation(), std::move(sinks));

    RewritePatternSet rounding(&getContext());
    populateRoundGradientsPatterns(rounding);
    walkAndApplyPatterns(getOperation(), std::move(rounding));

    // Summaries need tensors of their own: a pattern on buffers stays as it
    // is, and later passes know only attn.stream.
    WalkResult result = getOperation().walk([](Operation *op) -> WalkResult {
      if (!isa<FastMultipoleOp, FastMultipoleLinearOp, VQOp, VQDecodeOp,
               TreeScoreOp, DenseBackwardOp, FastMultipoleBackwardOp,
               FastMultipoleLinearBackwardOp>(op) &&
          !hasSinkGradient(op) && !mixesColumns(op) &&
          !hasTokenMask<LowRankOp, LowRankBackwardOp>(op) &&
          !isUnexpandedQuantize(op))
        return WalkResult::advance();
      op->emitOpError("expects tensors to be expanded, but got memrefs: expand "
                      "patterns before bufferization");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
