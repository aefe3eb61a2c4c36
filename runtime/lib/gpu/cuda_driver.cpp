//===- cuda_driver.cpp - Kernels by the CUDA driver -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda_driver.h"
#include "cuda_api.h"
#include "cuda_fft.h"
#include "cuda_products.h"
#include "cuda_staging.h"

#include "fovea_rt/gpu_driver.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

using namespace fovea::rt;
using namespace fovea::rt::cuda;

namespace {

struct Device {
  const Api *api;
  Ordinal ordinal;
  int number;
  Context context;
  int capability;
  int64_t sharedBytes, maxPitch;
  bool hasPools;
  char name[128];
  Staging staging;
  Transforms transforms;
  Products products;
};

struct LoadedFunction {
  Function function;
  std::mutex lock;
  /// Dynamic shared memory that it has been allowed.
  int64_t allowedShared = 48 << 10;
};

/// Makes the device's context current on this thread while it lives.
class Current {
public:
  explicit Current(const Device &device) : api(*device.api) {
    result = api.contextPush(device.context);
  }
  ~Current() {
    Context popped;
    if (result == kSuccess)
      api.contextPop(&popped);
  }
  Result result;

private:
  const Api &api;
};

} // namespace

static Device &asDevice(void *device) { return *static_cast<Device *>(device); }
static Stream asStream(void *stream) { return static_cast<Stream>(stream); }
static Address asAddress(const void *pointer) {
  return reinterpret_cast<Address>(pointer);
}

/// Writes "<what>: <name> (<explanation>)" and returns the status of a result
/// that is no success.
static fovea_rt_status report(const Api &api, Result result, char *text,
                              const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static fovea_rt_status report(const Api &api, Result result, char *text,
                              const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int used = vsnprintf(text, FOVEA_RT_GPU_TEXT, format, arguments);
  va_end(arguments);
  const char *name = nullptr, *reason = nullptr;
  api.getErrorName(result, &name);
  api.getErrorString(result, &reason);
  if (used >= 0 && used < FOVEA_RT_GPU_TEXT)
    snprintf(text + used, FOVEA_RT_GPU_TEXT - used, ": %s (%s)",
             name ? name : "an unknown error", reason ? reason : "");
  return result == kOutOfMemory ? FOVEA_RT_OUT_OF_MEMORY : FOVEA_RT_DEVICE;
}

#define FOVEA_CUDA_TRY(call, ...)                                              \
  if (Result tried = (call); tried != kSuccess)                                \
  return report(api, tried, text, __VA_ARGS__)

#define FOVEA_CUDA_ENTER(device)                                               \
  Device &self = asDevice(device);                                             \
  const Api &api = *self.api;                                                  \
  Current current(self);                                                       \
  FOVEA_CUDA_TRY(current.result, "cannot use CUDA device %d", self.number)

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

static fovea_rt_status countDevices(int32_t *count, char *text) {
  const Api *found = getApi(text);
  if (!found)
    return FOVEA_RT_UNAVAILABLE;
  const Api &api = *found;
  int number = 0;
  FOVEA_CUDA_TRY(api.deviceGetCount(&number), "cannot count CUDA devices");
  *count = number;
  return FOVEA_RT_OK;
}

static int getAttribute(const Api &api, Ordinal ordinal, int attribute) {
  int value = 0;
  return api.deviceGetAttribute(&value, attribute, ordinal) == kSuccess ? value
                                                                        : 0;
}

static fovea_rt_status openDevice(int32_t number, void **device, char *text) {
  const Api *found = getApi(text);
  if (!found)
    return FOVEA_RT_UNAVAILABLE;
  const Api &api = *found;
  Ordinal ordinal;
  FOVEA_CUDA_TRY(api.deviceGet(&ordinal, number), "there is no CUDA device %d",
                 number);
  Context context;
  FOVEA_CUDA_TRY(api.primaryContextRetain(&context, ordinal),
                 "cannot use CUDA device %d", number);
  auto *opened = new (std::nothrow) Device;
  if (!opened) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
    return FOVEA_RT_OUT_OF_MEMORY;
  }
  opened->api = &api;
  opened->ordinal = ordinal;
  opened->number = number;
  opened->context = context;
  opened->capability = 10 * getAttribute(api, ordinal, CapabilityMajor) +
                       getAttribute(api, ordinal, CapabilityMinor);
  opened->sharedBytes = getAttribute(api, ordinal, SharedMemoryPerBlockOptin);
  opened->maxPitch = getAttribute(api, ordinal, MaxPitch);
  opened->hasPools = getAttribute(api, ordinal, MemoryPoolsSupported);
  if (api.deviceGetName(opened->name, sizeof(opened->name), ordinal) !=
      kSuccess)
    strcpy(opened->name, "unknown");
  // Freed memory stays with the pool: giving it back waits for the device.
  Pool pool;
  uint64_t keep = UINT64_MAX;
  if (opened->hasPools && api.deviceGetDefaultPool(&pool, ordinal) == kSuccess)
    api.poolSetAttribute(pool, PoolReleaseThreshold, &keep);
  *device = opened;
  return FOVEA_RT_OK;
}

