//===- queue.cpp - What generated code does with a device -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "queue.h"
#include "../memory.h"
#include "../status.h"
#include "checks.h"
#include "device.h"
#include "fovea_rt/abi.h"
#include "rows.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

using namespace fovea::rt;

namespace {

/// An array of the caller and the packed one that stands for it on the device.
struct Mapping {
  void *caller;
  /// FOVEA_RT_GPU_HOST or _HERE.
  int32_t place;
  Rows rows;
  void *device;
  int32_t access;
  Mapping *next;
};

} // namespace

struct fovea_rt_gpu_queue {
  GPUDevice *device;
  void *stream;
  bool ownsStream;
  /// Whether a graph records the work.
  bool isCaptured;
  /// Whether the end waits for the work, so that it can tell failed checks.
  bool tellsFailures;
  /// Whether the caller's data lies on the device: then results stay there.
  bool hasDeviceData;
  /// Of checks on the device; null without one.
  void *failure;
  Invocation *invocation;
  Mapping *mappings;
  GPUBlock *blocks;
  fovea_rt_gpu_queue *next;
};

using Queue = fovea_rt_gpu_queue;

/// A failure abandons the frame of its caller, which owns nothing.
static void check(fovea_rt_status status, const char *text) {
  if (status)
    failWith(status, text);
}

template <typename T> static T *allocate() {
  T *object = new (std::nothrow) T();
  if (!object)
    fail(FOVEA_RT_OUT_OF_MEMORY, "out of memory for the GPU runtime");
  return object;
}

#define FOVEA_GPU_CALL(queue, function, ...)                                   \
  do {                                                                         \
    char text[FOVEA_RT_GPU_TEXT] = "";                                         \
    check((queue)->device->driver->function((queue)->device->handle,           \
                                            __VA_ARGS__, text),                \
          text);                                                               \
  } while (false)

/// Fails for what a graph cannot record.
static void failIfCaptured(Queue *queue, const char *what) {
  if (queue->isCaptured)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s, which a CUDA graph that is being captured cannot hold", what);
}

/// Whether calls wait for the device where that makes errors their own.
static bool isStrict() {
  static const bool strict = [] {
    const char *value = getenv("FOVEA_GPU_STRICT");
    return value && *value && strcmp(value, "0") != 0;
  }();
  return strict;
}

//===----------------------------------------------------------------------===//
// Opening and closing
//===----------------------------------------------------------------------===//

fovea_rt_gpu_queue *fovea_rt_gpu_begin(int32_t kind) {
  Invocation *invocation = currentInvocation();
  if (!invocation)
    fail(FOVEA_RT_INTERNAL, "a GPU queue needs a running invocation");
  char text[FOVEA_RT_GPU_TEXT] = "";
  GPUDevice *device;
  check(getDevice(kind, chosenDevice(), &device, text), text);
  int32_t isCaptured = 0;
  if (void *stream = chosenStream())
    check(
        device->driver->is_capturing(device->handle, stream, &isCaptured, text),
        text);
  if (!isCaptured && takeReport(*device, text))
    failWith(FOVEA_RT_INVALID_ARGUMENT, text);
  Queue *queue = allocate<Queue>();
  queue->device = device;
  queue->invocation = invocation;
  queue->stream = chosenStream();
  queue->ownsStream = queue->stream == nullptr;
  queue->isCaptured = isCaptured;
  queue->tellsFailures = !isCaptured && (queue->ownsStream || isStrict() ||
                                         kind == FOVEA_RT_GPU_EMULATOR);
  if (queue->ownsStream)
    if (fovea_rt_status status = takeStream(*device, &queue->stream, text)) {
      delete queue;
      failWith(status, text);
    }
  std::lock_guard<std::mutex> guard(invocation->lock);
  queue->next = invocation->queues;
  invocation->queues = queue;
  return queue;
}

/// Frees what the queue itself is made of.
static void destroy(Queue *queue) {
  while (Mapping *mapping = queue->mappings) {
    queue->mappings = mapping->next;
    delete mapping;
  }
  if (queue->ownsStream)
    returnStream(*queue->device, queue->stream);
  delete queue;
}

