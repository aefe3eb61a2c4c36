//===- memory.h - Blocks of running kernels ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_MEMORY_H
#define FOVEA_RT_LIB_MEMORY_H

#include <atomic>
#include <cstdint>
#include <mutex>

struct fovea_rt_gpu_queue;

namespace fovea::rt {

struct Block;
struct GPUBlock;

/// The blocks that a running invocation has allocated and not freed. Bodies on
/// several threads may allocate for the same invocation, hence the lock.
struct Invocation {
  std::mutex lock;
  Block *blocks = nullptr;
  int64_t bytes = 0;
  /// Whether the host has asked for its end, see interrupt.h.
  std::atomic<bool> interrupted{false};
  /// What it holds on devices.
  fovea_rt_gpu_queue *queues = nullptr;
  GPUBlock *gpuBlocks = nullptr;

  /// Success: the blocks now belong to the caller.
  void disown();

  /// Failure: the blocks are gone.
  void freeAll();
};

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_MEMORY_H
