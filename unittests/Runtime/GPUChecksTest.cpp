//===- GPUChecksTest.cpp - Checks and graphs on a pretended GPU -----------===//
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

//===----------------------------------------------------------------------===//
// Checks on the device
//===----------------------------------------------------------------------===//

/// A call whose kernel, which this function stands for, finds what is wrong, if
/// there are any `facts`; `rule` has a text of its own.
static fovea_rt_status findWrong(const char *rule, int32_t kind,
                                 const std::vector<int64_t> &facts) {
  return invoke([&] {
    fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
    auto *failure = static_cast<int64_t *>(fovea_rt_gpu_failure());
    int64_t number = fovea_rt_gpu_rule(rule, kind);
    auto *report = static_cast<int64_t *>(fovea_rt_gpu_report(number));
    // What no kernel has written.
    EXPECT_EQ(failure[0], -1);
    EXPECT_EQ(failure[1], 0);
    if (!facts.empty()) {
      report[0] = 17;
      report[1] = failure[1] = number + 1;
      memcpy(report + 2, facts.data(), facts.size() * sizeof(int64_t));
    }
    fovea_rt_gpu_end(queue);
  });
}

static fovea_rt_status findWrongCode(const char *rule, bool isWrong = true) {
  std::vector<int64_t> facts;
  if (isWrong)
    facts = {0, 1, 17, 512, 600};
  return findWrong(rule, FOVEA_RT_GPU_CODES, facts);
}

static constexpr char kWrongCode[] =
    "codes[0, 1, 17] must be at least 0 and below 512, but got 600";

TEST_F(GPUTest, TellsAFailedCheckOfACallThatWaits) {
  EXPECT_EQ(findWrongCode("waits: codes"), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), std::string("waits: ") + kWrongCode);
  EXPECT_EQ(findWrongCode("waits: codes", /*isWrong=*/false), FOVEA_RT_OK);
}

TEST_F(GPUTest, TellsAnAssertionByItsText) {
  EXPECT_EQ(findWrong("100 % of indices are out", FOVEA_RT_GPU_ASSERTION, {0}),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "100 % of indices are out");
}

TEST_F(GPUTest, TellsAFailedCheckInTheNextCall) {
  void *stream;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  fovea_rt_gpu_set_stream(stream);
  EXPECT_EQ(findWrongCode("next: codes", /*isWrong=*/false), FOVEA_RT_OK);
  fake->calls.clear();
  EXPECT_EQ(findWrongCode("next: codes"), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuStreamSynchronize"), 0u);
  EXPECT_EQ(fake->count("cuMemcpyDtoHAsync_v2"), 0u);
  std::string text = std::string("next: ") + kWrongCode +
                     "; that was found in an earlier call on device 0, which "
                     "has no results";
  EXPECT_EQ(findWrongCode("next: codes", /*isWrong=*/false),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), text);
  // Once.
  EXPECT_EQ(findWrongCode("next: codes", /*isWrong=*/false), FOVEA_RT_OK);
  // Not on another device; and whoever waits is told, too.
  EXPECT_EQ(findWrongCode("next: codes"), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_set_device(1), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_wait(kKind), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_set_device(0), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_wait(kKind), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), text);
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

