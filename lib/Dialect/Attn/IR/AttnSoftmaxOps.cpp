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
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
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

LogicalResult attn::detail::verifyDenseTerms(Operation *op, Value query,
                                             Value key, Value logWeight,
                                             Value bias) {
  auto q = cast<ShapedType>(query.getType());
  auto k = cast<ShapedType>(key.getType());
  if (logWeight &&
      failed(verifyScoreTerm(op, "log_weight", logWeight,
                             k.getShape().take_front(3), q.getElementType())))
    return failure();
  if (bias && failed(verifyScoreTerm(op, "bias", bias,
                                     {q.getDimSize(0), q.getDimSize(1),
                                      q.getDimSize(2), k.getDimSize(2)},
                                     q.getElementType())))
    return failure();
  return success();
}

LogicalResult DenseOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 5})) ||
      failed(attn::detail::verifyAttention(*this, getQuery(), getKey(),
                                           getValue(), getOutput(), getLse(),
                                           getScale())))
    return failure();
  return attn::detail::verifyDenseTerms(*this, getQuery(), getKey(),
                                        getLogWeight(), getBias());
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

/// A mask that admits every entry is no mask: `none`, a window as wide as the
/// sequence, or causality for a single query at the end of the keys.
template <typename OpTy> struct DropTrivialMask : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (!op.getMask())
      return failure();
    MaskAttr mask = *op.getMask();
    int64_t n = cast<ShapedType>(op.getQuery().getType()).getDimSize(2);
    int64_t m = cast<ShapedType>(op.getKey().getType()).getDimSize(2);
    bool causal = mask.getCausal() && n != 1;
    int64_t window = mask.getWindow();
    // Distances reach from 0 to M - 1 at most when M >= N.
    if (!ShapedType::isDynamic(n) && !ShapedType::isDynamic(m) && m >= n &&
        window >= m)
      window = 0;
    auto simplified = MaskAttr::get(op.getContext(), causal, window);
    if (simplified == mask && !mask.isTrivial())
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (simplified.isTrivial())
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
  patterns.add<DropZeroScoreTerms<DenseOp>, DropTrivialMask<DenseOp>>(context);
}

void DenseBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *context) {
  patterns.add<DropZeroScoreTerms<DenseBackwardOp>,
               DropTrivialMask<DenseBackwardOp>>(context);
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
  unsigned nextWeight = 0, nextBias = 0, nextCodes = 0;
  for (auto [keys, values, attr] :
       llvm::zip(getKeys(), getValues(), getSources())) {
    auto source = cast<SourceAttr>(attr);
    Value weight, bias, codes;
    if (source.getHasLogWeight())
      weight = getLogWeights()[nextWeight++];
    if (source.getHasBias())
      bias = getBiases()[nextBias++];
    if (source.getHasCodes())
      codes = getCodes()[nextCodes++];
    sources.push_back({keys, values, weight, bias, codes, source});
  }
  return sources;
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

/// Checks keys, values and codes of a source that is more than `[B, G, M, D]`
/// and `[B, G, M, E]`.
static LogicalResult verifyTableSource(StreamOp op, unsigned index,
                                       const StreamOp::Source &source) {
  using attn::detail::verifyExtent;
  auto q = cast<ShapedType>(op.getQuery().getType());
  auto name = [&](StringRef what) {
    return llvm::formatv("{0} of source {1}", what, index).str();
  };
  std::string keys = name("keys"), values = name("values");
  for (auto [what, operand] :
       {std::pair{keys, source.keys}, std::pair{values, source.values},
        std::pair{std::string("output"), Value(op.getOutput())}}) {
    Type found = cast<ShapedType>(operand.getType()).getElementType();
    if (getStateType(found) != getStateType(q.getElementType()))
      return op.emitOpError()
             << "expects " << what
             << (q.getElementType().isF64() ? " to hold f64"
                                            : " not to hold f64")
             << ", since query holds " << q.getElementType() << ", but got "
             << found;
  }
  int64_t last = getRank(source.values) - 1;
  int64_t valueWidth = getExtent(source.values, last);
  int64_t keyHeads = getExtent(source.values, 1);
  if (ShapedType::isDynamic(q.getDimSize(3)) ||
      ShapedType::isDynamic(valueWidth) ||
      ShapedType::isDynamic(getExtent(source.keys, 3)))
    return op.emitOpError("expects static head and value widths");
  if (q.getDimSize(3) == 0 || valueWidth == 0)
    return op.emitOpError("expects head and value widths of at least 1");
  if (failed(verifyExtent(op, values, source.values, 0, q.getDimSize(0),
                          "batch")) ||
      failed(verifyExtent(op, keys, source.keys, 0, q.getDimSize(0), "batch",
                          /*mayBroadcast=*/true)) ||
      failed(verifyExtent(op, keys, source.keys, 1, keyHeads, "heads of values",
                          /*mayBroadcast=*/true)) ||
      failed(verifyExtent(op, keys, source.keys, 3, q.getDimSize(3),
                          "head width of query")) ||
      failed(verifyExtent(op, values, source.values, last - 1,
                          getExtent(source.getRowsOperand(), 2),
                          source.codes ? "rows of codes" : "rows of keys")))
    return failure();
  int64_t heads = q.getDimSize(1);
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(keyHeads) &&
      heads != 0 && (keyHeads == 0 || heads % keyHeads != 0))
    return op.emitOpError()
           << "expects the query heads to be a multiple of the key heads, but "
              "got "
           << heads << " query heads and " << keyHeads << " key heads";
  if (source.codes) {
    std::string codes = name("codes");
    for (int64_t dim : {0, 1})
      if (failed(verifyExtent(op, codes, source.codes, dim,
                              getExtent(source.values, dim), values)))
        return failure();
    int64_t tableRows = getExtent(source.keys, 2);
    if (ShapedType::isDynamic(tableRows) || tableRows == 0)
      return op.emitOpError() << "expects " << keys
                              << " to be a table with a static number of rows "
                                 "of at least 1, since the source has codes";
  }
  return attn::detail::verifyDestinations(op, op.getQuery(), valueWidth,
                                          op.getOutput(), op.getLse(),
                                          op.getScale());
}

