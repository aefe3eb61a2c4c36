//===- CallText.cpp - What a call says in text ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions of scores and ranges of sources come as text, which is part of the
// key of a kernel, and is parsed for a key without one.
//
//===----------------------------------------------------------------------===//

#include "CallText.h"
#include "Call.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/RangeOverlap.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;

namespace {
/// Keeps the first error, in place of printing it.
class FirstError {
public:
  explicit FirstError(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (text.empty())
            text = diagnostic.str();
          return success();
        }) {}

  const std::string &getText() const { return text; }

private:
  std::string text;
  ScopedDiagnosticHandler handler;
};
} // namespace

static llvm::Error makeError(const Twine &text) {
  return llvm::createStringError(
      std::make_error_code(std::errc::invalid_argument), text);
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

static llvm::Expected<AffineMap> parseRange(MLIRContext *context,
                                            const std::string &name,
                                            const std::string &text) {
  FirstError error(context);
  auto attribute = dyn_cast_or_null<AffineMapAttr>(
      parseAttribute("affine_map<" + text + ">", context));
  if (!attribute)
    return makeError(
        name + ": found '" + text +
        "', needed (b)[rows, n] -> (begin, end): " + error.getText());
  return attribute.getValue();
}

llvm::Expected<Attribute>
functions::buildSources(MLIRContext *context,
                        llvm::ArrayRef<SourceValue> sources) {
  SmallVector<Attribute> built;
  for (auto [index, source] : llvm::enumerate(sources)) {
    std::string name = ("sources[" + Twine(index) + "].ranges").str();
    SmallVector<AffineMap> ranges;
    for (const std::string &text : source.ranges) {
      llvm::Expected<AffineMap> range = parseRange(context, name, text);
      if (!range)
        return range.takeError();
      if (!source.hasBlocks && range->getNumDims() == 1 &&
          range->isFunctionOfDim(0))
        return makeError("block: found 0, needed at least 1, since " + name +
                         " depend on the block");
      ranges.push_back(*range);
    }
    const auto &[causal, window, prefix, stride] = source.mask;
    auto mask = attn::MaskAttr::get(context, causal, window, prefix, stride);
    FirstError error(context);
    auto emit = [&] { return emitError(UnknownLoc::get(context)); };
    auto attribute = attn::SourceAttr::getChecked(
        function_ref<InFlightDiagnostic()>(emit), context,
        ArrayRef<AffineMap>(ranges), mask, source.hasLogWeight, source.hasBias,
        /*hasCodes=*/false, /*hasLocalBias=*/false, source.hasLengths,
        /*hasRelative=*/false, /*hasDistanceBias=*/false,
        /*origin=*/AffineMap(), source.unit, source.hasListedPositions,
        source.hasScore);
    if (!attribute)
      return makeError(name + ": " + error.getText());
    built.push_back(attribute);
  }
  return ArrayAttr::get(context, built);
}

llvm::Error functions::checkRanges(ArrayRef<SourceValue> sources,
                                   ArrayRef<int64_t> rows, int64_t block,
                                   int64_t queries) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<attn::AttnDialect>();
  llvm::Expected<Attribute> built = buildSources(&context, sources);
  if (!built)
    return built.takeError();
  for (auto [index, attribute] : llvm::enumerate(cast<ArrayAttr>(*built))) {
    ArrayRef<AffineMap> ranges = cast<attn::SourceAttr>(attribute).getRanges();
    for (unsigned second = 1; second < ranges.size(); ++second)
      for (unsigned first = 0; first < second; ++first) {
        attn::RangePair pair{unsigned(index),
                             first,
                             second,
                             ranges[first],
                             ranges[second],
                             Value(),
                             {block, rows[index], queries}};
        if (std::optional<int64_t> shared = pair.findSharingBlock())
          return makeError("sources[" + Twine(index) +
                           "].ranges: found ranges " + Twine(first) + " and " +
                           Twine(second) + " with rows in common for block " +
                           Twine(*shared) +
                           ", needed ranges that do not overlap");
      }
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Functions of scores
//===----------------------------------------------------------------------===//

llvm::Expected<Value> Call::appendRegionPart(OpBuilder &b,
                                             const RegionPart &part,
                                             Value score, ValueRange places,
                                             ValueRange captures) const {
  static constexpr llvm::StringLiteral names[] = {"%batch", "%head", "%query",
                                                  "%key"};
  std::string text;
  llvm::raw_string_ostream os(text);
  SmallVector<Value> given;
  auto add = [&](const Twine &name, Value value) {
    os << (given.empty() ? "" : ", ") << name << ": " << value.getType();
    given.push_back(value);
  };
  os << "func.func @part(";
  if (part.isScore)
    add("%score", score);
  for (auto [name, place] : llvm::zip_equal(names, places))
    add(name, place);
  for (auto [index, capture] : llvm::enumerate(captures))
    add("%capture" + Twine(index), capture);
  os << ") {\n" << part.body << "\n}\n";
  MLIRContext *context = b.getContext();
  FirstError error(context);
  // Joined, it is verified as a region.
  auto module = parseSourceString<ModuleOp>(
      text, ParserConfig(context, /*verifyAfterParse=*/false));
  if (!module)
    return makeError(part.name +
                     ": found a body that does not parse: " + error.getText());
  Region &region = module->getBody()->front().getRegion(0);
  auto yield = region.hasOneBlock() && !region.front().empty()
                   ? dyn_cast<attn::YieldOp>(region.front().back())
                   : attn::YieldOp();
  Type needed = part.isScore ? score.getType() : Type(b.getI1Type());
  if (!yield || yield.getScores().getType() != needed) {
    std::string type;
    llvm::raw_string_ostream(type) << needed;
    return makeError(part.name +
                     ": found a body without it, needed one block "
                     "that ends in attn.yield of " +
                     type);
  }
  IRMapping mapping;
  mapping.map(region.front().getArguments(), given);
  for (Operation &op : region.front().without_terminator())
    b.clone(op, mapping);
  Value yielded = mapping.lookupOrDefault(yield.getScores());
  if (part.isScore)
    return yielded;
  Location loc = b.getUnknownLoc();
  auto type = cast<FloatType>(score.getType());
  auto removed = arith::ConstantOp::create(
      b, loc,
      FloatAttr::get(type, llvm::APFloat::getInf(type.getFloatSemantics(),
                                                 /*Negative=*/true)));
  return Value(arith::SelectOp::create(b, loc, yielded, score, removed));
}

llvm::Expected<SmallVector<std::unique_ptr<Region>>>
Call::buildScoreRegions(MLIRContext *context) const {
  SmallVector<std::unique_ptr<Region>> regions;
  if (scoreParts.empty())
    return std::move(regions);
  OpBuilder b(context);
  Location loc = b.getUnknownLoc();
  Type number =
      attn::getStateType(convertType(context, arguments.front().elementType));
  SmallVector<Type> types = {number};
  types.append(attn::score_argument::Captures - attn::score_argument::Batch,
               b.getIndexType());
  size_t numCaptures = 0;
  for (const RegionPart &part : scoreParts)
    numCaptures += part.numCaptures;
  for (size_t i = 0; i < numCaptures; ++i) {
    int value = values[firstCapture + i];
    const Argument &capture = arguments[value];
    types.push_back(getType(context, /*isOpen=*/true, declarations[value],
                            capture.elementType, capture.shape));
  }
  std::optional<unsigned> present;
  Value score;
  auto finish = [&] {
    if (score)
      attn::YieldOp::create(b, loc, score);
  };
  size_t first = attn::score_argument::Captures;
  for (const RegionPart &part : scoreParts) {
    if (!score || part.source != present) {
      finish();
      present = part.source;
      Block &block =
          regions.emplace_back(std::make_unique<Region>())->emplaceBlock();
      block.addArguments(types, SmallVector<Location>(types.size(), loc));
      b.setInsertionPointToEnd(&block);
      score = block.getArgument(attn::score_argument::Score);
    }
    ValueRange given = regions.back()->getArguments();
    auto places = given.slice(attn::score_argument::Batch,
                              attn::score_argument::Captures -
                                  attn::score_argument::Batch);
    llvm::Expected<Value> next = appendRegionPart(
        b, part, score, places, given.slice(first, part.numCaptures));
    if (!next)
      return next.takeError();
    score = *next;
    first += part.numCaptures;
  }
  finish();
  return std::move(regions);
}
