//===- interrupt.cpp - Ending kernels early -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "interrupt.h"
#include "fovea_rt/fovea_rt.h"
#include "memory.h"
#include "status.h"
#include "subnormals.h"

#include <ctime>

using namespace fovea::rt;

const char *const fovea::rt::interruptedText = "interrupted";

namespace {

/// Whom this thread asks.
struct Host {
  fovea_rt_interrupt_check check = nullptr;
  void *context = nullptr;
  /// When to ask next.
  int64_t nextTime = 0;
};

} // namespace

static thread_local Host host;

/// In nanoseconds, exact to a few milliseconds, for a quarter of the price.
static int64_t readClock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

static void scheduleCheck(Host &host) {
  host.nextTime =
      readClock() + std::chrono::nanoseconds(interruptInterval).count();
}

void fovea_rt_set_interrupt_check(fovea_rt_interrupt_check check,
                                  void *context) {
  host.check = check;
  host.context = context;
  if (check)
    scheduleCheck(host);
}

bool fovea::rt::hasInterruptCheck() { return host.check != nullptr; }

bool fovea::rt::isInterrupted() {
  Invocation *invocation = currentInvocation();
  if (!invocation)
    return false;
  if (host.check && readClock() >= host.nextTime) {
    KeepSubnormals keep;
    if (host.check(host.context))
      invocation->interrupted.store(true, std::memory_order_relaxed);
    scheduleCheck(host);
  }
  return invocation->interrupted.load(std::memory_order_relaxed);
}

void fovea_rt_check_interrupt(void) {
  if (isInterrupted())
    failWith(FOVEA_RT_INTERRUPTED, interruptedText);
}
