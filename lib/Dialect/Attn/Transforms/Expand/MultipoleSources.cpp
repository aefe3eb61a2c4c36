//===- MultipoleSources.cpp - Sources of multipole patterns ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MultipoleSources.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

namespace {
/// Whether a summary counts as often as the tokens it stands for.
enum class Multiplicity {
  /// Once, however many they are.
  None,
  /// As often as there are tokens.
  Tokens,
  /// The fraction of the tokens that are present: in a soft-max over one level
  /// alone a factor common to all of its summaries cancels.
  Fraction
};
} // namespace

/// `expr` of one symbol, `symbol`.
static OpFoldResult apply(OpBuilder &builder, Location loc, AffineExpr expr,
                          OpFoldResult symbol) {
  return affine::makeComposedFoldedAffineApply(builder, loc, expr, symbol);
}

OpFoldResult Hierarchy::rows(OpBuilder &builder, Location loc,
                             int64_t level) const {
  return apply(builder, loc, rows(builder.getAffineSymbolExpr(0), level),
               tokens);
}

OpFoldResult Hierarchy::poolOffset(OpBuilder &builder, Location loc,
                                   int64_t level) const {
  return apply(builder, loc, poolOffset(builder.getAffineSymbolExpr(0), level),
               tokens);
}

OpFoldResult fovea::attn::detail::ceilDiv(OpBuilder &builder, Location loc,
                                          OpFoldResult rows, int64_t count) {
  return apply(builder, loc, builder.getAffineSymbolExpr(0).ceilDiv(count),
               rows);
}

Value fovea::attn::detail::createEmpty(OpBuilder &builder, Location loc,
                                       const Hierarchy &shape, Value like,
                                       OpFoldResult rows, int64_t width) {
  SmallVector<OpFoldResult> sizes = {
      tensor::getMixedSize(builder, loc, like, 0),
      tensor::getMixedSize(builder, loc, like, 1), rows,
      builder.getIndexAttr(width)};
  return tensor::EmptyOp::create(builder, loc, sizes, shape.sumType);
}

int64_t SummaryOperands::getWidth() const {
  return cast<ShapedType>(input.getType()).getShape().back();
}

/// Summaries of one level, written to `init`.
static Value writeSummary(OpBuilder &builder, Location loc, int64_t level,
                          const SummaryOperands &operands, Value init) {
  const auto &[input, weights, biases, ready] = operands;
  auto op = SummarizeOp::create(
      builder, loc, init.getType(), input, weights[level - 1],
      biases.empty() ? Value() : biases[level - 1], init);
  return op->getResult(0);
}

/// Ready-made summaries `[B, G, n, p, D]` as rows `[B, G, n p, D]` of numbers
/// of the type of sums.
static Value takeRows(OpBuilder &builder, Location loc, const Hierarchy &shape,
                      Value ready) {
  Value rows = tensor::CollapseShapeOp::create(
      builder, loc, ready,
      SmallVector<ReassociationIndices>{{0}, {1}, {2, 3}, {4}});
  auto type = cast<RankedTensorType>(rows.getType());
  unsigned width = type.getElementType().getIntOrFloatBitWidth(),
           needed = shape.sumType.getIntOrFloatBitWidth();
  Type converted = type.clone(shape.sumType);
  if (width < needed)
    return arith::ExtFOp::create(builder, loc, converted, rows);
  if (width > needed)
    return arith::TruncFOp::create(builder, loc, converted, rows);
  return rows;
}

Value fovea::attn::detail::createSummary(OpBuilder &builder, Location loc,
                                         const Hierarchy &shape, int64_t level,
                                         const SummaryOperands &operands) {
  if (!operands.ready.empty())
    return takeRows(builder, loc, shape, operands.ready[level - 1]);
  Value init =
      createEmpty(builder, loc, shape, operands.input,
                  shape.rows(builder, loc, level), operands.getWidth());
  return writeSummary(builder, loc, level, operands, init);
}