static fovea_rt_status
getProperties(void *device, fovea_rt_gpu_properties *properties, char *text) {
  FOVEA_CUDA_ENTER(device);
  size_t available = 0, total = 0;
  FOVEA_CUDA_TRY(api.memGetInfo(&available, &total),
                 "cannot query CUDA device %d", self.number);
  fovea_rt_gpu_properties &out = *properties;
  memcpy(out.name, self.name, sizeof(out.name));
  out.capability = self.capability;
  out.multiprocessors = getAttribute(api, self.ordinal, MultiprocessorCount);
  out.shared_bytes = self.sharedBytes;
  out.total_bytes = total;
  out.free_bytes = available;
  out.l2_bytes = getAttribute(api, self.ordinal, L2CacheSize);
  out.clock_khz = getAttribute(api, self.ordinal, ClockRate);
  out.memory_clock_khz = getAttribute(api, self.ordinal, MemoryClockRate);
  out.memory_bus_bits = getAttribute(api, self.ordinal, MemoryBusWidth);
  int version = 0;
  api.driverGetVersion(&version);
  out.driver_version = version;
  return FOVEA_RT_OK;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

static fovea_rt_status loadModule(void *device, const fovea_rt_gpu_module *code,
                                  void **module, char *text) {
  FOVEA_CUDA_ENTER(device);
  if (!code->ptx) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "module '%s' has no PTX: it was compiled for the emulator only",
             code->name);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  bool fits = code->exact_capability ? self.capability == code->capability
                                     : self.capability >= code->capability;
  if (!fits) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "module '%s' needs a device of compute capability %s%d.%d, but "
             "device %d, %s, has %d.%d",
             code->name, code->exact_capability ? "exactly " : "",
             code->capability / 10, code->capability % 10, self.number,
             self.name, self.capability / 10, self.capability % 10);
    return FOVEA_RT_UNAVAILABLE;
  }
  char log[FOVEA_RT_GPU_TEXT] = "";
  int options[] = {ErrorLog, ErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log))};
  Module loaded;
  Result result = api.moduleLoad(&loaded, code->ptx, 2, options, values);
  if (result != kSuccess) {
    log[sizeof(log) - 1] = '\0';
    fovea_rt_status status = report(
        api, result, text, "the CUDA driver refuses module '%s'", code->name);
    size_t used = strlen(text);
    if (log[0])
      snprintf(text + used, FOVEA_RT_GPU_TEXT - used, "\n%s", log);
    return status;
  }
  *module = loaded;
  return FOVEA_RT_OK;
}

static void unloadModule(void *device, void *module) {
  Device &self = asDevice(device);
  Current current(self);
  self.api->moduleUnload(static_cast<Module>(module));
}

static fovea_rt_status findFunction(void *device, void *module,
                                    const char *name, void **function,
                                    char *text) {
  FOVEA_CUDA_ENTER(device);
  Function found;
  FOVEA_CUDA_TRY(
      api.moduleGetFunction(&found, static_cast<Module>(module), name),
      "the module has no kernel '%s'", name);
  auto *loaded = new (std::nothrow) LoadedFunction;
  if (!loaded) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
    return FOVEA_RT_OUT_OF_MEMORY;
  }
  loaded->function = found;
  *function = loaded;
  return FOVEA_RT_OK;
}

static void forgetFunction(void *, void *function) {
  delete static_cast<LoadedFunction *>(function);
}

