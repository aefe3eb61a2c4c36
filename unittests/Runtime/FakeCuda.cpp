//===- FakeCuda.cpp - A CUDA driver that only pretends --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

static std::recursive_mutex lock;
static int currentDevice = 0;

EXPORT FakeCuda *fakeCuda() {
  static auto *state = new FakeCuda;
  return state;
}

/// For tests that do not know the state.
EXPORT void *fakeCudaLastStream() { return fakeCuda()->lastStream; }
EXPORT void *fakeCudaLastFreeStream() { return fakeCuda()->lastFreeStream; }
EXPORT size_t fakeCudaCount(const char *name) {
  return fakeCuda()->count(name);
}
EXPORT size_t fakeCudaUsedBytes() { return fakeCuda()->usedBytes; }
/// The function fails after as many calls.
EXPORT void fakeCudaFail(const char *name, int result, int successes) {
  fakeCuda()->failing = name;
  fakeCuda()->result = result;
  fakeCuda()->successes = successes;
}

/// Whether a call is possible while a stream captures, in the mode "global",
/// which that of PyTorch is; `stream` is null for calls without one.
static bool isCapturable(const std::string &name, void *stream) {
  static const std::set<std::string> free = {
      "cuCtxPushCurrent_v2",    "cuDeviceGet",           "cuDeviceGetCount",
      "cuFuncSetAttribute",     "cuPointerGetAttribute", "cuStreamIsCapturing",
      "cuTensorMapEncodeTiled", "cuEventCreate",         "cuEventDestroy_v2",
      "cuMemGetInfo_v2"};
  static const std::set<std::string> recorded = {
      "cuLaunchKernel",    "cuLaunchKernelEx", "cuMemAllocAsync",
      "cuMemFreeAsync",    "cuMemsetD8Async",  "cuMemsetD16Async",
      "cuMemsetD32Async",  "cuEventRecord",    "cuMemcpyDtoDAsync_v2",
      "cuMemcpy2DAsync_v2"};
  if (free.count(name))
    return true;
  return recorded.count(name) && stream == fakeCuda()->capturing;
}

/// Notes the call; the result that it was told to give, or 0.
static int enter(const char *name, void *stream = nullptr) {
  FakeCuda &fake = *fakeCuda();
  fake.calls.push_back(name);
  if (fake.capturing && !isCapturable(name, stream)) {
    fake.notCapturable.push_back(name);
    return 900; // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
  }
  if (fake.failing == name && fake.successes-- <= 0)
    return fake.result;
  return 0;
}

/// The calls of which no graph can hold any since the capture began, each one
/// once; an empty text without a fault. Ends the capture, or begins one.
EXPORT const char *fakeCudaCapture(void *stream) {
  static std::string text;
  FakeCuda &fake = *fakeCuda();
  text.clear();
  for (const std::string &name : std::set<std::string>(
           fake.notCapturable.begin(), fake.notCapturable.end()))
    text += (text.empty() ? "" : " ") + name;
  fake.notCapturable.clear();
  fake.capturing = stream;
  return text.c_str();
}

/// Functions that need a context fail without one.
#define ENTER(name, needsContext) ENTER_ON(name, needsContext, nullptr)
/// Functions that work on a stream.
#define ENTER_ON(name, needsContext, stream)                                   \
  std::lock_guard<std::recursive_mutex> guard(lock);                           \
  FakeCuda &fake = *fakeCuda();                                                \
  if (int result = enter(name, stream))                                        \
    return result;                                                             \
  if (needsContext && fake.currentDepth == 0)                                  \
  return 201

// Functions have the names of the driver's.
// NOLINTBEGIN(readability-identifier-naming)

