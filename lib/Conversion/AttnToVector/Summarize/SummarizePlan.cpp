//===- SummarizePlan.cpp - Sizes of the loops of attn.summarize -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeKernel.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Streams of a register tile. The coarsest level of fast multipole attention
/// has four intervals, and with four sums each they fill half of 32 registers.
static constexpr int64_t kMaxStreams = 4;

/// Rows of a chunk. The packed rows of one vector (8 KB) stay in the
/// first-level cache for all levels; 64 rows were slower or equal (Sapphire
/// Rapids, 8 heads: 41 % of peak for both; one head: 28 and 25 %).
static constexpr int64_t kMaxChunk = 32;

/// Rows of a chunk that spares carrying the sums from chunk to chunk.
static constexpr int64_t kMaxWholeChunk = 64;

/// Vectors of columns per task: a row's part fills whole pairs of cache lines,
/// which the hardware fetches together (a task per vector: 17 %, two: 23 %,
/// four: 28 % of peak, before weights were packed).
static constexpr int64_t kVectorsPerTask = 4;

/// Instances that share a chunk of weights: one task's instances, and with
/// strips. More of them grow the carried sums beyond the second-level cache.
static constexpr int64_t kInstancesPerTask = 8, kDynamicInstancesPerTask = 4;
static constexpr int64_t kInstancesWithStrips = 16, kMaxStrips = 8;

/// Rows of one task that make the start of a task negligible.
static constexpr int64_t kMinRowsPerTask = 8192;

/// Splits `count` into equal parts of at most `limit`.
static int64_t balance(int64_t count, int64_t limit) {
  return llvm::divideCeil(count, llvm::divideCeil(count, limit));
}

SummarizePlan fovea::attn::planSummaries(ArrayRef<SummarizeOp> levels,
                                         RegisterFile registers) {
  SummarizeOp finest = levels.front(), coarsest = levels.back();
  int64_t longest = coarsest.getInterval();
  auto input = cast<MemRefType>(finest.getInput().getType());
  int64_t width = input.getDimSize(3), rows = input.getDimSize(2);
  int64_t sets = cast<MemRefType>(finest.getWeights().getType()).getDimSize(0);
  SummarizePlan plan;

  plan.lanes =
      registers.vectorBits / getStateType(input.getElementType()).getWidth();
  while (plan.lanes > width)
    plan.lanes /= 2;
  plan.vectors = llvm::divideCeil(width, plan.lanes);
  plan.wholeVectors = width / plan.lanes;
  plan.slices = std::max<int64_t>(1, plan.wholeVectors / kVectorsPerTask);

  plan.streams = kMaxStreams;
  if (!ShapedType::isDynamic(rows))
    plan.streams = balance(
        std::max<int64_t>(1, llvm::divideCeil(rows, longest)), kMaxStreams);
  int64_t heads = input.getDimSize(1);
  plan.streamsAreHeads = plan.streams == 1 && !ShapedType::isDynamic(heads);
  while (plan.streamsAreHeads && plan.streams < kMaxStreams &&
         heads / sets % (2 * plan.streams) == 0)
    plan.streams *= 2;
  int64_t headsPerInstance = plan.streamsAreHeads ? plan.streams : 1;
  // Besides the sums, a tile needs a register for every stream and a weight.
  int64_t maxRankBlock =
      std::max<int64_t>(1, (registers.count - 2) / kMaxStreams - 1);
  plan.rankBlock = balance(finest.getRank(), maxRankBlock);

  int64_t maxChunk = longest <= kMaxWholeChunk ? kMaxWholeChunk : kMaxChunk;
  plan.unit = finest.getInterval();
  while (2 * plan.unit <= std::min(maxChunk, longest))
    plan.unit *= 2;
  plan.chunk = balance(plan.unit, maxChunk);

  plan.strips = 1;
  plan.instancesPerTask = kDynamicInstancesPerTask;
  int64_t rowsPerInstance = plan.streams / headsPerInstance * longest;
  if (input.hasStaticShape()) {
    int64_t instances = std::max<int64_t>(
        1, input.getDimSize(0) * (heads / sets / headsPerInstance) *
               llvm::divideCeil(rows, rowsPerInstance));
    plan.instancesPerTask =
        balance(instances,
                std::max(kInstancesPerTask, kMinRowsPerTask / rowsPerInstance));
    // The order of summation, which strips change, does not depend on the
    // number of tasks.
    while (rows >= 2 * longest && plan.strips < kMaxStrips &&
           2 * plan.strips * plan.instancesPerTask <= kInstancesWithStrips &&
           longest >= 4 * plan.strips * plan.unit)
      plan.strips *= 2;
  }
  return plan;
}
