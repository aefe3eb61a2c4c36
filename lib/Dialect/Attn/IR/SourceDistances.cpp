//===- SourceDistances.cpp - Distances that a source has terms for --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/SourceDistances.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// The verifier tries no more blocks than these.
static constexpr int64_t kMaxBlocks = 1 << 12;

static int64_t getExtent(Value operand, int64_t dim) {
  return cast<ShapedType>(operand.getType()).getDimSize(dim);
}

//===----------------------------------------------------------------------===//
// Distances of one range
//===----------------------------------------------------------------------===//

int64_t RangeDistances::getNumTerms() const {
  Value terms =
      operands.relativeKeys ? operands.relativeKeys : operands.distanceBias;
  return getExtent(terms, 1);
}

/// Masks count from where row 0 is unless the source says where that is.
static MaskAttr getMask(const RangeDistances &distances) {
  SourceAttr attr = distances.operands.attr;
  return attr.getOrigin() ? MaskAttr() : attr.getMask();
}

std::optional<int64_t> RangeDistances::getLeastAdmitted() const {
  MaskAttr mask = getMask(*this);
  if (mask && mask.getCausal() && !mask.hasPrefix())
    return 0;
  if (mask && mask.hasWindow())
    return 1 - mask.getWindow();
  return std::nullopt;
}

std::optional<int64_t> RangeDistances::getGreatestAdmitted() const {
  MaskAttr mask = getMask(*this);
  if (mask && mask.hasWindow())
    return mask.getWindow() - 1;
  return std::nullopt;
}

std::string RangeDistances::describe() const {
  return llvm::formatv("{0} of source {1}",
                       operands.relativeKeys ? "relative" : "distance_bias",
                       source);
}

/// `expr` with the static ones of the extents put in.
static AffineExpr setExtents(AffineExpr expr, const RangeExtents &extents) {
  SmallVector<AffineExpr> symbols;
  const int64_t found[] = {extents.rows, extents.queries};
  for (auto [position, extent] : llvm::enumerate(found))
    symbols.push_back(ShapedType::isDynamic(extent)
                          ? getAffineSymbolExpr(position, expr.getContext())
                          : getAffineConstantExpr(extent, expr.getContext()));
  return simplifyAffineExpr(expr.replaceSymbols(symbols), /*numDims=*/1,
                            /*numSymbols=*/2);
}

static std::optional<int64_t> getConstant(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  return std::nullopt;
}

/// Whether all distances are among those with terms for any block and extents.
static bool arePlainlyInside(const RangeDistances &distances) {
  const RangeExtents &extents = distances.extents;
  MLIRContext *context = distances.getRange().getContext();
  AffineExpr origin = distances.operands.attr.getOriginExpr();
  AffineExpr first = getAffineDimExpr(0, context) * extents.block;
  AffineExpr last = extents.block ? first + (extents.block - 1)
                                  : getAffineSymbolExpr(1, context) - 1;
  // Each bound of a range holds by itself, and so do those of the source.
  SmallVector<AffineExpr> begins = {getAffineConstantExpr(0, context)},
                          ends = {getAffineSymbolExpr(0, context)};
  for (auto [number, bound] :
       llvm::enumerate(distances.getRange().getResults()))
    (number % 2 == 0 ? begins : ends).push_back(bound);
  auto isBounded = [&](ArrayRef<AffineExpr> bounds, AffineExpr position,
                       int64_t offset, auto holds) {
    return llvm::any_of(bounds, [&](AffineExpr bound) {
      auto distance =
          getConstant(setExtents(position - origin - bound + offset, extents));
      return distance && holds(*distance);
    });
  };
  std::optional<int64_t> least = distances.getLeastAdmitted();
  if (!(least && *least >= 0) &&
      !isBounded(ends, first, 1, [](int64_t least) { return least >= 0; }))
    return false;
  auto isInside = [&](int64_t greatest) {
    return greatest < distances.getNumTerms();
  };
  std::optional<int64_t> greatest = distances.getGreatestAdmitted();
  return (greatest && isInside(*greatest)) ||
         isBounded(begins, last, 0, isInside);
}

namespace {
/// Distances of the entries that a block reads.
struct Distances {
  int64_t block, least, greatest;
};
} // namespace

