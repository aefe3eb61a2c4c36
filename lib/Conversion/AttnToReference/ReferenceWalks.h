//===- ReferenceWalks.h - Entries that query rows read ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEWALKS_H
#define FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEWALKS_H

#include "ReferenceBuilder.h"
#include "fovea/Differentiate/ScoreDerivative.h"

namespace fovea::attn {

//===----------------------------------------------------------------------===//
// Sources (LowerToReferenceSoftmax.cpp)
//===----------------------------------------------------------------------===//

/// What computes scores: a region, what it captures, and the derivatives in it
/// that are wanted.
struct ReferenceScore {
  mlir::Region *region;
  llvm::SmallVector<mlir::Value> captures = {};
  ScoreDerivatives derivatives = {};
};

/// What computes the scores of entries one after the other; those that one
/// removes come to no other.
using ScoreSteps = llvm::SmallVector<const ReferenceScore *, 2>;

/// Those of each source of a stream: of `scores`, what its regions do, its own
/// and that of all sources.
template <typename OpTy>
llvm::SmallVector<ScoreSteps>
getScoreSteps(OpTy op, llvm::ArrayRef<ReferenceScore> scores) {
  llvm::SmallVector<ScoreSteps> steps;
  size_t next = 0;
  for (auto source : op.getSources().template getAsRange<SourceAttr>()) {
    ScoreSteps &own = steps.emplace_back();
    if (source.getHasScore())
      own.push_back(&scores[next++]);
  }
  for (ScoreSteps &own : steps)
    if (next < scores.size())
      own.push_back(&scores[next]);
  return steps;
}

/// A query row: where its numbers are, and where it lies in the sequence.
struct QueryRow {
  mlir::Value query, batch, head, keyHead, row;
  mlir::Value position, numRows, block;
  /// False behind the queries of its batch entry; null where all exist.
  mlir::Value exists;
  ScoreSteps scores = {};
};

/// Terms of scores by distance; operands may be null.
struct DistanceTerms {
  mlir::Value relativeKeys, relativeBias, distanceBias;
  double scale;

  explicit operator bool() const { return relativeKeys || distanceBias; }
  /// What they add to a score of row `row` of `queries`.
  mlir::Value load(ReferenceBuilder &ref, mlir::Value queries,
                   mlir::Value batch, mlir::Value head, mlir::Value row,
                   mlir::Value distance) const;
};

/// Runs `body` for every row of `query`, whose heads read those of `key`. Row 0
/// is row `firstRow` of `numRows`, where these are not null; `queryLengths` may
/// be null, too. `scores` are what its entries take.
void forEachQueryRow(ReferenceBuilder &ref, mlir::Value query, mlir::Value key,
                     mlir::Value firstRow, mlir::Value numRows, int64_t block,
                     llvm::function_ref<void(const QueryRow &)> body,
                     mlir::Value queryLengths = {},
                     const ScoreSteps &scores = {});

/// The tokens that rows without lengths stand for.
mlir::Value countTokens(ReferenceBuilder &ref, MaskAttr mask, mlir::Value rows,
                        mlir::Value numQueries);
/// Where a row stands: at the last of its tokens.
mlir::Value getPosition(ReferenceBuilder &ref, MaskAttr mask, mlir::Value key);
/// Whether a mask that is not trivial admits a key for a query, both at their
/// positions.
mlir::Value admits(ReferenceBuilder &ref, MaskAttr mask, mlir::Value query,
                   mlir::Value key);

/// Visits the entries of all rows of a source that `mask` admits.
mlir::Value walkAllRows(ReferenceBuilder &ref, const QueryRow &at,
                        const StreamSource &source, MaskAttr mask, double scale,
                        mlir::Value first, EntryVisitor visit);

/// Visits the entries of the rows that the ranges of a source name.
mlir::Value walkRanges(ReferenceBuilder &ref, const QueryRow &at,
                       const StreamSource &source, double scale,
                       mlir::Value first, EntryVisitor visit);

//===----------------------------------------------------------------------===//
// Levels of summaries (LowerToReferenceHierarchical.cpp)
//===----------------------------------------------------------------------===//

/// Whether token `t` of batch entry `b` is in `mask`; null if there is none.
mlir::Value isPresent(ReferenceBuilder &ref, mlir::Value mask, mlir::Value b,
                      mlir::Value t);

/// Whether a summary's column depends on all columns of its tokens.
bool mixesColumns(mlir::Value weights);
/// Where `weights` have the factor of column `from` of a token for column `to`
/// of a summary, behind the set, the summary and the token. Those that do not
/// mix columns have it for equal ones alone.
llvm::SmallVector<mlir::Value> getWeightIndices(mlir::Value weights,
                                                mlir::ValueRange leading,
                                                mlir::Value from,
                                                mlir::Value to);

/// The summaries of every level in fresh buffers, level 1 first, behind `input`
/// itself, which is level 0: copies of `ready` ones, if there are any. `mask`
/// may be null.
llvm::SmallVector<mlir::Value>
allocateLevels(ReferenceBuilder &ref, mlir::Value input,
               mlir::ValueRange weights, mlir::ValueRange biases,
               mlir::ValueRange ready, mlir::Value mask);

/// Which level owns an entry: what both forms of the pattern share.
struct Multipole {
  ReferenceBuilder &ref;
  int64_t group, numLevels, rank;
  bool causal, multiplicity;
  double scale;
  mlir::Value rows;
  /// Null if all tokens are present.
  mlir::Value mask;

