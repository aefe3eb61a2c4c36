//===- AttnSoftmaxOps.cpp - Dense and streaming soft-max operations -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

/// True when every element of the constant `value` is zero.
static bool isConstantZero(Value value) {
  DenseElementsAttr constant;
  if (!matchPattern(value, m_Constant(&constant)) || !constant.isSplat())
    return false;
  return constant.getSplatValue<APFloat>().isZero();
}

//===----------------------------------------------------------------------===//
// DenseOp
//===----------------------------------------------------------------------===//

MutableOperandRange DenseOp::getDpsInitsMutable() {
  unsigned numInits = getLse() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

double DenseOp::getScaleOrDefault() {
  if (std::optional<APFloat> scale = getScale())
    return scale->convertToDouble();
  int64_t width = cast<ShapedType>(getQuery().getType()).getDimSize(3);
  return 1.0 / std::sqrt(static_cast<double>(width));
}

MaskAttr DenseOp::getMaskOrNone() {
  return getMask() ? *getMask() : MaskAttr::get(getContext(), false, 0);
}

LogicalResult DenseOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 5})) ||
      failed(attn::detail::verifyAttention(*this, getQuery(), getKey(),
                                           getValue(), getOutput(), getLse(),
                                           getScale())))
    return failure();
  auto q = cast<ShapedType>(getQuery().getType());
  auto k = cast<ShapedType>(getKey().getType());
  if (getLogWeight() && failed(attn::detail::verifyScoreTerm(
                            *this, "log_weight", getLogWeight(),
                            k.getShape().take_front(3), q.getElementType())))
    return failure();
  if (getBias() &&
      failed(attn::detail::verifyScoreTerm(
          *this, "bias", getBias(),
          {q.getDimSize(0), q.getDimSize(1), q.getDimSize(2), k.getDimSize(2)},
          q.getElementType())))
    return failure();
  return success();
}

namespace {
/// Adding zero to every score changes nothing.
struct DropZeroScoreTerms : OpRewritePattern<DenseOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DenseOp op,
                                PatternRewriter &rewriter) const override {
    bool dropWeight = op.getLogWeight() && isConstantZero(op.getLogWeight());
    bool dropBias = op.getBias() && isConstantZero(op.getBias());
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
struct DropTrivialMask : OpRewritePattern<DenseOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(DenseOp op,
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
  patterns.add<DropZeroScoreTerms, DropTrivialMask>(context);
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
  unsigned nextWeight = 0, nextBias = 0;
  for (auto [keys, values, attr] :
       llvm::zip(getKeys(), getValues(), getSources())) {
    auto source = cast<SourceAttr>(attr);
    Value weight, bias;
    if (source.getHasLogWeight())
      weight = getLogWeights()[nextWeight++];
    if (source.getHasBias())
      bias = getBiases()[nextBias++];
    sources.push_back({keys, values, weight, bias, source});
  }
  return sources;
}

LogicalResult StreamOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 7})))
    return failure();
  size_t numSources = getSources().size(), numWeights = 0, numBiases = 0;
  if (numSources == 0)
    return emitOpError("expects at least one source");
  if (getKeys().size() != numSources || getValues().size() != numSources)
    return emitOpError() << "expects keys and values for each of the "
                         << numSources << " sources, but got "
                         << getKeys().size() << " and " << getValues().size();
  for (auto source : getSources().getAsRange<SourceAttr>()) {
    numWeights += source.getHasLogWeight();
    numBiases += source.getHasBias();
  }
  if (getLogWeights().size() != numWeights || getBiases().size() != numBiases)
    return emitOpError() << "expects " << numWeights << " log weights and "
                         << numBiases << " biases, as the sources say, but got "
                         << getLogWeights().size() << " and "
                         << getBiases().size();
  if (!getFirstRow() != !getNumRows())
    return emitOpError("expects first_row and num_rows together");
  if (static_cast<int64_t>(getBlock()) < 0)
    return emitOpError()
           << "expects a block size that is not negative, but got "
           << static_cast<int64_t>(getBlock());

  auto q = cast<ShapedType>(getQuery().getType());
  Source first = getSourceList().front();
  auto firstKeys = cast<ShapedType>(first.keys.getType());
  for (auto [index, source] : llvm::enumerate(getSourceList())) {
    if (failed(attn::detail::verifyAttention(
            *this, getQuery(), source.keys, source.values, getOutput(),
            getLse(), getScale(), attn::detail::ElementTypes::SameState)))
      return failure();
    std::string keysName = llvm::formatv("keys of source {0}", index);
    for (int64_t dim : {0, 1})
      if (failed(attn::detail::verifyExtent(*this, keysName, source.keys, dim,
                                            firstKeys.getDimSize(dim),
                                            "keys of source 0")))
        return failure();
    auto k = cast<ShapedType>(source.keys.getType());
    if (source.logWeight &&
        failed(attn::detail::verifyScoreTerm(
            *this, "log_weight", source.logWeight, k.getShape().take_front(3),
            q.getElementType())))
      return failure();
    if (source.bias &&
        failed(attn::detail::verifyScoreTerm(*this, "bias", source.bias,
                                             {q.getDimSize(0), q.getDimSize(1),
                                              q.getDimSize(2), k.getDimSize(2)},
                                             q.getElementType())))
      return failure();
    if (getBlock() == 0)
      for (AffineMap range : source.attr.getRanges())
        if (range.isFunctionOfDim(0))
          return emitOpError() << "expects a block size, since a range of "
                                  "source "
                               << index << " depends on the block index";
  }
  return success();
}

