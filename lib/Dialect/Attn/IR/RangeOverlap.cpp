//===- RangeOverlap.cpp - Rows that two ranges share ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/RangeOverlap.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea::attn;
using presburger::BoundType;
using presburger::IntegerPolyhedron;

/// Coefficients beyond which sums of products could wrap in 64 bits, here and
/// in generated code: what is computed then is known at run time only.
static constexpr int64_t kMaxCoefficient = int64_t(1) << 31;

//===----------------------------------------------------------------------===//
// Ranges that are plainly apart
//===----------------------------------------------------------------------===//

/// Whether `expr` is at least zero for any block and extents, as its form
/// tells.
static bool isAtLeastZero(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue() >= 0;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  // Divisors are positive.
  return !binary ||
         (isAtLeastZero(binary.getLHS()) && isAtLeastZero(binary.getRHS()));
}

/// True if `end`, which a range stops before, is at most `begin` for any block
/// and extents. `symbolic` differences take a while.
static bool isBefore(AffineExpr end, AffineExpr begin, bool symbolic) {
  auto constantEnd = dyn_cast<AffineConstantExpr>(end);
  auto constantBegin = dyn_cast<AffineConstantExpr>(begin);
  if (constantEnd && constantBegin)
    return constantEnd.getValue() <= constantBegin.getValue();
  if (!symbolic)
    return false;
  return isAtLeastZero(
      simplifyAffineExpr(begin - end, /*numDims=*/1, /*numSymbols=*/2));
}

/// True if no row is in both, as two of their bounds tell without extents:
/// their limits if they have some, as levels in a pool, or a fixed distance.
static bool arePlainlyApart(AffineMap first, AffineMap second) {
  for (bool symbolic : {false, true})
    for (AffineMap ends : {first, second})
      for (AffineMap begins : {first, second})
        for (unsigned end = 1; end < ends.getNumResults(); end += 2)
          for (unsigned begin = 0; begin < begins.getNumResults(); begin += 2)
            if (isBefore(ends.getResult(end), begins.getResult(begin),
                         symbolic))
              return true;
  return false;
}

//===----------------------------------------------------------------------===//
// Ranges that are apart or not
//===----------------------------------------------------------------------===//

/// Block `b` and row `j` for which both ranges name the row, with the extents
/// as symbols where they are dynamic; none if numbers are too large to tell.
static std::optional<IntegerPolyhedron> getSharedRows(const RangePair &pair) {
  SmallVector<AffineExpr> bounds(pair.firstRange.getResults());
  llvm::append_range(bounds, pair.secondRange.getResults());
  auto isLarge = [](int64_t value) {
    return value < -kMaxCoefficient || value > kMaxCoefficient;
  };
  bool anyLarge = isLarge(pair.extents.block);
  for (AffineExpr bound : bounds)
    bound.walk([&](AffineExpr expr) {
      if (auto constant = dyn_cast<AffineConstantExpr>(expr))
        anyLarge |= isLarge(constant.getValue());
    });
  auto map = AffineMap::get(/*dimCount=*/1, /*symbolCount=*/2, bounds,
                            pair.firstRange.getContext());
  std::vector<SmallVector<int64_t, 8>> rows;
  FlatLinearConstraints constraints;
  if (anyLarge || failed(getFlattenedAffineExprs(map, &rows, &constraints)))
    return std::nullopt;
  for (ArrayRef<int64_t> row : rows)
    if (llvm::any_of(row, isLarge))
      return std::nullopt;

  // Columns: block, row, number of rows, number of queries, what division
  // needs, and a constant.
  constraints.appendDimVar();
  unsigned numColumns = constraints.getNumCols();
  auto addAtLeastZero = [&](SmallVector<int64_t> sum) {
    constraints.addInequality(sum);
  };
  auto makeSum = [&](int64_t block, int64_t row, int64_t numRows,
                     int64_t numQueries, int64_t constant) {
    SmallVector<int64_t> sum(numColumns, 0);
    sum[0] = block;
    sum[1] = row;
    sum[2] = numRows;
    sum[3] = numQueries;
    sum.back() = constant;
    return sum;
  };
  for (auto [number, bound] : llvm::enumerate(rows)) {
    // A row is at least the bounds that begin and less than those that end.
    int64_t sign = number % 2 == 0 ? -1 : 1;
    SmallVector<int64_t> sum = makeSum(0, 0, 0, 0, 0);
    sum[0] = sign * bound[0];
    for (unsigned column = 1; column < bound.size(); ++column)
      sum[column + 1] = sign * bound[column];
    sum[1] -= sign;
    sum.back() -= number % 2;
    addAtLeastZero(sum);
  }
  addAtLeastZero(makeSum(0, 1, 0, 0, 0));
  addAtLeastZero(makeSum(0, -1, 1, 0, -1));
  addAtLeastZero(makeSum(1, 0, 0, 0, 0));
  if (pair.extents.block == 0)
    constraints.addBound(BoundType::EQ, 0, 0);
  addAtLeastZero(makeSum(-pair.extents.block, 0, 0, 1, -1));
  if (!ShapedType::isDynamic(pair.extents.rows))
    constraints.addBound(BoundType::EQ, 2, pair.extents.rows);
  if (!ShapedType::isDynamic(pair.extents.queries))
    constraints.addBound(BoundType::EQ, 3, pair.extents.queries);
  return IntegerPolyhedron(constraints);
}

