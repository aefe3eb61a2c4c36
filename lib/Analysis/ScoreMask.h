//===- ScoreMask.h - Entries that masks and lengths leave -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_SCOREMASK_H
#define FOVEA_LIB_ANALYSIS_SCOREMASK_H

#include "fovea/Analysis/KnownData.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::detail {

/// Adds a range that names rows.
void addRange(RowRanges &ranges, RowRange range);

/// Adds a row behind those that there are.
void addRow(RowRanges &ranges, int64_t row);

/// The queries and tokens that a batch entry has.
struct SequenceLengths {
  int64_t queries, tokens;
  /// What data leaves open; see ScoreSource.
  std::string byData;
};

/// Those of the batch entry that `data` has: as operands say, of which both may
/// be null, or `queries` and `tokens`.
SequenceLengths getLengths(mlir::Value queryLengths, mlir::Value lengths,
                           int64_t queries, int64_t tokens,
                           const KnownData &data);

/// #attn.mask, without its context.
struct Mask {
  bool isCausal = false;
  int64_t window = 0, prefix = 0, stride = 1;

  Mask() = default;
  explicit Mask(bool isCausal) : isCausal(isCausal) {}
  explicit Mask(attn::MaskAttr mask);

  /// The position of the first of `n` queries where the source has `m` rows and
  /// no lengths.
  int64_t getFirstPosition(int64_t n, int64_t m) const;
  /// Rows of `range` that are admitted for a query at `position`.
  RowRange admit(int64_t position, RowRange range) const;
  std::string describe() const;
};

/// Tokens of a matrix, of which all from `lengths.tokens` on are absent, with
/// this mask.
KeySequence makeSequence(std::string name, int64_t length,
                         const SequenceLengths &lengths, int64_t firstPosition,
                         Mask mask);

/// A source whose rows are the tokens of sequence 0, read once by every query.
ScoreSource makeTokenSource(int64_t n, int64_t rows,
                            std::function<RowRange(int64_t)> getRows);

/// Takes absent tokens out of what every query reads, and absent queries.
void removeAbsent(ScoreMatrix &matrix, const llvm::BitVector &absent);

} // namespace fovea::detail

#endif // FOVEA_LIB_ANALYSIS_SCOREMASK_H
