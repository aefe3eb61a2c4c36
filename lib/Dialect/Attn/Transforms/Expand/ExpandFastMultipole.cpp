//===- ExpandFastMultipole.cpp - Expand multipole patterns ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Level l = 1..L cuts the tokens into intervals of m_l = 2^(l-1) m. A query in
// interval g of level l reads, at that level, the intervals that are not its
// neighbours but whose parents are neighbours of its own parent e = g / 2: of
// the children 2e-2 .. 2e+3 of the parents e-1, e, e+1, all but g-1, g, g+1. At
// the coarsest level it reads everything but g-1, g, g+1. So the rows of a
// level are at most two ranges, on the left and on the right of the query.
//
//===----------------------------------------------------------------------===//

#include "ExpandPatterns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

static int64_t extent(Value value, int64_t dim) {
  return cast<ShapedType>(value.getType()).getDimSize(dim);
}

namespace {
/// The shape of a hierarchy: numbers that both forms are built from.
struct Hierarchy {
  int64_t tokens, group, rank, levels;
  /// The element type of summaries and of parts of the output.
  Type sumType;

  /// Tokens of an interval of `level`, which counts from 1.
  int64_t interval(int64_t level) const { return group << (level - 1); }
  /// Tokens that a summary of `level` stands for, unless some are absent.
  int64_t segment(int64_t level) const { return interval(level) / rank; }
  /// Summaries of `level`.
  int64_t rows(int64_t level) const {
    return llvm::divideCeil(tokens, interval(level)) * rank;
  }
  /// Where `level` starts in a pool of all levels.
  int64_t poolOffset(int64_t level) const {
    int64_t offset = 0;
    for (int64_t below = 1; below < level; ++below)
      offset += rows(below);
    return offset;
  }
  /// Present tokens that summary `row` of `level` stands for.
  int64_t count(int64_t level, int64_t row) const {
    int64_t length = segment(level);
    return std::clamp<int64_t>(tokens - row * length, 0, length);
  }
};

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

/// `init` of shape `[B, heads, rows, width]`, batch and heads as in `like`.
static Value createEmpty(OpBuilder &builder, Location loc,
                         const Hierarchy &shape, Value like, int64_t rows,
                         int64_t width) {
  SmallVector<OpFoldResult> sizes = {
      tensor::getMixedSize(builder, loc, like, 0),
      tensor::getMixedSize(builder, loc, like, 1), builder.getIndexAttr(rows),
      builder.getIndexAttr(width)};
  return tensor::EmptyOp::create(builder, loc, sizes, shape.sumType);
}

/// Summaries of one level, written to `init`; `biases` may be empty.
static Value createSummary(OpBuilder &builder, Location loc, int64_t level,
                           Value input, OperandRange weights,
                           OperandRange biases, Value init) {
  Value levelWeights = weights[level - 1];
  auto op =
      SummarizeOp::create(builder, loc, init.getType(), input, levelWeights,
                          biases.empty() ? Value() : biases[level - 1], init);
  return op->getResult(0);
}

/// Summaries of one level in a tensor of their own.
static Value createSummary(OpBuilder &builder, Location loc,
                           const Hierarchy &shape, int64_t level, Value input,
                           OperandRange weights, OperandRange biases) {
  Value init = createEmpty(builder, loc, shape, input, shape.rows(level),
                           extent(weights[level - 1], 3));
  return createSummary(builder, loc, level, input, weights, biases, init);
}

/// Summaries of all levels, one level after the other in one tensor.
static Value createPool(OpBuilder &builder, Location loc,
                        const Hierarchy &shape, Value input,
                        OperandRange weights, OperandRange biases) {
  Value pool = createEmpty(builder, loc, shape, input,
                           shape.poolOffset(shape.levels + 1),
                           extent(weights.front(), 3));
  SmallVector<OpFoldResult> offsets(4, builder.getIndexAttr(0)),
      strides(4, builder.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(builder, loc, pool);
  for (int64_t level = 1; level <= shape.levels; ++level) {
    offsets[2] = builder.getIndexAttr(shape.poolOffset(level));
    sizes[2] = builder.getIndexAttr(shape.rows(level));
    Value init = tensor::ExtractSliceOp::create(builder, loc, pool, offsets,
                                                sizes, strides);
    Value summary =
        createSummary(builder, loc, level, input, weights, biases, init);
    pool = tensor::InsertSliceOp::create(builder, loc, summary, pool, offsets,
                                         sizes, strides);
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

/// Adds level 0: the keys of the query's group and of its neighbours.
static void addNearField(StreamSources &sources, const RangeExprs &exprs,
                         const Hierarchy &shape, Value key, Value value,
                         bool causal) {
  AffineExpr begin = exprs.block * shape.group - shape.group;
  AffineExpr end = exprs.block * shape.group + (causal ? 1 : 2) * shape.group;
  sources.add(key, value, exprs.range(begin, end),
              getCausalMask(key.getContext(), causal));
}

/// What is computed from sums is rounded once, at the very end, and `lse` not
/// at all, so sums stay in the state's type; unless summaries are to be
/// `narrow`.
template <typename OpTy> static Hierarchy getHierarchy(OpTy op, bool narrow) {
  Type data = getElementTypeOrSelf(op.getQuery());
  return Hierarchy{extent(op.getQuery(), 2),
                   static_cast<int64_t>(op.getGroup()), op.getRank(),
                   op.getNumLevels(), narrow ? data : getStateType(data)};
}

/// Without levels every group neighbours every other: dense attention.
template <typename OpTy>
static void replaceByDense(OpTy op, Value lse, PatternRewriter &rewriter) {
  RangeExprs exprs(op.getContext());
  StreamSources sources;
  sources.add(op.getKey(), op.getValue(), exprs.allRows(),
              getCausalMask(op.getContext(), op.getCausal()));
  rewriter.replaceOp(op, sources.build(rewriter, op.getLoc(), op.getQuery(),
                                       op.getOutput(), lse, /*block=*/0,
                                       op.getScaleOrDefault()));
}

namespace {
/// One stream of two sources: the near field, and a pool of all summaries.
struct ExpandFastMultipole : OpRewritePattern<FastMultipoleOp> {
  ExpandFastMultipole(MLIRContext *context, bool narrow)
      : OpRewritePattern(context), narrow(narrow) {}

  LogicalResult matchAndRewrite(FastMultipoleOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Hierarchy shape = getHierarchy(op, narrow);
    if (shape.levels == 0) {
      replaceByDense(op, op.getLse(), rewriter);
      return success();
    }
    Location loc = op.getLoc();
    bool causal = op.getCausal();
    Type stateType = getStateType(getElementTypeOrSelf(op.getQuery()));
    auto multiplicity =
        op.getMultiplicity() ? Multiplicity::Tokens : Multiplicity::None;
    RangeExprs exprs(getContext());
    StreamSources sources;
    addNearField(sources, exprs, shape, op.getKey(), op.getValue(), causal);
    Value keys = createPool(rewriter, loc, shape, op.getKey(),
                            op.getKeyWeights(), op.getKeyBiases());
    Value values = createPool(rewriter, loc, shape, op.getValue(),
                              op.getValueWeights(), op.getValueBiases());
    SmallVector<AffineMap> ranges;
    SmallVector<double> logs;
    for (int64_t level = 1; level <= shape.levels; ++level) {
      // Blocks of queries are the intervals of level 1.
      AffineExpr interval = exprs.block.floorDiv(int64_t(1) << (level - 1));
      AffineExpr parent = exprs.block.floorDiv(int64_t(1) << level);
      for (LevelRange range :
           getLevelRanges(exprs, shape, level, interval, parent, causal))
        ranges.push_back(exprs.rangeInPool(range.begin, range.end,
                                           shape.poolOffset(level),
                                           shape.rows(level)));
      appendLogWeights(shape, level, causal, multiplicity, logs);
    }
    sources.add(keys, values, ranges, /*mask=*/{},
                createLogWeight(rewriter, loc, logs, stateType));
    rewriter.replaceOp(op, sources.build(rewriter, loc, op.getQuery(),
                                         op.getOutput(), op.getLse(),
                                         shape.group, op.getScaleOrDefault()));
    return success();
  }

private:
  bool narrow;
};

/// One stream per level, over summarised queries; the sum of all of them.
struct ExpandFastMultipoleLinear : OpRewritePattern<FastMultipoleLinearOp> {
  ExpandFastMultipoleLinear(MLIRContext *context, bool narrow)
      : OpRewritePattern(context), narrow(narrow) {}

  LogicalResult matchAndRewrite(FastMultipoleLinearOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    Hierarchy shape = getHierarchy(op, narrow);
    if (shape.levels == 0) {
      replaceByDense(op, /*lse=*/Value(), rewriter);
      return success();
    }
    Location loc = op.getLoc();
    RangeExprs exprs(getContext());
    StreamSources near;
    addNearField(near, exprs, shape, op.getKey(), op.getValue(),
                 op.getCausal());
    Value nearInit = createEmpty(rewriter, loc, shape, op.getQuery(),
                                 shape.tokens, extent(op.getValue(), 3));
    SmallVector<Value> parts = {near.build(rewriter, loc, op.getQuery(),
                                           nearInit, /*lse=*/Value(),
                                           shape.group, op.getScaleOrDefault())
                                    ->getResult(0)};
    for (int64_t level = 1; level <= shape.levels; ++level)
      parts.push_back(createLevel(rewriter, op, exprs, shape, level));
    rewriter.replaceOp(op, createSum(rewriter, op, shape, parts));
    return success();
  }

private:
  /// The output rows of the summarised queries of one level.
  static Value createLevel(OpBuilder &builder, FastMultipoleLinearOp op,
                           const RangeExprs &exprs, const Hierarchy &shape,
                           int64_t level) {
    Location loc = op.getLoc();
    Value queries = createSummary(builder, loc, shape, level, op.getQuery(),
                                  op.getQueryWeights(), op.getQueryBiases());
    Value keys = createSummary(builder, loc, shape, level, op.getKey(),
                               op.getKeyWeights(), op.getKeyBiases());
    Value values = createSummary(builder, loc, shape, level, op.getValue(),
                                 op.getValueWeights(), op.getValueBiases());
    // A block is the queries of one interval.
    SmallVector<AffineMap> ranges;
    for (LevelRange range :
         getLevelRanges(exprs, shape, level, /*interval=*/exprs.block,
                        /*parent=*/exprs.block.floorDiv(2), op.getCausal()))
      ranges.push_back(exprs.range(range.begin, range.end));
    SmallVector<double> logs;
    appendLogWeights(shape, level, op.getCausal(), Multiplicity::Fraction,
                     logs);
    StreamSources sources;
    sources.add(
        keys, values, ranges, /*mask=*/{},
        createLogWeight(builder, loc, logs,
                        getStateType(getElementTypeOrSelf(op.getQuery()))));
    Value init = createEmpty(builder, loc, shape, op.getQuery(),
                             shape.rows(level), extent(op.getValue(), 3));
    return sources
        .build(builder, loc, queries, init, /*lse=*/Value(), shape.rank,
               op.getScaleOrDefault())
        ->getResult(0);
  }

  /// The sum of `parts`, level 0 first: token `i` takes row `i p / m_l` of
  /// level `l`. Added in the state type and rounded once.
  static Value createSum(OpBuilder &builder, FastMultipoleLinearOp op,
                         const Hierarchy &shape, SmallVector<Value> parts) {
    Location loc = op.getLoc();
    SmallVector<AffineExpr> dims(4);
    bindDimsList(op.getContext(), MutableArrayRef(dims));
    auto identity = AffineMap::getMultiDimIdentityMap(4, op.getContext());
    SmallVector<AffineMap> maps = {identity};
    for (int64_t level = 1; level <= shape.levels; ++level) {
      maps.push_back(AffineMap::get(
          4, 0,
          {dims[0], dims[1], dims[2].floorDiv(shape.segment(level)), dims[3]},
          op.getContext()));
      // One row per token: the rows of absent tokens have to go.
      if (shape.segment(level) == 1 && shape.rows(level) != shape.tokens) {
        SmallVector<OpFoldResult> sizes =
            tensor::getMixedSizes(builder, loc, parts[0]);
        SmallVector<OpFoldResult> zeros(4, builder.getIndexAttr(0));
        SmallVector<OpFoldResult> ones(4, builder.getIndexAttr(1));
        sizes[2] = builder.getIndexAttr(shape.tokens);
        parts[level] = tensor::ExtractSliceOp::create(
            builder, loc, parts[level], zeros, sizes, ones);
      }
    }
    maps.push_back(identity);

    Type elementType = getElementTypeOrSelf(op.getOutput());
    Type stateType = getStateType(elementType);
    auto addParts = [&](OpBuilder &nested, Location loc, ValueRange args) {
      Value sum;
      for (Value part : args.drop_back()) {
        if (part.getType() != stateType)
          part = arith::ExtFOp::create(nested, loc, stateType, part);
        sum = sum ? arith::AddFOp::create(nested, loc, sum, part) : part;
      }
      if (sum.getType() != elementType)
        sum = arith::TruncFOp::create(nested, loc, elementType, sum);
      linalg::YieldOp::create(nested, loc, sum);
    };
    SmallVector<utils::IteratorType> iterators(4,
                                               utils::IteratorType::parallel);
    return linalg::GenericOp::create(builder, loc, op.getOutput().getType(),
                                     parts, op.getOutput(), maps, iterators,
                                     addParts)
        .getResult(0);
  }

  bool narrow;
};
} // namespace

void fovea::attn::detail::populateExpandFastMultipolePatterns(
    RewritePatternSet &patterns, bool narrowSummaries) {
  patterns.add<ExpandFastMultipole, ExpandFastMultipoleLinear>(
      patterns.getContext(), narrowSummaries);
}
