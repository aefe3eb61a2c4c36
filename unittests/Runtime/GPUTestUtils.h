//===- GPUTestUtils.h - Tests on a pretended GPU -------------- -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_UNITTESTS_RUNTIME_GPUTESTUTILS_H
#define FOVEA_UNITTESTS_RUNTIME_GPUTESTUTILS_H

#include "FakeCuda.h"
#include "RuntimeTestUtils.h"
#include "fovea_rt/gpu.h"

#include "gmock/gmock.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace fovea::rt::test {

constexpr int32_t kKind = FOVEA_RT_GPU_CUDA;

inline fovea_rt_gpu_module makeModule(const char *ptx = "add_one",
                                      int chip = 80) {
  fovea_rt_gpu_module module = {};
  module.name = "test";
  module.ptx = ptx;
  module.ptx_bytes = ptx ? strlen(ptx) : 0;
  module.capability = chip;
  return module;
}

class GPUTest : public testing::Test {
protected:
  void SetUp() override {
    setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1);
    static void *library = dlopen(FOVEA_FAKE_CUDA, RTLD_NOW);
    fake = reinterpret_cast<FakeCudaFunction>(dlsym(library, "fakeCuda"))();
    fake->failing = "";
    fake->successes = 0;
    fake->calls.clear();
    fovea_rt_gpu_set_device(0);
    fovea_rt_gpu_set_stream(nullptr);
  }

  /// Nothing is left but what the runtime keeps for later.
  void TearDown() override {
    fake->failing = "";
    fovea_rt_gpu_unload(&module);
    EXPECT_TRUE(fake->blocks.empty());
    EXPECT_TRUE(fake->modules.empty());
    EXPECT_EQ(fake->currentDepth, 0);
    // Staging: two pieces of pinned memory and their events for each device;
    // and the words of the two rules of calls that do not wait.
    EXPECT_LE(fake->pinned.size(), 6u);
    EXPECT_LE(fake->events.size(), 4u);
    EXPECT_LE(fake->streams.size(), 4u);
  }

  void fail(const char *name, int result, int successes = 0) {
    fake->failing = name;
    fake->result = result;
    fake->successes = successes;
  }

  /// Adds one to `values` by a kernel.
  fovea_rt_status addOne(float *values, int64_t count, int64_t sharedBytes = 0,
                         int64_t cluster = 1) {
    struct Context {
      fovea_rt_gpu_function *function;
      float *values;
      int64_t count, sharedBytes, cluster;
    } context{&function, values, count, sharedBytes, cluster};
    return invoke([context] {
      fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
      int64_t bytes = context.count * int64_t(sizeof(float));
      void *device = fovea_rt_gpu_map(queue, context.values, bytes,
                                      FOVEA_RT_GPU_READ | FOVEA_RT_GPU_WRITE);
      int64_t count = context.count;
      void *params[] = {&device, &count};
      fovea_rt_gpu_launch(queue, context.function, 4, 1, 1, 128, 1, 1,
                          context.cluster, 1, 1, context.sharedBytes, params,
                          2);
      fovea_rt_gpu_end(queue);
    });
  }

  std::string error() { return fovea_rt_last_error(); }

  FakeCuda *fake;
  fovea_rt_gpu_module module = makeModule();
  fovea_rt_gpu_function function = {&module, "add_one", nullptr};
};

} // namespace fovea::rt::test

#endif // FOVEA_UNITTESTS_RUNTIME_GPUTESTUTILS_H
