//===- AttnBackwardOps.cpp - Gradients of attention operations ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "SourceSyntax.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "fovea/Dialect/Attn/IR/RangeOverlap.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::extent;
using attn::detail::ParsedSources;
using attn::detail::TypedOperands;

/// The operands from that of the gradient of the query on.
template <typename OpTy> static MutableOperandRange getGradients(OpTy op) {
  unsigned first = op.getDQueryMutable().getOperandNumber();
  return MutableOperandRange(op, first, op->getNumOperands() - first);
}

//===----------------------------------------------------------------------===//
// StreamBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange StreamBackwardOp::getDpsInitsMutable() {
  return getGradients(*this);
}

SmallVector<StreamSourceGradient> StreamBackwardOp::getSourceList() {
  SmallVector<StreamSourceGradient> sources;
  unsigned nextWeight = 0, nextBias = 0, nextLengths = 0, nextRowList = 0,
           nextScore = 0;
  for (auto [keys, values, dKeys, dValues, attr] : llvm::zip(
           getKeys(), getValues(), getDKeys(), getDValues(), getSources())) {
    StreamSourceGradient &source = sources.emplace_back();
    source.forward.attr = cast<SourceAttr>(attr);
    source.forward.keys = keys;
    source.forward.values = values;
    source.keys = dKeys;
    source.values = dValues;
    if (source.forward.attr.getHasLogWeight()) {
      if (!getDLogWeights().empty())
        source.logWeight = getDLogWeights()[nextWeight];
      source.forward.logWeight = getLogWeights()[nextWeight++];
    }
    if (source.forward.attr.getHasBias()) {
      if (!getDBiases().empty())
        source.bias = getDBiases()[nextBias];
      source.forward.bias = getBiases()[nextBias++];
    }
    if (source.forward.attr.getHasLengths())
      source.forward.lengths = getLengths()[nextLengths++];
    if (source.forward.attr.hasRowLists())
      source.forward.rowList = getRowLists()[nextRowList++];
    if (source.forward.attr.getHasScore())
      source.forward.score = &getScores()[nextScore++];
  }
  return sources;
}

void StreamBackwardOp::getSuccessorRegions(
    RegionBranchPoint, SmallVectorImpl<RegionSuccessor> &found) {
  attn::detail::findScoreSuccessors(*this, found);
}

Region *StreamBackwardOp::getCommonScore() {
  return attn::detail::findCommonScore(*this);
}

/// Checks that there are as many operands as the sources say.
static LogicalResult verifyCounts(StreamBackwardOp op) {
  size_t numSources = op.getSources().size(), numWeights = 0, numBiases = 0,
         numLengths = 0, numRowLists = 0;
  if (numSources == 0)
    return op.emitOpError("expects at least one source");
  for (auto [index, source] :
       llvm::enumerate(op.getSources().getAsRange<SourceAttr>())) {
    numWeights += source.getHasLogWeight();
    numBiases += source.getHasBias();
    numLengths += source.getHasLengths();
    numRowLists += source.hasRowLists();
    if (source.hasDistances())
      return op.emitOpError()
             << "expects no "
             << (source.getHasRelative() ? "relative" : "distance_bias")
             << " in source " << index << ", which has no gradient yet";
    if (source.getHasCodes() || source.getHasLocalBias())
      return op.emitOpError()
             << "expects no " << (source.getHasCodes() ? "codes" : "local_bias")
             << " in source " << index << ", which have no gradient";
  }
  if (op.getKeys().size() != numSources || op.getValues().size() != numSources)
    return op.emitOpError()
           << "expects keys and values for each of the " << numSources
           << " sources, but got " << op.getKeys().size() << " and "
           << op.getValues().size();
  if (op.getLogWeights().size() != numWeights ||
      op.getBiases().size() != numBiases)
    return op.emitOpError()
           << "expects " << numWeights << " log weights and " << numBiases
           << " biases, as the sources say, but got "
           << op.getLogWeights().size() << " and " << op.getBiases().size();
  if (op.getLengths().size() != numLengths)
    return op.emitOpError()
           << "expects lengths for " << numLengths
           << " sources, as they say, but got " << op.getLengths().size();
  if (op.getRowLists().size() != numRowLists)
    return op.emitOpError()
           << "expects lists of rows for " << numRowLists
           << " sources, as they say, but got " << op.getRowLists().size();
  return attn::detail::verifyScoreCount(op, op.getScores(), op.getSources());
}

LogicalResult StreamBackwardOp::verifyOperandCounts() {
  return verifyCounts(*this);
}

void StreamBackwardOp::addOpenOperands(ContractOperands &operands) {
  for (auto [index, gradient] : llvm::enumerate(getSourceList()))
    attn::detail::addSourceTerms(gradient.forward, index, operands);
}