static fovea_rt_status launchKernel(void *device, void *function,
                                    const fovea_rt_gpu_launch_info *info,
                                    void *stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  auto &loaded = *static_cast<LoadedFunction *>(function);
  if (info->shared_bytes > self.sharedBytes) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "kernel '%s' needs %" PRId64 " bytes of shared memory, but "
             "device %d, %s, has %" PRId64,
             info->name, info->shared_bytes, self.number, self.name,
             self.sharedBytes);
    return FOVEA_RT_UNAVAILABLE;
  }
  {
    std::lock_guard<std::mutex> guard(loaded.lock);
    if (info->shared_bytes > loaded.allowedShared) {
      FOVEA_CUDA_TRY(
          api.functionSetAttribute(loaded.function, FunctionMaxDynamicShared,
                                   int(info->shared_bytes)),
          "kernel '%s' cannot have %" PRId64 " bytes of shared memory",
          info->name, info->shared_bytes);
      loaded.allowedShared = info->shared_bytes;
    }
  }
  const int64_t *grid = info->grid, *block = info->block,
                *cluster = info->cluster;
  Result result;
  if (cluster[0] * cluster[1] * cluster[2] == 1) {
    result = api.launchKernel(loaded.function, grid[0], grid[1], grid[2],
                              block[0], block[1], block[2], info->shared_bytes,
                              asStream(stream), info->params, nullptr);
  } else if (!api.launchKernelEx) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "kernel '%s' runs in clusters, for which the CUDA driver is too "
             "old: it has no cuLaunchKernelEx",
             info->name);
    return FOVEA_RT_UNAVAILABLE;
  } else {
    LaunchAttribute attribute = {};
    attribute.id = kLaunchClusterDimension;
    LaunchConfig config = {};
    for (int i = 0; i < 3; ++i) {
      attribute.value.clusterDim[i] = cluster[i];
      config.grid[i] = grid[i];
      config.block[i] = block[i];
    }
    config.sharedBytes = info->shared_bytes;
    config.stream = asStream(stream);
    config.attributes = &attribute;
    config.numAttributes = 1;
    result =
        api.launchKernelEx(&config, loaded.function, info->params, nullptr);
  }
  FOVEA_CUDA_TRY(result,
                 "cannot launch kernel '%s' on %" PRId64 " x %" PRId64
                 " x %" PRId64 " blocks of %" PRId64 " x %" PRId64 " x %" PRId64
                 " threads with %" PRId64 " bytes of shared memory",
                 info->name, grid[0], grid[1], grid[2], block[0], block[1],
                 block[2], info->shared_bytes);
  return FOVEA_RT_OK;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Whether a graph records the work of a stream; the legacy one never is.
static bool isCapturing(const Api &api, Stream stream) {
  int answer = CaptureNone;
  return stream && stream != FOVEA_RT_GPU_LEGACY_STREAM &&
         api.streamIsCapturing(stream, &answer) == kSuccess &&
         answer != CaptureNone;
}

static fovea_rt_status isCapturingStream(void *device, void *stream,
                                         int32_t *answer, char *text) {
  FOVEA_CUDA_ENTER(device);
  *answer = isCapturing(api, asStream(stream));
  return FOVEA_RT_OK;
}

static fovea_rt_status shareMemory(void *device, int64_t bytes, void **pointer,
                                   char *text) {
  FOVEA_CUDA_ENTER(device);
  FOVEA_CUDA_TRY(api.memHostAlloc(pointer, bytes, HostPortable | HostMapped),
                 "cannot allocate %" PRId64
                 " bytes that the host shares with device %d",
                 bytes, self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status allocateMemory(void *device, int64_t bytes, void *stream,
                                      void **pointer, char *text) {
  FOVEA_CUDA_ENTER(device);
  Address address = 0;
  size_t size = std::max<int64_t>(bytes, 1);
  if (!self.hasPools && isCapturing(api, asStream(stream))) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "device %d, %s, has no memory in the order of a stream, which a "
             "CUDA graph needs",
             self.number, self.name);
    return FOVEA_RT_UNAVAILABLE;
  }
  auto allocate = [&] {
    return self.hasPools ? api.memAllocAsync(&address, size, asStream(stream))
                         : api.memAlloc(&address, size);
  };
  Result result = allocate();
  if (result == kOutOfMemory && self.hasPools &&
      !isCapturing(api, asStream(stream))) {
    // What the pool keeps may be in too small pieces.
    Pool pool;
    api.contextSynchronize();
    if (api.deviceGetDefaultPool(&pool, self.ordinal) == kSuccess)
      api.poolTrimTo(pool, 0);
    result = allocate();
  }
  if (result == kOutOfMemory) {
    size_t available = 0, total = 0;
    api.memGetInfo(&available, &total);
    return report(api, result, text,
                  "out of memory on device %d, %s: %" PRId64
                  " bytes asked for, %zu of %zu free",
                  self.number, self.name, bytes, available, total);
  }
  FOVEA_CUDA_TRY(result, "cannot allocate %" PRId64 " bytes on device %d",
                 bytes, self.number);
  *pointer = reinterpret_cast<void *>(address);
  return FOVEA_RT_OK;
}

