//===- AttnSoftmaxOps.cpp - Dense and streaming soft-max operations -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "SourceSyntax.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/RangeOverlap.h"
#include "fovea/Dialect/Attn/IR/SourceContract.h"
#include "fovea/Dialect/Attn/IR/SourceDistances.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::ParsedSources;
using attn::detail::TypedOperands;

//===----------------------------------------------------------------------===//
// DenseOp
//===----------------------------------------------------------------------===//

MutableOperandRange DenseOp::getDpsInitsMutable() {
  unsigned numInits = getLse() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

double DenseOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

MaskAttr DenseOp::getMaskOrNone() {
  return getMask() ? *getMask() : MaskAttr::get(getContext(), false, 0);
}

namespace {
/// Adding zero to every score changes nothing; but its gradient may be wanted.
template <typename OpTy> struct DropZeroScoreTerms : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    bool dropWeight =
        op.getLogWeight() && matchPattern(op.getLogWeight(), m_AnyZeroFloat());
    bool dropBias =
        op.getBias() && matchPattern(op.getBias(), m_AnyZeroFloat());
    if constexpr (std::is_same_v<OpTy, DenseBackwardOp>) {
      dropWeight &= !op.getDLogWeight();
      dropBias &= !op.getDBias();
    }
    if (!dropWeight && !dropBias)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (dropWeight)
        op.getLogWeightMutable().clear();
      if (dropBias)
        op.getBiasMutable().clear();
    });
    return success();
  }
};

/// A sink of minus infinity takes nothing; and a gradient needs the sink for
/// that of the sink alone.
template <typename OpTy> struct DropUnusedSink : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (!op.getSink())
      return failure();
    if constexpr (llvm::is_one_of<OpTy, DenseOp, StreamOp>::value) {
      if (!matchPattern(op.getSink(), m_NegInfFloat()))
        return failure();
    } else if (op.getDSink()) {
      return failure();
    }
    rewriter.modifyOpInPlace(op, [&] { op.getSinkMutable().clear(); });
    return success();
  }
};
} // namespace

/// Whether `op` computes the gradient of a captured operand, which then stays.
template <typename OpTy>
static bool hasCaptureGradient(OpTy op, Value capture) {
  if constexpr (llvm::is_one_of<OpTy, DenseOp, StreamOp>::value)
    return false;
  else
    return !op.getDCaptures().empty() &&
           isDifferentiableCapture(capture.getType());
}

/// Puts the same operation without score regions in the place of `op`.
template <typename OpTy>
static void dropScores(OpTy op, PatternRewriter &rewriter) {
  rewriter.modifyOpInPlace(op, [&] {
    op.getCapturesMutable().clear();
    if constexpr (llvm::is_one_of<OpTy, StreamOp, StreamBackwardOp>::value)
      op.setSourcesAttr(rewriter.getArrayAttr(llvm::map_to_vector(
          op.getSources(), [](Attribute source) -> Attribute {
            return cast<SourceAttr>(source).withScore(false);
          })));
  });
  OperationState state(op.getLoc(), op->getName(), op->getOperands(),
                       op->getResultTypes(), op->getAttrs());
  rewriter.replaceOp(op, rewriter.create(state));
}

namespace {
/// Regions that yield their scores are none, and what they do not look at is
/// not captured.
template <typename OpTy> struct SimplifyScore : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    ScoreRegions scores = op->getRegions();
    if (scores.empty())
      return failure();
    auto isWanted = [&](Value capture) {
      return hasCaptureGradient(op, capture);
    };
    auto changesNothing = [](Region &score) {
      return getYieldedScore(score) == score.getArgument(score_argument::Score);
    };
    if (llvm::all_of(scores, changesNothing) &&
        llvm::none_of(op.getCaptures(), isWanted)) {
      dropScores(op, rewriter);
      return success();
    }
    SmallVector<Value> used;
    BitVector unused(scores.front().getNumArguments());
    for (auto [index, capture] : llvm::enumerate(op.getCaptures())) {
      unsigned argument = score_argument::Captures + index;
      if (isWanted(capture) || llvm::any_of(scores, [&](Region &score) {
            return !score.getArgument(argument).use_empty();
          }))
        used.push_back(capture);
      else
        unused.set(argument);
    }
    if (unused.none())
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      for (Region &score : scores)
        score.front().eraseArguments(unused);
      op.getCapturesMutable().assign(used);
    });
    return success();
  }
};