/// Checks that operands with an axis of query blocks have an entry for each
/// block. A tile does not know how many there are.
static LogicalResult verifyBlockAxis(StreamOp op, const Twine &name,
                                     Value operand) {
  if (op.getBlock() == 0)
    return op.emitOpError() << "expects a block size, since " << name
                            << " has an axis of query blocks";
  int64_t found = getExtent(operand, 2), rows = getExtent(op.getQuery(), 2);
  if (op.getFirstRow() || ShapedType::isDynamic(found) ||
      ShapedType::isDynamic(rows))
    return success();
  int64_t needed = llvm::divideCeil(rows, op.getBlock());
  if (found < needed)
    return op.emitOpError()
           << "expects " << name << " to have an entry for each of the "
           << needed << " query blocks, but got " << found;
  return success();
}

/// Checks log weights and bias of a source.
static LogicalResult verifySourceTerms(StreamOp op, unsigned index,
                                       const StreamOp::Source &source) {
  auto q = cast<ShapedType>(op.getQuery().getType());
  int64_t keyRows = getExtent(source.getRowsOperand(), 2);
  auto name = [&](StringRef what) {
    return llvm::formatv("{0} of source {1}", what, index).str();
  };
  if (source.hasValueBlocks() &&
      failed(verifyBlockAxis(op, name("values"), source.values)))
    return failure();
  if (source.logWeight) {
    SmallVector<int64_t> shape = {getExtent(source.values, 0),
                                  getExtent(source.values, 1)};
    if (source.hasLogWeightBlocks()) {
      if (failed(verifyBlockAxis(op, name("log_weight"), source.logWeight)))
        return failure();
      shape.push_back(getExtent(source.logWeight, 2));
    }
    shape.push_back(keyRows);
    if (failed(attn::detail::verifyScoreTerm(op, "log_weight", source.logWeight,
                                             shape, q.getElementType())))
      return failure();
  }
  if (!source.bias)
    return success();
  int64_t columns = getExtent(source.bias, 3);
  if (!source.attr.getHasLocalBias())
    columns = keyRows;
  else if (ShapedType::isDynamic(columns) || columns == 0)
    return op.emitOpError() << "expects " << name("local_bias")
                            << " to have a static number of columns of at "
                               "least 1";
  return attn::detail::verifyScoreTerm(
      op, source.attr.getHasLocalBias() ? "local_bias" : "bias", source.bias,
      {q.getDimSize(0), q.getDimSize(1), q.getDimSize(2), columns},
      q.getElementType());
}

