//===- SourceSyntax.cpp - Custom form of sources ------------------------ -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SourceSyntax.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

ParseResult TypedOperands::parse(OpAsmParser &parser, unsigned min,
                                 unsigned max) {
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

ParseResult TypedOperands::parseOptional(OpAsmParser &parser,
                                         StringRef keyword) {
  if (failed(parser.parseOptionalKeyword(keyword)))
    return success();
  return parse(parser, 1, 1);
}

ParseResult TypedOperands::resolve(OpAsmParser &parser, SMLoc loc,
                                   OperationState &result) const {
  return parser.resolveOperands(operands, types, loc, result.operands);
}

// source ::= `source` `(` %k `,` %v `:` type `,` type `)`
//            (`codes` `(` %z `:` type `)`)? (`log_weight` `(` %w `:` type `)`)?
//            ((`bias` | `local_bias`) `(` %b `:` type `)`)?
//            (`lengths` `(` %n `:` type `)`)?
//            (`rows` `(` %r `:` type `)` `unit` `=` integer
//             (`positions` `=` (`stored` | `listed`))?)?
//            (`relative` `(` %r `,` %v `:` type `,` type `)`)?
//            (`distance_bias` `(` %t `:` type `)`)? (`origin` affine-map)?
//            `ranges` `[` affine-map-list `]` (`mask` mask)?
ParseResult ParsedSources::parse(OpAsmParser &parser) {
  while (succeeded(parser.parseOptionalKeyword("source")))
    if (parseOne(parser))
      return failure();
  return success();
}

/// `unit` and `positions` behind a list of rows.
static ParseResult parseRowsOfEntries(OpAsmParser &parser, int64_t &unit,
                                      bool &hasListedPositions) {
  SMLoc loc;
  if (parser.parseKeyword("unit") || parser.parseEqual() ||
      parser.getCurrentLocation(&loc) || parser.parseInteger(unit))
    return failure();
  if (unit < 1)
    return parser.emitError(loc, "expected a unit of at least 1, but got ")
           << unit;
  if (failed(parser.parseOptionalKeyword("positions")))
    return success();
  if (parser.parseEqual())
    return failure();
  hasListedPositions = succeeded(parser.parseOptionalKeyword("listed"));
  if (!hasListedPositions && parser.parseKeyword("stored"))
    return failure();
  return success();
}

ParseResult ParsedSources::parseOne(OpAsmParser &parser) {
  MLIRContext *context = parser.getContext();
  SMLoc loc = parser.getCurrentLocation();
  TypedOperands pair;
  if (pair.parse(parser, 2, 2))
    return failure();
  keys.operands.push_back(pair.operands[0]);
  keys.types.push_back(pair.types[0]);
  values.operands.push_back(pair.operands[1]);
  values.types.push_back(pair.types[1]);
  bool hasCodes = succeeded(parser.parseOptionalKeyword("codes"));
  if (hasCodes && codes.parse(parser, 1, 1))
    return failure();
  bool hasWeight = succeeded(parser.parseOptionalKeyword("log_weight"));
  if (hasWeight && logWeights.parse(parser, 1, 1))
    return failure();
  bool hasLocalBias = succeeded(parser.parseOptionalKeyword("local_bias"));
  bool hasBias = hasLocalBias || succeeded(parser.parseOptionalKeyword("bias"));
  if (hasBias && biases.parse(parser, 1, 1))
    return failure();
  bool hasLengths = succeeded(parser.parseOptionalKeyword("lengths"));
  if (hasLengths && lengths.parse(parser, 1, 1))
    return failure();
  int64_t unit = 0;
  bool hasListedPositions = false;
  if (succeeded(parser.parseOptionalKeyword("rows")) &&
      (rowLists.parse(parser, 1, 1) ||
       parseRowsOfEntries(parser, unit, hasListedPositions)))
    return failure();
  bool hasRelative = succeeded(parser.parseOptionalKeyword("relative"));
  if (hasRelative) {
    TypedOperands terms;
    if (terms.parse(parser, 2, 2))
      return failure();
    relativeKeys.operands.push_back(terms.operands[0]);
    relativeKeys.types.push_back(terms.types[0]);
    relativeBiases.operands.push_back(terms.operands[1]);
    relativeBiases.types.push_back(terms.types[1]);
  }
  bool hasDistanceBias =
      succeeded(parser.parseOptionalKeyword("distance_bias"));
  if (hasDistanceBias && distanceBiases.parse(parser, 1, 1))
    return failure();
  auto parseMap = [&](AffineMap &result) -> ParseResult {
    AffineMapAttr map;
    if (parser.parseAttribute(map))
      return failure();
    result = map.getValue();
    return success();
  };
  AffineMap origin;
  if (succeeded(parser.parseOptionalKeyword("origin")) && parseMap(origin))
    return failure();
  bool hasScore = succeeded(parser.parseOptionalKeyword("score"));
  if (hasScore && parseScoreBody(parser, scores))
    return failure();
  SmallVector<AffineMap> ranges;
  auto parseRange = [&] { return parseMap(ranges.emplace_back()); };
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
      loc, context, ArrayRef<AffineMap>(ranges), mask, hasWeight, hasBias,
      hasCodes, hasLocalBias, hasLengths, hasRelative, hasDistanceBias, origin,
      unit, hasListedPositions, hasScore);
  if (!source)
    return failure();
  attrs.push_back(source);
  return success();
}