/// A mask that admits every entry is no mask: `none`, a window or a prefix as
/// wide as the sequence, or causality for a single query at the end of the
/// keys.
template <typename OpTy> struct DropTrivialMask : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (!op.getMask())
      return failure();
    MaskAttr mask = *op.getMask();
    int64_t n = cast<ShapedType>(op.getQuery().getType()).getDimSize(2);
    int64_t m = cast<ShapedType>(op.getKey().getType()).getDimSize(2);
    // Sizes of masks are in tokens, not in rows.
    if (!ShapedType::isDynamic(m))
      m *= mask.getStride();
    bool isWhole = !ShapedType::isDynamic(m) && mask.getPrefix() >= m;
    bool causal = mask.getCausal() && n != 1 && !(mask.hasPrefix() && isWhole);
    int64_t window = mask.getWindow();
    // Distances reach from 0 to M - 1 at most when M >= N.
    if (!ShapedType::isDynamic(n) && !ShapedType::isDynamic(m) && m >= n &&
        window >= m)
      window = 0;
    auto simplified =
        MaskAttr::get(op.getContext(), causal, window,
                      causal ? mask.getPrefix() : 0, mask.getStride());
    // Functions of scores are told the positions that a stride makes.
    bool isNone =
        simplified.isTrivial() && (!mask.hasStride() || op.getScore().empty());
    if (simplified == mask && !isNone)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (isNone)
        op.removeMaskAttr();
      else
        op.setMaskAttr(simplified);
    });
    return success();
  }
};
} // namespace

void DenseOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                          MLIRContext *context) {
  patterns.add<DropZeroScoreTerms<DenseOp>, DropUnusedSink<DenseOp>,
               DropTrivialMask<DenseOp>, SimplifyScore<DenseOp>>(context);
}

LogicalResult DenseOp::verify() {
  return attn::detail::verifyScoreRegions(
      *this, getScore(), /*sources=*/{}, getCaptures(),
      getStateType(getElementTypeOrSelf(getQuery())));
}

void DenseBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *context) {
  patterns
      .add<DropZeroScoreTerms<DenseBackwardOp>, DropUnusedSink<DenseBackwardOp>,
           DropTrivialMask<DenseBackwardOp>, SimplifyScore<DenseBackwardOp>>(
          context);
}

void StreamBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                   MLIRContext *context) {
  patterns
      .add<DropUnusedSink<StreamBackwardOp>, SimplifyScore<StreamBackwardOp>>(
          context);
}

//===----------------------------------------------------------------------===//
// StreamOp
//===----------------------------------------------------------------------===//