/// The rows that `range` names for a block, as far as they are constant.
static std::optional<std::pair<int64_t, int64_t>>
evaluate(AffineMap range, int64_t block, const RangeExtents &extents) {
  MLIRContext *context = range.getContext();
  auto symbol = [&](int64_t extent, unsigned position) {
    return ShapedType::isDynamic(extent)
               ? getAffineSymbolExpr(position, context)
               : getAffineConstantExpr(extent, context);
  };
  std::pair<int64_t, int64_t> rows = {
      0, ShapedType::isDynamic(extents.rows) ? INT64_MAX : extents.rows};
  for (auto [number, bound] : llvm::enumerate(range.getResults())) {
    auto value = dyn_cast<AffineConstantExpr>(bound.replaceDimsAndSymbols(
        getAffineConstantExpr(block, context),
        {symbol(extents.rows, 0), symbol(extents.queries, 1)}));
    if (!value)
      return std::nullopt;
    if (number % 2 == 0)
      rows.first = std::max(rows.first, value.getValue());
    else
      rows.second = std::min(rows.second, value.getValue());
  }
  return rows;
}

bool RangePair::areApart() const {
  std::optional<IntegerPolyhedron> shared = getSharedRows(*this);
  return shared && shared->isIntegerEmpty();
}

std::optional<int64_t> RangePair::findSharingBlock() const {
  // Every call has a block 0, and dynamic extents are as large as needed.
  auto first = evaluate(firstRange, /*block=*/0, extents);
  auto second = evaluate(secondRange, /*block=*/0, extents);
  if (first && second && extents.queries != 0 &&
      std::max(first->first, second->first) <
          std::min(first->second, second->second))
    return 0;
  if (ShapedType::isDynamic(extents.rows) ||
      ShapedType::isDynamic(extents.queries))
    return std::nullopt;
  std::optional<IntegerPolyhedron> shared = getSharedRows(*this);
  if (!shared)
    return std::nullopt;
  auto point = shared->findIntegerSample();
  if (!point)
    return std::nullopt;
  return int64_t((*point)[0]);
}

std::string RangePair::describe() const {
  return llvm::formatv("ranges {0} and {1} of source {2}", first, second,
                       source);
}

//===----------------------------------------------------------------------===//
// Operations with sources
//===----------------------------------------------------------------------===//

static int64_t getExtent(Value operand, int64_t dim) {
  return cast<ShapedType>(operand.getType()).getDimSize(dim);
}

static SmallVector<StreamSource> getForwardSources(StreamBackwardOp op) {
  return llvm::map_to_vector(
      op.getSourceList(),
      [](const StreamSourceGradient &source) { return source.forward; });
}

SmallVector<RangePair> fovea::attn::getRangePairs(Operation *op) {
  SmallVector<RangePair> pairs;
  auto addPairs = [&](ArrayRef<StreamSource> sources, int64_t block,
                      int64_t queries) {
    for (auto [number, source] : llvm::enumerate(sources)) {
      ArrayRef<AffineMap> ranges = source.attr.getRanges();
      Value rows = source.getRowsOperand();
      RangeExtents extents = {block, getExtent(rows, 2), queries};
      for (unsigned second = 1; second < ranges.size(); ++second)
        for (unsigned first = 0; first < second; ++first)
          if (!arePlainlyApart(ranges[first], ranges[second]))
            pairs.push_back({static_cast<unsigned>(number), first, second,
                             ranges[first], ranges[second], rows, extents});
    }
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](StreamOp op) {
        // A tile does not have all queries.
        int64_t queries = op.getNumRows() ? getConstantIntValue(op.getNumRows())
                                                .value_or(ShapedType::kDynamic)
                                          : getExtent(op.getQuery(), 2);
        addPairs(op.getSourceList(), op.getBlock(), queries);
      })
      .Case([&](StreamBackwardOp op) {
        addPairs(getForwardSources(op), op.getBlock(),
                 getExtent(op.getQuery(), 2));
      });
  return pairs;
}

LogicalResult fovea::attn::verifyRangesApart(Operation *op) {
  for (const RangePair &pair : getRangePairs(op)) {
    std::optional<int64_t> block = pair.findSharingBlock();
    if (!block)
      continue;
    InFlightDiagnostic diagnostic =
        op->emitOpError() << "expects ranges of one source not to overlap, but "
                          << "for block " << *block;
    for (auto [number, range] : {std::pair{pair.first, pair.firstRange},
                                 std::pair{pair.second, pair.secondRange}}) {
      auto rows = evaluate(range, *block, pair.extents);
      diagnostic << (number == pair.first ? " found rows " : " and ")
                 << rows->first << " .. " << rows->second - 1 << " in range "
                 << number;
    }
    return diagnostic << " of source " << pair.source
                      << "; rows that shall count twice are two sources";
  }
  return success();
}
