//===- NamedRows.h - Rows that ranges and lists name ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_NAMEDROWS_H
#define FOVEA_LIB_ANALYSIS_NAMEDROWS_H

#include "fovea/Analysis/KnownData.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea {

/// Rows of a source, by where they stand: row `position + shift` stands at
/// `position`.
struct NamedRows {
  RowRange positions;
  int64_t shift = 0;
};

/// What the blocks of `rowsPerBlock` of `numQueries` queries read of a source,
/// before masks.
struct SourceRows {
  /// How many positions its rows have.
  int64_t numPositions = 0;
  std::vector<llvm::SmallVector<NamedRows>> blocks;
  /// Set if there are lists that are not known: ranges alone count then.
  bool hasUnknownLists = false;
  /// Set if `blocks` are those of one head of one batch entry, and others may
  /// read other rows.
  bool isOfOneHead = false;
};

/// `numPositions` is how many rows there are of a sequence that has lengths,
/// and `numHeads` those of the queries.
SourceRows getSourceRows(const attn::StreamSource &source,
                         const KnownData &data, int64_t numRows,
                         std::optional<int64_t> numPositions,
                         int64_t rowsPerBlock, int64_t numQueries,
                         int64_t numHeads);

} // namespace fovea

#endif // FOVEA_LIB_ANALYSIS_NAMEDROWS_H
