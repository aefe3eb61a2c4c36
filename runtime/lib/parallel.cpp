//===- parallel.cpp - Parallel loops --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "parallel.h"
#include "fovea_rt/fovea_rt.h"
#include "pages.h"
#include "pool.h"
#include "scratch.h"
#include "status.h"
#include "threads.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cinttypes>
#include <mutex>

using namespace fovea::rt;

static thread_local int64_t runningIndex = -1;

int64_t fovea::rt::currentIndex() { return runningIndex; }

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

/// How long all bodies of a loop took together when it last ran. Loops are
/// known by their body and number of indices. What is lost here is time: a loop
/// that is taken for a short one is shared once it proves longer.
class Durations {
public:
  nanoseconds find(fovea_rt_body_t body, int64_t count) const {
    const uint64_t key = getKey(body, count);
    const uint64_t entry =
        entries[key % entries.size()].load(std::memory_order_relaxed);
    return entry >> 32 == key >> 32 ? nanoseconds(entry & UINT32_MAX)
                                    : nanoseconds::max();
  }

  void record(fovea_rt_body_t body, int64_t count, nanoseconds time) {
    const uint64_t key = getKey(body, count);
    const auto kept = static_cast<uint64_t>(
        std::min<int64_t>(time.count(), int64_t(UINT32_MAX)));
    entries[key % entries.size()].store((key >> 32 << 32) | kept,
                                        std::memory_order_relaxed);
  }

private:
  static uint64_t getKey(fovea_rt_body_t body, int64_t count) {
    // The finaliser of MurmurHash3.
    uint64_t key = reinterpret_cast<uint64_t>(body) ^
                   (static_cast<uint64_t>(count) * 0x9E3779B97F4A7C15);
    key = (key ^ (key >> 33)) * 0xFF51AFD7ED558CCD;
    return key ^ (key >> 33);
  }

  /// The upper half of the key, and nanoseconds.
  std::array<std::atomic<uint64_t>, 256> entries{};
};

/// A loop that several threads execute.
class ParallelLoop final : public SharedWork {
public:
  ParallelLoop(int64_t count, int64_t scratchBytes, void *ownerScratch,
               fovea_rt_body_t body, void *context)
      : remaining(count), scratchBytes(scratchBytes),
        ownerScratch(ownerScratch), body(body), context(context),
        invocation(currentInvocation()) {
    fegetenv(&environment);
  }

  void runOnOwner() override { runIndices(ownerScratch); }

  void runOnWorker() override {
    const int depth = scratchDepth();
    void *scratch = enterScratch(scratchBytes);
    if (!scratch)
      return;
    fesetenv(&environment);
    runIndices(scratch);
    leaveScratch(depth);
  }

  /// After the loop: the time that all threads spent in bodies.
  nanoseconds getBusyTime() const {
    return nanoseconds(busy.load(std::memory_order_relaxed));
  }

  /// After the loop: FOVEA_RT_OK, or the code of the failure, whose text is
  /// then in `message`, of `messageBytes` bytes.
  int32_t finish(char *message) const {
    if (failedCode != FOVEA_RT_OK)
      copyMessage(message, failedMessage);
    return failedCode;
  }

private:
  /// A thread's part in the loop.
  struct Share {
    ParallelLoop &loop;
    void *scratch;
    int64_t index;
  };

  void runIndices(void *scratch);
  static void runShare(void *context);
  void recordFailure(int64_t index);

  /// Indices below this one have not been handed out.
  alignas(128) std::atomic<int64_t> remaining;
  std::atomic<int64_t> busy{0};

  alignas(128) const int64_t scratchBytes;
  void *const ownerScratch;
  const fovea_rt_body_t body;
  void *const context;
  Invocation *const invocation;
  fenv_t environment;

  std::mutex failureLock;
  int64_t failedIndex = -1;
  int32_t failedCode = FOVEA_RT_OK;
  char failedMessage[messageBytes];
};

} // namespace

void ParallelLoop::runShare(void *context) {
  Share &share = *static_cast<Share *>(context);
  ParallelLoop &loop = share.loop;
  for (;;) {
    share.index = loop.remaining.fetch_sub(1, std::memory_order_relaxed) - 1;
    if (share.index < 0)
      return;
    fovea_rt_check_interrupt();
    runningIndex = share.index;
    poison(share.scratch, static_cast<size_t>(loop.scratchBytes));
    loop.body(share.index, share.scratch, loop.context);
  }
}

