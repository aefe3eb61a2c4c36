//===- threads.cpp - Number of threads ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "threads.h"

#include "fovea_rt/fovea_rt.h"
#include "pool.h"
#include "status.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sched.h>

using namespace fovea::rt;

/// Threads asked for by the host, zero for the default.
static std::atomic<int> requestedThreads{0};

static int countCpus() {
  // The kernel refuses a set smaller than its own, which has no fixed size.
  for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
    cpu_set_t *set = CPU_ALLOC(bits);
    if (!set)
      break;
    size_t bytes = CPU_ALLOC_SIZE(bits);
    bool known = sched_getaffinity(0, bytes, set) == 0;
    bool tooSmall = !known && errno == EINVAL;
    int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known)
      return std::max(count, 1);
    if (!tooSmall)
      break;
  }
  return 1;
}

int fovea::rt::availableCpus() {
  static const int count = countCpus();
  return count;
}

/// Parses a decimal number in [1, FOVEA_RT_MAX_THREADS]; zero for anything
/// else.
static int parseThreads(const char *text) {
  int value = 0;
  for (const char *c = text; *c; ++c) {
    if (*c < '0' || *c > '9')
      return 0;
    value = value * 10 + (*c - '0');
    if (value > FOVEA_RT_MAX_THREADS)
      return 0;
  }
  return value;
}

static int readDefaultThreads() {
  const int cpus = std::min(availableCpus(), FOVEA_RT_MAX_THREADS);
  const char *text = getenv("FOVEA_NUM_THREADS");
  if (!text || !*text)
    return cpus;
  if (int value = parseThreads(text))
    return value;
  fprintf(stderr,
          "fovea: ignoring FOVEA_NUM_THREADS='%s': expected an integer from 1 "
          "to %d; using %d\n",
          text, FOVEA_RT_MAX_THREADS, cpus);
  return cpus;
}

int fovea::rt::numThreads() {
  if (int requested = requestedThreads.load(std::memory_order_relaxed))
    return requested;
  static const int fallback = readDefaultThreads();
  return fallback;
}

int32_t fovea_rt_num_threads(void) { return numThreads(); }

fovea_rt_status fovea_rt_set_num_threads(int32_t num_threads) {
  if (num_threads < 0 || num_threads > FOVEA_RT_MAX_THREADS) {
    char text[messageBytes];
    snprintf(
        text, sizeof(text),
        "invalid number of threads: got %d, expected 1 to %d, or 0 for the "
        "default",
        num_threads, FOVEA_RT_MAX_THREADS);
    setLastError(text);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  requestedThreads.store(num_threads, std::memory_order_relaxed);
  trimPool();
  setLastError("");
  return FOVEA_RT_OK;
}
