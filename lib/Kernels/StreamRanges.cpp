//===- StreamRanges.cpp - Static facts about row ranges -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/StreamRanges.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;

/// Ranges of at most this many rows go to the table. Larger ones run longer
/// than the loop around them costs.
static constexpr int64_t kMaxTableRange = 32;
/// All short rows' scores of a query block must stay in the second-level cache:
/// 1536 rows of 64 queries in f32 are 384 KB.
static constexpr int64_t kMaxShortRows = 1536;
/// Beyond this many blocks trying them all is no longer cheap.
static constexpr int64_t kMaxBlocks = 1 << 16;

/// The value of `expr` for the given block index and symbols.
static int64_t evaluate(AffineExpr expr, int64_t block,
                        ArrayRef<int64_t> symbols) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (isa<AffineDimExpr>(expr))
    return block;
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t lhs = evaluate(binary.getLHS(), block, symbols);
  int64_t rhs = evaluate(binary.getRHS(), block, symbols);
  // Sums and products wrap around, as they do in the generated code.
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return static_cast<uint64_t>(lhs) + static_cast<uint64_t>(rhs);
  case AffineExprKind::Mul:
    return static_cast<uint64_t>(lhs) * static_cast<uint64_t>(rhs);
  case AffineExprKind::Mod:
    return lhs - rhs * llvm::divideFloorSigned(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(lhs, rhs);
  default:
    return llvm::divideCeilSigned(lhs, rhs);
  }
}

/// After how many blocks `expr` repeats itself but for a constant, kMaxBlocks +
/// 1 for more than kMaxBlocks: what is divided repeats itself after as many
/// times more blocks as the divisor says.
static int64_t countPeriod(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return 1;
  int64_t period = countPeriod(binary.getLHS());
  bool isDivision = binary.getKind() != AffineExprKind::Add &&
                    binary.getKind() != AffineExprKind::Mul;
  if (isDivision)
    period = llvm::SaturatingMultiply<uint64_t>(
        period, cast<AffineConstantExpr>(binary.getRHS()).getValue());
  else
    period = std::lcm(period, countPeriod(binary.getRHS()));
  return std::min<uint64_t>(period, kMaxBlocks + 1);
}

/// The most that `expr` is for any block, if that is a number.
static std::optional<int64_t> getMost(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  int64_t period = countPeriod(expr);
  if (period > kMaxBlocks || expr.isFunctionOfSymbol(0) ||
      expr.isFunctionOfSymbol(1))
    return std::nullopt;
  auto at = [&](int64_t block) { return evaluate(expr, block, {}); };
  if (at(period) > at(0))
    return std::nullopt;
  int64_t most = at(0);
  for (int64_t block = 1; block < period; ++block)
    most = std::max(most, at(block));
  return most;
}

/// Whether `expr` is never less for a block than for those before it.
static bool ascends(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || !expr.isFunctionOfDim(0))
    return true;
  AffineExpr lhs = binary.getLHS();
  if (expr.getKind() == AffineExprKind::Add && ascends(lhs) &&
      ascends(binary.getRHS()))
    return true;
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  bool keepsOrder =
      factor && factor.getValue() >= 0 && expr.getKind() != AffineExprKind::Mod;
  if (keepsOrder && ascends(lhs))
    return true;
  // What repeats itself but for a constant shows all in one period.
  int64_t period = countPeriod(expr);
  if (period > kMaxBlocks || expr.isFunctionOfSymbol(0) ||
      expr.isFunctionOfSymbol(1))
    return false;
  int64_t before = evaluate(expr, 0, {});
  for (int64_t block = 1; block <= period; ++block) {
    int64_t value = evaluate(expr, block, {});
    if (value < before)
      return false;
    before = value;
  }
  return true;
}

bool fovea::attn::ascends(AffineMap range) {
  return llvm::all_of(range.getResults(),
                      [](AffineExpr expr) { return ::ascends(expr); });
}

/// A bound on the rows of `range` that holds for every block: the rows of the
/// source, or the length where it repeats itself.
static std::optional<int64_t> getUniformLength(AffineMap range, int64_t rows) {
  std::optional<int64_t> bound;
  if (!ShapedType::isDynamic(rows))
    bound = rows;
  for (unsigned first = 0; first < range.getNumResults(); first += 2) {
    AffineExpr length = simplifyAffineExpr(
        range.getResult(first + 1) - range.getResult(first), 1, 2);
    if (std::optional<int64_t> most = getMost(length)) {
      int64_t value = std::max<int64_t>(*most, 0);
      bound = bound ? std::min(*bound, value) : value;
    }
  }
  return bound;
}

/// The rows of a range for one block, as emitRangeBounds has them.
static std::pair<int64_t, int64_t> evaluateBounds(AffineMap range,
                                                  int64_t block, int64_t rows,
                                                  int64_t numQueries) {
  int64_t symbols[2] = {rows, numQueries};
  auto bound = [&](unsigned result) {
    return evaluate(range.getResult(result), block, symbols);
  };
  int64_t low = std::max<int64_t>(bound(0), 0), high = std::min(bound(1), rows);
  if (range.getNumResults() == 4) {
    low = std::max(low, bound(2));
    high = std::min(high, bound(3));
  }
  return {low, high};
}

