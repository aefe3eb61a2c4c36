//===- Barriers.cpp - Named barriers and fences ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

using namespace fovea::simt;

FOVEA_SIMT_LANE(fovea::simt::nothing) {
  for (unsigned i = 0; i < op.numOut; ++i)
    out[i] = 0;
}

FOVEA_SIMT_WARP(fovea::simt::warpNothing) {}

//===----------------------------------------------------------------------===//
// Named barriers
//===----------------------------------------------------------------------===//

static void acquire(Warp &warp, const Clock &clock) { warp.clock.join(clock); }

/// What the warp did so far happens before what follows the barrier; what it
/// does from now on does not.
static void release(Warp &warp, Clock &clock) {
  clock.join(warp.clock);
  ++warp.clock.time[warp.agent];
}

/// What a thread gets from the predicates of all.
static void storeVotes(const Op &op, const NamedBarrier &barrier, Slot *out) {
  if (op.numOut == 0)
    return;
  switch (op.param[0]) {
  case CountVotes:
    out[0] = barrier.votes;
    break;
  case AnyVote:
    out[0] = barrier.votes != 0;
    break;
  case AllVotes:
    out[0] = barrier.votes == barrier.arrived;
    break;
  }
}

static void complete(Block &block, uint32_t number) {
  NamedBarrier &barrier = block.barriers[number];
  ++block.counters->barriers;
  ++block.cluster->progress;
  for (Thread &thread : block.threads)
    if (thread.wait == Wait::Barrier && thread.barrier == number) {
      acquire(*thread.warp, barrier.clock);
      storeVotes(*thread.op, barrier, thread.out);
      makeReady(thread);
    }
  barrier = NamedBarrier();
}

/// Whether an operation says how many threads a barrier has; one with a result
/// also has a predicate.
static bool hasCount(const Op &op) { return op.numIn - op.numOut > 1; }

/// `count` threads of `warp` arrive at a barrier with operands `in`.
static NamedBarrier &arrive(Warp &warp, const Op &op, const Slot *in,
                            uint32_t count, uint32_t &number) {
  Block &block = *warp.block;
  if (in[0] >= 16)
    fail(&op, "barriers are numbered 0 to 15, but got %llu",
         static_cast<unsigned long long>(in[0]));
  number = in[0];
  uint32_t expected = hasCount(op) ? uint32_t(in[1]) : 0;
  if (hasCount(op) && (expected % 32 != 0 || expected == 0 ||
                       expected > (block.threads.size() + 31) / 32 * 32))
    fail(&op,
         "a barrier takes a multiple of 32 threads, at most the block's %zu, "
         "but got %u",
         block.threads.size(), expected);
  NamedBarrier &barrier = block.barriers[number];
  if (barrier.arrived && barrier.expected != expected)
    fail(&op, "barrier %u is in use for %u threads, but here for %u", number,
         barrier.expected, expected);
  barrier.expected = expected;
  barrier.arrived += count;
  if (expected && barrier.arrived > expected)
    fail(&op, "%u threads arrive at barrier %u of %u threads", barrier.arrived,
         number, expected);
  release(warp, barrier.clock);
  return barrier;
}

static bool isComplete(Block &block, const NamedBarrier &barrier) {
  return barrier.arrived >= (barrier.expected ? barrier.expected : block.live);
}

FOVEA_SIMT_LANE(fovea::simt::barrierSync) {
  uint32_t number;
  NamedBarrier &barrier = arrive(*thread.warp, op, in, 1, number);
  noteArrival(thread, op, EventKind::Sync, barrier.point, *thread.block);
  if (isComplete(*thread.block, barrier)) {
    acquire(*thread.warp, barrier.clock);
    return complete(*thread.block, number);
  }
  thread.barrier = number;
  suspend(thread, Wait::Barrier);
}

FOVEA_SIMT_LANE(fovea::simt::barrierArrive) {
  uint32_t number;
  NamedBarrier &barrier = arrive(*thread.warp, op, in, 1, number);
  noteArrival(thread, op, EventKind::Arrive, barrier.point, *thread.block);
  if (isComplete(*thread.block, barrier))
    complete(*thread.block, number);
}

