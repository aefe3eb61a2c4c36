//===- SummarizeKernel.h - Loops of attn.summarize -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One loop nest computes the summaries of one input at all levels, finest
// first, each interval twice the one before, or as long; a single operation is
// the case of one level. With `c` the coarsest interval:
//
//   forall (set of weights, instances, columns)               one task
//     for each chunk of rows of a coarsest interval
//       pack the weights that levels give to the chunk
//       for each instance
//         pack rows t, t + c, t + 2c, ...
//         for each vector of columns, for each level: register tile
//
// An instance is a group of `streams` neighbouring coarsest intervals of one
// head of one batch entry. Rows that are `c` apart lie at the same place of
// their interval at *every* level, so they share the weights of every level: a
// loaded weight serves `streams` multiplications, and a loaded row `rankBlock`.
// Where heads have one coarsest interval each, as the group of tokens that a
// cache closes, those of `streams` heads lie side by side instead. All
// instances of a task use the same weights, so a chunk of them is read from
// memory once.
//
// Weights and rows are copied before use because rows and whole intervals are
// powers of two apart, and in place compete for a few sets of both caches.
// Measured on one core of a Sapphire Rapids, 9 levels of 8 heads of 65536 rows
// of 64 columns, in % of the multiply-add peak: weights and rows in place, a
// head at a time 23; both packed 35; rows prefetched in memory order 38; strips
// 41; everything already in cache 51.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/RegisterFile.h"

namespace fovea::attn {

/// The sizes of the loop nest.
struct SummarizePlan {
  /// Columns of one vector, and vectors that cover the width. The last vector
  /// ends at the last column; where it overlaps the one before, it is not one
  /// of the whole ones, and belongs to the same task.
  int64_t lanes, vectors, wholeVectors;
  /// Parts of a row that are tasks of their own, at least.
  int64_t slices;
  /// Coarsest intervals side by side in a register tile, and sums of each.
  int64_t streams, rankBlock;
  /// Whether these are the only ones of as many heads, or neighbours of one.
  bool streamsAreHeads;
  /// A chunk never crosses the end of a unit, the largest interval that fits
  /// in a chunk, or the finest one if none does.
  int64_t unit, chunk;
  /// Instances of a task, at most.
  int64_t instancesPerTask;
  /// Equal parts of a coarsest interval, computed side by side like instances:
  /// levels whose intervals fit in a strip share their weights among all of
  /// them. 1 unless a task would have few instances.
  int64_t strips;

  int64_t getChunksPerUnit() const { return (unit + chunk - 1) / chunk; }
  /// Vectors of the widest task.
  int64_t getMaxVectors() const {
    return (wholeVectors + slices - 1) / slices + (vectors - wholeVectors);
  }
};

/// Which elements of a vector are NaN or infinities, and whether any is.
mlir::Value areNotFinite(KernelBuilder &b, mlir::Value vector);
mlir::Value isAnyNotFinite(KernelBuilder &b, mlir::Value vector);

/// Plans the loops for `levels`, which read the same input with intervals that
/// double, or are equal.
SummarizePlan planSummaries(llvm::ArrayRef<SummarizeOp> levels,
                            RegisterFile registers);

/// Emits the loops that compute `levels` at the insertion point of `builder`.
void emitSummaries(mlir::OpBuilder &builder, llvm::ArrayRef<SummarizeOp> levels,
                   const SummarizePlan &plan);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_SUMMARIZE_SUMMARIZEKERNEL_H
