//===- MultipoleSources.cpp - Sources of multipole patterns ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MultipoleSources.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

static int64_t extent(Value value, int64_t dim) {
  return cast<ShapedType>(value.getType()).getDimSize(dim);
}

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

Value fovea::attn::detail::createEmpty(OpBuilder &builder, Location loc,
                                       const Hierarchy &shape, Value like,
                                       int64_t rows, int64_t width) {
  SmallVector<OpFoldResult> sizes = {
      tensor::getMixedSize(builder, loc, like, 0),
      tensor::getMixedSize(builder, loc, like, 1), builder.getIndexAttr(rows),
      builder.getIndexAttr(width)};
  return tensor::EmptyOp::create(builder, loc, sizes, shape.sumType);
}

/// Summaries of one level, written to `init`; `biases` may be empty.
static Value writeSummary(OpBuilder &builder, Location loc, int64_t level,
                          Value input, OperandRange weights,
                          OperandRange biases, Value init) {
  Value levelWeights = weights[level - 1];
  auto op =
      SummarizeOp::create(builder, loc, init.getType(), input, levelWeights,
                          biases.empty() ? Value() : biases[level - 1], init);
  return op->getResult(0);
}

Value fovea::attn::detail::createSummary(OpBuilder &builder, Location loc,
                                         const Hierarchy &shape, int64_t level,
                                         Value input, OperandRange weights,
                                         OperandRange biases) {
  Value init = createEmpty(builder, loc, shape, input, shape.rows(level),
                           extent(weights[level - 1], 3));
  return writeSummary(builder, loc, level, input, weights, biases, init);
}

Value fovea::attn::detail::extractLevel(OpBuilder &builder, Location loc,
                                        const Hierarchy &shape, Value pool,
                                        int64_t level) {
  SmallVector<OpFoldResult> offsets(4, builder.getIndexAttr(0)),
      strides(4, builder.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(builder, loc, pool);
  offsets[2] = builder.getIndexAttr(shape.poolOffset(level));
  sizes[2] = builder.getIndexAttr(shape.rows(level));
  return tensor::ExtractSliceOp::create(builder, loc, pool, offsets, sizes,
                                        strides);
}

/// Summaries of all levels, one level after the other in one tensor.
static Value createPool(OpBuilder &builder, Location loc,
                        const Hierarchy &shape, Value input,
                        OperandRange weights, OperandRange biases) {
  Value pool = createEmpty(builder, loc, shape, input,
                           shape.poolOffset(shape.levels + 1),
                           extent(weights.front(), 3));
  for (int64_t level = 1; level <= shape.levels; ++level) {
    Value init = extractLevel(builder, loc, shape, pool, level);
    Value summary =
        writeSummary(builder, loc, level, input, weights, biases, init);
    auto slice = init.getDefiningOp<tensor::ExtractSliceOp>();
    pool = tensor::InsertSliceOp::create(
        builder, loc, summary, pool, slice.getMixedOffsets(),
        slice.getMixedSizes(), slice.getMixedStrides());
  }
  return pool;
}

/// Appends the log weights of the summaries of one level. Absent tokens are all
/// in the last interval, which only queries to the left of it read: none when
/// `causal`.
static void appendLogWeights(const Hierarchy &shape, int64_t level, bool causal,
                             Multiplicity multiplicity,
                             SmallVectorImpl<double> &logs) {
  int64_t unit = 1;
  if (multiplicity == Multiplicity::Fraction)
    unit = shape.segment(level);
  for (int64_t row = 0, rows = shape.rows(level); row < rows; ++row) {
    int64_t count = causal ? shape.segment(level) : shape.count(level, row);
    if (count == 0)
      logs.push_back(-std::numeric_limits<double>::infinity());
    else if (multiplicity == Multiplicity::None)
      logs.push_back(0.0);
    else
      logs.push_back(std::log(static_cast<double>(count) / unit));
  }
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
/// ends: attn.stream clamps them.
static SmallVector<LevelRange>
getLevelRanges(const RangeExprs &exprs, const Hierarchy &shape, int64_t level,
               AffineExpr interval, AffineExpr parent, bool causal) {
  int64_t rank = shape.rank;
  bool coarsest = level == shape.levels;
  AffineExpr begin = coarsest ? exprs.zero : parent * 2 * rank - 2 * rank;
  AffineExpr end =
      coarsest ? exprs.zero + shape.rows(level) : parent * 2 * rank + 4 * rank;
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
  auto type = cast<RankedTensorType>(counts.getType());
  auto weightsType =
      RankedTensorType::get({1, 1, count, 1}, builder.getF32Type());
  Value ones = arith::ConstantOp::create(
      builder, loc, DenseElementsAttr::get(weightsType, 1.0f));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, counts);
  sizes[2] = builder.getIndexAttr(llvm::divideCeil(type.getDimSize(2), count));
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
  int64_t start = shape.poolOffset(first);
  Type f32 = builder.getF32Type();
  SmallVector<OpFoldResult> sizes(4, builder.getIndexAttr(1)),
      offsets(4, builder.getIndexAttr(0)), strides(4, builder.getIndexAttr(1));
  sizes[0] = tensor::getMixedSize(builder, loc, mask, 0);
  sizes[2] = builder.getIndexAttr(shape.poolOffset(last + 1) - start);
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
    offsets[2] = builder.getIndexAttr(shape.poolOffset(level) - start);
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
  Value init = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, whole), elementType);
  return LogCountOp::create(builder, loc, init.getType(), whole, init)
      ->getResult(0);
}