LogicalResult StreamBackwardOp::verify() {
  SmallVector<StreamSource> sources;
  for (const StreamSourceGradient &source : getSourceList())
    sources.push_back(source.forward);
  if (failed(attn::detail::verifyBlock(*this, getSources(), getBlock())) ||
      failed(attn::detail::verifyLengths(*this, getSources(),
                                         getQueryLengths() != nullptr)) ||
      failed(attn::detail::verifyRowLists(*this, sources, getQuery(),
                                          getBlock(), extent(getQuery(), 2))) ||
      failed(attn::detail::verifyScoreRegions(
          *this, getScores(), getSources(), getCaptures(),
          getStateType(getElementTypeOrSelf(getQuery())))) ||
      failed(attn::detail::verifyCaptureGradients(*this, getCaptures(),
                                                  getDCaptures())))
    return failure();
  return verifyRangesApart(*this);
}

// stream-backward ::= `query` `(` %q `:` type `)` source+
//            (`sink` `(` %s `:` type `)`)? (`query_lengths` `(` %n `:` type
//            `)`)? scores `forward` `(` %out `,` %lse `:` type `,` type `)`
//            `gradient`
//            `(` %dout (`,` %dlse)? `:` type (`,` type)? `)` `outs` `(` %dq
//            (`,` %dk)+ (`,` %dv)+ `:` types `)`
//            (`d_log_weights` `(` operands `:` types `)`)?
//            (`d_biases` `(` operands `:` types `)`)?
//            (`d_sink` `(` %ds `:` type `)`)?
//            (`d_captures` `(` operands `:` types `)`)? attr-dict
//            (`->` types)?
// source: as in attn.stream

ParseResult StreamBackwardOp::parse(OpAsmParser &parser,
                                    OperationState &result) {
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  TypedOperands query, sink, queryLengths, captures, forward, gradient, outs,
      dWeights, dBiases, dSink, dCaptures;
  ParsedSources sources;
  if (parser.parseKeyword("query") || query.parse(parser, 1, 1) ||
      sources.parse(parser) || sink.parseOptional(parser, "sink") ||
      queryLengths.parseOptional(parser, "query_lengths") ||
      attn::detail::parseScores(parser, sources, captures, result) ||
      parser.parseKeyword("forward") || forward.parse(parser, 2, 2) ||
      parser.parseKeyword("gradient") || gradient.parse(parser, 1, 2) ||
      parser.parseKeyword("outs"))
    return failure();
  unsigned numOuts = 1 + 2 * sources.attrs.size();
  if (outs.parse(parser, numOuts, numOuts))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("d_log_weights")) &&
      dWeights.parse(parser, sources.logWeights.size(),
                     sources.logWeights.size()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("d_biases")) &&
      dBiases.parse(parser, sources.biases.size(), sources.biases.size()))
    return failure();
  if (dSink.parseOptional(parser, "d_sink"))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("d_captures")) &&
      dCaptures.parse(parser, 1, captures.operands.size()))
    return failure();
  if (attn::detail::parseAttributesAndTypes(parser, loc, result))
    return failure();
  result.addAttribute(getSourcesAttrName(result.name),
                      builder.getArrayAttr(sources.attrs));
  int32_t numSources = sources.attrs.size();
  result.addAttribute(getOperandSegmentSizesAttrName(result.name),
                      builder.getDenseI32ArrayAttr({1,
                                                    sources.keys.size(),
                                                    sources.values.size(),
                                                    sources.logWeights.size(),
                                                    sources.biases.size(),
                                                    sources.lengths.size(),
                                                    sources.rowLists.size(),
                                                    sink.size(),
                                                    queryLengths.size(),
                                                    captures.size(),
                                                    1,
                                                    1,
                                                    1,
                                                    gradient.size() - 1,
                                                    1,
                                                    numSources,
                                                    numSources,
                                                    dWeights.size(),
                                                    dBiases.size(),
                                                    dSink.size(),
                                                    dCaptures.size()}));
  if (sources.codes.size() != 0)
    return parser.emitError(loc, "expected no codes, which have no gradient");
  if (sources.relativeKeys.size() != 0 || sources.distanceBiases.size() != 0)
    return parser.emitError(
        loc, "expected no terms by distance, which have no gradient yet");
  for (const TypedOperands *operands :
       {&query, &sources.keys, &sources.values, &sources.logWeights,
        &sources.biases, &sources.lengths, &sources.rowLists, &sink,
        &queryLengths, &captures, &forward, &gradient, &outs, &dWeights,
        &dBiases, &dSink, &dCaptures})
    if (operands->resolve(parser, loc, result))
      return failure();
  return success();
}

