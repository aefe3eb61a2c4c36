//===- pool.cpp - Worker threads ------------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The pool has one owner at a time, the thread whose work it runs. The owner
// publishes the work and opens a gate; a worker joins by passing the gate, and
// the owner closes it when it has run out of work itself, then waits for the
// workers that did join. A worker that wakes up late finds the gate closed: the
// owner never waits for a thread that does nothing.
//
// Waiting threads spin briefly, because loops of one kernel follow each other
// closely, and then sleep on a futex.
//
//===----------------------------------------------------------------------===//

#include "pool.h"

#include "fovea_rt/fovea_rt.h"
#include "interrupt.h"
#include "relax.h"
#include "threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <memory>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

using namespace fovea::rt;

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

/// Sleeping costs 15 to 30 us, for the thread that wakes up and for the one
/// that waits for it. Pauses of 100 us are common, between the kernels of a
/// layer and where a loop ends with one long body, and then that is much.
static constexpr std::chrono::microseconds spinTime{200};

/// Spins until `ready()` or for about `spinTime`; returns the last `ready()`.
template <typename Ready> static bool spinUntil(bool enabled, Ready ready) {
  if (ready())
    return true;
  if (!enabled)
    return false;
  const auto deadline = std::chrono::steady_clock::now() + spinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      cpuRelax();
      if (ready())
        return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "a futex is a plain 32-bit word");

static void futexWait(std::atomic<uint32_t> &word, uint32_t expected,
                      const timespec *limit = nullptr) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, limit, nullptr, 0);
}

