//===- turns.cpp - Sums in one order --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/abi.h"
#include "parallel.h"
#include "relax.h"
#include "status.h"

#include <atomic>
#include <cinttypes>
#include <sched.h>

using namespace fovea::rt;

/// What an item leaves when it and all later ones have ended: nobody has to
/// look further.
static constexpr int64_t allEnded = INT64_MAX;
/// How often to look before giving the CPU to another thread, which may be the
/// one that is waited for.
static constexpr int looksBeforeYield = 2000;

static std::atomic<int64_t> &entry(int64_t *progress, int64_t item) {
  static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t));
  return reinterpret_cast<std::atomic<int64_t> &>(
      progress[item * FOVEA_RT_TURN_STRIDE]);
}

/// Later items were handed out earlier if indices grow with the items.
static void checkOrder(int64_t *progress, int64_t item, int64_t numChains) {
  const int64_t index = currentIndex();
  if (numChains > 0 && index >= 0 && index / numChains == item)
    return;
  // Nobody shall wait for the one that fails.
  entry(progress, item).store(allEnded, std::memory_order_release);
  fail(FOVEA_RT_INTERNAL,
       "ordered sum: item %" PRId64 " of %" PRId64
       " chains runs as index %" PRId64
       " of its loop and could wait for an item that has not started",
       item, numChains, index);
}

void fovea_rt_wait_for_turn(int64_t *progress, int64_t item, int64_t num_items,
                            int64_t num_chains, int64_t position) {
  for (int64_t later = item + 1; later < num_items; ++later) {
    std::atomic<int64_t> &theirs = entry(progress, later);
    int64_t reached = theirs.load(std::memory_order_acquire);
    if (reached < position) {
      checkOrder(progress, item, num_chains);
      for (int looks = 0;
           (reached = theirs.load(std::memory_order_acquire)) < position;
           ++looks)
        if (looks < looksBeforeYield) {
          cpuRelax();
        } else {
          // The item waited for may have ended that way.
          fovea_rt_check_interrupt();
          looks = 0;
          sched_yield();
        }
    }
    if (reached == allEnded)
      return;
    // An item that ended before a later one could not say so for both.
    if (reached == FOVEA_RT_LAST_TURN &&
        (later + 1 == num_items ||
         entry(progress, later + 1).load(std::memory_order_acquire) ==
             allEnded)) {
      theirs.store(allEnded, std::memory_order_release);
      return;
    }
  }
}

void fovea_rt_end_turn(int64_t *progress, int64_t item, int64_t position) {
  entry(progress, item).store(position, std::memory_order_release);
}