/// Copies between the array of the caller and the packed one.
static void copyMapping(Queue *queue, const Mapping &mapping, bool toDevice) {
  auto *caller = static_cast<char *>(mapping.caller);
  auto *device = static_cast<char *>(mapping.device);
  int64_t bytes = mapping.rows.getBytes();
  if (mapping.place != FOVEA_RT_GPU_HOST) {
    char text[FOVEA_RT_GPU_TEXT] = "";
    auto copyRuns = [&](int64_t at, int64_t packed, int64_t pitch, int64_t run,
                        int64_t count) {
      const fovea_rt_gpu_driver *driver = queue->device->driver;
      void *handle = queue->device->handle;
      return toDevice
                 ? driver->copy_rows(handle, device + packed, run, caller + at,
                                     pitch, run, count, queue->stream, text)
                 : driver->copy_rows(handle, caller + at, pitch,
                                     device + packed, run, run, count,
                                     queue->stream, text);
    };
    check(mapping.rows.visitRuns(copyRuns), text);
    return;
  }
  // Drivers copy one piece of host memory fast, not many.
  bool isPacked = mapping.rows == mapping.rows.pack();
  char *packed =
      isPacked ? caller : static_cast<char *>(fovea_rt_alloc(bytes, 0));
  auto copyRuns = [&](int64_t at, int64_t first, int64_t pitch, int64_t run,
                      int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      char *one = caller + at + i * pitch, *other = packed + first + i * run;
      toDevice ? memcpy(other, one, run) : memcpy(one, other, run);
    }
    return 0;
  };
  if (toDevice) {
    if (!isPacked)
      mapping.rows.visitRuns(copyRuns);
    FOVEA_GPU_CALL(queue, copy, device, FOVEA_RT_GPU_HERE, packed,
                   FOVEA_RT_GPU_HOST, bytes, queue->stream);
  } else {
    FOVEA_GPU_CALL(queue, copy, packed, FOVEA_RT_GPU_HOST, device,
                   FOVEA_RT_GPU_HERE, bytes, queue->stream);
    if (!isPacked)
      mapping.rows.visitRuns(copyRuns);
  }
  if (!isPacked)
    fovea_rt_free(packed);
}

/// Ends what checks need, and fails if one has failed.
static void endChecks(Queue *queue) {
  if (!queue->failure)
    return;
  if (queue->tellsFailures) {
    int64_t words[FOVEA_RT_GPU_FAILURE_WORDS];
    FOVEA_GPU_CALL(queue, copy, words, FOVEA_RT_GPU_HOST, queue->failure,
                   FOVEA_RT_GPU_HERE, sizeof(words), queue->stream);
    char text[FOVEA_RT_GPU_TEXT] = "";
    if (describeWords(words, text))
      failWith(FOVEA_RT_INVALID_ARGUMENT, text);
  }
  fovea_rt_gpu_free(queue, queue->failure);
  queue->failure = nullptr;
}

void fovea_rt_gpu_end(fovea_rt_gpu_queue *queue) {
  // Before anything is written to memory of the host.
  endChecks(queue);
  bool mustWait = queue->ownsStream;
  for (Mapping *mapping = queue->mappings; mapping; mapping = mapping->next) {
    if (mapping->access & FOVEA_RT_GPU_WRITE) {
      copyMapping(queue, *mapping, /*toDevice=*/false);
      mustWait |= mapping->place == FOVEA_RT_GPU_HOST;
    }
    fovea_rt_gpu_free(queue, mapping->device);
    // Not to be copied again if something below fails.
    mapping->access = 0;
    mapping->device = nullptr;
  }
  if (mustWait)
    fovea_rt_gpu_synchronize(queue);

  // The blocks that live on belong to the invocation from now on.
  Invocation *invocation = queue->invocation;
  std::lock_guard<std::mutex> guard(invocation->lock);
  GPUBlock **last = &invocation->gpuBlocks;
  while (*last)
    last = &(*last)->next;
  *last = queue->blocks;
  Queue **link = &invocation->queues;
  while (*link && *link != queue)
    link = &(*link)->next;
  if (*link)
    *link = queue->next;
  destroy(queue);
}

/// Results on devices that their callers have not freed yet.
static std::mutex resultsLock;
static GPUBlock *liveResults;
static std::atomic<int64_t> numLiveResults;

static void keepResults(GPUBlock *blocks) {
  std::lock_guard<std::mutex> guard(resultsLock);
  while (GPUBlock *block = blocks) {
    blocks = block->next;
    block->next = liveResults;
    liveResults = block;
    ++numLiveResults;
  }
}

fovea_rt_status fovea::rt::releaseAfterAll(GPUDevice &device, void *pointer,
                                           char *text) {
  // Those who read it may do so on streams that the runtime does not know.
  if (fovea_rt_status status =
          device.driver->synchronize(device.handle, nullptr, /*all=*/1, text))
    return status;
  return device.driver->release(device.handle, pointer, nullptr, text);
}

