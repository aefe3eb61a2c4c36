//===- AsyncCopies.cpp - cp.async -----------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

#include <cstring>

using namespace fovea::simt;

FOVEA_SIMT_LANE(fovea::simt::copyAsync) {
  Block &block = *thread.block;
  // Instructions name the size, intrinsics have it in their name.
  unsigned next = 2;
  AsyncCopy copy;
  copy.op = &op;
  copy.bytes = op.param[0] ? uint32_t(op.param[0]) : uint32_t(in[next++]);
  copy.validBytes = op.numIn > next ? uint32_t(in[next]) : copy.bytes;
  copy.from = reinterpret_cast<const char *>(in[1]);
  if (copy.validBytes > copy.bytes)
    fail(&op, "reads %u bytes of a copy of %u", copy.validBytes, copy.bytes);
  uint32_t offset = block.getOffset(in[0], copy.bytes, op);
  if (offset % copy.bytes != 0 || in[1] % copy.bytes != 0)
    fail(&op,
         "copies of %u bytes from address 0x%llx to shared +%u are not "
         "aligned to their size",
         copy.bytes, static_cast<unsigned long long>(in[1]), offset);
  copy.to = block.shared + offset;
  // A conflict with what others did before shows now, one with what they do
  // meanwhile when the copy ends.
  block.races.access(*thread.warp, offset, copy.bytes, Access::Write, op);
  note(thread, &op, EventKind::Copy, copy.validBytes);
  if (block.options->eager)
    performCopy(*thread.warp, thread.warp->clock, copy);
  thread.copies.push_back(copy);
}

void fovea::simt::performCopy(Warp &warp, const Clock &clock,
                              const AsyncCopy &copy) {
  Block &block = *warp.block;
  block.races.access(warp, clock, copy.to - block.shared, copy.bytes,
                     Access::Write, *copy.op);
  // Volatile, so that a bad address shows here and not in a library.
  for (uint32_t i = 0; i < copy.validBytes; ++i)
    copy.to[i] = static_cast<const volatile char *>(copy.from)[i];
  memset(copy.to + copy.validBytes, 0, copy.bytes - copy.validBytes);
  block.counters->copiedBytes += copy.bytes;
}

static void finish(Thread &thread, const std::vector<AsyncCopy> &copies) {
  if (!thread.block->options->eager)
    for (const AsyncCopy &copy : copies)
      performCopy(*thread.warp, thread.warp->clock, copy);
}

FOVEA_SIMT_LANE(fovea::simt::copyCommit) {
  note(thread, &op, EventKind::CommitCopies);
  thread.copyGroups.push_back(std::move(thread.copies));
  thread.copies.clear();
}

FOVEA_SIMT_LANE(fovea::simt::copyWaitGroup) {
  note(thread, &op, EventKind::WaitForCopies, in[0]);
  while (thread.copyGroups.size() > in[0]) {
    finish(thread, thread.copyGroups.front());
    thread.copyGroups.pop_front();
  }
}

FOVEA_SIMT_LANE(fovea::simt::copyWaitAll) {
  note(thread, &op, EventKind::CommitCopies);
  note(thread, &op, EventKind::WaitForCopies, 0);
  while (!thread.copyGroups.empty()) {
    finish(thread, thread.copyGroups.front());
    thread.copyGroups.pop_front();
  }
  finish(thread, thread.copies);
  thread.copies.clear();
}
