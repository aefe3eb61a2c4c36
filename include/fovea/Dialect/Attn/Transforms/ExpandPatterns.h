//===- ExpandPatterns.h - Sources of a pattern ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the expansions of the patterns share: a list of sources that becomes an
// attn.stream. One populate function per family of patterns.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_TRANSFORMS_EXPANDPATTERNS_H
#define FOVEA_DIALECT_ATTN_TRANSFORMS_EXPANDPATTERNS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/PatternMatch.h"

namespace fovea::attn::detail {

/// The expressions that the ranges of a source are made of.
struct RangeExprs {
  explicit RangeExprs(mlir::MLIRContext *context);
  /// `(b)[rows, n] -> (begin, end)`.
  mlir::AffineMap range(mlir::AffineExpr begin, mlir::AffineExpr end) const;
  /// The same, for rows that lie at `offset` of a pool of several levels and of
  /// which there are `count`: `(begin, end, lower, upper)`.
  mlir::AffineMap rangeInPool(mlir::AffineExpr begin, mlir::AffineExpr end,
                              mlir::AffineExpr offset,
                              mlir::AffineExpr count) const;
  /// `(b)[rows, n] -> (0, rows)`.
  mlir::AffineMap allRows() const { return range(zero, rows); }

  mlir::AffineExpr block, rows, queries, zero;
};

/// A pattern as the list of its sources.
class StreamSources {
public:
  /// Adds a source. All but keys and values may be null.
  void add(mlir::Value keys, mlir::Value values,
           llvm::ArrayRef<mlir::AffineMap> ranges, MaskAttr mask = {},
           mlir::Value logWeight = {}, mlir::Value bias = {},
           mlir::Value lengths = {});

  /// Adds a source of any kind; the attribute of `source` is not looked at.
  /// `origin` is null for that of masks.
  void add(const StreamOp::Source &source,
           llvm::ArrayRef<mlir::AffineMap> ranges, MaskAttr mask = {},
           bool hasLocalBias = false, mlir::AffineMap origin = {});

  /// What every row has beside the sources; may be null.
  void setSink(mlir::Value entry) { sink = entry; }
  /// How many queries each batch entry has; may be null.
  void setQueryLengths(mlir::Value counts) { queryLengths = counts; }

  /// What computes the score of an entry, if anything does, and what that
  /// captures.
  void setScore(ScoreRegions region, mlir::ValueRange captured) {
    score = region;
    captures.assign(captured.begin(), captured.end());
  }

  /// The soft-max over the union of the sources, for blocks of `block` queries.
  /// `lse` may be null. Row 0 of the queries is row `firstRow` of `numRows`,
  /// where these are given.
  StreamOp build(mlir::OpBuilder &builder, mlir::Location loc,
                 mlir::Value query, mlir::Value output, mlir::Value lse,
                 int64_t block, double scale,
                 Weighting weighting = Weighting::Softmax,
                 mlir::Value firstRow = {}, mlir::Value numRows = {}) const;

  /// The results of a stream, and the gradients for them; `dLse` may be null.
  struct Results {
    mlir::Value output, lse, dOutput, dLse;
  };
  /// Where gradients go: those of keys and values for every source, of log
  /// weights and biases for all that have one or for none, of the sink unless
  /// that is null, and of what the score region captures.
  struct Gradients {
    mlir::Value query;
    llvm::SmallVector<mlir::Value> keys, values, logWeights, biases;
    mlir::Value sink = {};
    llvm::SmallVector<mlir::Value> captures = {};
  };
  /// The gradient of what `build` makes. Its results are in the order of
  /// `gradients`.
  StreamBackwardOp buildBackward(mlir::OpBuilder &builder, mlir::Location loc,
                                 mlir::Value query, const Results &results,
                                 const Gradients &gradients, int64_t block,
                                 double scale) const;

private:
  llvm::SmallVector<mlir::Value> keys, values, logWeights, biases, codes,
      lengths, rowLists, captures, relativeKeys, relativeBiases, distanceBiases;
  mlir::Value sink, queryLengths;
  ScoreRegions score;
  llvm::SmallVector<mlir::Attribute> attrs;
};

/// The causal mask, or null.
MaskAttr getCausalMask(mlir::MLIRContext *context, bool causal);

void populateExpandDensePatterns(mlir::RewritePatternSet &patterns);
/// `narrowSummaries`: in the element type of the tokens.
void populateExpandFastMultipolePatterns(mlir::RewritePatternSet &patterns,
                                         bool narrowSummaries);
/// Whether `op` makes summaries that mix columns, or is the gradient of it.
bool mixesColumns(mlir::Operation *op);
/// Products for weights of summaries that mix columns.
void populateExpandMixingPatterns(mlir::RewritePatternSet &patterns);
/// Gradients of the soft-max patterns.
void populateExpandBackwardPatterns(mlir::RewritePatternSet &patterns);
/// The gradient of a sink, taken out of attn.stream_backward.
void populateExpandSinkPatterns(mlir::RewritePatternSet &patterns);
/// Every attn.stream_backward and attn.summarize_backward gets destinations of
/// the type that sums are kept in, which are rounded behind it.
void populateRoundGradientsPatterns(mlir::RewritePatternSet &patterns);
/// Masks of tokens of attn.low_rank and its gradient.
void populateExpandLowRankPatterns(mlir::RewritePatternSet &patterns);
/// The scores of `op`, on tensors, from attn.dense.
mlir::Value expandTreeScore(mlir::OpBuilder &builder, TreeScoreOp op);
/// A level of attn.tree_select at which some candidates are split and some not:
/// their scores `[B, c]` and which nodes they are, null for all roots.
struct ScoredLevel {
  int64_t level;
  mlir::Value scores, candidates;
};
/// Replaces `op` by the operations of its levels.
llvm::SmallVector<ScoredLevel> expandTreeSelect(TreeSelectOp op);
void populateExpandTreePatterns(mlir::RewritePatternSet &patterns);
/// Whether distances are of a codebook wider than the keys.
bool hasWiderCodebook(QuantizeOp op);
/// attn.quantize with a mask, or with a codebook wider than the keys.
void populateExpandQuantizePatterns(mlir::RewritePatternSet &patterns);
/// `reduction` other than auto overrides that of the operations; `automatic` is
/// taken where both are auto. `narrowSummaries`: in the element type of the
/// tokens, where products alone read them.
void populateExpandVQPatterns(mlir::RewritePatternSet &patterns,
                              Reduction reduction, Reduction automatic,
                              bool narrowSummaries);

} // namespace fovea::attn::detail

#endif // FOVEA_DIALECT_ATTN_TRANSFORMS_EXPANDPATTERNS_H
