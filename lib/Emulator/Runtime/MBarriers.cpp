//===- MBarriers.cpp - Barriers in shared memory --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

using namespace fovea::simt;

MBarrier &fovea::simt::findMBarrier(Thread &thread, const Op &op, Slot address,
                                    uint32_t &offset) {
  offset = thread.block->getOffset(address, 8, op);
  return findMBarrier(thread, op, *thread.block, offset);
}

MBarrier &fovea::simt::findMBarrier(Thread &thread, const Op &op, Block &owner,
                                    uint32_t offset) {
  if (&owner != thread.block) {
    owner.visit(*thread.warp, op);
    // What the other block has not yet made is a race.
    owner.races.access(*thread.warp, offset, 8, Access::Read, op);
  }
  auto it = owner.mbarriers.find(offset);
  if (it == owner.mbarriers.end())
    fail(&op, "the mbarrier at shared +%u has not been initialised", offset);
  return it->second;
}

void fovea::simt::updateMBarrier(Block &block, MBarrier &barrier) {
  if (barrier.pending != 0 || barrier.transactions != 0)
    return;
  ++barrier.phase;
  barrier.lastPoint = barrier.point;
  barrier.point = 0;
  barrier.pending = barrier.expected;
  ++block.counters->barriers;
  ++block.cluster->progress;
}

static void arrive(Thread &thread, const Op &op, Block &owner, uint32_t offset,
                   MBarrier &barrier, uint32_t count) {
  if (count > barrier.pending)
    fail(&op,
         "%u threads arrive at the mbarrier at shared +%u, whose phase %llu "
         "lacks %u",
         count, offset, static_cast<unsigned long long>(barrier.phase),
         barrier.pending);
  Warp &warp = *thread.warp;
  barrier.clock.join(warp.clock);
  ++warp.clock.time[warp.agent];
  barrier.pending -= count;
  noteArrival(thread, op, EventKind::ArriveAtMBarrier, barrier.point, owner, 0,
              /*flag=*/&owner != thread.block);
  updateMBarrier(owner, barrier);
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierInit) {
  Block &block = *thread.block;
  uint32_t offset = block.getOffset(in[0], 8, op);
  if (offset % 8 != 0)
    fail(&op, "the mbarrier at shared +%u is not aligned to 8 bytes", offset);
  uint32_t count = in[1];
  if (count == 0 || count > (1u << 20) - 1)
    fail(&op, "an mbarrier counts 1 to 1048575 threads, but got %u", count);
  block.races.access(*thread.warp, offset, 8, Access::Write, op);
  MBarrier &barrier = block.mbarriers[offset];
  if (!barrier.copies.empty())
    fail(&op,
         "the mbarrier at shared +%u is initialised while copies are "
         "under way",
         offset);
  barrier = MBarrier();
  barrier.expected = barrier.pending = count;
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierInvalidate) {
  uint32_t offset;
  MBarrier &barrier = findMBarrier(thread, op, in[0], offset);
  if (!barrier.copies.empty())
    fail(&op,
         "the mbarrier at shared +%u is invalidated while copies are "
         "under way",
         offset);
  thread.block->mbarriers.erase(offset);
}

/// Tokens are numbers of phases.
static void giveToken(const Op &op, const MBarrier &barrier, Slot *out) {
  if (op.numOut)
    out[0] = barrier.phase;
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierArrive) {
  Block &owner = thread.block->findOwner(in[0]);
  uint32_t offset = owner.getOffset(in[0], 8, op);
  MBarrier &barrier = findMBarrier(thread, op, owner, offset);
  uint32_t count = op.numIn > 1 ? uint32_t(in[1]) : 1;
  giveToken(op, barrier, out);
  if (op.param[0]) {
    if (count > barrier.expected)
      fail(&op, "more threads leave the mbarrier at shared +%u than it has",
           offset);
    barrier.expected -= count;
  }
  arrive(thread, op, owner, offset, barrier, count);
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierArriveExpect) {
  Block &owner = thread.block->findOwner(in[0]);
  uint32_t offset = owner.getOffset(in[0], 8, op);
  MBarrier &barrier = findMBarrier(thread, op, owner, offset);
  giveToken(op, barrier, out);
  barrier.transactions += uint32_t(in[1]);
  arrive(thread, op, owner, offset, barrier, 1);
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierExpect) {
  uint32_t offset;
  MBarrier &barrier = findMBarrier(thread, op, in[0], offset);
  barrier.transactions += uint32_t(in[1]);
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierComplete) {
  uint32_t offset;
  MBarrier &barrier = findMBarrier(thread, op, in[0], offset);
  barrier.transactions -= uint32_t(in[1]);
  noteArrival(thread, op, EventKind::ArriveAtMBarrier, barrier.point,
              *thread.block);
  updateMBarrier(*thread.block, barrier);
}

/// Whether the phase that the operands name is over.
static bool isOver(const Op &op, const MBarrier &barrier, Slot which) {
  return op.param[0] ? (barrier.phase & 1) != (which & 1)
                     : barrier.phase > which;
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierTest) {
  uint32_t offset;
  MBarrier *barrier = &findMBarrier(thread, op, in[0], offset);
  if (!isOver(op, *barrier, in[1])) {
    // Time passes: other threads run before the answer is no.
    thread.barrier = offset;
    thread.polledAt = thread.block->cluster->progress;
    suspend(thread, Wait::Poll);
    barrier = &findMBarrier(thread, op, in[0], offset);
  }
  bool over = isOver(op, *barrier, in[1]);
  if (over) {
    thread.warp->clock.join(barrier->clock);
    noteWait(thread, op, EventKind::WaitForMBarrier, barrier->lastPoint);
  }
  out[0] = over;
}

FOVEA_SIMT_LANE(fovea::simt::mbarrierArriveAfterCopies) {
  uint32_t offset;
  MBarrier &barrier = findMBarrier(thread, op, in[0], offset);
  if (!op.param[0])
    ++barrier.pending;
  noteArrival(thread, op, EventKind::ArriveAfterCopies, barrier.point,
              *thread.block);
  // The engine brings the thread's copies to an end and then arrives for it.
  barrier.copies.emplace_back();
  BulkCopy &copy = barrier.copies.back();
  copy.op = &op;
  copy.issuer = thread.warp;
  copy.arrives = true;
  for (auto &group : thread.copyGroups)
    copy.threadCopies.insert(copy.threadCopies.end(), group.begin(),
                             group.end());
  copy.threadCopies.insert(copy.threadCopies.end(), thread.copies.begin(),
                           thread.copies.end());
  thread.copyGroups.clear();
  thread.copies.clear();
  copy.clock = thread.warp->clock;
  // What the thread does next, this arrival does not order.
  ++thread.warp->clock.time[thread.warp->agent];
}