/// Frees a result after the work that its caller has given to its stream.
static void release(const GPUBlock &block) {
  char ignored[FOVEA_RT_GPU_TEXT];
  if (block.stream)
    block.device->driver->release(block.device->handle, block.pointer,
                                  block.stream, ignored);
  else
    releaseAfterAll(*block.device, block.pointer, ignored);
}

void fovea::rt::forgetStream(void *stream) {
  std::lock_guard<std::mutex> guard(resultsLock);
  for (GPUBlock *block = liveResults; block; block = block->next)
    if (block->stream == stream)
      block->stream = nullptr;
}

bool fovea::rt::releaseResult(void *pointer) {
  if (numLiveResults.load(std::memory_order_relaxed) == 0)
    return false;
  GPUBlock *found;
  {
    std::lock_guard<std::mutex> guard(resultsLock);
    GPUBlock **link = &liveResults;
    while (*link && (*link)->pointer != pointer)
      link = &(*link)->next;
    found = *link;
    if (!found)
      return false;
    *link = found->next;
    --numLiveResults;
  }
  release(*found);
  delete found;
  return true;
}

void fovea::rt::closeQueues(Invocation &invocation, bool succeeded) {
  char ignored[FOVEA_RT_GPU_TEXT];
  auto dispose = [](GPUBlock *blocks) {
    while (GPUBlock *block = blocks) {
      release(*block);
      blocks = block->next;
      delete block;
    }
  };
  while (Queue *queue = invocation.queues) {
    invocation.queues = queue->next;
    const fovea_rt_gpu_driver *driver = queue->device->driver;
    // Work that is under way uses memory that goes away now.
    if (!queue->isCaptured)
      driver->synchronize(queue->device->handle, queue->stream, 0, ignored);
    dispose(queue->blocks);
    destroy(queue);
  }
  if (succeeded)
    keepResults(invocation.gpuBlocks);
  else
    dispose(invocation.gpuBlocks);
  invocation.gpuBlocks = nullptr;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

void *fovea_rt_gpu_alloc(fovea_rt_gpu_queue *queue, int64_t bytes) {
  if (bytes < 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "cannot allocate %" PRId64 " bytes of device memory", bytes);
  GPUBlock *block = allocate<GPUBlock>();
  block->device = queue->device;
  block->stream = queue->ownsStream ? nullptr : queue->stream;
  char text[FOVEA_RT_GPU_TEXT] = "";
  if (fovea_rt_status status = queue->device->driver->allocate(
          queue->device->handle, bytes, queue->stream, &block->pointer, text)) {
    delete block;
    failWith(status, text);
  }
  block->next = queue->blocks;
  queue->blocks = block;
  return block->pointer;
}

void *fovea_rt_gpu_alloc_result(fovea_rt_gpu_queue *queue, int64_t bytes) {
  return queue->hasDeviceData ? fovea_rt_gpu_alloc(queue, bytes)
                              : fovea_rt_alloc(bytes, 0);
}

void fovea_rt_gpu_free(fovea_rt_gpu_queue *queue, void *pointer) {
  if (!pointer)
    return;
  GPUBlock **link = &queue->blocks;
  while (*link && (*link)->pointer != pointer)
    link = &(*link)->next;
  GPUBlock *block = *link;
  if (!block)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%p is no device memory that this kernel has allocated", pointer);
  *link = block->next;
  delete block;
  FOVEA_GPU_CALL(queue, release, pointer, queue->stream);
}

/// The array that kernels see for that of the caller: its address, and in
/// `rows` its strides.
static void *map(Queue *queue, void *pointer, Rows &rows, int64_t alignment,
                 int32_t access) {
  int64_t bytes = rows.getBytes();
  if (bytes < 0 || (bytes > 0 && !pointer))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "cannot give %" PRId64 " bytes at %p to the device", bytes, pointer);
  if (bytes == 0)
    return pointer;
  int32_t owner = 0;
  int32_t place =
      queue->device->driver->locate(queue->device->handle, pointer, &owner);
  if (place == FOVEA_RT_GPU_ELSEWHERE)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "the memory at %p lies on device %d, but the kernel runs on device %d",
         pointer, owner, queue->device->number);
  if (place == FOVEA_RT_GPU_HOST)
    failIfCaptured(queue, "an array lies in host memory");
  rows.settle();
  if (place == FOVEA_RT_GPU_HERE) {
    queue->hasDeviceData |= (access & FOVEA_RT_GPU_READ) != 0;
    if (rows.areAligned(pointer, alignment, access & FOVEA_RT_GPU_BOXES))
      return pointer;
  }
  Mapping *mapping = queue->mappings;
  while (mapping && !(mapping->caller == pointer && mapping->rows == rows))
    mapping = mapping->next;
  if (!mapping) {
    // The block comes first: a mapping without one must not be seen.
    void *device = fovea_rt_gpu_alloc(queue, bytes);
    mapping = allocate<Mapping>();
    mapping->caller = pointer;
    mapping->place = place;
    mapping->rows = rows;
    mapping->device = device;
    mapping->next = queue->mappings;
    queue->mappings = mapping;
  }
  bool mustRead = access & ~mapping->access & FOVEA_RT_GPU_READ;
  mapping->access |= access;
  if (mustRead)
    copyMapping(queue, *mapping, /*toDevice=*/true);
  rows = rows.pack();
  return mapping->device;
}

