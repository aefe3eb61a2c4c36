//===- Races.cpp - Which accesses are ordered -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <algorithm>
#include <cstring>

using namespace fovea::simt;

void RaceDetector::reset(uint32_t bytes, bool enable) {
  enabled = enable;
  engineTime = 1;
  ++serial;
  size_t needed = bytes / kChunkBytes + 1;
  if (enabled && chunks.size() < needed) {
    chunks.resize(needed);
    cells.resize(needed * kChunkCells);
  }
}

template <typename Body>
void RaceDetector::forEachCell(uint32_t offset, uint32_t bytes, bool overwrites,
                               Body body) {
  uint32_t end = offset + bytes;
  for (uint32_t i = offset / kChunkBytes; i <= (end - 1) / kChunkBytes; ++i) {
    Cell &chunk = chunks[i];
    if (chunk.serial != serial) {
      chunk.serial = serial;
      chunk.writeTime = 0;
      chunk.isSplit = false;
      memset(chunk.readTime, 0, sizeof(chunk.readTime));
    }
    uint32_t begin = i * kChunkBytes;
    uint32_t first = std::max(offset, begin) - begin;
    uint32_t last = std::min(end - begin, kChunkBytes) - 1;
    bool isWhole = first == 0 && last == kChunkBytes - 1;
    if (isWhole && !chunk.isSplit) {
      body(chunk, begin);
      continue;
    }
    Cell *parts = &cells[i * kChunkCells];
    if (!chunk.isSplit) {
      std::fill_n(parts, kChunkCells, chunk);
      chunk.isSplit = true;
    }
    for (uint32_t part = first / kCellBytes; part <= last / kCellBytes; ++part)
      body(parts[part], begin + part * kCellBytes);
    if (isWhole && overwrites) {
      chunk = parts[0];
      // Who comes after this write comes after all that it came after.
      memset(chunk.readTime, 0, sizeof(chunk.readTime));
      chunk.isSplit = false;
    }
  }
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
  forEachCell(offset, bytes, kind == Access::Write,
              [&](Cell &cell, uint32_t at) {
                accessCell(warp, clock, cell, at, kind, op);
              });
}

void RaceDetector::accessCell(Warp &warp, const Clock &clock, Cell &cell,
                              uint32_t offset, Access kind, const Op &op) {
  bool writes = kind == Access::Write || kind == Access::Atomic;
  const char *what = writes ? "writes" : "reads";
  bool ordered = cell.writeTime == 0 || cell.writer == warp.agent ||
                 cell.writeTime <= clock.time[cell.writer] ||
                 (kind == Access::Atomic && cell.isAtomic);
  if (!ordered)
    report(op, offset, what, "wrote", cell.writer, cell.writeOp);
  if (kind == Access::AsyncRead)
    requireFence(warp, cell, offset, "reads", op);
  if (!writes) {
    cell.readTime[warp.agent] = clock.time[warp.agent];
    return;
  }
  if (kind != Access::Atomic || !cell.isAtomic)
    for (unsigned agent = 0; agent < kCopyEngine; ++agent)
      if (agent != warp.agent && cell.readTime[agent] > clock.time[agent])
        report(op, offset, what, "read", agent, nullptr);
  cell.writeTime = clock.time[warp.agent];
  cell.writer = warp.agent;
  cell.isAtomic = kind == Access::Atomic;
  cell.isAsync = false;
  cell.proxyFences = warp.proxyFences;
  cell.writeOp = &op;
}

void RaceDetector::copyWrites(Block &block, Warp &warp, const Clock &clock,
                              uint32_t offset, uint32_t bytes, const Op &op,
                              bool done) {
  if (!enabled || bytes == 0)
    return;
  forEachCell(offset, bytes, done, [&](Cell &cell, uint32_t at) {
    // A copy that has ended but that nobody has waited for is no better than
    // one under way.
    if (cell.writeTime && cell.writeTime > clock.time[cell.writer])
      report(op, at, "writes", "wrote", cell.writer, cell.writeOp);
    if (!done)
      requireFence(warp, cell, at, "writes", op);
    for (unsigned agent = 0; agent < kCopyEngine; ++agent)
      if (cell.readTime[agent] > clock.time[agent])
        report(op, at, "writes", "read", agent, nullptr);
    if (!done)
      return;
    cell.writeTime = block.races.engineTime;
    cell.writer = kCopyEngine + block.rank;
    cell.isAtomic = false;
    cell.isAsync = true;
    cell.writeOp = &op;
  });
}
