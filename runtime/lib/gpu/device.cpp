//===- device.cpp - Devices by kind and number ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "../status.h"
#include "cuda_driver.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>

using namespace fovea::rt;

static std::mutex registryLock;
static std::atomic<const fovea_rt_gpu_driver *> drivers[kNumKinds] = {
    &cudaDriver, nullptr};
static std::atomic<GPUDevice *> devices[kNumKinds * kMaxDevices];

static thread_local int32_t threadDevice = 0;
static thread_local void *threadStream = nullptr;

int32_t fovea::rt::chosenDevice() { return threadDevice; }
void *fovea::rt::chosenStream() { return threadStream; }

GPUDevice &fovea::rt::openedDevice(int slot) { return *devices[slot].load(); }

/// The driver of a kind; null with a sentence if there is none.
static const fovea_rt_gpu_driver *getDriver(int32_t kind, char *text) {
  if (kind < 0 || kind >= kNumKinds) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "there is no device of kind %d", kind);
    return nullptr;
  }
  const fovea_rt_gpu_driver *driver = drivers[kind];
  if (!driver)
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "this program has no GPU emulator: it comes with the compiler's "
             "libraries, not with the runtime");
  return driver;
}

fovea_rt_status
fovea_rt_gpu_register_driver(int32_t kind, const fovea_rt_gpu_driver *driver) {
  if (kind != FOVEA_RT_GPU_EMULATOR || !driver ||
      driver->version != FOVEA_RT_GPU_DRIVER_VERSION)
    return FOVEA_RT_INVALID_ARGUMENT;
  const fovea_rt_gpu_driver *none = nullptr;
  drivers[kind].compare_exchange_strong(none, driver);
  return FOVEA_RT_OK;
}

fovea_rt_status fovea::rt::getDevice(int32_t kind, int32_t number,
                                     GPUDevice **device, char *text) {
  const fovea_rt_gpu_driver *driver = getDriver(kind, text);
  if (!driver)
    return FOVEA_RT_UNAVAILABLE;
  if (number >= 0 && number < kMaxDevices) {
    *device = devices[kind * kMaxDevices + number];
    if (*device)
      return FOVEA_RT_OK;
  }
  std::lock_guard<std::mutex> guard(registryLock);
  int32_t count = 0;
  if (fovea_rt_status status = driver->count(&count, text))
    return status;
  if (number < 0 || number >= count || number >= kMaxDevices) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "there is no device %d: devices are numbered 0 to %d", number,
             count - 1);
    return FOVEA_RT_UNAVAILABLE;
  }
  std::atomic<GPUDevice *> &entry = devices[kind * kMaxDevices + number];
  if (!entry) {
    auto *opened = new (std::nothrow) GPUDevice;
    if (!opened) {
      snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
      return FOVEA_RT_OUT_OF_MEMORY;
    }
    opened->driver = driver;
    opened->kind = kind;
    opened->number = number;
    // Not at the first need, which may be while a graph is captured.
    fovea_rt_gpu_properties properties = {};
    fovea_rt_status status = driver->open(number, &opened->handle, text);
    if (!status)
      status = driver->get_properties(opened->handle, &properties, text);
    if (status) {
      delete opened;
      return status;
    }
    opened->multiprocessors = std::max(properties.multiprocessors, 1);
    entry = opened;
  }
  *device = entry;
  return FOVEA_RT_OK;
}

fovea_rt_status fovea::rt::takeStream(GPUDevice &device, void **stream,
                                      char *text) {
  {
    std::lock_guard<std::mutex> guard(device.lock);
    if (device.numIdleStreams > 0) {
      *stream = device.idleStreams[--device.numIdleStreams];
      return FOVEA_RT_OK;
    }
  }
  return device.driver->create_stream(device.handle, stream, text);
}

void fovea::rt::returnStream(GPUDevice &device, void *stream) {
  {
    std::lock_guard<std::mutex> guard(device.lock);
    if (device.numIdleStreams < 16) {
      device.idleStreams[device.numIdleStreams++] = stream;
      return;
    }
  }
  char ignored[FOVEA_RT_GPU_TEXT];
  device.driver->destroy_stream(device.handle, stream, ignored);
}

fovea_rt_status fovea_rt_gpu_count(int32_t kind, int32_t *count) {
  char text[FOVEA_RT_GPU_TEXT] = "";
  const fovea_rt_gpu_driver *driver = getDriver(kind, text);
  fovea_rt_status status =
      driver ? driver->count(count, text) : FOVEA_RT_UNAVAILABLE;
  setLastError(status ? text : "");
  return status;
}

fovea_rt_status fovea_rt_gpu_set_device(int32_t device) {
  if (device < 0 || device >= kMaxDevices) {
    char text[FOVEA_RT_GPU_TEXT];
    snprintf(text, sizeof(text), "devices are numbered 0 to %d, but got %d",
             kMaxDevices - 1, device);
    setLastError(text);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  threadDevice = device;
  setLastError("");
  return FOVEA_RT_OK;
}

int32_t fovea_rt_gpu_get_device(void) { return threadDevice; }

void fovea_rt_gpu_set_stream(void *stream) { threadStream = stream; }
