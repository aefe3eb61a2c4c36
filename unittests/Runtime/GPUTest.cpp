//===- GPUTest.cpp - Kernels on a pretended GPU ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUTestUtils.h"

#include <vector>

using namespace fovea::rt::test;
using testing::HasSubstr;

TEST_F(GPUTest, RunsAKernelOnHostMemory) {
  std::vector<float> values(100, 2.0f);
  EXPECT_EQ(addOne(values.data(), 100), FOVEA_RT_OK) << error();
  EXPECT_EQ(values, std::vector<float>(100, 3.0f));
  EXPECT_EQ(addOne(values.data(), 100), FOVEA_RT_OK) << error();
  EXPECT_EQ(values, std::vector<float>(100, 4.0f));
  // The module is loaded and the kernel looked up once; the stream is reused.
  EXPECT_EQ(fake->count("cuModuleLoadDataEx"), 1u);
  EXPECT_EQ(fake->count("cuModuleGetFunction"), 1u);
  EXPECT_EQ(fake->count("cuLaunchKernel"), 2u);
  EXPECT_LE(fake->count("cuStreamCreate"), 1u);
}

TEST_F(GPUTest, CopiesLargeArraysInPieces) {
  // Neither a multiple of the pieces nor less than three of them.
  size_t count = (13 << 20) / sizeof(float) + 5;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = float(i % 1000);
  EXPECT_EQ(addOne(values.data(), count), FOVEA_RT_OK) << error();
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(values[i], float(i % 1000) + 1) << i;
  EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 4u);
  EXPECT_EQ(fake->count("cuMemcpyDtoHAsync_v2"), 4u);
}

TEST_F(GPUTest, UsesDeviceMemoryOfTheCallerWithoutCopies) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 400, &pointer), FOVEA_RT_OK);
  std::vector<float> values(100, 5.0f), result(100);
  ASSERT_EQ(fovea_rt_gpu_transfer(kKind, pointer, values.data(), 400),
            FOVEA_RT_OK);
  fake->calls.clear();
  EXPECT_EQ(addOne(static_cast<float *>(pointer), 100), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 0u);
  EXPECT_EQ(fake->count("cuMemAllocAsync"), 0u);
  ASSERT_EQ(fovea_rt_gpu_transfer(kKind, result.data(), pointer, 400),
            FOVEA_RT_OK);
  EXPECT_EQ(result, std::vector<float>(100, 6.0f));
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPUTest, UsesTheStreamOfTheCaller) {
  void *stream, *pointer;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 4, &pointer), FOVEA_RT_OK);
  fovea_rt_gpu_set_stream(stream);
  fake->calls.clear();
  EXPECT_EQ(addOne(static_cast<float *>(pointer), 1), FOVEA_RT_OK);
  EXPECT_EQ(fake->lastStream, stream);
  // The caller waits when it wants to.
  EXPECT_EQ(fake->count("cuStreamSynchronize"), 0u);
  // What is copied to the host is there.
  float value = 1;
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuStreamSynchronize"), 1u);
  EXPECT_EQ(value, 2.0f);
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

TEST_F(GPUTest, RefusesMemoryOfAnotherDevice) {
  void *pointer;
  ASSERT_EQ(fovea_rt_gpu_set_device(1), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 400, &pointer), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_set_device(0), FOVEA_RT_OK);
  EXPECT_EQ(addOne(static_cast<float *>(pointer), 100),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("lies on device 1, but the kernel runs on "
                                 "device 0"));
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
}

TEST_F(GPUTest, RefusesDevicesThatAreNotThere) {
  ASSERT_EQ(fovea_rt_gpu_set_device(3), FOVEA_RT_OK);
  float value = 0;
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_UNAVAILABLE);
  EXPECT_EQ(error(), "there is no device 3: devices are numbered 0 to 1");
  EXPECT_EQ(fovea_rt_gpu_set_device(-1), FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(GPUTest, ReportsOutOfMemory) {
  std::vector<float> values(1 << 20);
  fake->totalBytes = 1 << 20;
  EXPECT_EQ(addOne(values.data(), values.size()), FOVEA_RT_OUT_OF_MEMORY);
  EXPECT_EQ(error(), "out of memory on device 0, Fake 0: 4194304 bytes asked "
                     "for, 1048576 of 1048576 free: CUDA_ERROR_OUT_OF_MEMORY "
                     "(as the test wants)");
  // It first gave back what the pool kept.
  EXPECT_EQ(fake->count("cuMemPoolTrimTo"), 1u);
  fake->totalBytes = 64 << 20;
  EXPECT_EQ(addOne(values.data(), values.size()), FOVEA_RT_OK);
}

TEST_F(GPUTest, ShowsTheLogOfRefusedCode) {
  module = makeModule("REFUSE");
  float value = 0;
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_DEVICE);
  EXPECT_EQ(error(),
            "the CUDA driver refuses module 'test': CUDA_ERROR_INVALID_PTX (as "
            "the test wants)\n"
            "ptxas application ptx input, line 7; error : no such thing");
  EXPECT_EQ(value, 0.0f);
}

