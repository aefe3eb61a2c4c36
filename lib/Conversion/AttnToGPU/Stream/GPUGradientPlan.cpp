//===- GPUGradientPlan.cpp - Which kernels compute gradients --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUGradientPlan.h"
#include "GPUGradientBlock.h"
#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether a kernel for the queries of `next` can go through the gathered rows
/// of `planned`, too: it knows how many tiles it has, a thread is left that
/// finds the slots, and two consumers have queries of one stretch.
static bool canJoin(const PlannedSource &planned, const PlannedSource &next,
                    const StreamSource &nextSource) {
  const std::optional<GatheredRows::Layout> &layout = planned.layouts[0];
  return layout && layout->queries % (2 * kWarpgroupRows) == 0 &&
         next.hasWarpgroups[0] && !next.layouts[0] && !nextSource.rowList &&
         nextSource.attr.getRanges().size() < GradientBlock::kMostRanges;
}

SmallVector<PlannedSource> fovea::attn::planGradients(
    StreamBackwardOp op, ArrayRef<ScoreAdmission> admissions, bool warpgroups) {
  SmallVector<StreamSourceGradient> sources = op.getSourceList();
  SmallVector<PlannedSource> plan, others;
  for (auto [i, source] : llvm::enumerate(sources)) {
    PlannedSource planned = {i};
    // Other kernels pass over tiles that the region removes.
    bool skipsTiles = !admissions.empty() && bool(getOfSource(admissions, i));
    for (bool ofRows : {false, true}) {
      bool can = warpgroups && !skipsTiles &&
                 canUseWarpgroups(op, source.forward, ofRows);
      planned.hasWarpgroups[ofRows] = can;
      if (can)
        planned.layouts[ofRows] =
            GatheredRows::choose(op, source.forward, ofRows);
    }
    (planned.layouts[0] ? plan : others).push_back(planned);
  }
  // They would have two regions of scores.
  if (!plan.empty() && !others.empty() && op.getScores().empty())
    plan.back().joinsNext = canJoin(plan.back(), others.front(),
                                    sources[others.front().number].forward);
  plan.append(others);
  return plan;
}

Value WarpgroupGradients::getStatistics(int64_t tileHeads) {
  for (auto [heads, known] : statistics)
    if (heads == tileHeads)
      return known;
  Value made = emitQueryStatistics(host, op, deltas, tileHeads);
  statistics.push_back({tileHeads, made});
  return made;
}

void WarpgroupGradients::emit(const PlannedSource &planned,
                              const StreamSourceGradient &source,
                              const ScoreDerivatives *score,
                              const ListsOfRows *listsOfRows, Value earlier,
                              Value result) {
  std::optional<GatheredRows> gathered[2];
  for (bool ofRows : {false, true})
    if (const auto &layout = planned.layouts[ofRows])
      gathered[ofRows].emplace(host, op, source.forward, *layout,
                               getProductType(op), /*addsUp=*/ofRows);
  auto getPointer = [](const std::optional<GatheredRows> &rows) {
    return rows ? &*rows : nullptr;
  };
  KernelBuilder::Values buffers;
  StreamSource narrowed = source.forward;
  if (!gathered[0] || !gathered[1])
    narrowed = emitNarrowSource(host, op, source.forward, buffers);
  inputs.statistics = getStatistics(getTileHeads(op, source.forward));
  inputs.score = score;
  inputs.squaresOfRows = Value();
  bool isScattered = narrowed.rowList && !namesTiles(narrowed);
  bool mayRemove = score && ScoreBody(*score, op.getCaptures()).mayRemove();
  if (narrowed.bias || (mayRemove && (!gathered[0] || !gathered[1])) ||
      (narrowed.logWeight && !gathered[0] && !isScattered)) {
    if (!inputs.squaresOfQueries)
      inputs.squaresOfQueries = emitSquaresOfTiles(
          host, {op.getQuery(), op.getDOutput()}, {op.getLse(), deltas});
    inputs.squaresOfRows =
        emitSquaresOfTiles(host, {narrowed.keys, narrowed.values}, {});
    buffers.push_back(inputs.squaresOfRows);
  }
  if (!planned.joinsNext)
    emitQueryGradients(host, op, narrowed, inputs, earlier, result,
                       getPointer(gathered[0]), getPointer(joined));
  if (planned.hasWarpgroups[1]) {
    // Such as those of keys that are constants.
    bool sumsKeys = source.logWeight || !isUnread(op, source.keys);
    emitRowGradients(host, op, narrowed, inputs, listsOfRows,
                     getPointer(gathered[1]), sumsKeys ? source.keys : Value(),
                     source.values, source.logWeight);
  }
  if (joined)
    joined->free();
  joined.reset();
  if (planned.joinsNext) {
    joined.emplace(*gathered[0]);
    gathered[0].reset();
  }
  for (std::optional<GatheredRows> &rows : gathered)
    if (rows)
      rows->free();
  for (Value buffer : buffers)
    memref::DeallocOp::create(host, buffer);
}

void WarpgroupGradients::free() {
  for (auto [tileHeads, buffer] : statistics)
    memref::DeallocOp::create(host, buffer);
  if (inputs.squaresOfQueries)
    memref::DeallocOp::create(host, inputs.squaresOfQueries);
}
