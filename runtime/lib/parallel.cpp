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
#include <atomic>
#include <cfenv>
#include <cinttypes>
#include <mutex>

using namespace fovea::rt;

static thread_local int64_t runningIndex = -1;

int64_t fovea::rt::currentIndex() { return runningIndex; }

namespace {

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
  if (!callGuarded(invocation, runShare, &share))
    recordFailure(share.index);
  runningIndex = -1;
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
/// as `finish` does. The loop object is gone before the caller fails.
static bool runShared(int64_t count, int64_t scratchBytes, void *scratch,
                      fovea_rt_body_t body, void *context, int threads,
                      int32_t &code, char *message) {
  ParallelLoop loop(count, scratchBytes, scratch, body, context);
  if (!runOnPool(loop, threads))
    return false;
  code = loop.finish(message);
  return true;
}

/// A failure of a body leaves the kernel from here, so whatever loop comes next
/// on this thread sets the index anew.
static void runInline(int64_t count, int64_t scratchBytes, void *scratch,
                      fovea_rt_body_t body, void *context) {
  const int64_t outerIndex = runningIndex;
  for (int64_t index = count - 1; index >= 0; --index) {
    fovea_rt_check_interrupt();
    runningIndex = index;
    poison(scratch, static_cast<size_t>(scratchBytes));
    body(index, scratch, context);
  }
  runningIndex = outerIndex;
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

  const int threads =
      depth > 0 ? 1 : static_cast<int>(std::min<int64_t>(numThreads(), count));
  int32_t code = FOVEA_RT_OK;
  char message[messageBytes];
  if (threads == 1 || !runShared(count, scratch_bytes, scratch, body, context,
                                 threads, code, message))
    runInline(count, scratch_bytes, scratch, body, context);

  leaveScratch(depth);
  if (code != FOVEA_RT_OK)
    failWith(code, message);
}
