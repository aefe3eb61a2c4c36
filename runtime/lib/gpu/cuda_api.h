//===- cuda_api.h - The part of the CUDA driver API that is used *- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Declared here, so that neither building nor starting needs CUDA. Names and
// numbers are those of cuda.h.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CUDA_API_H
#define FOVEA_RT_LIB_GPU_CUDA_API_H

#include <cstddef>
#include <cstdint>

namespace fovea::rt::cuda {

using Result = int;
using Ordinal = int;
using Address = unsigned long long;
using Context = struct CUctx_st *;
using Module = struct CUmod_st *;
using Function = struct CUfunc_st *;
using Stream = struct CUstream_st *;
using Event = struct CUevent_st *;
using Pool = struct CUmemPoolHandle_st *;

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;
constexpr Result kNoDevice = 100;

enum DeviceAttribute {
  MaxPitch = 11,
  ClockRate = 13,
  MultiprocessorCount = 16,
  MemoryClockRate = 36,
  MemoryBusWidth = 37,
  L2CacheSize = 38,
  CapabilityMajor = 75,
  CapabilityMinor = 76,
  SharedMemoryPerBlockOptin = 97,
  MemoryPoolsSupported = 115
};
enum PointerAttribute { MemoryType = 2, IsManaged = 8, DeviceOrdinal = 9 };
enum { MemoryTypeDevice = 2 };
enum { FunctionMaxDynamicShared = 8 };
enum { PoolReleaseThreshold = 4 };
/// Every context and every device reach it.
enum { HostPortable = 1, HostMapped = 2 };
enum { CaptureNone = 0 };
/// Streams in order with the legacy one, where callers without a stream work.
enum { StreamDefault = 0 };
enum JitOption {
  InfoLog = 3,
  InfoLogBytes = 4,
  ErrorLog = 5,
  ErrorLogBytes = 6
};

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned clusterDim[3];
  } value;
};
constexpr int kLaunchClusterDimension = 4;

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned numAttributes;
};

/// CUDA_MEMCPY2D.
struct PlaneCopy {
  struct Side {
    size_t x, y;
    unsigned type;
    void *host;
    Address device;
    void *array;
    size_t pitch;
  } from, to;
  size_t bytes, count;
};

/// X(member, symbol, parameters): what every driver since CUDA 11.2 has.
#define FOVEA_CUDA_REQUIRED(X)                                                 \
  X(init, cuInit, (unsigned))                                                  \
  X(driverGetVersion, cuDriverGetVersion, (int *))                             \
  X(getErrorName, cuGetErrorName, (Result, const char **))                     \
  X(getErrorString, cuGetErrorString, (Result, const char **))                 \
  X(deviceGetCount, cuDeviceGetCount, (int *))                                 \
  X(deviceGet, cuDeviceGet, (Ordinal *, int))                                  \
  X(deviceGetName, cuDeviceGetName, (char *, int, Ordinal))                    \
  X(deviceGetAttribute, cuDeviceGetAttribute, (int *, int, Ordinal))           \
  X(deviceTotalMem, cuDeviceTotalMem_v2, (size_t *, Ordinal))                  \
  X(primaryContextRetain, cuDevicePrimaryCtxRetain, (Context *, Ordinal))      \
  X(contextPush, cuCtxPushCurrent_v2, (Context))                               \
  X(contextPop, cuCtxPopCurrent_v2, (Context *))                               \
  X(contextSynchronize, cuCtxSynchronize, ())                                  \
  X(moduleLoad, cuModuleLoadDataEx,                                            \
    (Module *, const void *, unsigned, int *, void **))                        \
  X(moduleUnload, cuModuleUnload, (Module))                                    \
  X(moduleGetFunction, cuModuleGetFunction,                                    \
    (Function *, Module, const char *))                                        \
  X(functionSetAttribute, cuFuncSetAttribute, (Function, int, int))            \
  X(launchKernel, cuLaunchKernel,                                              \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
     unsigned, Stream, void **, void **))                                      \
  X(memGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                         \
  X(memAlloc, cuMemAlloc_v2, (Address *, size_t))                              \
  X(memFree, cuMemFree_v2, (Address))                                          \
  X(memAllocAsync, cuMemAllocAsync, (Address *, size_t, Stream))               \
  X(memFreeAsync, cuMemFreeAsync, (Address, Stream))                           \
  X(deviceGetDefaultPool, cuDeviceGetDefaultMemPool, (Pool *, Ordinal))        \
  X(poolSetAttribute, cuMemPoolSetAttribute, (Pool, int, void *))              \
  X(poolTrimTo, cuMemPoolTrimTo, (Pool, size_t))                               \
  X(memHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                 \
  X(memFreeHost, cuMemFreeHost, (void *))                                      \
  X(copyToDevice, cuMemcpyHtoDAsync_v2,                                        \
    (Address, const void *, size_t, Stream))                                   \
  X(copyToHost, cuMemcpyDtoHAsync_v2, (void *, Address, size_t, Stream))       \
  X(copyOnDevice, cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Stream))    \
  X(copyPlane, cuMemcpy2DAsync_v2, (const PlaneCopy *, Stream))                \
  X(fill8, cuMemsetD8Async, (Address, unsigned char, size_t, Stream))          \
  X(fill16, cuMemsetD16Async, (Address, unsigned short, size_t, Stream))       \
  X(fill32, cuMemsetD32Async, (Address, unsigned, size_t, Stream))             \
  X(pointerGetAttribute, cuPointerGetAttribute, (void *, int, Address))        \
  X(streamCreate, cuStreamCreate, (Stream *, unsigned))                        \
  X(streamDestroy, cuStreamDestroy_v2, (Stream))                               \
  X(streamSynchronize, cuStreamSynchronize, (Stream))                          \
  X(streamIsCapturing, cuStreamIsCapturing, (Stream, int *))                   \
  X(eventCreate, cuEventCreate, (Event *, unsigned))                           \
  X(eventDestroy, cuEventDestroy_v2, (Event))                                  \
  X(eventRecord, cuEventRecord, (Event, Stream))                               \
  X(eventSynchronize, cuEventSynchronize, (Event))                             \
  X(eventElapsedTime, cuEventElapsedTime, (float *, Event, Event))

/// What kernels for Hopper need and older drivers lack.
#define FOVEA_CUDA_OPTIONAL(X)                                                 \
  X(launchKernelEx, cuLaunchKernelEx,                                          \
    (const LaunchConfig *, Function, void **, void **))                        \
  X(tensorMapEncodeTiled, cuTensorMapEncodeTiled,                              \
    (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,        \
     const uint32_t *, const uint32_t *, int, int, int, int))

struct Api {
#define FOVEA_CUDA_MEMBER(member, symbol, params) Result(*member) params;
  FOVEA_CUDA_REQUIRED(FOVEA_CUDA_MEMBER)
  FOVEA_CUDA_OPTIONAL(FOVEA_CUDA_MEMBER)
#undef FOVEA_CUDA_MEMBER
};

/// The driver, initialised; null with a sentence in `text` if it cannot be
/// used. A failure is tried again the next time.
const Api *getApi(char *text);

} // namespace fovea::rt::cuda

#endif // FOVEA_RT_LIB_GPU_CUDA_API_H
