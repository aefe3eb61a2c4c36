//===- cuda_staging.h - Copies between host and device ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CUDA_STAGING_H
#define FOVEA_RT_LIB_GPU_CUDA_STAGING_H

#include "cuda_api.h"

#include <mutex>

namespace fovea::rt::cuda {

/// Two pieces of pinned memory, through which copies from and to the host go in
/// turn: the device copies one while the CPU fills or empties the other. They
/// are made at the first copy and stay.
class Staging {
public:
  static constexpr size_t kBytes = 4 << 20;

  /// Returns when `from` has been read.
  Result copyToDevice(const Api &api, Address to, const char *from,
                      size_t bytes, Stream stream);

  /// Returns when `to` has been written.
  Result copyToHost(const Api &api, char *to, Address from, size_t bytes,
                    Stream stream);

private:
  Result prepare(const Api &api);

  std::mutex lock;
  void *pieces[2] = {};
  /// When the device has done with a piece.
  Event done[2] = {};
};

} // namespace fovea::rt::cuda

#endif // FOVEA_RT_LIB_GPU_CUDA_STAGING_H