static void futexWake(std::atomic<uint32_t> &word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

//===----------------------------------------------------------------------===//
// Pool
//===----------------------------------------------------------------------===//

namespace {

class Pool;

struct Worker {
  Pool *pool;
  int index;
  /// Last announcement that the worker does not have to react to.
  uint32_t seen;
  pthread_t thread;
  /// The process that the thread is part of; a fork copies this record only.
  pid_t process;
};

class Pool {
public:
  bool tryAcquire() { return !owned.exchange(true, std::memory_order_acquire); }
  void releaseOwnership() { owned.store(false, std::memory_order_release); }

  /// The owner only.
  void run(SharedWork &work, int threads);

  bool sleeps() const {
    return keptWorkers.load(std::memory_order_relaxed) == 0 ||
           sleepingWorkers.load(std::memory_order_relaxed) > 0;
  }

  /// The owner only: ends the workers from `count` on.
  void shrink(int count);

private:
  // Layout of the gate: open flag, free places, workers inside.
  static constexpr uint32_t openFlag = uint32_t(1) << 31;
  static constexpr uint32_t onePlace = uint32_t(1) << 16;
  static constexpr uint32_t insideMask = onePlace - 1;
  static_assert(FOVEA_RT_MAX_THREADS < (1 << 15), "places take 15 bits");

  static void *threadMain(void *argument);
  void workerLoop(Worker &worker);
  bool join();
  void leave();
  void grow(int count);
  void announce(int wakeups);

  std::vector<std::unique_ptr<Worker>> workers;
  SharedWork *work = nullptr;
  std::atomic<bool> owned{false};
  std::atomic<bool> maySpin{true};
  std::atomic<int> keptWorkers{0};

  // The words that threads spin on, each on cache lines of its own.
  alignas(128) std::atomic<uint32_t> announcement{0};
  std::atomic<uint32_t> sleepingWorkers{0};
  alignas(128) std::atomic<uint32_t> gate{0};
  std::atomic<bool> ownerSleeps{false};
};

} // namespace

// A thread that goes to sleep first says so and then looks again; a thread that
// has news first publishes it and then looks for sleepers. Both use the
// default, sequentially consistent order, so at least one of them sees the
// other.

void Pool::announce(int wakeups) {
  announcement.fetch_add(1);
  if (sleepingWorkers.load() > 0)
    futexWake(announcement, wakeups);
}

bool Pool::join() {
  uint32_t state = gate.load(std::memory_order_relaxed);
  do {
    if (!(state & openFlag) || (state & ~openFlag) < onePlace)
      return false;
  } while (!gate.compare_exchange_weak(state, state - onePlace + 1,
                                       std::memory_order_acquire,
                                       std::memory_order_relaxed));
  return true;
}

void Pool::leave() {
  if ((gate.fetch_sub(1) & insideMask) == 1 && ownerSleeps.load())
    futexWake(gate, 1);
}

void Pool::workerLoop(Worker &worker) {
  for (;;) {
    auto announced = [&] { return announcement.load() != worker.seen; };
    if (!spinUntil(maySpin.load(std::memory_order_relaxed), announced)) {
      sleepingWorkers.fetch_add(1);
      while (!announced())
        futexWait(announcement, worker.seen);
      sleepingWorkers.fetch_sub(1);
    }
    worker.seen = announcement.load();
    if (worker.index >= keptWorkers.load())
      return;
    if (join()) {
      work->runOnWorker();
      leave();
    }
  }
}

void *Pool::threadMain(void *argument) {
  Worker &worker = *static_cast<Worker *>(argument);
  worker.pool->workerLoop(worker);
  return nullptr;
}

void Pool::grow(int count) {
  keptWorkers.store(std::max(count, static_cast<int>(workers.size())));
  while (static_cast<int>(workers.size()) < count) {
    auto worker = std::make_unique<Worker>();
    worker->pool = this;
    worker->index = static_cast<int>(workers.size());
    worker->seen = announcement.load();
    worker->process = getpid();
    // Without another thread the loop still completes, on fewer.
    if (pthread_create(&worker->thread, nullptr, threadMain, worker.get()) != 0)
      return;
    workers.push_back(std::move(worker));
  }
}

void Pool::shrink(int count) {
  if (static_cast<int>(workers.size()) <= count)
    return;
  keptWorkers.store(count);
  announce(INT_MAX);
  while (static_cast<int>(workers.size()) > count) {
    if (workers.back()->process == getpid())
      pthread_join(workers.back()->thread, nullptr);
    workers.pop_back();
  }
}

void Pool::run(SharedWork &newWork, int threads) {
  const int wanted = threads - 1;
  grow(wanted);
  const uint32_t places =
      static_cast<uint32_t>(std::min(wanted, static_cast<int>(workers.size())));
  // Spinning pays only if the thread waited for has a CPU to itself.
  maySpin.store(numThreads() <= availableCpus(), std::memory_order_relaxed);

  work = &newWork;
  gate.store(openFlag | places * onePlace, std::memory_order_release);
  announce(static_cast<int>(places));
  newWork.runOnOwner();
  gate.fetch_and(insideMask);

  auto finished = [&] { return (gate.load() & insideMask) == 0; };
  if (!spinUntil(maySpin.load(std::memory_order_relaxed), finished)) {
    ownerSleeps.store(true);
    // Workers that find the invocation interrupted end soon.
    const bool asks = hasInterruptCheck();
    const timespec interval = {
        0, std::chrono::nanoseconds(interruptInterval).count()};
    for (uint32_t state; (state = gate.load()) != 0;) {
      futexWait(gate, state, asks ? &interval : nullptr);
      if (asks)
        isInterrupted();
    }
    ownerSleeps.store(false);
  }
  work = nullptr;
}

/// Never destroyed: hosts may run kernels from their own static destructors.
static Pool &pool() {
  static Pool *instance = new Pool;
  return *instance;
}

/// Workers must not run code of a library that is about to be unloaded.
__attribute__((destructor)) static void stopWorkers() {
  Pool &workers = pool();
  if (!workers.tryAcquire())
    return;
  workers.shrink(0);
  workers.releaseOwnership();
}

bool fovea::rt::runOnPool(SharedWork &work, int threads) {
  Pool &workers = pool();
  if (!workers.tryAcquire())
    return false;
  workers.shrink(numThreads() - 1);
  workers.run(work, threads);
  workers.releaseOwnership();
  return true;
}

bool fovea::rt::poolSleeps() { return pool().sleeps(); }

void fovea::rt::trimPool() {
  Pool &workers = pool();
  if (!workers.tryAcquire())
    return;
  workers.shrink(numThreads() - 1);
  workers.releaseOwnership();
}