void ParallelLoop::runIndices(void *scratch) {
  Share share{*this, scratch, -1};
  const Clock::time_point start = Clock::now();
  if (!callGuarded(invocation, runShare, &share))
    recordFailure(share.index);
  runningIndex = -1;
  busy.fetch_add(nanoseconds(Clock::now() - start).count(),
                 std::memory_order_relaxed);
}

/// Keeps the failure of the highest index. Every index above a failed one has
/// been handed out and runs to its end, so which failure that is does not
/// depend on the threads.
void ParallelLoop::recordFailure(int64_t index) {
  remaining.store(0, std::memory_order_relaxed);
  std::lock_guard<std::mutex> guard(failureLock);
  if (index < failedIndex)
    return;
  failedIndex = index;
  failedCode = failureCode();
  copyMessage(failedMessage, failureMessage());
}

/// Returns false if the workers are busy; otherwise sets `code` and `message`
/// as `finish` does, and adds to `time` what bodies took. The loop object is
/// gone before the caller fails.
static bool runShared(int64_t count, int64_t scratchBytes, void *scratch,
                      fovea_rt_body_t body, void *context, int threads,
                      nanoseconds &time, int32_t &code, char *message) {
  ParallelLoop loop(count, scratchBytes, scratch, body, context);
  if (!runOnPool(loop, threads))
    return false;
  time += loop.getBusyTime();
  code = loop.finish(message);
  return true;
}

/// Runs the indices below `count` for as long as `goesOn()`, and returns how
/// many remain. A failure of a body leaves the kernel from here, so whatever
/// loop comes next on this thread sets the index anew.
template <typename Predicate>
static int64_t runInline(int64_t count, int64_t scratchBytes, void *scratch,
                         fovea_rt_body_t body, void *context,
                         Predicate goesOn) {
  const int64_t outerIndex = runningIndex;
  while (count > 0 && goesOn()) {
    fovea_rt_check_interrupt();
    runningIndex = --count;
    poison(scratch, static_cast<size_t>(scratchBytes));
    body(count, scratch, context);
  }
  runningIndex = outerIndex;
  return count;
}

/// Loops that take less than this are over sooner on one thread: a worker that
/// sleeps takes 15 to 30 us to wake up, and one that spins 1 us to join.
static nanoseconds getLeastSharedTime() {
  return nanoseconds(poolSleeps() ? 30000 : 3000);
}

int64_t fovea_rt_loop_threads(void) {
  return scratchDepth() > 0 ? 1 : numThreads();
}

void fovea_rt_parallel_for(int64_t count, int64_t scratch_bytes,
                           fovea_rt_body_t body, void *context) {
  if (count <= 0)
    return;
  if (scratch_bytes < 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "invalid parallel loop: scratch is %" PRId64
         " bytes, expected zero or more",
         scratch_bytes);

  const int depth = scratchDepth();
  void *scratch = enterScratch(scratch_bytes);
  if (!scratch)
    fail(FOVEA_RT_OUT_OF_MEMORY,
         "out of memory: kernel asked for %" PRId64
         " bytes of scratch for each thread",
         scratch_bytes);

  auto always = [] { return true; };
  int32_t code = FOVEA_RT_OK;
  char message[messageBytes];
  if (depth > 0 || count == 1 || numThreads() == 1) {
    runInline(count, scratch_bytes, scratch, body, context, always);
  } else {
    static Durations durations;
    int64_t remaining = count;
    nanoseconds time{0};
    if (const nanoseconds limit = getLeastSharedTime();
        durations.find(body, count) < limit) {
      const Clock::time_point start = Clock::now();
      remaining = runInline(count, scratch_bytes, scratch, body, context, [&] {
        time = Clock::now() - start;
        return time < limit;
      });
      time = Clock::now() - start;
    }
    const int threads =
        static_cast<int>(std::min<int64_t>(numThreads(), remaining));
    if (remaining > 0 && !runShared(remaining, scratch_bytes, scratch, body,
                                    context, threads, time, code, message)) {
      const Clock::time_point start = Clock::now();
      runInline(remaining, scratch_bytes, scratch, body, context, always);
      time += Clock::now() - start;
    }
    durations.record(body, count, time);
  }

  leaveScratch(depth);
  if (code != FOVEA_RT_OK)
    failWith(code, message);
}