MutableOperandRange StreamOp::getDpsInitsMutable() {
  unsigned numInits = getLse() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

SmallVector<StreamOp::Source> StreamOp::getSourceList() {
  SmallVector<Source> sources;
  unsigned nextWeight = 0, nextBias = 0, nextCodes = 0, nextLengths = 0,
           nextRowList = 0, nextRelative = 0, nextDistanceBias = 0,
           nextScore = 0;
  for (auto [keys, values, attr] :
       llvm::zip(getKeys(), getValues(), getSources())) {
    auto source = cast<SourceAttr>(attr);
    Value weight, bias, codes, lengths;
    if (source.getHasLogWeight())
      weight = getLogWeights()[nextWeight++];
    if (source.getHasBias())
      bias = getBiases()[nextBias++];
    if (source.getHasCodes())
      codes = getCodes()[nextCodes++];
    if (source.getHasLengths())
      lengths = getLengths()[nextLengths++];
    sources.push_back({keys, values, weight, bias, codes, source, lengths});
    if (source.hasRowLists())
      sources.back().rowList = getRowLists()[nextRowList++];
    if (source.getHasRelative()) {
      sources.back().relativeKeys = getRelativeKeys()[nextRelative];
      sources.back().relativeBias = getRelativeBiases()[nextRelative++];
    }
    if (source.getHasDistanceBias())
      sources.back().distanceBias = getDistanceBiases()[nextDistanceBias++];
    if (source.getHasScore())
      sources.back().score = &getScores()[nextScore++];
  }
  return sources;
}

void StreamOp::getSuccessorRegions(RegionBranchPoint,
                                   SmallVectorImpl<RegionSuccessor> &found) {
  attn::detail::findScoreSuccessors(*this, found);
}

Region *StreamOp::getCommonScore() {
  return attn::detail::findCommonScore(*this);
}

static int64_t getRank(Value value) {
  return cast<ShapedType>(value.getType()).getRank();
}

static int64_t getExtent(Value value, int64_t dim) {
  return cast<ShapedType>(value.getType()).getDimSize(dim);
}

bool StreamSource::hasValueBlocks() const { return getRank(values) == 5; }

bool StreamSource::hasLogWeightBlocks() const {
  return logWeight && getRank(logWeight) == 4;
}

const Contract &attn::getSourceContract() {
  static const Contract contract("attn.stream", R"(
keys*: ~T[B~, G~, m, D!]
table*: ~T[B~, G~, _!, D!]
codes*: [B, G, m]
values*: ~T[B, G, m, E!]
blocks of values*: ~T[B, G, _, m, E!]
log_weight*: T|sum[B~, G~, m~]
blocks of log_weight*: T|sum[B~, G~, _, m~]
bias*: T|sum[B~, H~, N~, m~]
local_bias*: T|sum[B~, H~, N~, _!]
lengths*: i32[B]
rows*: i32[B~, _, _, _]
pool of values*: ~T[B~, G, m, E!]
relative*: T|sum[H~, r!, D!]
bias of relative*: T|sum[H~, D!]
distance_bias*: T|sum[H~, r!]
)");
  return contract;
}

/// Adds an operand of source `index`, if it is there.
static void addSourceOperand(ContractOperands &operands, StringRef spec,
                             StringRef name, Value operand, unsigned index) {
  if (operand)
    operands.add(*getSourceContract().find(spec),
                 name + " of source " + Twine(index), operand, index);
}

void attn::detail::addSourceTerms(const StreamSource &source, unsigned index,
                                  ContractOperands &operands) {
  addSourceOperand(operands,
                   source.hasLogWeightBlocks() ? "blocks of log_weight"
                                               : "log_weight",
                   "log_weight", source.logWeight, index);
  StringRef bias = source.attr.getHasLocalBias() ? "local_bias" : "bias";
  addSourceOperand(operands, bias, bias, source.bias, index);
  addSourceOperand(operands, "lengths", "lengths", source.lengths, index);
  addSourceOperand(operands, "rows", "rows", source.rowList, index);
  addSourceOperand(operands, "relative", "relative", source.relativeKeys,
                   index);
  addSourceOperand(operands, "bias of relative", "bias of relative",
                   source.relativeBias, index);
  addSourceOperand(operands, "distance_bias", "distance_bias",
                   source.distanceBias, index);
}

/// How many queries there are in all, which a tile does not know.
static int64_t getNumQueries(StreamOp op) {
  return op.getFirstRow() ? ShapedType::kDynamic : getExtent(op.getQuery(), 2);
}

/// Whether there are as many operands as the sources say.
static LogicalResult verifyCounts(StreamOp op) {
  size_t numSources = op.getSources().size(), numWeights = 0, numBiases = 0,
         numCodes = 0, numLengths = 0, numRowLists = 0, numRelative = 0,
         numDistanceBiases = 0;
  if (numSources == 0)
    return op.emitOpError("expects at least one source");
  if (op.getKeys().size() != numSources || op.getValues().size() != numSources)
    return op.emitOpError()
           << "expects keys and values for each of the " << numSources
           << " sources, but got " << op.getKeys().size() << " and "
           << op.getValues().size();
  for (auto source : op.getSources().getAsRange<SourceAttr>()) {
    numWeights += source.getHasLogWeight();
    numBiases += source.getHasBias();
    numCodes += source.getHasCodes();
    numLengths += source.getHasLengths();
    numRowLists += source.hasRowLists();
    numRelative += source.getHasRelative();
    numDistanceBiases += source.getHasDistanceBias();
  }
  if (op.getLogWeights().size() != numWeights ||
      op.getBiases().size() != numBiases)
    return op.emitOpError()
           << "expects " << numWeights << " log weights and " << numBiases
           << " biases, as the sources say, but got "
           << op.getLogWeights().size() << " and " << op.getBiases().size();
  if (op.getCodes().size() != numCodes)
    return op.emitOpError()
           << "expects codes for " << numCodes
           << " sources, as they say, but got " << op.getCodes().size();
  if (op.getLengths().size() != numLengths)
    return op.emitOpError()
           << "expects lengths for " << numLengths
           << " sources, as they say, but got " << op.getLengths().size();
  if (op.getRowLists().size() != numRowLists)
    return op.emitOpError()
           << "expects lists of rows for " << numRowLists
           << " sources, as they say, but got " << op.getRowLists().size();
  if (op.getRelativeKeys().size() != numRelative ||
      op.getRelativeBiases().size() != numRelative ||
      op.getDistanceBiases().size() != numDistanceBiases)
    return op.emitOpError()
           << "expects " << numRelative << " keys and biases of relative and "
           << numDistanceBiases
           << " biases by distance, as the sources say, but got "
           << op.getRelativeKeys().size() << ", "
           << op.getRelativeBiases().size() << " and "
           << op.getDistanceBiases().size();
  return attn::detail::verifyScoreCount(op, op.getScores(), op.getSources());
}

LogicalResult StreamOp::verifyOperandCounts() { return verifyCounts(*this); }

void StreamOp::addOpenOperands(ContractOperands &operands) {
  for (auto [index, source] : llvm::enumerate(getSourceList())) {
    addSourceOperand(operands, source.codes ? "table" : "keys", "keys",
                     source.keys, index);
    addSourceOperand(operands, "codes", "codes", source.codes, index);
    addSourceOperand(operands,
                     source.hasValueBlocks()               ? "blocks of values"
                     : source.attr.getHasListedPositions() ? "pool of values"
                                                           : "values",
                     "values", source.values, index);
    attn::detail::addSourceTerms(source, index, operands);
  }
}

LogicalResult StreamOp::verify() {
  if (!getFirstRow() != !getNumRows())
    return emitOpError("expects first_row and num_rows together");
  if (failed(attn::detail::verifyBlock(*this, getSources(), getBlock())) ||
      failed(attn::detail::verifyLengths(*this, getSources(),
                                         getQueryLengths() != nullptr)) ||
      failed(attn::detail::verifyRowLists(*this, getSourceList(), getQuery(),
                                          getBlock(), getNumQueries(*this))))
    return failure();
  if (failed(attn::detail::verifyScoreRegions(
          *this, getScores(), getSources(), getCaptures(),
          getStateType(getElementTypeOrSelf(getQuery())))))
    return failure();
  if (!getScores().empty() && !getCodes().empty())
    return emitOpError("expects no score region with codes, whose scores are "
                       "those of a table");
  if (getLse() && getWeighting() != Weighting::Softmax)
    return emitOpError() << "expects no lse with weighting "
                         << stringifyWeighting(getWeighting())
                         << ", which has no normaliser";
  if (getSink() && getWeighting() != Weighting::Softmax)
    return emitOpError() << "expects no sink with weighting "
                         << stringifyWeighting(getWeighting())
                         << ", which has no normaliser";
  for (auto [index, source] : llvm::enumerate(getSourceList())) {
    auto verifyBlocks = [&, index = index](StringRef what, Value operand) {
      return attn::detail::verifyBlockAxis(
          *this, what + " of source " + Twine(index), operand, getBlock(),
          getNumQueries(*this));
    };
    if (source.hasValueBlocks() &&
        failed(verifyBlocks("values", source.values)))
      return failure();
    if (source.hasLogWeightBlocks() &&
        failed(verifyBlocks("log_weight", source.logWeight)))
      return failure();
  }
  if (failed(verifyDistances(*this)))
    return failure();
  return verifyRangesApart(*this);
}

/// Whether a range has no row of any block.
static bool isEmptyRange(AffineMap range) {
  auto begin = dyn_cast<AffineConstantExpr>(range.getResult(0)),
       end = dyn_cast<AffineConstantExpr>(range.getResult(1));
  return begin && end && end.getValue() <= begin.getValue();
}

namespace {
/// A source without rows contributes nothing.
struct DropEmptySources : OpRewritePattern<StreamOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(StreamOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<StreamOp::Source> kept;
    for (StreamOp::Source source : op.getSourceList()) {
      if (getExtent(source.getRowsOperand(), 2) != 0 &&
          !llvm::all_of(source.attr.getRanges(), isEmptyRange))
        kept.push_back(source);
    }
    if (kept.size() == op.getSources().size() || kept.empty())
      return failure();
    SmallVector<Value> keys, values, weights, biases, codes, lengths, rowLists,
        relativeKeys, relativeBiases, distanceBiases;
    SmallVector<Attribute> attrs;
    for (StreamOp::Source source : kept) {
      keys.push_back(source.keys);
      values.push_back(source.values);
      if (source.logWeight)
        weights.push_back(source.logWeight);
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
      attrs.push_back(source.attr);
    }
    SmallVector<Region *> scores;
    for (const StreamOp::Source &source : kept)
      if (source.score)
        scores.push_back(source.score);
    if (Region *common = op.getCommonScore())
      scores.push_back(common);
    rewriter.modifyOpInPlace(op, [&] {
      op.getKeysMutable().assign(keys);
      op.getValuesMutable().assign(values);
      op.getLogWeightsMutable().assign(weights);
      op.getBiasesMutable().assign(biases);
      op.getCodesMutable().assign(codes);
      op.getLengthsMutable().assign(lengths);
      op.getRowListsMutable().assign(rowLists);
      op.getRelativeKeysMutable().assign(relativeKeys);
      op.getRelativeBiasesMutable().assign(relativeBiases);
      op.getDistanceBiasesMutable().assign(distanceBiases);
      op.setSourcesAttr(rewriter.getArrayAttr(attrs));
      if (scores.empty())
        op.getCapturesMutable().clear();
    });
    if (scores.size() == op.getScores().size())
      return success();
    // Another operation, since regions of this one are as many as they are.
    OperationState state(op.getLoc(), op->getName(), op->getOperands(),
                         op->getResultTypes(), op->getAttrs());
    for (Region *score : scores) {
      Region *region = state.addRegion();
      rewriter.inlineRegionBefore(*score, *region, region->end());
    }
    rewriter.replaceOp(op, rewriter.create(state));
    return success();
  }
};
} // namespace

void StreamOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *context) {
  patterns
      .add<DropEmptySources, DropUnusedSink<StreamOp>, SimplifyScore<StreamOp>>(
          context);
}

//===----------------------------------------------------------------------===//
// StreamOp assembly format
//===----------------------------------------------------------------------===//

// stream ::= `query` `(` %q `:` type `)` source+ (`sink` `(` %s `:` type `)`)?
//            (`query_lengths` `(` %n `:` type `)`)? scores tile? outs attr-dict
//            result?
// tile   ::= `tile` `(` %first_row `of` %num_rows `)`
// outs   ::= `outs` `(` %o (`,` %l)? `:` type (`,` type)? `)`
// result ::= `->` type (`,` type)?

ParseResult StreamOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  TypedOperands query, sink, queryLengths, captures, outs;
  SmallVector<OpAsmParser::UnresolvedOperand> rows;
  ParsedSources sources;
  if (parser.parseKeyword("query") || query.parse(parser, 1, 1) ||
      sources.parse(parser) || sink.parseOptional(parser, "sink") ||
      queryLengths.parseOptional(parser, "query_lengths") ||
      attn::detail::parseScores(parser, sources, captures, result))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("tile"))) {
    rows.resize(2);
    if (parser.parseLParen() || parser.parseOperand(rows[0]) ||
        parser.parseKeyword("of") || parser.parseOperand(rows[1]) ||
        parser.parseRParen())
      return failure();
  }
  if (parser.parseKeyword("outs") || outs.parse(parser, 1, 2) ||
      attn::detail::parseAttributesAndTypes(parser, loc, result))
    return failure();
  result.addAttribute(getSourcesAttrName(result.name),
                      builder.getArrayAttr(sources.attrs));
  int32_t hasRows = rows.empty() ? 0 : 1, hasLse = outs.size() == 2 ? 1 : 0;
  result.addAttribute(
      getOperandSegmentSizesAttrName(result.name),
      builder.getDenseI32ArrayAttr(
          {1, sources.keys.size(), sources.values.size(),
           sources.logWeights.size(), sources.biases.size(),
           sources.codes.size(), sources.lengths.size(),
           sources.rowLists.size(), sources.relativeKeys.size(),
           sources.relativeBiases.size(), sources.distanceBiases.size(),
           sink.size(), queryLengths.size(), captures.size(), hasRows, hasRows,
           1, hasLse}));
  SmallVector<Type> rowTypes(rows.size(), builder.getIndexType());
  return failure(query.resolve(parser, loc, result) ||
                 sources.keys.resolve(parser, loc, result) ||
                 sources.values.resolve(parser, loc, result) ||
                 sources.logWeights.resolve(parser, loc, result) ||
                 sources.biases.resolve(parser, loc, result) ||
                 sources.codes.resolve(parser, loc, result) ||
                 sources.lengths.resolve(parser, loc, result) ||
                 sources.rowLists.resolve(parser, loc, result) ||
                 sources.relativeKeys.resolve(parser, loc, result) ||
                 sources.relativeBiases.resolve(parser, loc, result) ||
                 sources.distanceBiases.resolve(parser, loc, result) ||
                 sink.resolve(parser, loc, result) ||
                 queryLengths.resolve(parser, loc, result) ||
                 captures.resolve(parser, loc, result) ||
                 parser.resolveOperands(rows, rowTypes, loc, result.operands) ||
                 outs.resolve(parser, loc, result));
}

void StreamOp::print(OpAsmPrinter &printer) {
  printer << " query(" << getQuery() << " : " << getQuery().getType() << ")";
  attn::detail::printSources(printer, getSourceList());
  attn::detail::printBehindSources(printer, "sink", getSink());
  attn::detail::printBehindSources(printer, "query_lengths", getQueryLengths());
  attn::detail::printScores(printer, *this);
  attn::detail::printIndentedLine(printer);
  if (getFirstRow())
    printer << "tile(" << getFirstRow() << " of " << getNumRows() << ") ";
  printer << "outs";
  attn::detail::printTypedOperands(printer, getDpsInits());
  SmallVector<StringRef> elided = {getSourcesAttrName(),
                                   getOperandSegmentSizesAttrName()};
  if (getWeighting() == Weighting::Softmax)
    elided.push_back(getWeightingAttrName());
  printer.printOptionalAttrDict((*this)->getAttrs(), elided);
  if (getNumResults() != 0)
    printer << " -> " << getResultTypes();
}
