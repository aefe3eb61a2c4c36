//===- device.h - Devices by kind and number --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_DEVICE_H
#define FOVEA_RT_LIB_GPU_DEVICE_H

#include "fovea_rt/gpu_driver.h"

#include <mutex>

namespace fovea::rt {

constexpr int kNumKinds = 2;
constexpr int kMaxDevices = 32;

/// A device that has been opened. It stays so until the process ends.
struct GPUDevice {
  const fovea_rt_gpu_driver *driver;
  int32_t kind, number;
  /// What the driver knows it by.
  void *handle;
  /// Streams of the runtime that no queue uses.
  std::mutex lock;
  void *idleStreams[16];
  int numIdleStreams = 0;
  int32_t multiprocessors; // at least 1

  /// Position among all devices there can be.
  int slot() const { return kind * kMaxDevices + number; }
};

/// Opens the device if that has not been done. `text` receives a sentence if
/// the status is not FOVEA_RT_OK.
fovea_rt_status getDevice(int32_t kind, int32_t number, GPUDevice **device,
                          char *text);

/// The device that the calling thread has chosen, and its stream, which may be
/// null.
int32_t chosenDevice();
void *chosenStream();

/// The device in `slot`, which has been opened.
GPUDevice &openedDevice(int slot);

/// A stream of the runtime, and back.
fovea_rt_status takeStream(GPUDevice &device, void **stream, char *text);
void returnStream(GPUDevice &device, void *stream);

/// The kernel on the device, loaded at the first need, an error unless
/// `mayLoad`.
fovea_rt_status getFunction(GPUDevice &device, fovea_rt_gpu_function *function,
                            bool mayLoad, void **found, char *text);

/// The copy of a constant on the device, made at the first need, an error
/// unless `mayCopy`.
fovea_rt_status getConstant(GPUDevice &device, const void *host, int64_t bytes,
                            bool mayCopy, void **found, char *text);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_DEVICE_H
