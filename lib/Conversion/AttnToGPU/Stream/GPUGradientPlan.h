//===- GPUGradientPlan.h - Which kernels compute gradients ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTPLAN_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTPLAN_H

#include "GPUGradientWarpgroups.h"
#include "fovea/Kernels/ScoreAdmission.h"

namespace fovea::attn {

/// How the gradients of one source of attn.stream_backward are computed.
struct PlannedSource {
  size_t number; // of the source
  /// Of the kernel for queries, and of that for rows.
  bool hasWarpgroups[2] = {};
  /// Of rows that are gathered for queries, and for rows.
  std::optional<GatheredRows::Layout> layouts[2] = {};
  /// Whether the kernel for queries of the next source goes through its rows,
  /// too, so that it has none.
  bool joinsNext = false;
};

/// The sources in the order of their kernels, on chips with warpgroups or
/// without; `admissions` say which tiles regions of scores remove. Those of
/// which rows are gathered for queries come before others, whose kernels join
/// them, or hide that they read their sums, and round.
llvm::SmallVector<PlannedSource>
planGradients(StreamBackwardOp op, llvm::ArrayRef<ScoreAdmission> admissions,
              bool warpgroups);

/// The kernels of warpgroups for sources of attn.stream_backward.
class WarpgroupGradients {
public:
  using Value = mlir::Value;

  WarpgroupGradients(RowBuilder &host, StreamBackwardOp op, Value deltas)
      : host(host), op(op), deltas(deltas) {}

  /// Emits those of one source after the other. Gradients for queries are put
  /// in `result`, with what is `earlier` unless it is null. `score` is that of
  /// the source, or null.
  void emit(const PlannedSource &planned, const StreamSourceGradient &source,
            const ScoreDerivatives *score, const ListsOfRows *listsOfRows,
            Value earlier, Value result);
  void free();

private:
  Value getStatistics(int64_t tileHeads);

  RowBuilder &host;
  StreamBackwardOp op;
  Value deltas;
  /// Of sources with as many heads in a tile, one after the other.
  llvm::SmallVector<std::pair<int64_t, Value>> statistics;
  GradientInputs inputs;
  std::optional<GatheredRows> joined; // to the next source
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTPLAN_H
