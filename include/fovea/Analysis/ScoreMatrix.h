//===- ScoreMatrix.h - Which keys queries read ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The entries of the score matrix that an operation computes, source by source:
// which rows a query reads, and which tokens these stand for. Gradients have
// the entries of the operation that they belong to.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_SCOREMATRIX_H
#define FOVEA_ANALYSIS_SCOREMATRIX_H

#include "fovea/Analysis/Extents.h"
#include "fovea/Analysis/KnownData.h"
#include "mlir/IR/ValueRange.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <functional>
#include <optional>
#include <string>

namespace fovea {

/// Rows `begin .. end - 1`, or tokens; none if `end` is not larger.
struct RowRange {
  int64_t begin, end;

  int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const RowRange &other) const {
    return begin == other.begin && end == other.end;
  }
};
using RowRanges = llvm::SmallVector<RowRange, 4>;

/// Rows that no range names, and ranges without rows, are left out; what two
/// ranges name is there twice.
int64_t countRows(llvm::ArrayRef<RowRange> ranges);

/// Tokens that rows of sources stand for, or rows that stand for themselves.
struct KeySequence {
  std::string name;
  int64_t length = 0;
  /// The tokens that a query reads if it reads all that the mask of the
  /// sequence admits; null if the mask is data.
  std::function<RowRange(int64_t query)> getAdmitted;
  /// That mask, such as `causal`; empty if it admits everything.
  std::string mask;
  /// Set if no query may read tokens behind its position.
  bool isCausal = false;
  /// Where query 0 stands among the tokens.
  int64_t firstPosition = 0;
  /// Set for tokens that nothing should read; empty if there are none.
  llvm::BitVector absent;
};

/// What the queries read of one source.
struct ScoreSource {
  std::string name;
  /// What a row is, such as "tokens" or "summaries of 4 tokens".
  std::string kind;
  /// The part of it that only data tells, such as "which codeword a token has";
  /// empty if there is none.
  std::string byData;
  int64_t numRows;
  /// Row `r` stands for that many tokens from `r` times as many on; 0 where it
  /// does not.
  int64_t tokensPerRow = 0;
  /// Rows of the matrix: fewer than queries where one stands for several.
  int64_t numQueries, queriesPerRow = 1;
  /// Where query 0 stands among the rows, if these are tokens.
  int64_t firstPosition = 0;
  /// The rows that row `query` of the matrix reads.
  std::function<RowRanges(int64_t query)> getRows;
  /// The number of the sequence and the tokens of it that these stand for.
  unsigned sequence = 0;
  std::function<RowRanges(int64_t query)> getTokens;

  double countEntries() const;
};

struct ScoreMatrix {
  int64_t batch, heads, numQueries;
  llvm::SmallVector<KeySequence, 2> sequences;
  llvm::SmallVector<ScoreSource, 4> sources;

  double countEntries() const;
};

/// The score matrix of `op`; none if it has no scores, or extents are not
/// known, which `extents` tells then. Lists, lengths and masks count as far as
/// they are known; of those that batch entries and heads have of their own,
/// those of the batch entry and the head that `data` has.
std::optional<ScoreMatrix> getScoreMatrix(mlir::Operation *op, Extents &extents,
                                          const KnownData &data = {});

/// The values that score regions of `op` read.
mlir::ValueRange getScoreCaptures(mlir::Operation *op);

/// Leaves out what a score region of `op` removes, entry by entry; where that
/// is data, or too much, the sources say so. Which pairs there should be is not
/// known then. Returns whether data of captures that is not known decides.
bool removeEntries(mlir::Operation *op, const KnownData &data,
                   ScoreMatrix &matrix);

/// How often pairs of a query and a token are read.
struct PairCounts {
  /// Pairs that the mask admits.
  double admitted = 0;
  /// Admitted pairs that no source reads, pairs that are read more than once,
  /// and pairs that are read though the token is behind the query's position.
  double never = 0, twice = 0, ahead = 0;
  /// A query and a token of each kind.
  struct Pair {
    int64_t query, token;
  };
  std::optional<Pair> firstNever, firstTwice, firstAhead;
};

/// What can be wrong with a pair.
enum class PairFault { Never, Twice, Ahead };

/// Calls `visit` with the tokens of a sequence that a query reads never, twice
/// or ahead, from the first query to the last. Nothing is known if data
/// decides.
void visitFaults(
    const ScoreMatrix &matrix, unsigned sequence,
    llvm::function_ref<void(PairFault, int64_t query, RowRange)> visit);

/// Counts pairs of a sequence; none if data decides.
std::optional<PairCounts> countPairs(const ScoreMatrix &matrix,
                                     unsigned sequence);

} // namespace fovea

#endif // FOVEA_ANALYSIS_SCOREMATRIX_H
