//===- Races.cpp - Which accesses are ordered -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstring>

using namespace fovea::simt;

void RaceDetector::reset(uint32_t bytes, bool enable) {
  enabled = enable;
  engineTime = 1;
  ++serial;
  if (enabled && cells.size() < bytes / kCellBytes + 1)
    cells.resize(bytes / kCellBytes + 1);
}

RaceDetector::Cell &RaceDetector::getCell(uint32_t index) {
  Cell &cell = cells[index];
  if (cell.serial != serial) {
    cell.serial = serial;
    cell.writeTime = 0;
    memset(cell.readTime, 0, sizeof(cell.readTime));
  }
  return cell;
}

[[noreturn]] static void report(const Op &op, uint32_t offset, const char *what,
                                const char *did, unsigned other,
                                const Op *otherOp) {
  char agent[48];
  if (other >= kCopyEngine) {
    snprintf(agent, sizeof(agent), "a bulk copy");
  } else {
    const Warp &warp = currentBlock->cluster->getWarp(other);
    if (warp.block == currentBlock)
      snprintf(agent, sizeof(agent), "warp %u", warp.id);
    else
      snprintf(agent, sizeof(agent), "warp %u of block %u of the cluster",
               warp.id, warp.block->rank);
  }
  fail(&op,
       "race on shared +%u: %s what %s %s without a barrier in between%s%s",
       offset, what, agent, did, otherOp ? ": " : "",
       otherOp ? otherOp->where.c_str() : "");
}

void RaceDetector::requireFence(Warp &warp, const Cell &cell, uint32_t offset,
                                const char *what, const Op &op) {
  if (!cell.writeTime || cell.isAsync || cell.writer >= kCopyEngine)
    return;
  // Of the writer after them, or of who does this after the barrier.
  const Warp &writer = warp.block->cluster->getWarp(cell.writer);
  bool fenced = writer.proxyFences > cell.proxyFences ||
                cell.writeTime <= warp.fencedClock.time[cell.writer];
  if (!fenced)
    fail(&op,
         "%s shared +%u through the asynchronous proxy, written by warp %u "
         "without fence.proxy.async after it: %s",
         what, offset, writer.id,
         cell.writeOp ? cell.writeOp->where.c_str() : "");
}

void RaceDetector::access(Warp &warp, uint32_t offset, uint32_t bytes,
                          Access kind, const Op &op) {
  access(warp, warp.clock, offset, bytes, kind, op);
}

void RaceDetector::access(Warp &warp, const Clock &clock, uint32_t offset,
                          uint32_t bytes, Access kind, const Op &op) {
  if (!enabled || bytes == 0)
    return;
  bool writes = kind == Access::Write || kind == Access::Atomic;
  const char *what = writes ? "writes" : "reads";
  for (uint32_t i = offset / kCellBytes; i <= (offset + bytes - 1) / kCellBytes;
       ++i) {
    Cell &cell = getCell(i);
    bool ordered = cell.writeTime == 0 || cell.writer == warp.agent ||
                   cell.writeTime <= clock.time[cell.writer] ||
                   (kind == Access::Atomic && cell.isAtomic);
    if (!ordered)
      report(op, i * kCellBytes, what, "wrote", cell.writer, cell.writeOp);
    if (kind == Access::AsyncRead)
      requireFence(warp, cell, i * kCellBytes, "reads", op);
    if (writes && !(kind == Access::Atomic && cell.isAtomic))
      for (unsigned agent = 0; agent < kCopyEngine; ++agent)
        if (agent != warp.agent && cell.readTime[agent] > clock.time[agent])
          report(op, i * kCellBytes, what, "read", agent, nullptr);
    if (writes) {
      cell.writeTime = clock.time[warp.agent];
      cell.writer = warp.agent;
      cell.isAtomic = kind == Access::Atomic;
      cell.isAsync = false;
      cell.proxyFences = warp.proxyFences;
      cell.writeOp = &op;
    } else {
      cell.readTime[warp.agent] = clock.time[warp.agent];
    }
  }
}

void RaceDetector::copyWrites(Block &block, Warp &warp, const Clock &clock,
                              uint32_t offset, uint32_t bytes, const Op &op,
                              bool done) {
  if (!enabled)
    return;
  for (uint32_t i = offset / kCellBytes; i <= (offset + bytes - 1) / kCellBytes;
       ++i) {
    Cell &cell = getCell(i);
    // A copy that has ended but that nobody has waited for is no better than
    // one under way.
    if (cell.writeTime && cell.writeTime > clock.time[cell.writer])
      report(op, i * kCellBytes, "writes", "wrote", cell.writer, cell.writeOp);
    if (!done)
      requireFence(warp, cell, i * kCellBytes, "writes", op);
    for (unsigned agent = 0; agent < kCopyEngine; ++agent)
      if (cell.readTime[agent] > clock.time[agent])
        report(op, i * kCellBytes, "writes", "read", agent, nullptr);
    if (done) {
      cell.writeTime = block.races.engineTime;
      cell.writer = kCopyEngine + block.rank;
      cell.isAtomic = false;
      cell.isAsync = true;
      cell.writeOp = &op;
    }
  }
}