/// The most rows that `range` names for any block, if that can be known.
static std::optional<int64_t> getMaxLength(AffineMap range, int64_t block,
                                           int64_t rows,
                                           std::optional<int64_t> numQueries) {
  if (ShapedType::isDynamic(rows) || !numQueries)
    return getUniformLength(range, rows);
  int64_t numBlocks =
      block ? llvm::divideCeil(*numQueries, static_cast<uint64_t>(block)) : 1;
  if (numBlocks > kMaxBlocks)
    return getUniformLength(range, rows);
  int64_t longest = 0;
  for (int64_t index = 0; index < numBlocks; ++index) {
    auto [low, high] = evaluateBounds(range, index, rows, *numQueries);
    longest = std::max(longest, high - low);
  }
  return longest;
}

/// The length of the sequence that the queries are of, if it is static.
static std::optional<int64_t> getNumQueries(StreamOp op) {
  if (op.getQueryLengths())
    return std::nullopt;
  if (op.getNumRows())
    return getConstantIntValue(op.getNumRows());
  int64_t extent = cast<ShapedType>(op.getQuery().getType()).getDimSize(2);
  if (ShapedType::isDynamic(extent))
    return std::nullopt;
  return extent;
}

RangeAnalysis::RangeAnalysis(StreamOp op) {
  std::optional<int64_t> numQueries = getNumQueries(op);
  SmallVector<StreamOp::Source> sources = op.getSourceList();
  // Nothing is scored together with a range that is alone: it goes in tiles,
  // with the same results whether its length is known or not.
  bool isAlone =
      sources.size() == 1 && sources.front().attr.getRanges().size() == 1;

  for (const StreamOp::Source &source : sources) {
    int64_t rows =
        cast<ShapedType>(source.getRowsOperand().getType()).getDimSize(2);
    int64_t tableRows = 0;
    auto &sourceKinds = kinds.emplace_back();
    auto &sourceLengths = lengths.emplace_back();
    for (AffineMap range : source.attr.getRanges()) {
      std::optional<int64_t> length =
          source.rowList ? std::nullopt
          : source.lengths
              ? getUniformLength(range, rows)
              : ::getMaxLength(range, op.getBlock(), rows, numQueries);
      sourceLengths.push_back(length);
      if (source.rowList) {
        sourceKinds.push_back(RangeKind::Listed);
        anyLong = true;
      } else if (length && *length == 0) {
        sourceKinds.push_back(RangeKind::Empty);
      } else if (length && *length <= kMaxTableRange &&
                 source.attr.getMask().isTrivial() &&
                 !source.attr.getHasLocalBias() &&
                 !source.attr.hasDistances()) {
        sourceKinds.push_back(RangeKind::Table);
        tableRows += *length;
      } else if (length && !isAlone &&
                 maxShortRows + *length <= kMaxShortRows &&
                 !(source.codes &&
                   (source.bias || source.attr.hasDistances()))) {
        // Scores that are looked up and kept would cost more on their way to
        // the second cache level and back than the maxima of many tiles.
        sourceKinds.push_back(RangeKind::Short);
        maxShortRows += *length;
        // A mask may cut a range in three.
        numShortRanges += 3;
      } else {
        sourceKinds.push_back(RangeKind::Long);
        anyLong = true;
      }
    }
    // Tables are padded to whole register tiles.
    if (tableRows)
      tableRows = llvm::alignTo(tableRows, op.getTiles()->getKeys());
    maxShortRows += tableRows;
    numShortRanges += tableRows != 0;
    tableStarts.push_back(maxTableRows);
    maxTableRows += tableRows;
  }
}

std::optional<StaticRanges> StaticRanges::get(StreamOp op, unsigned number) {
  StreamOp::Source source = op.getSourceList()[number];
  if (source.lengths || source.rowList)
    return std::nullopt;
  return get(source.attr.getRanges(),
             cast<ShapedType>(source.getRowsOperand().getType()).getDimSize(2),
             getNumQueries(op), op.getBlock());
}

std::optional<StaticRanges> StaticRanges::get(ArrayRef<AffineMap> ranges,
                                              int64_t rows,
                                              std::optional<int64_t> numQueries,
                                              int64_t block) {
  if (ShapedType::isDynamic(rows) || !numQueries ||
      ShapedType::isDynamic(*numQueries) || block == 0)
    return std::nullopt;
  StaticRanges result;
  llvm::append_range(result.ranges, ranges);
  result.rows = rows;
  result.numQueries = *numQueries;
  result.numBlocks = llvm::divideCeil(*numQueries, block);
  if (result.numBlocks > kMaxBlocks)
    return std::nullopt;
  return result;
}

bool StaticRanges::ascend() const {
  return llvm::all_of(ranges, [&](AffineMap range) {
    auto before = evaluateBounds(range, 0, rows, numQueries);
    for (int64_t block = 1; block < numBlocks; ++block) {
      auto bounds = evaluateBounds(range, block, rows, numQueries);
      if (bounds.first < before.first || bounds.second < before.second)
        return false;
      before = bounds;
    }
    return true;
  });
}

