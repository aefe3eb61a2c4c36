//===- queue.h - What an invocation holds on devices ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_QUEUE_H
#define FOVEA_RT_LIB_GPU_QUEUE_H

#include "fovea_rt/gpu_driver.h"

namespace fovea::rt {

struct GPUDevice;
struct Invocation;

/// Device memory that the invocation has allocated.
struct GPUBlock {
  GPUDevice *device;
  void *pointer;
  /// The caller's stream whose work it belongs to; null on one of the runtime,
  /// which nobody else knows.
  void *stream;
  GPUBlock *next;
};

/// The queue that the running invocation opened last, a failure without one:
/// `what` needs it.
struct QueueInfo {
  fovea_rt_gpu_queue *queue;
  GPUDevice *device;
  void *stream;
};
QueueInfo getQueueInfo(const char *what);

/// Closes the queues of an invocation that has ended. After a failure its
/// blocks are freed; after a success they are its results.
void closeQueues(Invocation &invocation, bool succeeded);

/// Frees a result in device memory; false if `pointer` is none.
bool releaseResult(void *pointer);

/// Frees device memory that work of any stream may still use.
fovea_rt_status releaseAfterAll(GPUDevice &device, void *pointer, char *text);

/// A stream of the caller that goes away: its results are freed after all.
void forgetStream(void *stream);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_QUEUE_H