/// The distances of the first block that has some without terms, if extents
/// are static.
static std::optional<Distances> findOutside(const RangeDistances &distances) {
  const RangeExtents &extents = distances.extents;
  if (ShapedType::isDynamic(extents.rows) ||
      ShapedType::isDynamic(extents.queries))
    return std::nullopt;
  int64_t length = extents.block ? extents.block : extents.queries;
  int64_t numBlocks =
      length ? llvm::divideCeil(extents.queries, static_cast<uint64_t>(length))
             : 0;
  auto origin =
      getConstant(setExtents(distances.operands.attr.getOriginExpr(), extents));
  if (!origin || numBlocks > kMaxBlocks)
    return std::nullopt;
  for (int64_t block = 0; block < numBlocks; ++block) {
    int64_t low = 0, high = extents.rows;
    for (auto [number, bound] :
         llvm::enumerate(distances.getRange().getResults())) {
      auto value = getConstant(setExtents(
          bound.replaceDims(getAffineConstantExpr(block, bound.getContext())),
          extents));
      if (!value)
        return std::nullopt;
      if (number % 2 == 0)
        low = std::max(low, *value);
      else
        high = std::min(high, *value);
    }
    if (low >= high)
      continue;
    int64_t first = block * length;
    int64_t last = std::min(first + length, extents.queries) - 1;
    int64_t least = first - *origin - (high - 1),
            greatest = last - *origin - low;
    least = std::max(least, distances.getLeastAdmitted().value_or(least));
    greatest =
        std::min(greatest, distances.getGreatestAdmitted().value_or(greatest));
    if (least <= greatest && (least < 0 || greatest >= distances.getNumTerms()))
      return Distances{block, least, greatest};
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Operations with sources
//===----------------------------------------------------------------------===//

SmallVector<RangeDistances> fovea::attn::getRangeDistances(Operation *op) {
  SmallVector<RangeDistances> found;
  auto stream = dyn_cast<StreamOp>(op);
  if (!stream)
    return found;
  // A tile does not have all queries.
  int64_t queries = stream.getNumRows()
                        ? getConstantIntValue(stream.getNumRows())
                              .value_or(ShapedType::kDynamic)
                        : getExtent(stream.getQuery(), 2);
  for (auto [number, source] : llvm::enumerate(stream.getSourceList())) {
    if (!source.attr.hasDistances())
      continue;
    RangeExtents extents = {static_cast<int64_t>(stream.getBlock()),
                            getExtent(source.getRowsOperand(), 2), queries};
    for (unsigned range = 0; range < source.attr.getRanges().size(); ++range) {
      RangeDistances distances = {static_cast<unsigned>(number), range, source,
                                  extents};
      if (!arePlainlyInside(distances))
        found.push_back(distances);
    }
  }
  return found;
}

/// Checks what terms by distance do not go together with.
static LogicalResult verifyOthers(StreamOp op) {
  for (auto [index, source] :
       llvm::enumerate(op.getSources().getAsRange<SourceAttr>())) {
    StringRef found = source.getHasLengths()    ? "lengths"
                      : op.getQueryLengths()    ? "query_lengths"
                      : !op.getScores().empty() ? "a score region"
                                                : "";
    if (source.hasDistances() && !found.empty())
      return op.emitOpError()
             << "expects no "
             << (source.getHasRelative() ? "relative" : "distance_bias")
             << " of source " << index << " beside " << found;
  }
  return success();
}

LogicalResult fovea::attn::verifyDistances(Operation *op) {
  if (auto stream = dyn_cast<StreamOp>(op);
      stream && failed(verifyOthers(stream)))
    return failure();
  // A tile has some of the queries: those of all may have distances that it
  // has not.
  if (auto stream = dyn_cast<StreamOp>(op); stream && stream.getFirstRow())
    return success();
  for (const RangeDistances &distances : getRangeDistances(op)) {
    std::optional<Distances> outside = findOutside(distances);
    if (!outside)
      continue;
    return op->emitOpError()
           << "expects " << distances.describe()
           << " to have a row for each distance, but for block "
           << outside->block << " found distances " << outside->least << " .. "
           << outside->greatest << " and " << distances.getNumTerms()
           << " rows";
  }
  return success();
}