Value fovea::attn::detail::extractLevel(OpBuilder &builder, Location loc,
                                        const Hierarchy &shape, Value pool,
                                        int64_t level, OpFoldResult rows) {
  SmallVector<OpFoldResult> offsets(4, builder.getIndexAttr(0)),
      strides(4, builder.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(builder, loc, pool);
  offsets[2] = shape.poolOffset(builder, loc, level);
  sizes[2] = rows;
  return tensor::ExtractSliceOp::create(builder, loc, pool, offsets, sizes,
                                        strides);
}

/// Summaries of all levels, one level after the other in one tensor.
static Value createPool(OpBuilder &builder, Location loc,
                        const Hierarchy &shape,
                        const SummaryOperands &operands) {
  Value pool = createEmpty(builder, loc, shape, operands.input,
                           shape.poolOffset(builder, loc, shape.levels + 1),
                           operands.getWidth());
  SmallVector<OpFoldResult> offsets(4, builder.getIndexAttr(0)),
      strides(4, builder.getIndexAttr(1));
  for (int64_t level = 1; level <= shape.levels; ++level) {
    Value summary;
    if (operands.ready.empty()) {
      Value init = extractLevel(builder, loc, shape, pool, level,
                                shape.rows(builder, loc, level));
      summary = writeSummary(builder, loc, level, operands, init);
    } else {
      summary = takeRows(builder, loc, shape, operands.ready[level - 1]);
    }
    offsets[2] = shape.poolOffset(builder, loc, level);
    pool = tensor::InsertSliceOp::create(
        builder, loc, summary, pool, offsets,
        tensor::getMixedSizes(builder, loc, summary), strides);
  }
  return pool;
}

/// Appends the log weights of the summaries of one level of `tokens` tokens.
/// Absent tokens are all in the last interval, which only queries to the left
/// of it read: none when `causal`.
static void appendLogWeights(const Hierarchy &shape, int64_t tokens,
                             int64_t level, bool causal,
                             Multiplicity multiplicity,
                             SmallVectorImpl<double> &logs) {
  int64_t segment = shape.segment(level), unit = 1;
  if (multiplicity == Multiplicity::Fraction)
    unit = segment;
  int64_t rows = llvm::divideCeil(tokens, shape.interval(level)) * shape.rank;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t count = segment;
    if (!causal)
      count = std::clamp<int64_t>(tokens - row * segment, 0, segment);
    if (count == 0)
      logs.push_back(-std::numeric_limits<double>::infinity());
    else if (multiplicity == Multiplicity::None)
      logs.push_back(0.0);
    else
      logs.push_back(std::log(static_cast<double>(count) / unit));
  }
}

/// The logarithms of `counts` in a tensor of numbers.
static Value createLogs(OpBuilder &builder, Location loc, Value counts,
                        Type elementType) {
  Value init = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, counts), elementType);
  return LogCountOp::create(builder, loc, init.getType(), counts, init)
      ->getResult(0);
}

/// Writes how often the summaries of one level count to `init`, [1, 1, rows].
static Value countSegments(OpBuilder &builder, Location loc,
                           const Hierarchy &shape, int64_t level, bool causal,
                           Multiplicity multiplicity, Value init) {
  Type i32 = builder.getI32Type();
  int64_t segment = shape.segment(level);
  auto createCount = [&](OpBuilder &nested, Location at, int64_t count) {
    return arith::ConstantOp::create(nested, at,
                                     nested.getI32IntegerAttr(count));
  };
  if (causal)
    return linalg::FillOp::create(
               builder, loc, createCount(builder, loc, segment).getResult(),
               init)
        .getResult(0);
  Value tokens = getValueOrCreateConstantIndexOp(builder, loc, shape.tokens);
  int64_t most = multiplicity == Multiplicity::None ? 1 : segment;
  SmallVector<utils::IteratorType> iterators(3, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, init.getType(), /*inputs=*/ValueRange(), init,
             builder.getMultiDimIdentityMap(3), iterators,
             [&](OpBuilder &nested, Location at, ValueRange) {
               auto number = [&](int64_t value) -> Value {
                 return arith::ConstantIndexOp::create(nested, at, value);
               };
               Value first = arith::MulIOp::create(
                   nested, at, linalg::IndexOp::create(nested, at, 2),
                   number(segment));
               Value left = arith::SubIOp::create(nested, at, tokens, first);
               Value count = arith::MaxSIOp::create(
                   nested, at,
                   arith::MinSIOp::create(nested, at, left, number(most)),
                   number(0));
               linalg::YieldOp::create(
                   nested, at,
                   Value(arith::IndexCastOp::create(nested, at, i32, count)));
             })
      .getResult(0);
}