static fovea_rt_status releaseMemory(void *device, void *pointer, void *stream,
                                     char *text) {
  FOVEA_CUDA_ENTER(device);
  FOVEA_CUDA_TRY(self.hasPools
                     ? api.memFreeAsync(asAddress(pointer), asStream(stream))
                     : api.memFree(asAddress(pointer)),
                 "cannot free device memory at %p", pointer);
  return FOVEA_RT_OK;
}

static int32_t locatePointer(void *device, const void *pointer,
                             int32_t *ordinal) {
  Device &self = asDevice(device);
  const Api &api = *self.api;
  Current current(self);
  unsigned type = 0, managed = 0;
  int owner = 0;
  // The driver does not know ordinary host memory: it answers with an error.
  if (api.pointerGetAttribute(&type, MemoryType, asAddress(pointer)) !=
          kSuccess ||
      type != MemoryTypeDevice)
    return FOVEA_RT_GPU_HOST;
  if (api.pointerGetAttribute(&managed, IsManaged, asAddress(pointer)) ==
          kSuccess &&
      managed)
    return FOVEA_RT_GPU_HERE;
  if (api.pointerGetAttribute(&owner, DeviceOrdinal, asAddress(pointer)) !=
          kSuccess ||
      owner == self.ordinal)
    return FOVEA_RT_GPU_HERE;
  *ordinal = owner;
  return FOVEA_RT_GPU_ELSEWHERE;
}

