//===- GPUSetupTest.cpp - Machines without a usable GPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program of its own: once a driver has been found, it stays.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"
#include "RuntimeTestUtils.h"
#include "fovea_rt/gpu.h"
#include "fovea_rt/gpu_driver.h"

#include "gmock/gmock.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace fovea::rt::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// The library stays loaded, so that its state outlives failed starts.
FakeCuda &loadFake() {
  static void *library = dlopen(FOVEA_FAKE_CUDA, RTLD_NOW);
  auto function =
      reinterpret_cast<FakeCudaFunction>(dlsym(library, "fakeCuda"));
  return *function();
}

void expectUnavailable(const char *start, const char *part) {
  int32_t count = 7;
  EXPECT_EQ(fovea_rt_gpu_count(FOVEA_RT_GPU_CUDA, &count),
            FOVEA_RT_UNAVAILABLE);
  EXPECT_EQ(count, 7);
  EXPECT_THAT(fovea_rt_last_error(), StartsWith(start));
  EXPECT_THAT(fovea_rt_last_error(), HasSubstr(part));
  // A kernel says the same.
  EXPECT_EQ(invoke([] { fovea_rt_gpu_begin(FOVEA_RT_GPU_CUDA); }),
            FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(fovea_rt_last_error(), StartsWith(start));
}

TEST(GPUSetup, NoDriver) {
  setenv("FOVEA_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
  expectUnavailable("there is no CUDA driver on this machine: ",
                    "/nonexistent/libcuda.so.1");
}

TEST(GPUSetup, OldDriver) {
  // Some library that is no driver lacks the first function.
  setenv("FOVEA_LIBCUDA", "libm.so.6", 1);
  expectUnavailable("the CUDA driver in libm.so.6 is too old", "cuInit");
}

TEST(GPUSetup, NoDevice) {
  setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1);
  loadFake().numDevices = 0;
  expectUnavailable("there is no CUDA device on this machine: ",
                    "CUDA_ERROR_NO_DEVICE");
}

TEST(GPUSetup, DriverDoesNotStart) {
  setenv("FOVEA_LIBCUDA", FOVEA_FAKE_CUDA, 1);
  FakeCuda &fake = loadFake();
  fake.numDevices = 1;
  fake.failing = "cuInit";
  fake.result = 999;
  expectUnavailable("the CUDA driver cannot start: ", "CUDA_ERROR_UNKNOWN");
  fake.failing = "cuDeviceGetCount";
  expectUnavailable("the CUDA driver cannot start: ", "CUDA_ERROR_UNKNOWN");
  fake.failing = "";
}

TEST(GPUSetup, NoEmulator) {
  int32_t count = 0;
  EXPECT_EQ(fovea_rt_gpu_count(FOVEA_RT_GPU_EMULATOR, &count),
            FOVEA_RT_UNAVAILABLE);
  EXPECT_STREQ(fovea_rt_last_error(),
               "this program has no GPU emulator: it comes with the compiler's "
               "libraries, not with the runtime");
  EXPECT_EQ(fovea_rt_gpu_count(5, &count), FOVEA_RT_UNAVAILABLE);
  EXPECT_STREQ(fovea_rt_last_error(), "there is no device of kind 5");
}

TEST(GPUSetup, RefusesOtherDrivers) {
  fovea_rt_gpu_driver other = {};
  EXPECT_EQ(fovea_rt_gpu_register_driver(FOVEA_RT_GPU_EMULATOR, &other),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_rt_gpu_register_driver(FOVEA_RT_GPU_EMULATOR, nullptr),
            FOVEA_RT_INVALID_ARGUMENT);
}

} // namespace