TEST_F(GPUTest, RefusesDevicesThatAreTooOld) {
  float value = 0;
  module = makeModule("add_one", 100);
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_UNAVAILABLE);
  EXPECT_EQ(error(), "module 'test' needs a device of compute capability 10.0, "
                     "but device 0, Fake 0, has 9.0");
  module = makeModule("add_one", 80);
  module.exact_capability = 1;
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_UNAVAILABLE);
  EXPECT_THAT(error(), HasSubstr("compute capability exactly 8.0"));
  module = makeModule(nullptr);
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("has no PTX"));
}

TEST_F(GPUTest, ReportsMissingKernels) {
  function.name = "missing";
  float value = 0;
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_DEVICE);
  EXPECT_THAT(error(), HasSubstr("the module has no kernel 'missing': "
                                 "CUDA_ERROR_NOT_FOUND"));
}

TEST_F(GPUTest, ReportsFailedLaunches) {
  float value = 0;
  fail("cuLaunchKernel", 701);
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_DEVICE);
  EXPECT_EQ(error(),
            "cannot launch kernel 'add_one' on 4 x 1 x 1 blocks of 128 x 1 x 1 "
            "threads with 0 bytes of shared memory: "
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (as the test wants)");
}

TEST_F(GPUTest, ReportsFailuresOfRunningKernels) {
  float value = 0;
  fail("cuStreamSynchronize", 700);
  EXPECT_EQ(addOne(&value, 1), FOVEA_RT_DEVICE);
  EXPECT_EQ(error(), "work on device 0 failed: CUDA_ERROR_ILLEGAL_ADDRESS (as "
                     "the test wants)");
}

/// Whatever fails: an error with its name, and nothing is left.
TEST_F(GPUTest, LeavesNothingWhereverItFails) {
  std::vector<float> values(100);
  ASSERT_EQ(addOne(values.data(), 100), FOVEA_RT_OK);
  fovea_rt_gpu_unload(&module);
  for (const char *name :
       {"cuCtxPushCurrent_v2", "cuModuleLoadDataEx", "cuModuleGetFunction",
        "cuMemAllocAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
        "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize",
        "cuLaunchKernel"}) {
    fail(name, 999);
    EXPECT_EQ(addOne(values.data(), 100), FOVEA_RT_DEVICE) << name;
    EXPECT_THAT(error(), HasSubstr("CUDA_ERROR_UNKNOWN")) << name;
    fake->failing = "";
    fovea_rt_gpu_unload(&module);
    EXPECT_TRUE(fake->blocks.empty()) << name;
    EXPECT_TRUE(fake->modules.empty()) << name;
    EXPECT_EQ(fake->currentDepth, 0) << name;
  }
  EXPECT_EQ(addOne(values.data(), 100), FOVEA_RT_OK);
}

