//===- host.cpp - What host programs do with a device ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../status.h"
#include "checks.h"
#include "device.h"
#include "queue.h"

#include <cinttypes>
#include <cstdio>
#include <new>

using namespace fovea::rt;

struct fovea_rt_gpu_event {
  GPUDevice *device;
  void *event;
};

/// Runs action(device, text) on the device that the calling thread has chosen.
template <typename Action>
static fovea_rt_status onDevice(int32_t kind, int32_t number, Action action) {
  char text[FOVEA_RT_GPU_TEXT] = "";
  GPUDevice *device;
  fovea_rt_status status = getDevice(kind, number, &device, text);
  if (!status)
    status = action(*device, text);
  setLastError(status ? text : "");
  return status;
}

template <typename Action>
static fovea_rt_status onDevice(int32_t kind, Action action) {
  return onDevice(kind, chosenDevice(), action);
}

fovea_rt_status
fovea_rt_gpu_get_properties(int32_t kind, int32_t number,
                            fovea_rt_gpu_properties *properties) {
  *properties = {};
  return onDevice(kind, number, [&](GPUDevice &device, char *text) {
    return device.driver->get_properties(device.handle, properties, text);
  });
}

fovea_rt_status fovea_rt_gpu_acquire(int32_t kind, int64_t bytes,
                                     void **pointer) {
  *pointer = nullptr;
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    if (bytes < 0) {
      snprintf(text, FOVEA_RT_GPU_TEXT,
               "cannot allocate %" PRId64 " bytes of device memory", bytes);
      return fovea_rt_status(FOVEA_RT_INVALID_ARGUMENT);
    }
    return device.driver->allocate(device.handle, bytes, nullptr, pointer,
                                   text);
  });
}

fovea_rt_status fovea_rt_gpu_release(int32_t kind, void *pointer) {
  if (!pointer || releaseResult(pointer))
    return FOVEA_RT_OK;
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    // Of the device where it lies, whichever the thread has chosen.
    GPUDevice *owner = &device;
    int32_t number;
    if (device.driver->locate(device.handle, pointer, &number) ==
        FOVEA_RT_GPU_ELSEWHERE)
      if (fovea_rt_status status = getDevice(kind, number, &owner, text))
        return status;
    return releaseAfterAll(*owner, pointer, text);
  });
}

/// Fails where the thread's stream captures a graph, for which the host would
/// have to wait.
static fovea_rt_status refuseCapture(GPUDevice &device, char *text) {
  int32_t isCaptured = 0;
  if (void *stream = chosenStream())
    if (fovea_rt_status status = device.driver->is_capturing(
            device.handle, stream, &isCaptured, text))
      return status;
  if (!isCaptured)
    return FOVEA_RT_OK;
  snprintf(text, FOVEA_RT_GPU_TEXT,
           "the host reads or writes numbers of this function, which a "
           "CUDA graph that is being captured cannot hold");
  return FOVEA_RT_INVALID_ARGUMENT;
}

fovea_rt_status fovea_rt_gpu_transfer(int32_t kind, void *to, const void *from,
                                      int64_t bytes) {
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    if (bytes <= 0)
      return fovea_rt_status(FOVEA_RT_OK);
    if (fovea_rt_status status = refuseCapture(device, text))
      return status;
    int32_t ignored;
    const fovea_rt_gpu_driver *driver = device.driver;
    int32_t toPlace = driver->locate(device.handle, to, &ignored);
    int32_t fromPlace = driver->locate(device.handle, from, &ignored);
    if (fovea_rt_status status = driver->copy(device.handle, to, toPlace, from,
                                              fromPlace, bytes, nullptr, text))
      return status;
    return driver->synchronize(device.handle, nullptr, 0, text);
  });
}