ParseResult fovea::attn::detail::parseScores(OpAsmParser &parser,
                                             ParsedSources &sources,
                                             TypedOperands &captures,
                                             OperationState &result) {
  bool hasCaptures = succeeded(parser.parseOptionalKeyword("captures"));
  if (hasCaptures ? captures.parse(parser, 1, ~0U)
                  : parseScoreRegion(parser, captures.operands, captures.types,
                                     sources.scores))
    return failure();
  result.addRegions(sources.scores);
  return success();
}

ParseResult
fovea::attn::detail::parseAttributesAndTypes(OpAsmParser &parser, SMLoc loc,
                                             OperationState &result) {
  if (parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (succeeded(parser.parseOptionalArrow()) &&
      parser.parseTypeList(result.types))
    return failure();
  return result.name.verifyInherentAttrs(result.attributes, [&] {
    return parser.emitError(loc)
           << "'" << result.name.getStringRef() << "' op ";
  });
}

void fovea::attn::detail::printTypedOperands(OpAsmPrinter &printer,
                                             ValueRange operands) {
  printer << "(" << operands << " : " << operands.getTypes() << ")";
}

void fovea::attn::detail::printIndentedLine(OpAsmPrinter &printer) {
  printer.increaseIndent();
  printer.printNewline();
  printer.decreaseIndent();
}

static void printSourceScore(OpAsmPrinter &printer, Region &score) {
  printer.increaseIndent();
  printer.increaseIndent();
  printer.printNewline();
  printer << "score ";
  printer.printRegion(score);
  printer.decreaseIndent();
  printer.decreaseIndent();
}

void fovea::attn::detail::printSources(OpAsmPrinter &printer,
                                       ArrayRef<StreamSource> sources) {
  for (const StreamSource &source : sources) {
    printIndentedLine(printer);
    printer << "source";
    printTypedOperands(printer, {source.keys, source.values});
    auto printTerm = [&](StringRef name, Value term) {
      if (!term)
        return;
      printer << " " << name;
      printTypedOperands(printer, term);
    };
    printTerm("codes", source.codes);
    printTerm("log_weight", source.logWeight);
    printTerm(source.attr.getHasLocalBias() ? "local_bias" : "bias",
              source.bias);
    printTerm("lengths", source.lengths);
    printTerm("rows", source.rowList);
    if (source.rowList)
      printer << " unit = " << source.attr.getUnit();
    if (source.attr.getHasListedPositions())
      printer << " positions = listed";
    if (source.relativeKeys) {
      printer << " relative";
      printTypedOperands(printer, {source.relativeKeys, source.relativeBias});
    }
    printTerm("distance_bias", source.distanceBias);
    if (AffineMap origin = source.attr.getOrigin()) {
      printer << " origin ";
      printer.printAttribute(AffineMapAttr::get(origin));
    }
    if (source.score)
      printSourceScore(printer, *source.score);
    printer << " ranges [";
    llvm::interleaveComma(source.attr.getRanges(), printer, [&](AffineMap map) {
      printer.printAttribute(AffineMapAttr::get(map));
    });
    printer << "]";
    if (MaskAttr mask = source.attr.getMask();
        !mask.isTrivial() || mask.hasStride()) {
      printer << " mask ";
      mask.print(printer);
    }
  }
}

void fovea::attn::detail::printBehindSources(OpAsmPrinter &printer,
                                             StringRef keyword, Value operand) {
  if (!operand)
    return;
  printIndentedLine(printer);
  printer << keyword;
  printTypedOperands(printer, operand);
}