TEST_F(GPUTest, AsksForLargeSharedMemoryOnce) {
  float value = 0;
  EXPECT_EQ(addOne(&value, 1, 48 << 10), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuFuncSetAttribute"), 0u);
  EXPECT_EQ(addOne(&value, 1, 100 << 10), FOVEA_RT_OK);
  EXPECT_EQ(addOne(&value, 1, 90 << 10), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuFuncSetAttribute"), 1u);
  EXPECT_EQ(fake->maxDynamicShared, 100 << 10);
  EXPECT_EQ(addOne(&value, 1, 300 << 10), FOVEA_RT_UNAVAILABLE);
  EXPECT_EQ(error(), "kernel 'add_one' needs 307200 bytes of shared memory, "
                     "but device 0, Fake 0, has 232448");
}

TEST_F(GPUTest, LaunchesClusters) {
  float value = 0;
  EXPECT_EQ(addOne(&value, 1, 0, 2), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuLaunchKernelEx"), 1u);
  EXPECT_EQ(fake->clusterSize, 2u);
  EXPECT_EQ(value, 1.0f);
}

TEST_F(GPUTest, GivesResultsToTheCaller) {
  static void *result;
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              result = fovea_rt_gpu_alloc(queue, 64);
              void *temporary = fovea_rt_gpu_alloc(queue, 64);
              fovea_rt_gpu_fill(queue, result, 16, 4, 0x3f800000);
              fovea_rt_gpu_copy(queue, temporary, result, 64);
              fovea_rt_gpu_free(queue, temporary);
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK);
  ASSERT_EQ(fake->blocks.size(), 1u);
  float values[16];
  EXPECT_EQ(fovea_rt_gpu_transfer(kKind, values, result, 64), FOVEA_RT_OK);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[15], 1.0f);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, result), FOVEA_RT_OK);
}

/// A result in device memory, on the thread's stream.
static void *makeResult() {
  static void *result;
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              result = fovea_rt_gpu_alloc(queue, 64);
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK);
  return result;
}

/// Whoever has read a result may free it while that work is still waiting.
TEST_F(GPUTest, FreesResultsAfterTheWorkThatReadsThem) {
  void *stream;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  fovea_rt_gpu_set_stream(stream);
  void *first = makeResult(), *second = makeResult();
  fovea_rt_gpu_set_stream(nullptr);
  fake->calls.clear();
  EXPECT_EQ(fovea_rt_gpu_release(kKind, first), FOVEA_RT_OK);
  EXPECT_EQ(fake->lastFreeStream, stream);
  EXPECT_EQ(fake->count("cuCtxSynchronize"), 0u);

  // A stream that is gone orders nothing.
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, second), FOVEA_RT_OK);
  EXPECT_EQ(fake->lastFreeStream, nullptr);
  EXPECT_EQ(fake->count("cuCtxSynchronize"), 1u);

  // Nor does one that nobody else knows.
  void *third = makeResult();
  EXPECT_EQ(fovea_rt_gpu_release(kKind, third), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuCtxSynchronize"), 2u);
  EXPECT_TRUE(fake->blocks.empty());
}

/// CU_STREAM_NON_BLOCKING would not wait for what callers without a stream did.
TEST_F(GPUTest, OwnStreamsFollowTheLegacyStream) {
  void *stream;
  fake->streamFlags = 99;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  EXPECT_EQ(fake->streamFlags, 0u);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

TEST_F(GPUTest, FreesResultsOfFailedInvocations) {
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              fovea_rt_gpu_alloc(queue, 64);
              fovea_rt_gpu_end(queue);
              fovea_rt_gpu_queue *other = fovea_rt_gpu_begin(kKind);
              fovea_rt_gpu_alloc(other, 64);
              fovea_rt_fail(77, "no");
            }),
            77);
  EXPECT_TRUE(fake->blocks.empty());
}

TEST_F(GPUTest, MapsARangeOnce) {
  EXPECT_EQ(invoke([] {
              float values[4] = {1, 2, 3, 4};
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              void *first =
                  fovea_rt_gpu_map(queue, values, 16, FOVEA_RT_GPU_READ);
              void *second =
                  fovea_rt_gpu_map(queue, values, 16, FOVEA_RT_GPU_WRITE);
              if (first != second)
                fovea_rt_fail(10, "different");
              if (fovea_rt_gpu_map(queue, nullptr, 0, FOVEA_RT_GPU_READ))
                fovea_rt_fail(11, "not null");
              fovea_rt_gpu_end(queue);
              if (values[3] != 4)
                fovea_rt_fail(12, "lost");
            }),
            FOVEA_RT_OK)
      << error();
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              fovea_rt_gpu_map(queue, nullptr, 4, FOVEA_RT_GPU_READ);
            }),
            FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(GPUTest, RefusesBadArguments) {
  struct Case {
    void (*body)(fovea_rt_gpu_queue *);
    const char *text;
  } cases[] = {
      {[](fovea_rt_gpu_queue *queue) { fovea_rt_gpu_alloc(queue, -1); },
       "cannot allocate -1 bytes"},
      {[](fovea_rt_gpu_queue *queue) { fovea_rt_gpu_free(queue, queue); },
       "is no device memory that this kernel has allocated"},
      {[](fovea_rt_gpu_queue *queue) {
         fovea_rt_gpu_fill(queue, queue, 1, 3, 0);
       },
       "elements of 1, 2 or 4 bytes can be filled, but got 3"},
      {[](fovea_rt_gpu_queue *queue) {
         fovea_rt_gpu_encode_tensor_map(queue, nullptr, 0, 6, nullptr, nullptr,
                                        nullptr, nullptr, 0);
       },
       "tensor maps have 1 to 5 axes, but got 6"},
      {[](fovea_rt_gpu_queue *queue) {
         fovea_rt_gpu_map_rows(queue, queue, 4, 16, 9, nullptr, nullptr,
                               FOVEA_RT_GPU_READ);
       },
       "arrays with strides have 1 to 8 axes on a GPU, but got 9"},
  };
  for (const Case &bad : cases) {
    EXPECT_EQ(invoke([body = bad.body] { body(fovea_rt_gpu_begin(kKind)); }),
              FOVEA_RT_INVALID_ARGUMENT);
    EXPECT_THAT(error(), HasSubstr(bad.text));
  }
}