fovea_rt_status fovea_rt_gpu_clear(int32_t kind, void *pointer, int64_t bytes) {
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    if (bytes <= 0)
      return fovea_rt_status(FOVEA_RT_OK);
    if (fovea_rt_status status = refuseCapture(device, text))
      return status;
    const fovea_rt_gpu_driver *driver = device.driver;
    if (fovea_rt_status status =
            driver->fill(device.handle, pointer, bytes, /*elementBytes=*/1, 0,
                         nullptr, text))
      return status;
    return driver->synchronize(device.handle, nullptr, 0, text);
  });
}

fovea_rt_status fovea_rt_gpu_locate(int32_t kind, const void *pointer,
                                    int32_t *number) {
  *number = -1;
  return onDevice(kind, [&](GPUDevice &device, char *) {
    int32_t place = device.driver->locate(device.handle, pointer, number);
    if (place == FOVEA_RT_GPU_HOST)
      *number = -1;
    else if (place == FOVEA_RT_GPU_HERE)
      *number = device.number;
    return fovea_rt_status(FOVEA_RT_OK);
  });
}

int32_t fovea_rt_gpu_is_capturing(int32_t kind) {
  int32_t answer = 0;
  fovea_rt_status status = onDevice(kind, [&](GPUDevice &device, char *text) {
    void *stream = chosenStream();
    return stream ? device.driver->is_capturing(device.handle, stream, &answer,
                                                text)
                  : fovea_rt_status(FOVEA_RT_OK);
  });
  return status == FOVEA_RT_OK && answer;
}

fovea_rt_status fovea_rt_gpu_wait(int32_t kind) {
  return onDevice(kind, [](GPUDevice &device, char *text) {
    fovea_rt_status status =
        device.driver->synchronize(device.handle, nullptr, 1, text);
    if (!status && takeReport(device, text))
      status = FOVEA_RT_INVALID_ARGUMENT;
    return status;
  });
}

fovea_rt_status fovea_rt_gpu_event_create(int32_t kind,
                                          fovea_rt_gpu_event **event) {
  *event = nullptr;
  return onDevice(kind, [&](GPUDevice &device, char *text) -> fovea_rt_status {
    void *created;
    if (fovea_rt_status status =
            device.driver->create_event(device.handle, &created, text))
      return status;
    *event = new (std::nothrow) fovea_rt_gpu_event{&device, created};
    if (*event)
      return FOVEA_RT_OK;
    device.driver->destroy_event(device.handle, created);
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
    return FOVEA_RT_OUT_OF_MEMORY;
  });
}

void fovea_rt_gpu_event_destroy(fovea_rt_gpu_event *event) {
  if (!event)
    return;
  event->device->driver->destroy_event(event->device->handle, event->event);
  delete event;
}

fovea_rt_status fovea_rt_gpu_event_record(fovea_rt_gpu_event *event,
                                          void *stream) {
  char text[FOVEA_RT_GPU_TEXT] = "";
  fovea_rt_status status = event->device->driver->record_event(
      event->device->handle, event->event, stream ? stream : chosenStream(),
      text);
  setLastError(status ? text : "");
  return status;
}

fovea_rt_status fovea_rt_gpu_event_elapsed(fovea_rt_gpu_event *from,
                                           fovea_rt_gpu_event *to,
                                           float *milliseconds) {
  char text[FOVEA_RT_GPU_TEXT] = "";
  fovea_rt_status status = FOVEA_RT_INVALID_ARGUMENT;
  if (from->device != to->device)
    snprintf(text, sizeof(text), "the events are of different devices");
  else
    status = from->device->driver->measure(from->device->handle, from->event,
                                           to->event, milliseconds, text);
  setLastError(status ? text : "");
  return status;
}

fovea_rt_status fovea_rt_gpu_stream_create(int32_t kind, void **stream) {
  *stream = nullptr;
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    return device.driver->create_stream(device.handle, stream, text);
  });
}

fovea_rt_status fovea_rt_gpu_stream_destroy(int32_t kind, void *stream) {
  if (!stream)
    return FOVEA_RT_OK;
  forgetStream(stream);
  return onDevice(kind, [&](GPUDevice &device, char *text) {
    return device.driver->destroy_stream(device.handle, stream, text);
  });
}