  template <typename OpTy>
  Multipole(ReferenceBuilder &ref, OpTy op, bool multiplicity)
      : ref(ref), group(op.getGroup()), numLevels(op.getNumLevels()),
        rank(op.getRank()), causal(op.getCausal()), multiplicity(multiplicity),
        scale(op.getScaleOrDefault()), rows(ref.extent(op.getQuery(), 2)),
        mask(op.getMask()) {}

  using RowVisitor = llvm::function_ref<mlir::Value(
      mlir::Value row, mlir::Value logWeight, mlir::Value state)>;

  /// Visits the rows that `level` owns of the token at `at`: tokens at level 0,
  /// and summaries, with the logarithm of how many tokens each stands for (null
  /// is 0), at others; none of an absent token.
  mlir::Value walkLevel(const QueryRow &at, int64_t level, mlir::Value first,
                        RowVisitor visit) const;

  /// The row of the summarised queries of a level that stands for token `i`.
  mlir::Value queryRow(mlir::Value i, int64_t level) const;

  /// The score of the row at `key` for the query at `query`.
  mlir::Value score(mlir::Value queries, mlir::ValueRange query,
                    mlir::Value keys, mlir::ValueRange key,
                    mlir::Value logWeight) const;

  /// Visits the entry of the row at `key` for the query at `query`.
  mlir::Value visitEntry(mlir::Value queries, mlir::ValueRange query,
                         mlir::Value keys, mlir::Value values,
                         mlir::ValueRange key, mlir::Value logWeight,
                         mlir::Value state, EntryVisitor visit) const;

private:
  /// `m_l`, the interval of a level; that of level 0 is the group.
  int64_t interval(int64_t level) const {
    return level == 0 ? group : group << (level - 1);
  }
  /// Distance of token `i` from the tokens of interval `u` of a level.
  mlir::Value distance(mlir::Value i, mlir::Value u, int64_t level) const {
    return ref.distance(ref.div(i, ref.index(interval(level))), u);
  }
  mlir::Value walkTokens(const QueryRow &at, mlir::Value first,
                         RowVisitor visit) const;
  mlir::Value walkSummaries(const QueryRow &at, int64_t level,
                            mlir::Value first, RowVisitor visit) const;
  /// The present ones of `part` tokens of batch entry `b` from `begin` on.
  mlir::Value countTokens(mlir::Value b, mlir::Value begin, int64_t part) const;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCEWALKS_H