/// Log weights of the summaries of levels `first` to `last` as the number of
/// tokens has them at run time, [1, 1, rows]; null when all are zero.
static Value createOpenLogWeights(OpBuilder &builder, Location loc,
                                  const Hierarchy &shape, int64_t first,
                                  int64_t last, bool causal,
                                  Multiplicity multiplicity, Type elementType) {
  // A fraction of all tokens, as whole segments are, is 1.
  if (causal && multiplicity != Multiplicity::Tokens)
    return Value();
  SmallVector<OpFoldResult> sizes(3, builder.getIndexAttr(1)),
      offsets(3, builder.getIndexAttr(0)), strides(3, builder.getIndexAttr(1));
  AffineExpr count = builder.getAffineSymbolExpr(0);
  AffineExpr start = shape.poolOffset(count, first);
  sizes[2] = apply(builder, loc, shape.poolOffset(count, last + 1) - start,
                   shape.tokens);
  Value pool =
      tensor::EmptyOp::create(builder, loc, sizes, builder.getI32Type());
  for (int64_t level = first; level <= last; ++level) {
    offsets[2] = apply(builder, loc, shape.poolOffset(count, level) - start,
                       shape.tokens);
    sizes[2] = shape.rows(builder, loc, level);
    Value init = tensor::ExtractSliceOp::create(builder, loc, pool, offsets,
                                                sizes, strides);
    Value counts =
        countSegments(builder, loc, shape, level, causal, multiplicity, init);
    pool = tensor::InsertSliceOp::create(builder, loc, counts, pool, offsets,
                                         sizes, strides);
  }
  return createLogs(builder, loc, pool, elementType);
}

/// A constant of shape `[1, 1, rows]`, or null when all log weights are zero.
static Value createLogWeight(OpBuilder &builder, Location loc,
                             SmallVector<double> logs, Type elementType) {
  int64_t rows = logs.size();
  if (llvm::all_equal(logs)) {
    if (logs.front() == 0.0)
      return Value();
    logs.resize(1);
  }
  auto type = RankedTensorType::get({1, 1, rows}, elementType);
  DenseElementsAttr values;
  if (elementType.isF64()) {
    values = DenseElementsAttr::get(type, ArrayRef<double>(logs));
  } else {
    SmallVector<float> rounded(logs.begin(), logs.end());
    values = DenseElementsAttr::get(type, ArrayRef<float>(rounded));
  }
  return arith::ConstantOp::create(builder, loc, values);
}

namespace {
/// What a query reads of a level: at most one range on either side of it.
struct LevelRange {
  AffineExpr begin, end;
};
} // namespace

/// The ranges that a query of interval `interval` reads at `level`, in rows of
/// summaries; `parent` is the interval's parent. Ranges may reach past both
/// ends: attn.stream clamps them. So do those of the coarsest level, which the
/// number of tokens alone tells, with four intervals at most.
static SmallVector<LevelRange>
getLevelRanges(const RangeExprs &exprs, const Hierarchy &shape, int64_t level,
               AffineExpr interval, AffineExpr parent, bool causal) {
  int64_t rank = shape.rank;
  std::optional<int64_t> tokens = shape.getStaticTokens();
  bool coarsest = tokens && level == shape.levels;
  AffineExpr begin = coarsest ? exprs.zero : parent * 2 * rank - 2 * rank;
  AffineExpr end = coarsest ? shape.rows(exprs.zero + *tokens, level)
                            : parent * 2 * rank + 4 * rank;
  SmallVector<LevelRange> ranges = {{begin, interval * rank - rank}};
  if (!causal)
    ranges.push_back({interval * rank + 2 * rank, end});
  return ranges;
}