void *fovea_rt_gpu_map(fovea_rt_gpu_queue *queue, void *pointer, int64_t bytes,
                       int32_t access) {
  Rows rows;
  rows.rank = 1;
  rows.extents[0] = bytes;
  rows.strides[0] = 1;
  // Kernels copy 16 bytes at a time, and tensor maps begin at such.
  // Kernels load a short array at once, if its length allows it.
  int64_t alignment = bytes < 16 ? std::gcd(bytes, 16) : 16;
  return map(queue, pointer, rows, alignment, access);
}

void *fovea_rt_gpu_map_rows(fovea_rt_gpu_queue *queue, void *pointer,
                            int64_t elementBytes, int64_t alignment,
                            int32_t rank, const int64_t *extents,
                            int64_t *strides, int32_t access) {
  if (rank < 1 || rank > Rows::kMaxRank)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "arrays with strides have 1 to %d axes on a GPU, but got %d",
         Rows::kMaxRank, rank);
  Rows rows;
  rows.elementBytes = elementBytes;
  rows.rank = rank;
  std::copy_n(extents, rank, rows.extents);
  std::copy_n(strides, rank, rows.strides);
  void *mapped = map(queue, pointer, rows, alignment, access);
  std::copy_n(rows.strides, rank, strides);
  return mapped;
}

void *fovea_rt_gpu_constant(fovea_rt_gpu_queue *queue, const void *pointer,
                            int64_t bytes) {
  char text[FOVEA_RT_GPU_TEXT] = "";
  void *found;
  check(getConstant(*queue->device, pointer, bytes, !queue->isCaptured, &found,
                    text),
        text);
  return found;
}

void fovea_rt_gpu_copy(fovea_rt_gpu_queue *queue, void *to, const void *from,
                       int64_t bytes) {
  if (bytes <= 0)
    return;
  const fovea_rt_gpu_driver *driver = queue->device->driver;
  int32_t toOwner, fromOwner;
  int32_t toPlace = driver->locate(queue->device->handle, to, &toOwner);
  int32_t fromPlace = driver->locate(queue->device->handle, from, &fromOwner);
  if (toPlace == FOVEA_RT_GPU_HOST || fromPlace == FOVEA_RT_GPU_HOST)
    failIfCaptured(queue, "the host reads or writes numbers of this function");
  FOVEA_GPU_CALL(queue, copy, to, toPlace, from, fromPlace, bytes,
                 queue->stream);
}

void fovea_rt_gpu_fill(fovea_rt_gpu_queue *queue, void *to, int64_t count,
                       int32_t elementBytes, uint32_t value) {
  if (elementBytes != 1 && elementBytes != 2 && elementBytes != 4)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "elements of 1, 2 or 4 bytes can be filled, but got %d", elementBytes);
  if (count > 0)
    FOVEA_GPU_CALL(queue, fill, to, count, elementBytes, value, queue->stream);
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

void fovea_rt_gpu_launch(fovea_rt_gpu_queue *queue,
                         fovea_rt_gpu_function *function, int64_t gridX,
                         int64_t gridY, int64_t gridZ, int64_t blockX,
                         int64_t blockY, int64_t blockZ, int64_t clusterX,
                         int64_t clusterY, int64_t clusterZ,
                         int64_t sharedBytes, void **params,
                         int64_t numParams) {
  if (gridX == 0 || gridY == 0 || gridZ == 0)
    return;
  fovea_rt_gpu_launch_info info = {function->name,
                                   {gridX, gridY, gridZ},
                                   {blockX, blockY, blockZ},
                                   {clusterX, clusterY, clusterZ},
                                   sharedBytes,
                                   params,
                                   numParams};
  for (int axis = 0; axis < 3; ++axis) {
    int64_t most = axis == 0 ? INT32_MAX : 65535;
    if (info.grid[axis] < 0 || info.grid[axis] > most)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "kernel '%s' has %" PRId64 " blocks along axis %d, where at most "
           "%" PRId64 " are possible",
           function->name, info.grid[axis], axis, most);
  }
  char text[FOVEA_RT_GPU_TEXT] = "";
  void *loaded;
  check(
      getFunction(*queue->device, function, !queue->isCaptured, &loaded, text),
      text);
  FOVEA_GPU_CALL(queue, launch, loaded, &info, queue->stream);
}