LogicalResult StreamOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 8})))
    return failure();
  size_t numSources = getSources().size(), numWeights = 0, numBiases = 0,
         numCodes = 0;
  if (numSources == 0)
    return emitOpError("expects at least one source");
  if (getKeys().size() != numSources || getValues().size() != numSources)
    return emitOpError() << "expects keys and values for each of the "
                         << numSources << " sources, but got "
                         << getKeys().size() << " and " << getValues().size();
  for (auto source : getSources().getAsRange<SourceAttr>()) {
    numWeights += source.getHasLogWeight();
    numBiases += source.getHasBias();
    numCodes += source.getHasCodes();
  }
  if (getLogWeights().size() != numWeights || getBiases().size() != numBiases)
    return emitOpError() << "expects " << numWeights << " log weights and "
                         << numBiases << " biases, as the sources say, but got "
                         << getLogWeights().size() << " and "
                         << getBiases().size();
  if (getCodes().size() != numCodes)
    return emitOpError() << "expects codes for " << numCodes
                         << " sources, as they say, but got "
                         << getCodes().size();
  if (!getFirstRow() != !getNumRows())
    return emitOpError("expects first_row and num_rows together");
  if (failed(attn::detail::verifyBlock(*this, getSources(), getBlock())))
    return failure();
  if (getLse() && getWeighting() != Weighting::Softmax)
    return emitOpError() << "expects no lse with weighting "
                         << stringifyWeighting(getWeighting())
                         << ", which has no normaliser";

  Source first = getSourceList().front();
  for (auto [index, source] : llvm::enumerate(getSourceList())) {
    bool broadcasts = false;
    for (int64_t dim : {0, 1})
      broadcasts |= getExtent(source.keys, dim) == 1 &&
                    getExtent(source.values, dim) != 1;
    bool isPlain = !source.codes && !source.hasValueBlocks() && !broadcasts;
    if (failed(isPlain ? attn::detail::verifyAttention(
                             *this, getQuery(), source.keys, source.values,
                             getOutput(), getLse(), getScale(),
                             attn::detail::ElementTypes::SameState)
                       : verifyTableSource(*this, index, source)))
      return failure();
    Value own = isPlain ? source.keys : source.values;
    std::string name =
        llvm::formatv("{0} of source {1}", isPlain ? "keys" : "values", index);
    for (int64_t dim : {0, 1})
      if (failed(attn::detail::verifyExtent(
              *this, name, own, dim, getExtent(first.values, dim),
              isPlain ? "keys of source 0" : "values of source 0")))
        return failure();
    if (failed(verifySourceTerms(*this, index, source)))
      return failure();
  }
  return verifyRangesApart(*this);
}

namespace {
/// A source without ranges contributes nothing.
struct DropEmptySources : OpRewritePattern<StreamOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(StreamOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<StreamOp::Source> kept;
    for (StreamOp::Source source : op.getSourceList()) {
      int64_t rows = getExtent(source.getRowsOperand(), 2);
      if (!source.attr.getRanges().empty() && rows != 0)
        kept.push_back(source);
    }
    if (kept.size() == op.getSources().size() || kept.empty())
      return failure();
    SmallVector<Value> keys, values, weights, biases, codes;
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
      attrs.push_back(source.attr);
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.getKeysMutable().assign(keys);
      op.getValuesMutable().assign(values);
      op.getLogWeightsMutable().assign(weights);
      op.getBiasesMutable().assign(biases);
      op.getCodesMutable().assign(codes);
      op.setSourcesAttr(rewriter.getArrayAttr(attrs));
    });
    return success();
  }
};
} // namespace

void StreamOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *context) {
  patterns.add<DropEmptySources>(context);
}

//===----------------------------------------------------------------------===//
// StreamOp assembly format
//===----------------------------------------------------------------------===//

// stream ::= `query` `(` %q `:` type `)` source+ tile? outs attr-dict result?
// tile   ::= `tile` `(` %first_row `of` %num_rows `)`
// outs   ::= `outs` `(` %o (`,` %l)? `:` type (`,` type)? `)`
// result ::= `->` type (`,` type)?

ParseResult StreamOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  TypedOperands query, outs;
  SmallVector<OpAsmParser::UnresolvedOperand> rows;
  ParsedSources sources;
  if (parser.parseKeyword("query") || query.parse(parser, 1, 1) ||
      sources.parse(parser))
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
  result.addAttribute(getOperandSegmentSizesAttrName(result.name),
                      builder.getDenseI32ArrayAttr(
                          {1, sources.keys.size(), sources.values.size(),
                           sources.logWeights.size(), sources.biases.size(),
                           sources.codes.size(), hasRows, hasRows, 1, hasLse}));
  SmallVector<Type> rowTypes(rows.size(), builder.getIndexType());
  return failure(query.resolve(parser, loc, result) ||
                 sources.keys.resolve(parser, loc, result) ||
                 sources.values.resolve(parser, loc, result) ||
                 sources.logWeights.resolve(parser, loc, result) ||
                 sources.biases.resolve(parser, loc, result) ||
                 sources.codes.resolve(parser, loc, result) ||
                 parser.resolveOperands(rows, rowTypes, loc, result.operands) ||
                 outs.resolve(parser, loc, result));
}

void StreamOp::print(OpAsmPrinter &printer) {
  printer << " query(" << getQuery() << " : " << getQuery().getType() << ")";
  attn::detail::printSources(printer, getSourceList());
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