static fovea_rt_status copyMemory(void *device, void *to, int32_t toPlace,
                                  const void *from, int32_t fromPlace,
                                  int64_t bytes, void *stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  bool toHost = toPlace == FOVEA_RT_GPU_HOST;
  bool fromHost = fromPlace == FOVEA_RT_GPU_HOST;
  Result result;
  if (toHost && fromHost) {
    memmove(to, from, bytes);
    return FOVEA_RT_OK;
  }
  if (!toHost && !fromHost) {
    result = api.copyOnDevice(asAddress(to), asAddress(from), bytes,
                              asStream(stream));
  } else {
    result = toHost ? self.staging.copyToHost(api, static_cast<char *>(to),
                                              asAddress(from), bytes,
                                              asStream(stream))
                    : self.staging.copyToDevice(api, asAddress(to),
                                                static_cast<const char *>(from),
                                                bytes, asStream(stream));
  }
  FOVEA_CUDA_TRY(result, "cannot copy %" PRId64 " bytes %s device %d", bytes,
                 toHost     ? "from"
                 : fromHost ? "to"
                            : "on",
                 self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status copyRows(void *device, void *to, int64_t toPitch,
                                const void *from, int64_t fromPitch,
                                int64_t bytes, int64_t count, void *stream,
                                char *text) {
  FOVEA_CUDA_ENTER(device);
  PlaneCopy copy = {};
  copy.from.type = copy.to.type = MemoryTypeDevice;
  copy.from.pitch = fromPitch;
  copy.to.pitch = toPitch;
  copy.bytes = bytes;
  copy.count = count;
  // Rows of a plane lie one after the other, and not too far apart.
  int64_t least = std::min(fromPitch, toPitch);
  bool isPlane =
      least >= bytes && std::max(fromPitch, toPitch) <= self.maxPitch;
  if (!isPlane) {
    copy.from.pitch = copy.to.pitch = 0;
    copy.count = 1;
  }
  for (int64_t row = 0; row < count; row += copy.count) {
    copy.from.device = asAddress(from) + row * fromPitch;
    copy.to.device = asAddress(to) + row * toPitch;
    FOVEA_CUDA_TRY(api.copyPlane(&copy, asStream(stream)),
                   "cannot copy %" PRId64 " rows of %" PRId64
                   " bytes on device %d",
                   count, bytes, self.number);
  }
  return FOVEA_RT_OK;
}

static fovea_rt_status fillMemory(void *device, void *to, int64_t count,
                                  int32_t elementBytes, uint32_t value,
                                  void *stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  Address address = asAddress(to);
  Stream queue = asStream(stream);
  FOVEA_CUDA_TRY(elementBytes == 4   ? api.fill32(address, value, count, queue)
                 : elementBytes == 2 ? api.fill16(address, value, count, queue)
                                     : api.fill8(address, value, count, queue),
                 "cannot fill %" PRId64 " elements on device %d", count,
                 self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status encodeTensorMap(void *device, void *map,
                                       const fovea_rt_gpu_tensor_map_info *info,
                                       char *text) {
  FOVEA_CUDA_ENTER(device);
  if (!api.tensorMapEncodeTiled) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "the CUDA driver is too old for tensor maps: it has no "
             "cuTensorMapEncodeTiled, which CUDA 12.0 brought");
    return FOVEA_RT_UNAVAILABLE;
  }
  uint64_t extents[5] = {}, strides[4] = {};
  uint32_t box[5] = {}, steps[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < info->rank; ++i) {
    extents[i] = info->extents[i];
    box[i] = info->box[i];
    if (i)
      strides[i - 1] = info->strides[i - 1];
  }
  // Interleave none; fetches of 128 bytes to L2; zeros outside.
  FOVEA_CUDA_TRY(api.tensorMapEncodeTiled(map, info->element_type, info->rank,
                                          info->address, extents, strides, box,
                                          steps, 0, info->swizzle, 2, 0),
                 "cannot describe a tensor of rank %d at %p for TMA",
                 info->rank, info->address);
  return FOVEA_RT_OK;
}

static fovea_rt_status transform(void *device, void *data, int64_t length,
                                 int64_t count, int32_t inverse, void *stream,
                                 char *text) {
  FOVEA_CUDA_ENTER(device);
  if (!data)
    return getFFTApi(text) ? FOVEA_RT_OK : FOVEA_RT_UNAVAILABLE;
  return self.transforms.run(device, data, length, count, inverse != 0,
                             asStream(stream),
                             !isCapturing(api, asStream(stream)), text);
}

static fovea_rt_status multiply(void *device,
                                const fovea_rt_gpu_product *product,
                                void *stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  return self.products.run(device, *product, asStream(stream),
                           !isCapturing(api, asStream(stream)), text);
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

static fovea_rt_status createStream(void *device, void **stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  Stream created;
  FOVEA_CUDA_TRY(api.streamCreate(&created, StreamDefault),
                 "cannot create a stream on device %d", self.number);
  *stream = created;
  return FOVEA_RT_OK;
}

static fovea_rt_status destroyStream(void *device, void *stream, char *text) {
  FOVEA_CUDA_ENTER(device);
  FOVEA_CUDA_TRY(api.streamDestroy(asStream(stream)),
                 "cannot destroy a stream of device %d", self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status synchronize(void *device, void *stream, int32_t all,
                                   char *text) {
  FOVEA_CUDA_ENTER(device);
  FOVEA_CUDA_TRY(all ? api.contextSynchronize()
                     : api.streamSynchronize(asStream(stream)),
                 "work on device %d failed", self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status createEvent(void *device, void **event, char *text) {
  FOVEA_CUDA_ENTER(device);
  Event created;
  FOVEA_CUDA_TRY(api.eventCreate(&created, 0),
                 "cannot create an event on device %d", self.number);
  *event = created;
  return FOVEA_RT_OK;
}

static void destroyEvent(void *device, void *event) {
  Device &self = asDevice(device);
  Current current(self);
  self.api->eventDestroy(static_cast<Event>(event));
}

static fovea_rt_status recordEvent(void *device, void *event, void *stream,
                                   char *text) {
  FOVEA_CUDA_ENTER(device);
  FOVEA_CUDA_TRY(api.eventRecord(static_cast<Event>(event), asStream(stream)),
                 "cannot record an event on device %d", self.number);
  return FOVEA_RT_OK;
}

static fovea_rt_status measure(void *device, void *from, void *to,
                               float *milliseconds, char *text) {
  FOVEA_CUDA_ENTER(device);
  Event first = static_cast<Event>(from), last = static_cast<Event>(to);
  FOVEA_CUDA_TRY(api.eventSynchronize(first), "work on device %d failed",
                 self.number);
  FOVEA_CUDA_TRY(api.eventSynchronize(last), "work on device %d failed",
                 self.number);
  FOVEA_CUDA_TRY(api.eventElapsedTime(milliseconds, first, last),
                 "cannot measure a time on device %d", self.number);
  return FOVEA_RT_OK;
}

const fovea_rt_gpu_driver fovea::rt::cudaDriver = {
    FOVEA_RT_GPU_DRIVER_VERSION,
    countDevices,
    openDevice,
    getProperties,
    loadModule,
    unloadModule,
    findFunction,
    forgetFunction,
    launchKernel,
    allocateMemory,
    releaseMemory,
    shareMemory,
    locatePointer,
    copyMemory,
    copyRows,
    fillMemory,
    encodeTensorMap,
    transform,
    multiply,
    createStream,
    destroyStream,
    isCapturingStream,
    synchronize,
    createEvent,
    destroyEvent,
    recordEvent,
    measure,
};