void StreamBackwardOp::print(OpAsmPrinter &printer) {
  using attn::detail::printIndentedLine;
  using attn::detail::printTypedOperands;
  printer << " query";
  printTypedOperands(printer, getQuery());
  SmallVector<StreamSource> sources;
  for (const StreamSourceGradient &source : getSourceList())
    sources.push_back(source.forward);
  attn::detail::printSources(printer, sources);
  attn::detail::printBehindSources(printer, "sink", getSink());
  attn::detail::printBehindSources(printer, "query_lengths", getQueryLengths());
  attn::detail::printScores(printer, *this);
  printIndentedLine(printer);
  printer << "forward";
  printTypedOperands(printer, {getOutput(), getLse()});
  printer << " gradient";
  SmallVector<Value> gradients = {getDOutput()};
  if (getDLse())
    gradients.push_back(getDLse());
  printTypedOperands(printer, gradients);
  printIndentedLine(printer);
  printer << "outs";
  SmallVector<Value> outs = {getDQuery()};
  llvm::append_range(outs, getDKeys());
  llvm::append_range(outs, getDValues());
  printTypedOperands(printer, outs);
  if (!getDLogWeights().empty()) {
    printer << " d_log_weights";
    printTypedOperands(printer, getDLogWeights());
  }
  if (!getDBiases().empty()) {
    printer << " d_biases";
    printTypedOperands(printer, getDBiases());
  }
  if (getDSink()) {
    printer << " d_sink";
    printTypedOperands(printer, getDSink());
  }
  if (!getDCaptures().empty()) {
    printer << " d_captures";
    printTypedOperands(printer, getDCaptures());
  }
  printer.printOptionalAttrDict(
      (*this)->getAttrs(),
      {getSourcesAttrName(), getOperandSegmentSizesAttrName()});
  if (getNumResults() != 0)
    printer << " -> " << getResultTypes();
}

//===----------------------------------------------------------------------===//
// DenseBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange DenseBackwardOp::getDpsInitsMutable() {
  return getGradients(*this);
}

LogicalResult DenseBackwardOp::verify() {
  if (failed(attn::detail::verifyScoreRegions(
          *this, getScore(), /*sources=*/{}, getCaptures(),
          getStateType(getElementTypeOrSelf(getQuery())))))
    return failure();
  return attn::detail::verifyCaptureGradients(*this, getCaptures(),
                                              getDCaptures());
}

double DenseBackwardOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

MaskAttr DenseBackwardOp::getMaskOrNone() {
  return getMask() ? *getMask() : MaskAttr::get(getContext(), false, 0);
}

//===----------------------------------------------------------------------===//
// SummarizeBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange SummarizeBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 3, getNumOperands() - 3);
}

int64_t SummarizeBackwardOp::getInterval() { return extent(getWeights(), 2); }
int64_t SummarizeBackwardOp::getRank() { return extent(getWeights(), 1); }

//===----------------------------------------------------------------------===//
// FastMultipoleBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleBackwardOp::getDpsInitsMutable() {
  return getGradients(*this);
}

double FastMultipoleBackwardOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleBackwardOp::getRank() {
  return attn::detail::getSummaryRank(getKeyWeights(), getKeySummaries());
}

LogicalResult FastMultipoleBackwardOp::verify() {
  return attn::detail::verifyMultipoleLevels(*this);
}

namespace {
/// Without levels every group neighbours every other: dense attention.
struct NoLevelsIsDenseBackward : OpRewritePattern<FastMultipoleBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(FastMultipoleBackwardOp op,
                                PatternRewriter &rewriter) const override {
    // Gradients of weights that are not used are zeros.
    if (!hasNoLevels(op) || op.getNumLevels() != 0 || op.getMask())
      return failure();
    MaskAttr mask;
    if (op.getCausal())
      mask = MaskAttr::get(op.getContext(), /*causal=*/true, /*window=*/0);
    rewriter.replaceOpWithNewOp<DenseBackwardOp>(
        op, op.getResultTypes(), op.getQuery(), op.getKey(), op.getValue(),
        /*log_weight=*/Value(), /*bias=*/Value(), /*sink=*/Value(),
        /*lengths=*/Value(), /*query_lengths=*/Value(),
        /*captures=*/ValueRange(), op.getOutput(), op.getLse(), op.getDOutput(),
        op.getDLse(), op.getDQuery(), op.getDKey(), op.getDValue(),
        /*d_log_weight=*/Value(),
        /*d_bias=*/Value(),
        /*d_sink=*/Value(), /*d_captures=*/ValueRange(), op.getScaleAttr(),
        mask, /*scoreCount=*/0);
    return success();
  }
};
} // namespace

void FastMultipoleBackwardOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<attn::detail::DropFullMasks<FastMultipoleBackwardOp>,
               NoLevelsIsDenseBackward>(context);
}

//===----------------------------------------------------------------------===//
// FastMultipoleLinearBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleLinearBackwardOp::getDpsInitsMutable() {
  return getGradients(*this);
}

double FastMultipoleLinearBackwardOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleLinearBackwardOp::getRank() {
  return attn::detail::getSummaryRank(getKeyWeights(), getKeySummaries());
}

void FastMultipoleLinearBackwardOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<attn::detail::DropFullMasks<FastMultipoleLinearBackwardOp>>(
      context);
}

LogicalResult FastMultipoleLinearBackwardOp::verify() {
  return attn::detail::verifyLinearLevels(*this);
}
