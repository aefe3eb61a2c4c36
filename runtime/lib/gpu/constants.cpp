//===- constants.cpp - Constants of code on devices -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "device.h"

#include <cstdio>
#include <new>

using namespace fovea::rt;

namespace {
struct Constant {
  GPUDevice *owner;
  const void *host;
  void *device;
  Constant *next;
};
} // namespace

static std::mutex constantsLock;
static Constant *constants;

fovea_rt_status fovea::rt::getConstant(GPUDevice &device, const void *host,
                                       int64_t bytes, bool mayCopy,
                                       void **found, char *text) {
  std::lock_guard<std::mutex> guard(constantsLock);
  for (Constant *each = constants; each; each = each->next)
    if (each->host == host && each->owner == &device) {
      *found = each->device;
      return FOVEA_RT_OK;
    }
  if (!mayCopy) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "a constant is not on device %d, where a CUDA graph that is being "
             "captured cannot bring it: call the function once before, with "
             "arrays of the same shapes",
             device.number);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  auto *constant = new (std::nothrow) Constant{&device, host, nullptr, nullptr};
  if (!constant) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
    return FOVEA_RT_OUT_OF_MEMORY;
  }
  const fovea_rt_gpu_driver *driver = device.driver;
  fovea_rt_status status =
      driver->allocate(device.handle, bytes, nullptr, &constant->device, text);
  if (!status) {
    status = driver->copy(device.handle, constant->device, FOVEA_RT_GPU_HERE,
                          host, FOVEA_RT_GPU_HOST, bytes, nullptr, text);
    // Work of any stream reads it from now on.
    if (!status)
      status = driver->synchronize(device.handle, nullptr, 0, text);
    char ignored[FOVEA_RT_GPU_TEXT];
    if (status)
      driver->release(device.handle, constant->device, nullptr, ignored);
  }
  if (status) {
    delete constant;
    return status;
  }
  constant->next = constants;
  constants = constant;
  *found = constant->device;
  return FOVEA_RT_OK;
}

void fovea_rt_gpu_forget(const void *pointer) {
  std::lock_guard<std::mutex> guard(constantsLock);
  for (Constant **link = &constants; *link;) {
    Constant *constant = *link;
    if (constant->host != pointer) {
      link = &constant->next;
      continue;
    }
    char ignored[FOVEA_RT_GPU_TEXT];
    GPUDevice &device = *constant->owner;
    device.driver->release(device.handle, constant->device, nullptr, ignored);
    *link = constant->next;
    delete constant;
  }
}