void fovea::attn::detail::addNearField(OpBuilder &builder, Location loc,
                                       StreamSources &sources,
                                       const Hierarchy &shape,
                                       const PresentTokens &tokens,
                                       bool causal) {
  RangeExprs exprs(builder.getContext());
  AffineExpr begin = exprs.block * shape.group - shape.group;
  AffineExpr end = exprs.block * shape.group + (causal ? 1 : 2) * shape.group;
  Type stateType = getStateType(getElementTypeOrSelf(tokens.key));
  sources.add(tokens.key, tokens.value,
              shape.levels == 0 ? exprs.allRows() : exprs.range(begin, end),
              getCausalMask(builder.getContext(), causal),
              createTokenLogWeights(builder, loc, tokens.mask, stateType));
}

/// Sums of `count` consecutive rows of numbers [B, 1, rows, 1].
static Value sumCounts(OpBuilder &builder, Location loc, Value counts,
                       int64_t count) {
  auto weightsType =
      RankedTensorType::get({1, 1, count, 1}, builder.getF32Type());
  Value ones = arith::ConstantOp::create(
      builder, loc, DenseElementsAttr::get(weightsType, 1.0f));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, counts);
  sizes[2] = ceilDiv(builder, loc, sizes[2], count);
  Value init =
      tensor::EmptyOp::create(builder, loc, sizes, builder.getF32Type());
  return SummarizeOp::create(builder, loc, init.getType(), counts, ones,
                             /*bias=*/Value(), init)
      ->getResult(0);
}

/// How many tokens the summaries of levels `first` to `last` stand for, one
/// level after the other: [B, 1, rows, 1]. Sums in f32 are exact.
static Value countTokens(OpBuilder &builder, Location loc,
                         const Hierarchy &shape, Value mask, int64_t first,
                         int64_t last) {
  AffineExpr count = builder.getAffineSymbolExpr(0);
  AffineExpr start = shape.poolOffset(count, first);
  Type f32 = builder.getF32Type();
  SmallVector<OpFoldResult> sizes(4, builder.getIndexAttr(1)),
      offsets(4, builder.getIndexAttr(0)), strides(4, builder.getIndexAttr(1));
  sizes[0] = tensor::getMixedSize(builder, loc, mask, 0);
  sizes[2] = apply(builder, loc, shape.poolOffset(count, last + 1) - start,
                   shape.tokens);
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f));
  Value pool = tensor::EmptyOp::create(builder, loc, sizes, f32);
  pool = linalg::FillOp::create(builder, loc, zero, pool).getResult(0);
  Value counts =
      createRows(builder, loc, mask, /*rank=*/4, f32, /*present=*/1.0,
                 /*absent=*/0.0);
  for (int64_t level = first; level <= last; ++level) {
    int64_t joined = level == first ? shape.segment(first) : 2;
    if (joined != 1)
      counts = sumCounts(builder, loc, counts, joined);
    // Summaries behind the last token stand for none.
    offsets[2] = apply(builder, loc, shape.poolOffset(count, level) - start,
                       shape.tokens);
    pool = tensor::InsertSliceOp::create(
        builder, loc, counts, pool, offsets,
        tensor::getMixedSizes(builder, loc, counts), strides);
  }
  return pool;
}

