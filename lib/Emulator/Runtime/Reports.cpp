//===- Reports.cpp - What failures say ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <algorithm>
#include <cstdio>

using namespace fovea::simt;

static std::string describeBlock(const Block &block) {
  return "block (" + std::to_string(block.index.x) + ", " +
         std::to_string(block.index.y) + ", " + std::to_string(block.index.z) +
         ")";
}

std::string fovea::simt::describe(const Thread &thread) {
  return describeBlock(*thread.block) + ", thread " + std::to_string(thread.id);
}

void fovea::simt::failWith(Block &block, std::string *text) {
  block.failed = true;
  block.error = std::move(*text);
  delete text;
  Fiber abandoned;
  switchFiber(abandoned, block.scheduler);
  __builtin_unreachable();
}

void fovea::simt::fail(const Op *op, const char *format, ...) {
  Block &block = *currentBlock;
  char message[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  auto *text = new std::string("kernel '" + *block.kernel + "', ");
  *text += block.current ? describe(*block.current) : describeBlock(block);
  *text += std::string(": ") + message;
  if (op)
    *text +=
        " (" + op->name + (op->where.empty() ? "" : ", " + op->where) + ")";
  failWith(block, text);
}

/// "0-31, 64": the numbers that `threads` holds in ascending order.
static std::string formatRanges(const std::vector<uint32_t> &threads) {
  std::string text;
  for (size_t i = 0; i < threads.size();) {
    size_t end = i;
    while (end + 1 < threads.size() && threads[end + 1] == threads[end] + 1)
      ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(threads[i]);
    if (end > i)
      text += "-" + std::to_string(threads[end]);
    i = end + 1;
  }
  return text;
}

/// What a thread that cannot go on waits for.
static std::string describeWait(Block &block, const Thread &thread) {
  std::string text;
  switch (thread.wait) {
  case Wait::Barrier: {
    NamedBarrier &barrier = block.barriers[thread.barrier];
    uint32_t expected = barrier.expected ? barrier.expected : block.live;
    text = "at barrier " + std::to_string(thread.barrier) + ", where " +
           std::to_string(barrier.arrived) + " of " + std::to_string(expected) +
           " threads have arrived";
    break;
  }
  case Wait::Poll: {
    if (thread.barrier == kClusterBarrier) {
      const Cluster &cluster = *block.cluster;
      text = "for the cluster, where " + std::to_string(cluster.arrived) +
             " of " + std::to_string(cluster.live) + " threads have arrived";
      break;
    }
    auto it = block.mbarriers.find(thread.barrier);
    text = "for the mbarrier at shared +" + std::to_string(thread.barrier);
    if (it == block.mbarriers.end())
      text = "in a loop that waits for another thread";
    else
      text += ", whose phase " + std::to_string(it->second.phase) + " lacks " +
              std::to_string(it->second.pending) + " of " +
              std::to_string(it->second.expected) + " arrivals and " +
              std::to_string(it->second.transactions) + " bytes";
    break;
  }
  default:
    text = "for the other lanes";
    break;
  }
  if (thread.op)
    text += " (" + thread.op->name +
            (thread.op->where.empty() ? "" : ", " + thread.op->where) + ")";
  return text;
}

/// What the threads of a block wait for.
static std::string describeWaits(Block &block) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> waits;
  for (const Thread &thread : block.threads) {
    if (thread.wait == Wait::Exited)
      continue;
    std::string text = describeWait(block, thread);
    std::pair<std::string, std::vector<uint32_t>> *found = nullptr;
    for (auto &wait : waits)
      if (wait.first == text)
        found = &wait;
    if (!found)
      found = &waits.emplace_back(text, std::vector<uint32_t>());
    found->second.push_back(thread.id);
  }
  std::string text;
  for (size_t i = 0; i < waits.size() && i < 4; ++i)
    text += (i ? "; " : "") + std::string("threads ") +
            formatRanges(waits[i].second) + " wait " + waits[i].first;
  if (waits.size() > 4)
    text += "; and more";
  return text;
}

std::string fovea::simt::describeDeadlock(Cluster &cluster) {
  std::string text;
  for (Block &block : cluster.blocks)
    if (block.live)
      text += (text.empty() ? "kernel '" + *block.kernel + "', " +
                                  describeBlock(block) + ": deadlock: "
                            : "; " + describeBlock(block) + ": ") +
              describeWaits(block);
  return text;
}
