//===- queue.h - What an invocation holds on devices ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_QUEUE_H
#define FOVEA_RT_LIB_GPU_QUEUE_H

struct fovea_rt_gpu_queue;

namespace fovea::rt {

struct GPUDevice;
struct Invocation;

/// Device memory that the invocation has allocated.
struct GPUBlock {
  GPUDevice *device;
  void *pointer;
  GPUBlock *next;
};

/// Closes the queues of an invocation that has ended. After a failure its
/// blocks are freed; after a success they are its results.
void closeQueues(Invocation &invocation, bool succeeded);

/// Frees a result in device memory; false if `pointer` is none.
bool releaseResult(void *pointer);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_QUEUE_H
