//===- MultipoleSources.h - Sources of multipole patterns -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the expansions of the multipole patterns and of their gradients share.
//
// Level l = 1..L cuts the tokens into intervals of m_l = 2^(l-1) m. A query in
// interval g of level l reads, at that level, the intervals that are not its
// neighbours but whose parents are neighbours of its own parent e = g / 2: of
// the children 2e-2 .. 2e+3 of the parents e-1, e, e+1, all but g-1, g, g+1. At
// the coarsest level it reads everything but g-1, g, g+1. So the rows of a
// level are at most two ranges, on the left and on the right of the query.
//
// Where the number of tokens is dynamic, so is the number of levels that are
// read. Levels beyond it have two intervals at most, which neighbour each
// other: their ranges name no rows.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_MULTIPOLESOURCES_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_MULTIPOLESOURCES_H

#include "fovea/Dialect/Attn/IR/Levels.h"
#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "fovea/Dialect/Attn/Transforms/Presence.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"

namespace fovea::attn::detail {

/// The shape of a hierarchy: numbers that both forms are built from.
struct Hierarchy {
  /// A constant where the type tells it.
  mlir::OpFoldResult tokens;
  int64_t group, rank, levels;
  /// The element type of summaries and of parts of the output.
  mlir::Type sumType;

  std::optional<int64_t> getStaticTokens() const {
    return mlir::getConstantIntValue(tokens);
  }
  /// Tokens of an interval of `level`, which counts from 1.
  int64_t interval(int64_t level) const { return group << (level - 1); }
  /// Queries that read the same near keys: all of them (0) without levels, when
  /// every group neighbours every other.
  int64_t getNearBlock() const { return levels == 0 ? 0 : group; }
  /// Tokens that a summary of `level` stands for, unless some are absent.
  int64_t segment(int64_t level) const { return interval(level) / rank; }
  /// Summaries of `level` of `count` tokens.
  mlir::AffineExpr rows(mlir::AffineExpr count, int64_t level) const {
    return count.ceilDiv(interval(level)) * rank;
  }
  /// Where `level` starts in a pool of all levels of `count` tokens.
  mlir::AffineExpr poolOffset(mlir::AffineExpr count, int64_t level) const {
    mlir::AffineExpr offset =
        mlir::getAffineConstantExpr(0, count.getContext());
    for (int64_t below = 1; below < level; ++below)
      offset = offset + rows(count, below);
    return offset;
  }
  /// The same of all tokens.
  mlir::OpFoldResult rows(mlir::OpBuilder &builder, mlir::Location loc,
                          int64_t level) const;
  mlir::OpFoldResult poolOffset(mlir::OpBuilder &builder, mlir::Location loc,
                                int64_t level) const;
};

/// The hierarchy of an op. What is computed from sums is rounded once, at the
/// very end, and `lse` not at all, so sums stay in the state's type; unless
/// summaries are to be `narrow`.
template <typename OpTy>
Hierarchy getHierarchy(mlir::OpBuilder &builder, OpTy op, bool narrow) {
  mlir::Type data = mlir::getElementTypeOrSelf(op.getQuery());
  return Hierarchy{
      mlir::tensor::getMixedSize(builder, op.getLoc(), op.getQuery(), 2),
      static_cast<int64_t>(op.getGroup()), op.getRank(), getUsedLevels(op),
      narrow ? data : getStateType(data)};
}

/// What a pattern reads: zeros in rows of absent tokens.
struct PresentTokens {
  template <typename OpTy>
  PresentTokens(mlir::OpBuilder &builder, OpTy op)
      : mask(op.getMask()),
        query(keepRows(builder, op.getLoc(), op.getQuery(), mask)),
        key(keepRows(builder, op.getLoc(), op.getKey(), mask)),
        value(keepRows(builder, op.getLoc(), op.getValue(), mask)) {}

