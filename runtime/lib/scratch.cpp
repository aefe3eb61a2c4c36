//===- scratch.cpp - Scratch memory of threads ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "scratch.h"

#include "fovea_rt/fovea_rt.h"
#include "pages.h"
#include "statistics.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

using namespace fovea::rt;

static constexpr size_t scratchAlignment = 64;

namespace {

/// One aligned buffer.
class Buffer {
public:
  /// Makes the capacity at least `bytes`; the contents are lost when it grows.
  bool reserve(int64_t bytes) {
    if (data && bytes <= capacity)
      return true;
    if (bytes > maxBufferBytes)
      return false;
    // Half as much again, so that slowly growing demands settle quickly. The
    // old buffer goes first: the two are never held together.
    int64_t generous = std::max(bytes, capacity + capacity / 2);
    reset();
    return allocate(generous) || allocate(bytes);
  }

  void reset() {
    if (!data)
      return;
    if (mapping.data)
      unmap(mapping);
    else
      free(data);
    scratchGauge.subtract(capacity);
    mapping = Mapping();
    data = nullptr;
    capacity = 0;
  }

  void *get() const { return data; }

private:
  bool allocate(int64_t bytes) {
    size_t size = static_cast<size_t>(bytes);
    if (size >= hugePageBytes) {
      mapping = mapHuge(size, 0);
      data = mapping.data;
      size = mapping.bytes;
    } else {
      size = std::max((size + scratchAlignment - 1) / scratchAlignment,
                      size_t(1)) *
             scratchAlignment;
      if (posix_memalign(&data, scratchAlignment, size) != 0)
        data = nullptr;
    }
    if (!data)
      return false;
    capacity = static_cast<int64_t>(size);
    scratchGauge.add(capacity);
    return true;
  }

  void *data = nullptr;
  int64_t capacity = 0;
  Mapping mapping;
};

class ThreadScratch;

/// All threads that ever ran a loop and still exist.
struct Registry {
  std::mutex lock;
  std::vector<ThreadScratch *> threads;
};

} // namespace

/// Never destroyed: threads may end after static destructors have run.
static Registry &registry() {
  static Registry *instance = new Registry;
  return *instance;
}

namespace {

class ThreadScratch {
public:
  ThreadScratch() {
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    all.threads.push_back(this);
  }

  ~ThreadScratch() {
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    all.threads.erase(std::find(all.threads.begin(), all.threads.end(), this));
    for (Buffer &buffer : buffers)
      buffer.reset();
  }

  void *enter(int64_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    size_t level = static_cast<size_t>(depth);
    if (buffers.size() <= level)
      buffers.resize(level + 1);
    if (!buffers[level].reserve(bytes))
      return nullptr;
    ++depth;
    return buffers[level].get();
  }

  void leave(int newDepth) {
    std::lock_guard<std::mutex> guard(lock);
    depth = newDepth;
  }

  /// Only this thread changes the depth, so it may read it without the lock.
  int currentDepth() const { return depth; }

  /// Called by any thread, hence the lock around every use of `buffers`.
  void releaseIdle() {
    std::lock_guard<std::mutex> guard(lock);
    for (size_t level = static_cast<size_t>(depth); level < buffers.size();
         ++level)
      buffers[level].reset();
  }

private:
  std::mutex lock;
  std::vector<Buffer> buffers;
  int depth = 0;
};

} // namespace

static thread_local ThreadScratch threadScratch;

int fovea::rt::scratchDepth() { return threadScratch.currentDepth(); }

void *fovea::rt::enterScratch(int64_t bytes) {
  return threadScratch.enter(bytes);
}

void fovea::rt::leaveScratch(int depth) { threadScratch.leave(depth); }

void fovea_rt_release_scratch(void) {
  Registry &all = registry();
  std::lock_guard<std::mutex> guard(all.lock);
  for (ThreadScratch *thread : all.threads)
    thread->releaseIdle();
}
