//===- AttnDialect.cpp - Attention dialect -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea::attn;

#include "fovea/Dialect/Attn/IR/AttnDialect.cpp.inc"
#include "fovea/Dialect/Attn/IR/AttnEnums.cpp.inc"

// ranges ::= `[` (affine-map (`,` affine-map)*)? `]`
static ParseResult parseRanges(AsmParser &parser,
                               SmallVector<AffineMap> &ranges) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&]() {
    return parser.parseAffineMap(ranges.emplace_back());
  });
}

static void printRanges(AsmPrinter &printer, ArrayRef<AffineMap> ranges) {
  printer << "[";
  llvm::interleaveComma(ranges, printer);
  printer << "]";
}

#define GET_ATTRDEF_CLASSES
#include "fovea/Dialect/Attn/IR/AttnAttributes.cpp.inc"

/// `causal` among the attributes of an operation that has a mask is short for
/// that mask.
static ParseResult expandCausal(OpAsmParser &parser, SMLoc loc,
                                OperationState &result) {
  Attribute flag = result.attributes.erase("causal");
  if (!flag)
    return success();
  auto emitError = [&] {
    return parser.emitError(loc)
           << "'" << result.name.getStringRef() << "' op ";
  };
  auto causal =
      MaskAttr::get(parser.getContext(), /*causal=*/true, /*window=*/0);
  if (!isa<UnitAttr>(flag))
    return emitError() << "expects causal to have no value, but got " << flag;
  Attribute mask = result.attributes.get("mask");
  if (mask && mask != causal)
    return emitError() << "expects one mask, but got causal and " << mask;
  result.attributes.set("mask", causal);
  return success();
}

namespace {
/// `OpTy` as it is registered: nothing that it does not know is ignored.
template <typename OpTy> class StrictOp : public OpTy {
public:
  using OpTy::OpTy;
  static TypeID resolveTypeID() { return TypeID::get<OpTy>(); }

  static ParseResult parse(OpAsmParser &parser, OperationState &result) {
    SMLoc loc = parser.getCurrentLocation();
    if (OpTy::parse(parser, result))
      return failure();
    if constexpr (llvm::is_one_of<OpTy, DenseOp, DenseBackwardOp>::value)
      return expandCausal(parser, loc, result);
    return success();
  }

  static OperationName::VerifyInvariantsFn getVerifyInvariantsFn() {
    return [](Operation *op) -> LogicalResult {
      if (failed(fovea::attn::detail::verifyKnownAttributes(
              op->getName(), llvm::to_vector(op->getDiscardableAttrs()),
              [op] { return op->emitOpError(); })))
        return failure();
      // The one that checks all else is open to the registration only.
      static RegisteredOperationName::Model<OpTy> model(op->getDialect());
      return model.verifyInvariants(op);
    };
  }

  /// Of the generic form, whose properties are a dictionary: upstream takes
  /// what it knows and drops the rest.
  template <typename PropertiesTy>
  static LogicalResult
  setPropertiesFromAttr(PropertiesTy &properties, Attribute attr,
                        function_ref<InFlightDiagnostic()> emitError) {
    OperationName name(OpTy::getOperationName(), attr.getContext());
    auto dictionary = dyn_cast<DictionaryAttr>(attr);
    if (dictionary && failed(fovea::attn::detail::verifyKnownAttributes(
                          name, dictionary.getValue(), emitError)))
      return failure();
    return OpTy::setPropertiesFromAttr(properties, attr, emitError);
  }
};
} // namespace

template <typename... OpTys> static void addStrictOps(Dialect &dialect) {
  (RegisteredOperationName::insert<StrictOp<OpTys>>(dialect), ...);
}

namespace {
/// Operations are the same in any function: regions read what they capture,
/// which are operands, and nothing around them.
struct AttnInlinerInterface : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;

  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final {
    return true;
  }
};
} // namespace

