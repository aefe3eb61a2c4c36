//===- cuda_fft.h - Fourier transforms by cuFFT -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CUDA_FFT_H
#define FOVEA_RT_LIB_GPU_CUDA_FFT_H

#include "cuda_api.h"
#include "fovea_rt/gpu_driver.h"

#include <mutex>

namespace fovea::rt::cuda {

/// The functions of cuFFT that are used; their results are 0 for success.
struct FFTApi {
  int (*create)(int *plan);
  int (*setAutoAllocation)(int plan, int allocates);
  int (*makePlanMany)(int plan, int rank, int *lengths, int *inputExtents,
                      int inputStride, int inputDistance, int *outputExtents,
                      int outputStride, int outputDistance, int type, int batch,
                      size_t *workBytes);
  int (*setWorkArea)(int plan, void *area);
  int (*setStream)(int plan, Stream stream);
  int (*executeC2C)(int plan, void *input, void *output, int direction);
  int (*destroy)(int plan);
};

/// The library, found by its name at the first need; null with a sentence in
/// `text` without one. A failure is tried again the next time.
const FFTApi *getFFTApi(char *text);

/// The plans of a device, whose context must be current. Each run has a work
/// area of its own, in the order of its stream: plans are for all streams.
class Transforms {
public:
  /// `count` transforms of `length` complex f32 numbers each, in place. A plan
  /// is made at the first need, an error unless `mayPlan`.
  fovea_rt_status run(void *device, void *data, int64_t length, int64_t count,
                      bool inverse, Stream stream, bool mayPlan, char *text);

private:
  struct Plan {
    int64_t length = 0, count = 0;
    int handle = 0;
    size_t workBytes = 0;
  };
  fovea_rt_status getPlan(const FFTApi &api, int64_t length, int64_t count,
                          bool mayPlan, Plan &found, char *text);
  fovea_rt_status run(const FFTApi &api, void *device, const Plan &plan,
                      void *lines, bool inverse, Stream stream, char *text);

  std::mutex lock;
  /// The oldest one goes when there are more.
  Plan plans[16];
  int next = 0;
};

} // namespace fovea::rt::cuda

#endif // FOVEA_RT_LIB_GPU_CUDA_FFT_H