int64_t StaticRanges::getMaxRows(ArrayRef<unsigned> numbers,
                                 int64_t chunk) const {
  int64_t most = 0;
  for (int64_t first = 0; first < numBlocks; first += chunk) {
    int64_t last = std::min(first + chunk, numBlocks) - 1;
    int64_t low = rows, high = 0;
    for (unsigned number : numbers) {
      low = std::min(
          low, evaluateBounds(ranges[number], first, rows, numQueries).first);
      high = std::max(
          high, evaluateBounds(ranges[number], last, rows, numQueries).second);
    }
    most = std::max(most, high - low);
  }
  return most;
}

int64_t StaticRanges::countTiles(int64_t size, bool areAligned) const {
  int64_t count = 0;
  for (AffineMap range : ranges)
    for (int64_t block = 0; block < numBlocks; ++block) {
      auto [low, high] = evaluateBounds(range, block, rows, numQueries);
      if (low < high)
        count += llvm::divideCeil(high - (areAligned ? low / size * size : low),
                                  size);
    }
  return count;
}

bool RangeAnalysis::hasRuns(unsigned source) const {
  return llvm::any_of(kinds[source], [](RangeKind kind) {
    return kind == RangeKind::Short || kind == RangeKind::Long;
  });
}

int64_t RangeAnalysis::countOthers(unsigned source) const {
  return llvm::count_if(kinds[source], [](RangeKind kind) {
    return kind != RangeKind::Table && kind != RangeKind::Empty;
  });
}

Value fovea::attn::emitNumRows(KernelBuilder &b, const StreamSource &source) {
  if (source.attr.getHasListedPositions())
    return b.mul(b.extent(source.rowList, 3), source.attr.getUnit());
  return b.extent(source.getRowsOperand(), 2);
}

Value fovea::attn::emitListHead(KernelBuilder &b, Value lists, Value head,
                                Value numHeads) {
  return b.div(b.mul(head, b.extent(lists, 1)), numHeads);
}

RangeBounds fovea::attn::emitRangeBounds(KernelBuilder &b, AffineMap range,
                                         Value block, Value rows,
                                         Value numQueries) {
  auto bounds =
      affine::expandAffineMap(b, b.getLoc(), range, {block, rows, numQueries});
  Value low = b.max((*bounds)[0], b.index(0));
  Value high = b.min((*bounds)[1], rows);
  if (range.getNumResults() == 4) {
    low = b.max(low, (*bounds)[2]);
    high = b.min(high, (*bounds)[3]);
  }
  return {low, high, (*bounds)[0]};
}

Value fovea::attn::emitPosition(KernelBuilder &b, MaskAttr mask, Value row) {
  if (!mask.hasStride())
    return row;
  return b.add(b.mul(row, mask.getStride()), mask.getStride() - 1);
}

Value fovea::attn::emitFirstRow(KernelBuilder &b, MaskAttr mask,
                                Value position) {
  // Row j stands at j stride + stride - 1.
  return mask.hasStride() ? b.floorDiv(position, b.index(mask.getStride()))
                          : position;
}

SourceLength fovea::attn::emitLength(KernelBuilder &b,
                                     const StreamSource &source, Value batch,
                                     Value numQueries) {
  MaskAttr mask = source.attr.getMask();
  if (source.lengths && batch) {
    Value tokens = b.loadIndex(source.lengths, batch);
    return {emitFirstRow(b, mask, tokens), tokens};
  }
  Value rows = emitNumRows(b, source);
  return {rows, emitTokens(b, mask, rows, numQueries)};
}

Value fovea::attn::emitTokens(KernelBuilder &b, MaskAttr mask, Value rows,
                              Value numQueries) {
  if (!mask.hasStride())
    return rows;
  // As many tokens that make no row yet as there are queries for.
  Value tokens = b.mul(rows, mask.getStride());
  Value rest = b.clamp(b.sub(numQueries, tokens), b.index(0),
                       b.index(mask.getStride() - 1));
  return b.add(tokens, rest);
}

std::pair<Value, Value>
fovea::attn::emitAdmittedRows(KernelBuilder &b, MaskAttr mask, Value query,
                              Value numQueries, const SourceLength &length) {
  Value diagonal = b.add(query, b.sub(length.tokens, numQueries));
  Value low = b.index(0), high = length.rows;
  auto rowAt = [&](Value position) { return emitFirstRow(b, mask, position); };
  if (mask.getCausal()) {
    Value end = b.add(diagonal, 1);
    end = mask.hasPrefix() ? b.max(end, mask.getPrefix()) : end;
    high = b.min(high, rowAt(end));
  }
  if (mask.hasWindow()) {
    Value begin = b.sub(b.add(diagonal, 1), b.index(mask.getWindow()));
    low = b.max(low, rowAt(begin));
    high = b.min(high, rowAt(b.add(diagonal, mask.getWindow())));
  }
  return {low, high};
}