void AttnDialect::initialize() {
  addInterfaces<AttnInlinerInterface>();
  addStrictOps<
#define GET_OP_LIST
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
      >(*this);
  addAttributes<
#define GET_ATTRDEF_LIST
#include "fovea/Dialect/Attn/IR/AttnAttributes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// MaskAttr
//===----------------------------------------------------------------------===//

// mask ::= `<` (`none` | `causal` (`,` `window` `=` int)? | `window` `=` int)
// `>`
Attribute MaskAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess())
    return {};
  bool causal = false;
  int64_t window = 0, prefix = 0, stride = 1;
  auto parseSize = [&](StringRef name, int64_t &size) -> ParseResult {
    if (parser.parseEqual() || parser.parseInteger(size))
      return failure();
    if (size > 0)
      return success();
    return parser.emitError(loc, "expected a ")
           << name << " of at least 1, but got " << size;
  };
  if (failed(parser.parseOptionalKeyword("none"))) {
    causal = succeeded(parser.parseOptionalKeyword("causal"));
    // Each part is behind a comma, unless it is the first.
    bool hasMore = !causal || succeeded(parser.parseOptionalComma());
    auto parseOptional = [&](StringRef name, int64_t &size) -> ParseResult {
      if (!hasMore || failed(parser.parseOptionalKeyword(name)))
        return success();
      if (parseSize(name, size))
        return failure();
      hasMore = succeeded(parser.parseOptionalComma());
      return success();
    };
    if (parseOptional("window", window) || parseOptional("prefix", prefix) ||
        parseOptional("stride", stride))
      return {};
    if (hasMore) {
      parser.emitError(parser.getCurrentLocation(),
                       "expected window, prefix or stride of a mask");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<MaskAttr>(loc, parser.getContext(), causal, window,
                                     prefix, stride);
}

void MaskAttr::print(AsmPrinter &printer) const {
  SmallVector<std::string> parts;
  if (getCausal())
    parts.push_back("causal");
  auto add = [&](StringRef name, int64_t size) {
    parts.push_back((name + " = " + Twine(size)).str());
  };
  if (hasWindow())
    add("window", getWindow());
  if (hasPrefix())
    add("prefix", getPrefix());
  if (hasStride())
    add("stride", getStride());
  if (parts.empty())
    parts.push_back("none");
  printer << "<" << llvm::join(parts, ", ") << ">";
}

LogicalResult MaskAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               bool causal, int64_t window, int64_t prefix,
                               int64_t stride) {
  if (window < 0)
    return emitError() << "expected a window that is not negative, but got "
                       << window;
  if (prefix < 0)
    return emitError() << "expected a prefix that is not negative, but got "
                       << prefix;
  if (prefix > 0 && (!causal || window > 0))
    return emitError() << "expected a prefix of a causal mask without a window";
  if (stride < 1 || stride > kMaxStride)
    return emitError() << "expected a stride from 1 to " << kMaxStride
                       << ", but got " << stride;
  return success();
}

MaskAttr MaskAttr::withoutStride() const {
  return get(getContext(), getCausal(), getWindow(), getPrefix());
}

//===----------------------------------------------------------------------===//
// SourceAttr
//===----------------------------------------------------------------------===//

/// True when every divisor in `map` is a positive constant.
static bool hasPositiveDivisors(AffineMap map) {
  bool positive = true;
  map.walkExprs([&](AffineExpr expr) {
    AffineExprKind kind = expr.getKind();
    if (kind != AffineExprKind::FloorDiv && kind != AffineExprKind::CeilDiv &&
        kind != AffineExprKind::Mod)
      return;
    auto divisor =
        dyn_cast<AffineConstantExpr>(cast<AffineBinaryOpExpr>(expr).getRHS());
    positive &= divisor && divisor.getValue() > 0;
  });
  return positive;
}

