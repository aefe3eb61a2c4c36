//===- GPUTransformsTest.cpp - Fourier transforms of the GPU runtime ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program of its own: once cuFFT has been found, it stays.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"
#include "FakeCufft.h"
#include "RuntimeTestUtils.h"
#include "fovea_rt/gpu.h"

#include "gmock/gmock.h"

#include <cstdlib>
#include <dlfcn.h>
#include <vector>

using namespace fovea::rt::test;
using testing::HasSubstr;

namespace {

constexpr int32_t kKind = FOVEA_RT_GPU_CUDA;

/// Transforms lines of four numbers there, or there and back.
fovea_rt_status transform(float *data, int64_t count, bool both = false,
                          int64_t length = 4) {
  struct Context {
    float *data;
    int64_t count, length;
    bool both;
  } context{data, count, length, both};
  return invoke([context] {
    fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
    void *lines = fovea_rt_gpu_map(queue, context.data, context.count * 32,
                                   FOVEA_RT_GPU_READ | FOVEA_RT_GPU_WRITE);
    fovea_rt_gpu_transform(lines, context.length, context.count, 0);
    if (context.both)
      fovea_rt_gpu_transform(lines, context.length, context.count, 1);
    fovea_rt_gpu_end(queue);
  });
}

int hasTransforms() {
  static int found;
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              found = fovea_rt_gpu_has_transforms();
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK);
  return found;
}

class GPUTransforms : public testing::Test {
protected:
  void SetUp() override { setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1); }
};

TEST_F(GPUTransforms, WithoutLibrary) {
  float data[8] = {};
  setenv("FOVEA_LIBCUFFT", "/nonexistent/libcufft.so", 1);
  EXPECT_EQ(hasTransforms(), 0);
  EXPECT_EQ(transform(data, 1), FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("Fourier transforms on a GPU need cuFFT, which is not "
                        "on this machine: /nonexistent/libcufft.so"));
  // By its usual names, where there is none either.
  unsetenv("FOVEA_LIBCUFFT");
  if (!dlopen("libcufft.so", RTLD_NOW)) {
    EXPECT_EQ(transform(data, 1), FOVEA_RT_UNAVAILABLE);
    EXPECT_THAT(fovea_rt_last_error(), HasSubstr("libcufft.so"));
  }
  // Some library that is none.
  setenv("FOVEA_LIBCUFFT", "libm.so.6", 1);
  EXPECT_EQ(transform(data, 1), FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("libm.so.6 is no cuFFT: it has no cufftCreate"));
}

TEST_F(GPUTransforms, RunsOnTheQueue) {
  setenv("FOVEA_LIBCUFFT", FOVEA_FAKE_CUFFT, 1);
  static void *library = dlopen(FOVEA_FAKE_CUFFT, RTLD_NOW);
  FakeCufft &fake =
      *reinterpret_cast<FakeCufftFunction>(dlsym(library, "fakeCufft"))();
  EXPECT_EQ(hasTransforms(), 1);
  // Twice the same plan, on the stream of the queue.
  float data[16] = {1, 0, 2, 0, 3, 0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(transform(data, 2), FOVEA_RT_OK) << fovea_rt_last_error();
  float expected[] = {10, 0, -2, 2, -2, 0, -2, -2, 0, 1, 0, 1, 0, 1, 0, 1};
  for (int i = 0; i < 16; ++i)
    EXPECT_NEAR(data[i], expected[i], 1e-5) << i;
  EXPECT_EQ(transform(data, 2, /*both=*/true), FOVEA_RT_OK);
  for (int i = 0; i < 16; ++i)
    EXPECT_NEAR(data[i], 4 * expected[i], 1e-4) << i;
  EXPECT_EQ(fake.numPlans, 1);
  EXPECT_NE(fake.lastStream, nullptr);
  // Work of two streams may run at once: a plan serves both, with a work area
  // for each run, which the fake library asks for.
  int plansBefore = fake.numPlans;
  for (int round = 0; round < 2; ++round)
    for (intptr_t stream : {0x10, 0x20}) {
      fovea_rt_gpu_set_stream(reinterpret_cast<void *>(stream));
      EXPECT_EQ(transform(data, 2), FOVEA_RT_OK);
      EXPECT_EQ(fake.lastStream, reinterpret_cast<void *>(stream));
    }
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fake.numPlans, plansBefore);
  // Old plans go.
  std::vector<float> lines(8 * 41);
  for (int64_t count = 1; count <= 40; ++count)
    EXPECT_EQ(transform(lines.data(), count), FOVEA_RT_OK);
  EXPECT_EQ(fake.numAlive, 16);
  // No lines are no work.
  int before = fake.numRuns;
  EXPECT_EQ(transform(data, 0), FOVEA_RT_OK);
  EXPECT_EQ(fake.numRuns, before);

  fake.planResult = 2;
  EXPECT_EQ(transform(lines.data(), 41), FOVEA_RT_OUT_OF_MEMORY);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("cuFFT cannot plan 41 transforms of 4 numbers: "
                        "CUFFT_ALLOC_FAILED"));
  fake.planResult = 0;
  fake.runResult = 6;
  EXPECT_EQ(transform(data, 2), FOVEA_RT_DEVICE);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("CUFFT_EXEC_FAILED"));
  fake.runResult = 0;
  EXPECT_EQ(transform(data, 1, false, /*length=*/3), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("a power of two, but got 3"));
  EXPECT_EQ(transform(data, 1, false, int64_t(1) << 40), FOVEA_RT_DEVICE);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("CUFFT_INVALID_SIZE"));
}

TEST_F(GPUTransforms, NeedsAQueue) {
  EXPECT_EQ(invoke([] { fovea_rt_gpu_transform(nullptr, 4, 1, 0); }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr("need a queue"));
}

} // namespace