  /// Null if all tokens are present.
  mlir::Value mask;
  mlir::Value query, key, value;
};

/// A tensor `[B, heads, rows, width]` to be written, batch and heads as in
/// `like`.
mlir::Value createEmpty(mlir::OpBuilder &builder, mlir::Location loc,
                        const Hierarchy &shape, mlir::Value like,
                        mlir::OpFoldResult rows, int64_t width);
/// `ceil(rows / count)`.
mlir::OpFoldResult ceilDiv(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::OpFoldResult rows, int64_t count);

/// What the summaries of one of query, key and value are made of, or
/// ready-made ones; biases may be empty.
struct SummaryOperands {
  mlir::Value input;
  mlir::OperandRange weights, biases, ready;

  int64_t getWidth() const;
};

template <typename OpTy>
SummaryOperands getKeyOperands(OpTy op, const PresentTokens &tokens) {
  return {tokens.key, op.getKeyWeights(), op.getKeyBiases(),
          op.getKeySummaries()};
}
template <typename OpTy>
SummaryOperands getValueOperands(OpTy op, const PresentTokens &tokens) {
  return {tokens.value, op.getValueWeights(), op.getValueBiases(),
          op.getValueSummaries()};
}
template <typename OpTy>
SummaryOperands getQueryOperands(OpTy op, const PresentTokens &tokens) {
  return {tokens.query, op.getQueryWeights(), op.getQueryBiases(),
          op.getQuerySummaries()};
}

/// Summaries of one level in a tensor of their own.
mlir::Value createSummary(mlir::OpBuilder &builder, mlir::Location loc,
                          const Hierarchy &shape, int64_t level,
                          const SummaryOperands &operands);

/// The part of a pool of all levels that is `level`, `rows` rows.
mlir::Value extractLevel(mlir::OpBuilder &builder, mlir::Location loc,
                         const Hierarchy &shape, mlir::Value pool,
                         int64_t level, mlir::OpFoldResult rows);

/// Adds level 0: the keys of the query's group and of its neighbours, and all
/// keys without levels.
void addNearField(mlir::OpBuilder &builder, mlir::Location loc,
                  StreamSources &sources, const Hierarchy &shape,
                  const PresentTokens &tokens, bool causal);

/// The sources of attn.fast_multipole: the near field, and a pool of all
/// summaries.
struct MultipoleSources {
  template <typename OpTy>
  MultipoleSources(mlir::OpBuilder &builder, OpTy op, const Hierarchy &shape,
                   const PresentTokens &tokens)
      : MultipoleSources(builder, op.getLoc(), shape, tokens,
                         getKeyOperands(op, tokens),
                         getValueOperands(op, tokens), op.getCausal(),
                         op.getMultiplicity()) {}

  StreamSources sources;
  /// Keys and values of all levels, one after the other.
  mlir::Value keys, values;

private:
  MultipoleSources(mlir::OpBuilder &builder, mlir::Location loc,
                   const Hierarchy &shape, const PresentTokens &tokens,
                   const SummaryOperands &keyOperands,
                   const SummaryOperands &valueOperands, bool causal,
                   bool multiplicity);
};

/// One level of attn.fast_multipole_linear, whose blocks are the queries of one
/// interval.
struct LinearLevel {
  template <typename OpTy>
  LinearLevel(mlir::OpBuilder &builder, OpTy op, const Hierarchy &shape,
              const PresentTokens &tokens, int64_t level)
      : queries(createSummary(builder, op.getLoc(), shape, level,
                              getQueryOperands(op, tokens))),
        keys(createSummary(builder, op.getLoc(), shape, level,
                           getKeyOperands(op, tokens))),
        values(createSummary(builder, op.getLoc(), shape, level,
                             getValueOperands(op, tokens))) {
    addSource(builder, op.getLoc(), shape, level, tokens.mask, op.getCausal());
  }

  mlir::Value queries, keys, values;
  StreamSources sources;

private:
  void addSource(mlir::OpBuilder &builder, mlir::Location loc,
                 const Hierarchy &shape, int64_t level, mlir::Value mask,
                 bool causal);
};

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_MULTIPOLESOURCES_H
