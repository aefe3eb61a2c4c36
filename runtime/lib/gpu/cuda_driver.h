//===- cuda_driver.h - Kernels by the CUDA driver ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CUDA_DRIVER_H
#define FOVEA_RT_LIB_GPU_CUDA_DRIVER_H

#include "fovea_rt/gpu_driver.h"

namespace fovea::rt {

extern const fovea_rt_gpu_driver cudaDriver;

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_CUDA_DRIVER_H