MultipoleSources::MultipoleSources(
    OpBuilder &builder, Location loc, const Hierarchy &shape,
    const PresentTokens &tokens, OperandRange keyWeights,
    OperandRange keyBiases, OperandRange valueWeights, OperandRange valueBiases,
    bool causal, bool multiplicity) {
  addNearField(builder, loc, sources, shape, tokens, causal);
  keys = createPool(builder, loc, shape, tokens.key, keyWeights, keyBiases);
  values =
      createPool(builder, loc, shape, tokens.value, valueWeights, valueBiases);
  Multiplicity counted =
      multiplicity ? Multiplicity::Tokens : Multiplicity::None;
  RangeExprs exprs(builder.getContext());
  SmallVector<AffineMap> ranges;
  SmallVector<double> logs;
  for (int64_t level = 1; level <= shape.levels; ++level) {
    // Blocks of queries are the intervals of level 1.
    AffineExpr interval = exprs.block.floorDiv(int64_t(1) << (level - 1));
    AffineExpr parent = exprs.block.floorDiv(int64_t(1) << level);
    for (LevelRange range :
         getLevelRanges(exprs, shape, level, interval, parent, causal))
      ranges.push_back(exprs.rangeInPool(
          range.begin, range.end, shape.poolOffset(level), shape.rows(level)));
    appendLogWeights(shape, level, causal, counted, logs);
  }
  Type stateType = getStateType(getElementTypeOrSelf(tokens.key));
  Value logWeights =
      tokens.mask ? createCountedLogWeights(builder, loc, shape, tokens.mask,
                                            /*first=*/1, shape.levels, counted,
                                            stateType)
                  : createLogWeight(builder, loc, logs, stateType);
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
  SmallVector<double> logs;
  appendLogWeights(shape, level, causal, Multiplicity::Fraction, logs);
  Type stateType = getStateType(getElementTypeOrSelf(keys));
  // Of masked tokens the count itself: a common factor cancels.
  Value logWeights =
      mask ? createCountedLogWeights(builder, loc, shape, mask, level, level,
                                     Multiplicity::Tokens, stateType)
           : createLogWeight(builder, loc, logs, stateType);
  sources.add(keys, values, ranges, /*mask=*/{}, logWeights);
}
