//===- LowRankSums.h - Loops of low-rank sums for teams ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the lowerings of attn.low_rank and its gradient share on all targets.
// Each target brings its products, and its own algorithm for causal sums.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKSUMS_H
#define FOVEA_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKSUMS_H

#include "fovea/Kernels/LowRankSum.h"
#include "fovea/Kernels/TileProduct.h"

namespace fovea::attn {

/// Emits the loops of a gradient on memrefs: `emitSum` those of each of its
/// sums.
void emitLowRankGradient(TeamBuilder &builder, LowRankBackwardOp op,
                         llvm::function_ref<void(const LowRankSum &)> emitSum);

/// Emits loops for masks by rows or columns that are the same, and intervals.
void emitMaskedSum(TeamBuilder &builder, const LowRankSum &sum,
                   llvm::function_ref<void(const TileProduct &)> emitProduct);

/// Emits loops for masks by changes of rows; `builder` computes in f64.
void emitRowChangeSum(TeamBuilder &builder, const LowRankSum &sum);

/// Stores what becomes of row `at` of a sum, whose numbers `load` gives: with
/// the sum of weights, if there is one, behind the columns of the values.
void storeResult(TeamBuilder &builder, const LowRankSum &sum,
                 mlir::ValueRange at, TeamBuilder::ColumnValue load);
/// The same for columns `first .. last - 1`, with the sum of weights `total`.
void storeResult(TeamBuilder &builder, const LowRankSum &sum,
                 mlir::ValueRange at, mlir::Value first, mlir::Value last,
                 mlir::Value total, TeamBuilder::ColumnValue load);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_ATTNTOTEAMS_LOWRANK_LOWRANKSUMS_H