/// Log weights of the summaries of levels `first` to `last` of masked tokens,
/// [B, 1, rows].
static Value createCountedLogWeights(OpBuilder &builder, Location loc,
                                     const Hierarchy &shape, Value mask,
                                     int64_t first, int64_t last,
                                     Multiplicity multiplicity,
                                     Type elementType) {
  Value counts = countTokens(builder, loc, shape, mask, first, last);
  counts = tensor::CollapseShapeOp::create(
      builder, loc, counts,
      SmallVector<ReassociationIndices>{{0}, {1}, {2, 3}});
  auto type = cast<RankedTensorType>(counts.getType());
  if (multiplicity == Multiplicity::None) {
    Value one =
        arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(1.0f));
    Value ones = tensor::SplatOp::create(
        builder, loc, one, tensor::getMixedSizes(builder, loc, counts));
    counts = arith::MinimumFOp::create(builder, loc, counts, ones);
  }
  Value whole = arith::FPToSIOp::create(
      builder, loc, type.clone(builder.getI32Type()), counts);
  return createLogs(builder, loc, whole, elementType);
}

MultipoleSources::MultipoleSources(OpBuilder &builder, Location loc,
                                   const Hierarchy &shape,
                                   const PresentTokens &tokens,
                                   const SummaryOperands &keyOperands,
                                   const SummaryOperands &valueOperands,
                                   bool causal, bool multiplicity) {
  addNearField(builder, loc, sources, shape, tokens, causal);
  keys = createPool(builder, loc, shape, keyOperands);
  values = createPool(builder, loc, shape, valueOperands);
  Multiplicity counted =
      multiplicity ? Multiplicity::Tokens : Multiplicity::None;
  RangeExprs exprs(builder.getContext());
  std::optional<int64_t> count = shape.getStaticTokens();
  AffineExpr all = count ? exprs.zero + *count : exprs.queries;
  SmallVector<AffineMap> ranges;
  SmallVector<double> logs;
  for (int64_t level = 1; level <= shape.levels; ++level) {
    // Blocks of queries are the intervals of level 1.
    AffineExpr interval = exprs.block.floorDiv(int64_t(1) << (level - 1));
    AffineExpr parent = exprs.block.floorDiv(int64_t(1) << level);
    for (LevelRange range :
         getLevelRanges(exprs, shape, level, interval, parent, causal))
      ranges.push_back(exprs.rangeInPool(range.begin, range.end,
                                         shape.poolOffset(all, level),
                                         shape.rows(all, level)));
    if (count)
      appendLogWeights(shape, *count, level, causal, counted, logs);
  }
  Type stateType = getStateType(getElementTypeOrSelf(tokens.key));
  Value logWeights;
  if (tokens.mask)
    logWeights =
        createCountedLogWeights(builder, loc, shape, tokens.mask,
                                /*first=*/1, shape.levels, counted, stateType);
  else if (count)
    logWeights = createLogWeight(builder, loc, logs, stateType);
  else
    logWeights = createOpenLogWeights(builder, loc, shape, /*first=*/1,
                                      shape.levels, causal, counted, stateType);
  sources.add(keys, values, ranges, /*mask=*/{}, logWeights);
}

void LinearLevel::addSource(OpBuilder &builder, Location loc,
                            const Hierarchy &shape, int64_t level, Value mask,
                            bool causal) {
  RangeExprs exprs(builder.getContext());
  SmallVector<AffineMap> ranges;
  for (LevelRange range :
       getLevelRanges(exprs, shape, level, /*interval=*/exprs.block,
                      /*parent=*/exprs.block.floorDiv(2), causal))
    ranges.push_back(exprs.range(range.begin, range.end));
  Type stateType = getStateType(getElementTypeOrSelf(keys));
  Value logWeights;
  // Of tokens known at run time the count itself: a common factor cancels.
  if (mask) {
    logWeights =
        createCountedLogWeights(builder, loc, shape, mask, level, level,
                                Multiplicity::Tokens, stateType);
  } else if (std::optional<int64_t> tokens = shape.getStaticTokens()) {
    SmallVector<double> logs;
    appendLogWeights(shape, *tokens, level, causal, Multiplicity::Fraction,
                     logs);
    logWeights = createLogWeight(builder, loc, logs, stateType);
  } else {
    logWeights = createOpenLogWeights(builder, loc, shape, level, level, causal,
                                      Multiplicity::Fraction, stateType);
  }
  sources.add(keys, values, ranges, /*mask=*/{}, logWeights);
}
