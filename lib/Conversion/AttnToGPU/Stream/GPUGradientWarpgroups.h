//===- GPUGradientWarpgroups.h - Gradients on sm_90a ------------*- C++ -*-===//
//-*-//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTWARPGROUPS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTWARPGROUPS_H

#include "GPUGatheredRows.h"
#include "GPUListsOfRows.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/ScoreDerivatives.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// The type that gradients are multiplied in.
mlir::FloatType getProductType(StreamBackwardOp op);

/// Whether each entry of a source's lists names whole tiles of rows, which
/// stand where they are stored.
bool namesTiles(const StreamSource &source);

/// How many heads have rows in a tile of queries: one, or all that share a key
/// head, where the queries that a list of a source is for are too few to fill
/// tiles. Rows are those of one query after the other then, head by head. 0 if
/// none of both fills tiles.
int64_t getTileHeads(StreamBackwardOp op, const StreamSource &source);
/// Whether tiles of so many rows have those of one list, in boxes.
bool fillsTiles(StreamBackwardOp op, int64_t tileHeads, int64_t rows);

/// Whether kernels of sm_90a can compute the gradients of a source, for its
/// rows or for queries. If they can for rows, they can for queries.
bool canUseWarpgroups(StreamBackwardOp op, const StreamSource &source,
                      bool ofRows);

/// The source in the type of the queries, which are narrow, as kernels of
/// warpgroups multiply it. The caller frees the `buffers` that it takes.
StreamSource emitNarrowSource(RowBuilder &host, StreamBackwardOp op,
                              const StreamSource &source,
                              KernelBuilder::Values &buffers);

/// What the queries of attn.stream_backward bring along to all kernels of
/// warpgroups: two numbers of f32 for each row of tiles, minus its lse in base
/// 2 and its delta. There are as many as fill whole tiles; those without a
/// query, and those that read nothing, have minus infinity and 0. The caller
/// frees them.
mlir::Value emitQueryStatistics(RowBuilder &host, StreamBackwardOp op,
                                mlir::Value deltas, int64_t tileHeads);

/// The sums of the squares of 64 rows each of two operands [B, H, N, ...], and
/// of `numbers` of the rows, if any, but for those of minus infinity. The
/// caller frees them.
mlir::Value emitSquaresOfTiles(RowBuilder &host, mlir::ValueRange operands,
                               mlir::ValueRange numbers);

/// Whether rows of which these are the squares have numbers, or products with
/// each other, that are not finite.
mlir::Value isUnbounded(KernelBuilder &builder, mlir::Value squares);

/// What kernels of warpgroups take beside the operands.
struct GradientInputs {
  /// Of the region of the source's scores; null if it has none.
  const ScoreDerivatives *score = nullptr;
  mlir::Value statistics; // of the rows of tiles of queries
  /// Of tiles of queries and of rows, for sources with terms that may remove
  /// entries (GradientBlock).
  mlir::Value squaresOfQueries, squaresOfRows;
};

/// Emits the kernel for `dQ = earlier + scale dS K` of one source; nothing is
/// earlier if it is null. Its rows are `gathered` for queries, if not null;
/// those that are `joined`, of another source, are added to it, if not null.
void emitQueryGradients(RowBuilder &host, StreamBackwardOp op,
                        const StreamSource &source,
                        const GradientInputs &inputs, mlir::Value earlier,
                        mlir::Value result, const GatheredRows *gathered,
                        const GatheredRows *joined);
/// Emits the kernel for `dK = scale dS^T Q` and `dV = P^T dO` of one source,
/// and for the sums of dS that are the gradient of a log weight, unless
/// `weightSums` is null; `listsOfRows`, of each entry or its block, says who
/// reads them if it has lists; `gathered`, if not null, has its rows for tiles
/// of queries. Without `keySums`, which nobody reads, there is dV alone, and
/// there are no `weightSums`.
void emitRowGradients(RowBuilder &host, StreamBackwardOp op,
                      const StreamSource &source, const GradientInputs &inputs,
                      const ListsOfRows *listsOfRows,
                      const GatheredRows *gathered, mlir::Value keySums,
                      mlir::Value valueSums, mlir::Value weightSums);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTWARPGROUPS_H