LogicalResult SourceAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<AffineMap> ranges, MaskAttr mask,
                                 bool hasLogWeight, bool hasBias, bool hasCodes,
                                 bool hasLocalBias, bool hasLengths,
                                 bool hasRelative, bool hasDistanceBias,
                                 AffineMap origin, int64_t unit,
                                 bool hasListedPositions, bool hasScore) {
  if (ranges.empty())
    return emitError() << "expected at least one range of a source, as "
                          "affine_map<(b)[rows, n] -> (0, rows)> for all rows; "
                          "leave out a source that nothing reads";
  for (AffineMap range : ranges) {
    if (range.getNumDims() != 1 || range.getNumSymbols() != 2 ||
        (range.getNumResults() != 2 && range.getNumResults() != 4))
      return emitError()
             << "expected ranges of the form (b)[rows, n] -> "
                "(begin, end) or (begin, end, lower, upper), but got "
             << AffineMapAttr::get(range);
    if (!hasPositiveDivisors(range))
      return emitError()
             << "expected positive constant divisors in a range, but got "
             << AffineMapAttr::get(range);
    if (!llvm::all_of(range.getResults(),
                      [](AffineExpr bound) { return bound.isPureAffine(); }))
      return emitError() << "expected ranges that multiply by constants only, "
                            "but got "
                         << AffineMapAttr::get(range);
  }
  if (!mask)
    return emitError() << "expected a mask";
  if (hasLocalBias && (!hasBias || ranges.size() != 1))
    return emitError()
           << "expected a bias and one range with a local bias, but "
              "got "
           << ranges.size() << " ranges and " << (hasBias ? "a" : "no")
           << " bias";
  if (unit < 0)
    return emitError() << "expected a unit that is not negative, but got "
                       << unit;
  // As many rows as a source may have: places of entries fit any index.
  constexpr int64_t maxUnit = 1 << 30;
  if (unit > maxUnit)
    return emitError() << "expected a unit of at most " << maxUnit
                       << " rows, but got " << unit;
  if (hasListedPositions && unit == 0)
    return emitError() << "expected no listed positions without lists of rows";
  StringRef other = hasCodes          ? "codes"
                    : hasLocalBias    ? "local_bias"
                    : hasRelative     ? "relative"
                    : hasDistanceBias ? "distance_bias"
                                      : "";
  if (unit != 0 && !other.empty())
    return emitError() << "expected no lists of rows beside " << other;
  if (hasListedPositions && ranges.size() > 1)
    return emitError() << "expected at most one range beside listed positions, "
                          "but got "
                       << ranges.size();
  if (hasListedPositions && hasBias)
    return emitError() << "expected no bias beside listed positions";
  if (mask.hasStride() && (hasRelative || hasDistanceBias))
    return emitError() << "expected no stride with relative or distance_bias, "
                          "whose distances are those of rows";
  if (!origin)
    return success();
  if (!hasRelative && !hasDistanceBias)
    return emitError() << "expected no origin without relative or "
                          "distance_bias, whose distances it is for";
  if (origin.getNumDims() != 0 || origin.getNumSymbols() != 2 ||
      origin.getNumResults() != 1 || !origin.getResult(0).isPureAffine() ||
      !hasPositiveDivisors(origin))
    return emitError() << "expected an origin of the form ()[rows, n] -> "
                          "(position), but got "
                       << AffineMapAttr::get(origin);
  return success();
}

SourceAttr SourceAttr::withScore(bool hasScore) const {
  return get(getContext(), getRanges(), getMask(), getHasLogWeight(),
             getHasBias(), getHasCodes(), getHasLocalBias(), getHasLengths(),
             getHasRelative(), getHasDistanceBias(), getOrigin(), getUnit(),
             getHasListedPositions(), hasScore);
}

AffineExpr SourceAttr::getOriginExpr() const {
  if (AffineMap origin = getOrigin())
    return origin.getResult(0);
  return getAffineSymbolExpr(1, getContext()) -
         getAffineSymbolExpr(0, getContext());
}

//===----------------------------------------------------------------------===//
// TilesAttr
//===----------------------------------------------------------------------===//

LogicalResult TilesAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t query, int64_t key, int64_t lanes,
                                int64_t vectors, int64_t keys, int64_t columns,
                                int64_t cluster) {
  for (int64_t size : {query, key, lanes, vectors, keys, columns})
    if (size < 1)
      return emitError() << "expected tile sizes of at least 1, but got "
                         << size;
  // Code is written out for every vector of a register tile, and every thread
  // keeps scratch memory for a query and key tile.
  for (int64_t size : {lanes, vectors, keys, columns})
    if (size > 64)
      return emitError() << "expected extents of the register tile of at most "
                            "64, but got "
                         << size;
  if (vectors * keys > 256 || vectors * columns > 256)
    return emitError()
           << "expected a register tile of at most 256 vectors, but "
              "got "
           << std::max(vectors * keys, vectors * columns);
  for (int64_t size : {query, key})
    if (size > (1 << 20))
      return emitError() << "expected query and key tiles of at most 1048576 "
                            "rows, but got "
                         << size;
  if (key % keys != 0)
    return emitError() << "expected the key tile to be a multiple of the "
                          "register tile's keys, but got "
                       << key << " and " << keys;
  if (cluster != 1 && cluster != 2)
    return emitError() << "expected a cluster of 1 or 2 blocks, but got "
                       << cluster;
  return success();
}