TEST_F(GPUTest, EncodesTensorMaps) {
  alignas(64) static unsigned char map[128];
  EXPECT_EQ(invoke([] {
              fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
              int64_t extents[] = {64, 32}, strides[] = {128};
              int32_t box[] = {64, 32};
              void *block = fovea_rt_gpu_alloc(queue, 4096);
              fovea_rt_gpu_encode_tensor_map(queue, map, FOVEA_RT_GPU_BF16, 2,
                                             block, extents, strides, box,
                                             FOVEA_RT_GPU_SWIZZLE_128B);
              fovea_rt_gpu_free(queue, block);
              fovea_rt_gpu_end(queue);
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(map[0], 2 * 16 + FOVEA_RT_GPU_BF16);
}

TEST_F(GPUTest, MeasuresTime) {
  fovea_rt_gpu_event *from, *to;
  ASSERT_EQ(fovea_rt_gpu_event_create(kKind, &from), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_event_create(kKind, &to), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_event_record(from, nullptr), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_event_record(to, nullptr), FOVEA_RT_OK);
  float milliseconds = 0;
  EXPECT_EQ(fovea_rt_gpu_event_elapsed(from, to, &milliseconds), FOVEA_RT_OK);
  EXPECT_EQ(milliseconds, 1.5f);
  fail("cuEventElapsedTime", 999);
  EXPECT_EQ(fovea_rt_gpu_event_elapsed(from, to, &milliseconds),
            FOVEA_RT_DEVICE);
  fovea_rt_gpu_event_destroy(from);
  fovea_rt_gpu_event_destroy(to);
}

TEST_F(GPUTest, DescribesDevices) {
  fovea_rt_gpu_properties properties;
  ASSERT_EQ(fovea_rt_gpu_get_properties(kKind, 1, &properties), FOVEA_RT_OK);
  EXPECT_STREQ(properties.name, "Fake 1");
  EXPECT_EQ(properties.capability, 90);
  EXPECT_EQ(properties.shared_bytes, 232448);
  EXPECT_EQ(properties.total_bytes, 64 << 20);
  EXPECT_EQ(properties.driver_version, 12080);
  EXPECT_EQ(fovea_rt_gpu_get_properties(kKind, 9, &properties),
            FOVEA_RT_UNAVAILABLE);
  EXPECT_EQ(fovea_rt_gpu_wait(kKind), FOVEA_RT_OK);
}

TEST_F(GPUTest, CountsMultiprocessorsWithoutTheDriver) {
  static int64_t counted;
  auto count = [] {
    fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
    counted = fovea_rt_gpu_multiprocessors();
    fovea_rt_gpu_end(queue);
  };
  // What the driver says of an attribute is its number.
  EXPECT_EQ(invoke(count), FOVEA_RT_OK);
  EXPECT_EQ(counted, 16);
  // A graph that is being captured could not hold some of its calls.
  fake->calls.clear();
  EXPECT_EQ(invoke(count), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuMemGetInfo_v2"), 0u);
  EXPECT_EQ(counted, 16);
  EXPECT_EQ(invoke([] { fovea_rt_gpu_multiprocessors(); }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "kernels whose blocks stay on a GPU need a queue of the "
                     "invocation");
}