/// The variable is read once, so a process of its own has it.
TEST_F(GPUTest, TellsAFailedCheckAtOnceIfStrict) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("FOVEA_GPU_STRICT", "1", 1);
        void *stream;
        bool isRight =
            fovea_rt_gpu_stream_create(kKind, &stream) == FOVEA_RT_OK;
        fovea_rt_gpu_set_stream(stream);
        isRight &= findWrongCode("strict: codes") == FOVEA_RT_INVALID_ARGUMENT;
        isRight &= error() == std::string("strict: ") + kWrongCode;
        // It was told, and waited for.
        isRight &= fake->count("cuStreamSynchronize") > 0;
        isRight &=
            findWrongCode("strict: codes", /*isWrong=*/false) == FOVEA_RT_OK;
        std::exit(isRight ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(GPUTest, ChecksAreNewForAGraphOnlyBefore) {
  void *stream;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  fovea_rt_gpu_set_stream(stream);
  fake->capturing = stream;
  EXPECT_EQ(findWrongCode("graph: codes", /*isWrong=*/false),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "a check, graph: codes, runs for the first time, which a "
                     "CUDA graph that is being captured cannot hold");
  fake->capturing = nullptr;
  EXPECT_EQ(findWrongCode("graph: codes", /*isWrong=*/false), FOVEA_RT_OK);
  fake->capturing = stream;
  EXPECT_EQ(findWrongCode("graph: codes"), FOVEA_RT_OK);
  // It is told by a call that is not captured.
  EXPECT_EQ(findWrongCode("graph: codes", /*isWrong=*/false), FOVEA_RT_OK);
  fake->capturing = nullptr;
  EXPECT_EQ(findWrongCode("graph: codes", /*isWrong=*/false),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_TRUE(fake->notCapturable.empty());
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

/// A level that the tree does not have, among the nodes that a captured call
/// reads.
TEST_F(GPUTest, TellsAWrongLevelOfAGraphInTheNextCall) {
  const char *rule = "attn.tree_fetch";
  std::vector<int64_t> wrong = {
      /*batch=*/0, /*node=*/2,  /*level=*/9,
      /*index=*/0, /*next=*/8,  /*follows=*/0,
      /*roots=*/2, /*ratio=*/2, /*levels=*/3,
      /*count=*/5};
  void *stream;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  fovea_rt_gpu_set_stream(stream);
  EXPECT_EQ(findWrong(rule, FOVEA_RT_GPU_NODES, {}), FOVEA_RT_OK);
  fake->capturing = stream;
  EXPECT_EQ(findWrong(rule, FOVEA_RT_GPU_NODES, wrong), FOVEA_RT_OK);
  fake->capturing = nullptr;
  EXPECT_EQ(findWrong(rule, FOVEA_RT_GPU_NODES, {}), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(),
            std::string("attn.tree_fetch: level of node 2 in batch "
                        "entry 0, expected 0 to 3, but got 9; that was "
                        "found in an earlier call on device 0, which "
                        "has no results"));
  EXPECT_EQ(findWrong(rule, FOVEA_RT_GPU_NODES, {}), FOVEA_RT_OK);
  EXPECT_TRUE(fake->notCapturable.empty());
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

TEST_F(GPUTest, IsCaptured) {
  void *stream, *pointer;
  ASSERT_EQ(fovea_rt_gpu_stream_create(kKind, &stream), FOVEA_RT_OK);
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 4, &pointer), FOVEA_RT_OK);
  auto *values = static_cast<float *>(pointer);
  fovea_rt_gpu_set_stream(stream);
  auto captured = [&](float *values) {
    fake->capturing = stream;
    fovea_rt_status status = addOne(values, 1);
    fake->capturing = nullptr;
    return status;
  };
  EXPECT_EQ(captured(values), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("kernel 'add_one' is not loaded"));
  EXPECT_EQ(addOne(values, 1), FOVEA_RT_OK);
  EXPECT_EQ(captured(values), FOVEA_RT_OK);
  float value = 1;
  EXPECT_EQ(captured(&value), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "an array lies in host memory, which a CUDA graph that is "
                     "being captured cannot hold");
  fake->capturing = stream;
  EXPECT_EQ(fovea_rt_gpu_transfer(kKind, &value, pointer, 4),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_TRUE(fake->notCapturable.empty());
  // The test notices: this waits.
  EXPECT_EQ(fovea_rt_gpu_wait(kKind), FOVEA_RT_DEVICE);
  EXPECT_THAT(fake->notCapturable, testing::ElementsAre("cuCtxSynchronize"));
  fake->capturing = nullptr;
  fake->notCapturable.clear();
  fovea_rt_gpu_set_stream(nullptr);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_stream_destroy(kKind, stream), FOVEA_RT_OK);
}

TEST_F(GPUTest, KeepsConstantsOnTheDevice) {
  static const float constant[4] = {1, 2, 3, 4};
  static const void *found;
  auto get = [] {
    return invoke([] {
      fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
      found = fovea_rt_gpu_constant(queue, constant, sizeof(constant));
      fovea_rt_gpu_end(queue);
    });
  };
  ASSERT_EQ(get(), FOVEA_RT_OK);
  const void *first = found;
  EXPECT_EQ(memcmp(first, constant, sizeof(constant)), 0);
  fake->calls.clear();
  ASSERT_EQ(get(), FOVEA_RT_OK);
  EXPECT_EQ(found, first);
  EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 0u);
  fovea_rt_gpu_forget(constant);
  EXPECT_TRUE(fake->blocks.empty());
  // Another one may lie where it was.
  ASSERT_EQ(get(), FOVEA_RT_OK);
  EXPECT_EQ(fake->count("cuMemcpyHtoDAsync_v2"), 1u);
  fovea_rt_gpu_forget(constant);
  fail("cuMemAllocAsync", 2);
  EXPECT_EQ(get(), FOVEA_RT_OUT_OF_MEMORY);
}