EXPORT int cuInit(unsigned) {
  ENTER("cuInit", false);
  return fake.numDevices ? 0 : 100;
}
EXPORT int cuDriverGetVersion(int *version) {
  *version = 12080;
  return 0;
}
EXPORT int cuGetErrorName(int result, const char **name) {
  *name = result == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == 100 ? "CUDA_ERROR_NO_DEVICE"
          : result == 218 ? "CUDA_ERROR_INVALID_PTX"
          : result == 500 ? "CUDA_ERROR_NOT_FOUND"
          : result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
          : result == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : result == 999 ? "CUDA_ERROR_UNKNOWN"
                          : "CUDA_ERROR_FAKE";
  return 0;
}
EXPORT int cuGetErrorString(int result, const char **text) {
  *text = "as the test wants";
  return 0;
}
EXPORT int cuDeviceGetCount(int *count) {
  ENTER("cuDeviceGetCount", false);
  *count = fake.numDevices;
  return 0;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
  ENTER("cuDeviceGet", false);
  *device = ordinal;
  return ordinal < fake.numDevices ? 0 : 101;
}
EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
  snprintf(name, bytes, "Fake %d", device);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int) {
  FakeCuda &fake = *fakeCuda();
  switch (attribute) {
  case 11:
    *value = INT_MAX;
    break;
  case 75:
    *value = fake.capability / 10;
    break;
  case 76:
    *value = fake.capability % 10;
    break;
  case 97:
    *value = 232448;
    break;
  case 115:
    *value = fake.hasPools;
    break;
  default:
    *value = attribute;
    break;
  }
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = fakeCuda()->totalBytes;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  *context = reinterpret_cast<void *>(intptr_t(device) + 1);
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void *context) {
  ENTER("cuCtxPushCurrent_v2", false);
  ++fake.currentDepth;
  currentDevice = int(reinterpret_cast<intptr_t>(context)) - 1;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void **) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  --fakeCuda()->currentDepth;
  return 0;
}
EXPORT int cuCtxSynchronize() {
  ENTER("cuCtxSynchronize", true);
  return 0;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

EXPORT int cuModuleLoadDataEx(void **module, const void *image,
                              unsigned numOptions, int *options,
                              void **values) {
  ENTER("cuModuleLoadDataEx", true);
  if (strstr(static_cast<const char *>(image), "REFUSE")) {
    for (unsigned i = 0; i < numOptions; ++i)
      if (options[i] == 5)
        strcpy(static_cast<char *>(values[i]),
               "ptxas application ptx input, line 7; error : no such thing");
    return 218;
  }
  *module = malloc(1);
  fake.modules.insert(*module);
  return 0;
}
EXPORT int cuModuleUnload(void *module) {
  ENTER("cuModuleUnload", true);
  fake.modules.erase(module);
  free(module);
  return 0;
}

/// Adds one to `count` floats.
static void addOne(void **params) {
  float *values = *static_cast<float **>(params[0]);
  int64_t count = *static_cast<int64_t *>(params[1]);
  for (int64_t i = 0; i < count; ++i)
    values[i] += 1;
}
static void doNothing(void **) {}
using Kernel = void (*)(void **);

EXPORT int cuModuleGetFunction(void **function, void *, const char *name) {
  ENTER("cuModuleGetFunction", true);
  bool isKnown = strcmp(name, "add_one") == 0;
  const char *others = getenv("FAKE_CUDA_KERNELS");
  if (!isKnown && (!others || !strstr(name, others)))
    return 500;
  *function = reinterpret_cast<void *>(Kernel(isKnown ? addOne : doNothing));
  return 0;
}
EXPORT int cuFuncSetAttribute(void *, int attribute, int value) {
  ENTER("cuFuncSetAttribute", true);
  if (attribute == 8)
    fake.maxDynamicShared = value;
  return 0;
}
EXPORT int cuLaunchKernel(void *function, unsigned, unsigned, unsigned,
                          unsigned, unsigned, unsigned, unsigned, void *stream,
                          void **params, void **) {
  ENTER_ON("cuLaunchKernel", true, stream);
  fake.lastStream = stream;
  reinterpret_cast<Kernel>(function)(params);
  return 0;
}

struct LaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  void *stream;
  struct {
    int id;
    char pad[4];
    unsigned clusterDim[16];
  } *attributes;
  unsigned numAttributes;
};
EXPORT int cuLaunchKernelEx(const LaunchConfig *config, void *function,
                            void **params, void **) {
  ENTER_ON("cuLaunchKernelEx", true, config->stream);
  if (config->numAttributes == 1 && config->attributes[0].id == 4) {
    const unsigned *extents = config->attributes[0].clusterDim;
    fake.clusterSize = extents[0] * extents[1] * extents[2];
  }
  fake.lastStream = config->stream;
  reinterpret_cast<Kernel>(function)(params);
  return 0;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static int allocate(FakeCuda &fake, char **pointer, size_t bytes) {
  if (fake.usedBytes + bytes > fake.totalBytes)
    return 2;
  *pointer = static_cast<char *>(aligned_alloc(256, (bytes + 255) & ~255ul));
  memset(*pointer, 0xee, bytes);
  fake.blocks[*pointer] = {bytes, currentDevice};
  fake.usedBytes += bytes;
  return 0;
}
static int release(FakeCuda &fake, char *pointer) {
  auto it = fake.blocks.find(pointer);
  if (it == fake.blocks.end())
    return 1;
  fake.usedBytes -= it->second.bytes;
  fake.blocks.erase(it);
  free(pointer);
  return 0;
}
EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
  ENTER("cuMemGetInfo_v2", true);
  *available = fake.totalBytes - fake.usedBytes;
  *total = fake.totalBytes;
  return 0;
}
EXPORT int cuMemAlloc_v2(char **pointer, size_t bytes) {
  ENTER("cuMemAlloc_v2", true);
  return allocate(fake, pointer, bytes);
}
EXPORT int cuMemFree_v2(char *pointer) {
  ENTER("cuMemFree_v2", true);
  return release(fake, pointer);
}
EXPORT int cuMemAllocAsync(char **pointer, size_t bytes, void *stream) {
  ENTER_ON("cuMemAllocAsync", true, stream);
  return allocate(fake, pointer, bytes);
}
EXPORT int cuMemFreeAsync(char *pointer, void *stream) {
  ENTER_ON("cuMemFreeAsync", true, stream);
  fake.lastFreeStream = stream;
  return release(fake, pointer);
}
EXPORT int cuDeviceGetDefaultMemPool(void **pool, int) {
  *pool = nullptr;
  return 0;
}
EXPORT int cuMemPoolSetAttribute(void *, int, void *) {
  ENTER("cuMemPoolSetAttribute", false);
  return 0;
}
EXPORT int cuMemPoolTrimTo(void *, size_t) {
  ENTER("cuMemPoolTrimTo", true);
  return 0;
}
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc", true);
  *pointer = malloc(bytes);
  fake.pinned.insert(*pointer);
  return 0;
}
EXPORT int cuMemFreeHost(void *pointer) {
  ENTER("cuMemFreeHost", true);
  fake.pinned.erase(pointer);
  free(pointer);
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes,
                                void *) {
  ENTER("cuMemcpyHtoDAsync_v2", true);
  memcpy(to, from, bytes);
  return 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes,
                                void *) {
  ENTER("cuMemcpyDtoHAsync_v2", true);
  memcpy(to, from, bytes);
  return 0;
}
EXPORT int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes,
                                void *stream) {
  ENTER_ON("cuMemcpyDtoDAsync_v2", true, stream);
  memcpy(to, from, bytes);
  return 0;
}
struct FakePlane {
  struct Side {
    size_t x, y;
    unsigned type;
    void *host;
    char *device;
    void *array;
    size_t pitch;
  } from, to;
  size_t bytes, count;
};
EXPORT int cuMemcpy2DAsync_v2(const FakePlane *plane, void *stream) {
  ENTER_ON("cuMemcpy2DAsync_v2", true, stream);
  fake.lastStream = stream;
  const auto &[from, to, bytes, count] = *plane;
  for (size_t row = 0; row < count; ++row)
    memcpy(to.device + row * to.pitch, from.device + row * from.pitch, bytes);
  return 0;
}
template <typename T> static int fill(T *to, T value, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to[i] = value;
  return 0;
}
EXPORT int cuMemsetD8Async(unsigned char *to, unsigned char value, size_t count,
                           void *stream) {
  ENTER_ON("cuMemsetD8Async", true, stream);
  return fill(to, value, count);
}
EXPORT int cuMemsetD16Async(unsigned short *to, unsigned short value,
                            size_t count, void *stream) {
  ENTER_ON("cuMemsetD16Async", true, stream);
  return fill(to, value, count);
}
EXPORT int cuMemsetD32Async(unsigned *to, unsigned value, size_t count,
                            void *stream) {
  ENTER_ON("cuMemsetD32Async", true, stream);
  return fill(to, value, count);
}
EXPORT int cuPointerGetAttribute(void *out, int attribute, char *pointer) {
  ENTER("cuPointerGetAttribute", true);
  auto it = fake.blocks.upper_bound(pointer);
  if (it == fake.blocks.begin())
    return 1;
  --it;
  if (pointer >= it->first + it->second.bytes)
    return 1;
  *static_cast<int *>(out) = attribute == 2   ? 2
                             : attribute == 9 ? it->second.device
                                              : 0;
  return 0;
}
EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *,
                                  const uint64_t *, const uint64_t *,
                                  const uint32_t *, const uint32_t *, int, int,
                                  int, int) {
  ENTER("cuTensorMapEncodeTiled", true);
  memset(map, int(rank) * 16 + type, 128);
  return 0;
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

EXPORT int cuStreamCreate(void **stream, unsigned flags) {
  ENTER("cuStreamCreate", true);
  fake.streamFlags = flags;
  *stream = malloc(1);
  fake.streams.insert(*stream);
  return 0;
}
EXPORT int cuStreamDestroy_v2(void *stream) {
  ENTER("cuStreamDestroy_v2", true);
  fake.streams.erase(stream);
  free(stream);
  return 0;
}
EXPORT int cuStreamIsCapturing(void *stream, int *answer) {
  ENTER("cuStreamIsCapturing", true);
  *answer = stream && stream == fake.capturing;
  return 0;
}
EXPORT int cuStreamSynchronize(void *) {
  ENTER("cuStreamSynchronize", true);
  return 0;
}
EXPORT int cuEventCreate(void **event, unsigned) {
  ENTER("cuEventCreate", true);
  *event = malloc(1);
  fake.events.insert(*event);
  return 0;
}
EXPORT int cuEventDestroy_v2(void *event) {
  ENTER("cuEventDestroy_v2", true);
  fake.events.erase(event);
  free(event);
  return 0;
}
EXPORT int cuEventRecord(void *, void *stream) {
  ENTER_ON("cuEventRecord", true, stream);
  return 0;
}
EXPORT int cuEventSynchronize(void *) {
  ENTER("cuEventSynchronize", true);
  return 0;
}
EXPORT int cuEventElapsedTime(float *milliseconds, void *, void *) {
  ENTER("cuEventElapsedTime", true);
  *milliseconds = 1.5f;
  return 0;
}

// NOLINTEND(readability-identifier-naming)