namespace {
/// A source without ranges contributes nothing.
struct DropEmptySources : OpRewritePattern<StreamOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(StreamOp op,
                                PatternRewriter &rewriter) const override {
    SmallVector<StreamOp::Source> kept;
    for (StreamOp::Source source : op.getSourceList()) {
      auto rows = cast<ShapedType>(source.keys.getType()).getDimSize(2);
      if (!source.attr.getRanges().empty() && rows != 0)
        kept.push_back(source);
    }
    if (kept.size() == op.getSources().size() || kept.empty())
      return failure();
    SmallVector<Value> keys, values, weights, biases;
    SmallVector<Attribute> attrs;
    for (StreamOp::Source source : kept) {
      keys.push_back(source.keys);
      values.push_back(source.values);
      if (source.logWeight)
        weights.push_back(source.logWeight);
      if (source.bias)
        biases.push_back(source.bias);
      attrs.push_back(source.attr);
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.getKeysMutable().assign(keys);
      op.getValuesMutable().assign(values);
      op.getLogWeightsMutable().assign(weights);
      op.getBiasesMutable().assign(biases);
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
// source ::= `source` `(` %k `,` %v `:` type `,` type `)`
//            (`log_weight` `(` %w `:` type `)`)? (`bias` `(` %b `:` type `)`)?
//            `ranges` `[` affine-map-list `]` (`mask` mask)?
// tile   ::= `tile` `(` %first_row `of` %num_rows `)`
// outs   ::= `outs` `(` %o (`,` %l)? `:` type (`,` type)? `)`
// result ::= `->` type (`,` type)?

/// Parses `(` operands `:` types `)` with exactly `min`..`max` operands.
static ParseResult
parseTypedOperands(OpAsmParser &parser, unsigned min, unsigned max,
                   SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                   SmallVectorImpl<Type> &types) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<OpAsmParser::UnresolvedOperand> parsed;
  SmallVector<Type> parsedTypes;
  if (parser.parseLParen() || parser.parseOperandList(parsed) ||
      parser.parseColonTypeList(parsedTypes) || parser.parseRParen())
    return failure();
  if (parsed.size() < min || parsed.size() > max)
    return parser.emitError(loc, "expected ")
           << (min == max ? Twine(min) : Twine(min) + " or " + Twine(max))
           << (max == 1 ? " operand" : " operands") << ", but got "
           << parsed.size();
  if (parsed.size() != parsedTypes.size())
    return parser.emitError(loc, "expected a type for each of the ")
           << parsed.size() << " operands, but got " << parsedTypes.size();
  operands.append(parsed);
  types.append(parsedTypes);
  return success();
}

ParseResult StreamOp::parse(OpAsmParser &parser, OperationState &result) {
  using Operands = SmallVector<OpAsmParser::UnresolvedOperand>;
  Operands query, keys, values, weights, biases, rows, outs;
  SmallVector<Type> queryType, keyTypes, valueTypes, weightTypes, biasTypes,
      outTypes;
  Builder &builder = parser.getBuilder();
  MLIRContext *context = parser.getContext();
  SMLoc loc = parser.getCurrentLocation();

  if (parser.parseKeyword("query") ||
      parseTypedOperands(parser, 1, 1, query, queryType))
    return failure();

  SmallVector<Attribute> sources;
  while (succeeded(parser.parseOptionalKeyword("source"))) {
    Operands pair;
    SmallVector<Type> pairTypes;
    if (parseTypedOperands(parser, 2, 2, pair, pairTypes))
      return failure();
    keys.push_back(pair[0]);
    values.push_back(pair[1]);
    keyTypes.push_back(pairTypes[0]);
    valueTypes.push_back(pairTypes[1]);
    bool hasWeight = succeeded(parser.parseOptionalKeyword("log_weight"));
    if (hasWeight && parseTypedOperands(parser, 1, 1, weights, weightTypes))
      return failure();
    bool hasBias = succeeded(parser.parseOptionalKeyword("bias"));
    if (hasBias && parseTypedOperands(parser, 1, 1, biases, biasTypes))
      return failure();
    SmallVector<AffineMap> ranges;
    auto parseRange = [&]() -> ParseResult {
      AffineMapAttr map;
      if (parser.parseAttribute(map))
        return failure();
      ranges.push_back(map.getValue());
      return success();
    };
    if (parser.parseKeyword("ranges") ||
        parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square,
                                       parseRange))
      return failure();
    auto mask = MaskAttr::get(context, false, 0);
    if (succeeded(parser.parseOptionalKeyword("mask"))) {
      mask = dyn_cast_or_null<MaskAttr>(MaskAttr::parse(parser, Type()));
      if (!mask)
        return failure();
    }
    auto source = parser.getChecked<SourceAttr>(
        loc, context, ArrayRef<AffineMap>(ranges), mask, hasWeight, hasBias);
    if (!source)
      return failure();
    sources.push_back(source);
  }

  if (succeeded(parser.parseOptionalKeyword("tile"))) {
    rows.resize(2);
    if (parser.parseLParen() || parser.parseOperand(rows[0]) ||
        parser.parseKeyword("of") || parser.parseOperand(rows[1]) ||
        parser.parseRParen())
      return failure();
  }
  if (parser.parseKeyword("outs") ||
      parseTypedOperands(parser, 1, 2, outs, outTypes) ||
      parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (succeeded(parser.parseOptionalArrow()) &&
      parser.parseTypeList(result.types))
    return failure();

  auto emitError = [&]() {
    return parser.emitError(loc)
           << "'" << result.name.getStringRef() << "' op ";
  };
  if (failed(verifyInherentAttrs(result.name, result.attributes, emitError)))
    return failure();
  result.addAttribute(getSourcesAttrName(result.name),
                      builder.getArrayAttr(sources));
  auto size = [](auto &range) { return static_cast<int32_t>(range.size()); };
  int32_t hasRows = rows.empty() ? 0 : 1, hasLse = outs.size() == 2 ? 1 : 0;
  result.addAttribute(getOperandSegmentSizesAttrName(result.name),
                      builder.getDenseI32ArrayAttr(
                          {1, size(keys), size(values), size(weights),
                           size(biases), hasRows, hasRows, 1, hasLse}));
  SmallVector<Type> rowTypes(rows.size(), builder.getIndexType());
  return failure(
      parser.resolveOperands(query, queryType, loc, result.operands) ||
      parser.resolveOperands(keys, keyTypes, loc, result.operands) ||
      parser.resolveOperands(values, valueTypes, loc, result.operands) ||
      parser.resolveOperands(weights, weightTypes, loc, result.operands) ||
      parser.resolveOperands(biases, biasTypes, loc, result.operands) ||
      parser.resolveOperands(rows, rowTypes, loc, result.operands) ||
      parser.resolveOperands(outs, outTypes, loc, result.operands));
}

void StreamOp::print(OpAsmPrinter &printer) {
  printer << " query(" << getQuery() << " : " << getQuery().getType() << ")";
  for (const Source &source : getSourceList()) {
    printer.increaseIndent();
    printer.printNewline();
    printer << "source(" << source.keys << ", " << source.values << " : "
            << source.keys.getType() << ", " << source.values.getType() << ")";
    if (source.logWeight)
      printer << " log_weight(" << source.logWeight << " : "
              << source.logWeight.getType() << ")";
    if (source.bias)
      printer << " bias(" << source.bias << " : " << source.bias.getType()
              << ")";
    printer << " ranges [";
    llvm::interleaveComma(source.attr.getRanges(), printer, [&](AffineMap map) {
      printer.printAttribute(AffineMapAttr::get(map));
    });
    printer << "]";
    if (!source.attr.getMask().isTrivial()) {
      printer << " mask ";
      source.attr.getMask().print(printer);
    }
    printer.decreaseIndent();
  }
  printer.increaseIndent();
  printer.printNewline();
  printer.decreaseIndent();
  if (getFirstRow())
    printer << "tile(" << getFirstRow() << " of " << getNumRows() << ") ";
  printer << "outs(" << getOutput();
  if (getLse())
    printer << ", " << getLse();
  printer << " : " << getOutput().getType();
  if (getLse())
    printer << ", " << getLse().getType();
  printer << ")";
  printer.printOptionalAttrDict(
      (*this)->getAttrs(),
      {getSourcesAttrName(), getOperandSegmentSizesAttrName()});
  if (getNumResults() != 0)
    printer << " -> " << getResultTypes();
}

#define GET_OP_CLASSES
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