/// A warp counts with all its 32 threads, also where the block has fewer.
static uint32_t getWeight(const Op &op, uint32_t mask) {
  return hasCount(op) ? 32 : __builtin_popcount(mask);
}

FOVEA_SIMT_WARP(fovea::simt::barrierSyncAligned) {
  unsigned first = __builtin_ctz(mask);
  uint32_t number;
  NamedBarrier &barrier =
      arrive(warp, op, in[first], getWeight(op, mask), number);
  noteArrival(warp, mask, op, EventKind::Sync, barrier.point);
  if (op.numOut)
    for (unsigned lane = 0; lane < 32; ++lane)
      barrier.votes += mask >> lane & 1 && in[lane][op.numIn - 1] & 1;
  if (isComplete(*warp.block, barrier)) {
    acquire(warp, barrier.clock);
    for (unsigned lane = 0; lane < 32; ++lane)
      if (mask >> lane & 1)
        storeVotes(op, barrier, out[lane]);
    return complete(*warp.block, number);
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) {
      Thread &thread = warp.getThread(lane);
      thread.barrier = number;
      setWait(thread, Wait::Barrier);
    }
}

FOVEA_SIMT_WARP(fovea::simt::barrierArriveAligned) {
  uint32_t number;
  NamedBarrier &barrier =
      arrive(warp, op, in[__builtin_ctz(mask)], getWeight(op, mask), number);
  noteArrival(warp, mask, op, EventKind::Arrive, barrier.point);
  if (isComplete(*warp.block, barrier))
    complete(*warp.block, number);
}

/// Threads that have left count as arrived.
static void completeCluster(Block &block) {
  Cluster &cluster = *block.cluster;
  if (!cluster.arrived || cluster.arrived < cluster.live)
    return;
  cluster.arrived = 0;
  cluster.point = 0;
  ++cluster.phase;
  ++cluster.progress;
  ++block.counters->barriers;
}

FOVEA_SIMT_LANE(fovea::simt::clusterArrive) {
  Block &block = *thread.block;
  Cluster &cluster = *block.cluster;
  thread.clusterPhase = cluster.phase;
  release(*thread.warp, cluster.clock);
  noteArrival(thread, op, EventKind::Arrive, cluster.point, block);
  thread.clusterPoint = cluster.point;
  ++cluster.arrived;
  completeCluster(block);
}

FOVEA_SIMT_LANE(fovea::simt::clusterWait) {
  Cluster &cluster = *thread.block->cluster;
  thread.barrier = kClusterBarrier;
  while (cluster.phase == thread.clusterPhase) {
    thread.polledAt = cluster.progress;
    suspend(thread, Wait::Poll);
  }
  noteWait(thread, op, EventKind::Wait, thread.clusterPoint);
  acquire(*thread.warp, cluster.clock);
}

FOVEA_SIMT_LANE(fovea::simt::mapShared) {
  Block &block = *thread.block;
  uint32_t offset = block.getOffset(in[0], 1, op), rank = in[1];
  std::vector<Block> &blocks = block.cluster->blocks;
  if (rank >= blocks.size())
    fail(&op, "there is no block %u in a cluster of %zu", rank, blocks.size());
  out[0] = reinterpret_cast<uintptr_t>(blocks[rank].shared) + offset;
}

void fovea::simt::barriersAfterExit(Block &block) {
  completeCluster(block);
  if (!block.live)
    return;
  for (uint32_t number = 0; number < 16; ++number) {
    NamedBarrier &barrier = block.barriers[number];
    if (barrier.arrived && !barrier.expected && isComplete(block, barrier))
      complete(block, number);
  }
}

//===----------------------------------------------------------------------===//
// Fences and registers
//===----------------------------------------------------------------------===//

FOVEA_SIMT_LANE(fovea::simt::proxyFence) {
  ++thread.warp->proxyFences;
  thread.warp->fencedClock = thread.warp->clock;
}

FOVEA_SIMT_WARP(fovea::simt::setMaxRegisters) {
  Slot count = in[__builtin_ctz(mask)][0];
  if (count < 24 || count > 256 || count % 8 != 0)
    fail(&op, "setmaxnreg takes a multiple of 8 from 24 to 256, but got %llu",
         static_cast<unsigned long long>(count));
}
