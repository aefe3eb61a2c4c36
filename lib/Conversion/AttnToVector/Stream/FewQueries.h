//===- FewQueries.h - Whether an attn.stream has few queries ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_FEWQUERIES_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_FEWQUERIES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// The most queries that are one set of rows with those of the other heads that
/// share their keys (StreamRowsKernel.h): all of them read the same ranges, and
/// a block of queries of one head would be filled less. Sets are small with a
/// score region.
inline int64_t getMaxFewQueries(StreamOp op) {
  int64_t most = op.getScores().empty() ? 48 : 8;
  int64_t block = op.getBlock();
  return block ? std::min(block, most) : most;
}

/// Whether `op` needs blocks of the queries of one head: sets of rows know
/// neither numbers of queries for each batch entry nor terms by distance, nor
/// positions of single rows in a score region.
inline bool needsBlocks(StreamOp op) {
  return op.getQueryLengths() || !op.getRelativeKeys().empty() ||
         !op.getDistanceBiases().empty() ||
         (!op.getRowLists().empty() && !op.getScores().empty());
}

/// Whether lists change so often that a block of queries of one head would fill
/// few lanes, whatever the number of queries.
inline bool hasShortLists(StreamOp op) {
  constexpr int64_t kMaxBlock = 16;
  return !op.getRowLists().empty() && op.getBlock() != 0 &&
         int64_t(op.getBlock()) <= kMaxBlock;
}

/// Whether `op`, which is not cut to tiles where it has several queries, goes
/// through its keys once for each set of rows. A number of queries that only
/// the call knows has been looked at by --attn-tile-stream.
inline bool hasFewQueries(StreamOp op) {
  if (needsBlocks(op))
    return false;
  int64_t queries =
      mlir::cast<mlir::ShapedType>(op.getQuery().getType()).getDimSize(2);
  if (queries == 1 || op.getNumRows())
    return queries == 1;
  return mlir::ShapedType::isDynamic(queries) || hasShortLists(op) ||
         queries <= getMaxFewQueries(op);
}

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_FEWQUERIES_H