void fovea_rt_gpu_synchronize(fovea_rt_gpu_queue *queue) {
  FOVEA_GPU_CALL(queue, synchronize, queue->stream, 0);
}

void fovea_rt_gpu_encode_tensor_map(fovea_rt_gpu_queue *queue, void *map,
                                    int32_t elementType, int32_t rank,
                                    void *address, const int64_t *extents,
                                    const int64_t *strides, const int32_t *box,
                                    int32_t swizzle) {
  if (rank < 1 || rank > 5)
    fail(FOVEA_RT_INVALID_ARGUMENT, "tensor maps have 1 to 5 axes, but got %d",
         rank);
  // Nothing is copied of a tensor without elements.
  for (int32_t axis = 0; axis < rank; ++axis)
    if (extents[axis] == 0)
      return;
  fovea_rt_gpu_tensor_map_info info = {elementType, rank,    swizzle, address,
                                       extents,     strides, box};
  FOVEA_GPU_CALL(queue, encode, map, &info);
}

/// The queue that the running invocation opened last.
static fovea_rt_gpu_queue *getQueue(const char *what) {
  Invocation *invocation = currentInvocation();
  if (!invocation || !invocation->queues)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s on a GPU need a queue of the invocation", what);
  return invocation->queues;
}

QueueInfo fovea::rt::getQueueInfo(const char *what) {
  fovea_rt_gpu_queue *queue = getQueue(what);
  return {queue, queue->device, queue->stream};
}

void fovea_rt_gpu_transform(void *data, int64_t length, int64_t count,
                            int32_t inverse) {
  fovea_rt_gpu_queue *queue = getQueue("Fourier transforms");
  if (length < 1 || (length & (length - 1)) != 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "the length of a transform must be a power of two, but got %" PRId64,
         length);
  if (count > 0)
    FOVEA_GPU_CALL(queue, transform, data, length, count, inverse,
                   queue->stream);
}

int64_t fovea_rt_gpu_multiprocessors(void) {
  return getQueue("kernels whose blocks stay")->device->multiprocessors;
}

int32_t fovea_rt_gpu_has_transforms(void) {
  fovea_rt_gpu_queue *queue = getQueue("Fourier transforms");
  char text[FOVEA_RT_GPU_TEXT] = "";
  return queue->device->driver->transform(queue->device->handle, nullptr, 1, 0,
                                          0, queue->stream,
                                          text) == FOVEA_RT_OK;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

void *fovea_rt_gpu_failure(void) {
  fovea_rt_gpu_queue *queue = getQueue("checks");
  if (queue->failure)
    return queue->failure;
  constexpr int64_t halves = sizeof(int64_t) / sizeof(int32_t);
  void *words = fovea_rt_gpu_alloc(queue, FOVEA_RT_GPU_FAILURE_WORDS *
                                              int64_t(sizeof(int64_t)));
  fovea_rt_gpu_fill(queue, words, halves, sizeof(int32_t), UINT32_MAX);
  fovea_rt_gpu_fill(queue, static_cast<int64_t *>(words) + kRuleWord,
                    halves * (FOVEA_RT_GPU_FAILURE_WORDS - kRuleWord),
                    sizeof(int32_t), 0);
  return queue->failure = words;
}

int64_t fovea_rt_gpu_rule(const char *text, int32_t kind) {
  return numberRule(text, kind);
}

void *fovea_rt_gpu_report(int64_t rule) {
  fovea_rt_gpu_queue *queue = getQueue("checks");
  if (queue->tellsFailures)
    return fovea_rt_gpu_failure();
  char text[FOVEA_RT_GPU_TEXT] = "";
  void *report;
  if (fovea_rt_status status =
          getReport(*queue->device, rule, !queue->isCaptured, &report, text)) {
    if (status == FOVEA_RT_INVALID_ARGUMENT)
      failIfCaptured(queue, text);
    failWith(status, text);
  }
  return report;
}
