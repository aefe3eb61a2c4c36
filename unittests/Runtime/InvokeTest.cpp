//===- InvokeTest.cpp - Tests of invocations and failures -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <limits>
#include <string>
#include <vector>

using namespace fovea::rt::test;

namespace {

class InvokeTest : public RuntimeTest {};
using InvokeDeathTest = InvokeTest;

TEST_F(InvokeTest, passesArgumentsThrough) {
  int value = 20;
  void *args[] = {&value};
  EXPECT_EQ(fovea_rt_invoke(
                [](void **args) { *static_cast<int *>(args[0]) += 22; }, args),
            FOVEA_RT_OK);
  EXPECT_EQ(value, 42);
}

TEST_F(InvokeTest, returnsCodeAndTextOfAFailure) {
  bool after = false;
  EXPECT_EQ(invoke([&] {
              fovea_rt_fail(77, "expected 3 rows, found 4");
              after = true;
            }),
            77);
  EXPECT_FALSE(after);
  EXPECT_STREQ(fovea_rt_last_error(), "expected 3 rows, found 4");
  EXPECT_EQ(invoke([] {}), FOVEA_RT_OK);
  EXPECT_STREQ(fovea_rt_last_error(), "");
}

TEST_F(InvokeTest, checksOfExtentsSayWhatIsExpected) {
  EXPECT_EQ(invoke([] {
              fovea_rt_check_extent("rows", 5, 5);
              fovea_rt_check_multiple("heads", 8, 2);
              fovea_rt_check_multiple("heads", 0, 2);
              fovea_rt_check_multiple("heads", 0, 0);
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(invoke([] { fovea_rt_check_extent("rows of key", 1, 5); }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "rows of key, expected 5, but got 1");
  EXPECT_EQ(invoke([] { fovea_rt_check_multiple("heads", 3, 2); }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "heads, expected a multiple of 2, but got 3");
  EXPECT_EQ(invoke([] { fovea_rt_check_multiple("heads", 3, 0); }),
            FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(InvokeTest, checksOfListsTellTheFirstThatIsWrong) {
  // Two batch entries of one head with two lists of three, every second
  // element.
  std::vector<int32_t> rows(24, 7);
  auto check = [&](int64_t bound) {
    return invoke([&] {
      fovea_rt_check_rows("attn.stream: rows", rows.data(), 2, 1, 2, 3, 12, 12,
                          6, 2, bound);
    });
  };
  rows[1] = 99;
  rows[2] = -1;
  EXPECT_EQ(check(8), FOVEA_RT_OK);
  EXPECT_EQ(check(int64_t(1) << 40), FOVEA_RT_OK);
  EXPECT_EQ(check(7), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "attn.stream: rows[0, 0, 0, 0] must be -1, or at least 0 and "
               "below 7, but got 7");
  rows[12 + 6 + 4] = -2;
  EXPECT_EQ(check(8), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "attn.stream: rows[1, 0, 1, 2] must be -1, or at least 0 and "
               "below 8, but got -2");
}

TEST_F(InvokeTest, checksOfCodesTellTheFirstThatIsWrong) {
  // Two batch entries of three heads of five tokens, every second element.
  std::vector<int32_t> codes(60, 7);
  auto check = [&](int64_t numCodes, int64_t numTokens = 5) {
    return invoke([&] {
      fovea_rt_check_codes("attn.vq: codes", codes.data(), 2, 3, numTokens, 30,
                           10, 2, numCodes);
    });
  };
  EXPECT_EQ(check(8), FOVEA_RT_OK);
  EXPECT_EQ(check(int64_t(1) << 40), FOVEA_RT_OK);
  EXPECT_EQ(check(0, /*numTokens=*/0), FOVEA_RT_OK);
  EXPECT_EQ(check(7), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "attn.vq: codes[0, 0, 0] must be at "
                                      "least 0 and below 7, but got 7");
  EXPECT_EQ(check(0), FOVEA_RT_INVALID_ARGUMENT);
  // Elements in between are not codes.
  codes[1] = 99;
  EXPECT_EQ(check(8), FOVEA_RT_OK);
  codes[30 + 2 * 10 + 2 * 3] = -1;
  codes[30 + 2 * 10 + 2 * 4] = 8;
  EXPECT_EQ(check(8), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "attn.vq: codes[1, 2, 3] must be at "
                                      "least 0 and below 8, but got -1");
  codes[30 + 2 * 10 + 2 * 3] = INT32_MAX;
  EXPECT_EQ(check(INT32_MAX), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(check(int64_t(INT32_MAX) + 1), FOVEA_RT_OK);
  // Neighbours.
  EXPECT_EQ(invoke([&] {
              fovea_rt_check_codes("c", codes.data(), 1, 1, 2, 60, 60, 1, 99);
            }),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "c[0, 0, 1] must be at least 0 and below 99, but got 99");
}

TEST_F(InvokeTest, checksIntervals) {
  // Two batch entries of one head and three rows; ends two apart.
  std::vector<int32_t> first = {0, 1, 2, 0, 0, 3};
  std::vector<int32_t> last = {0, -9, 1, -9, 4, -9, 0, -9, 2, -9, 3, -9};
  auto check = [&](int64_t bound) {
    return invoke([&] {
      fovea_rt_check_intervals("attn.low_rank: interval", first.data(), 2, 1, 3,
                               3, 3, 1, last.data(), 2, 1, 3, 6, 6, 2, bound);
    });
  };
  EXPECT_EQ(check(5), FOVEA_RT_OK);
  EXPECT_EQ(check(4), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "attn.low_rank: interval[0, 0, 2] must have 0 <= first <= last "
               "< 4, but got 2 and 4");
  first[4] = 3;
  EXPECT_EQ(check(5), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "attn.low_rank: interval[1, 0, 1] must have 0 <= first <= last "
               "< 5, but got 3 and 2");
  first[4] = -1;
  EXPECT_EQ(check(5), FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(InvokeTest, aFailureIsNeverSuccess) {
  for (int code : {0, -1, INT32_MIN})
    EXPECT_EQ(invoke([code] { fovea_rt_fail(code, "x"); }), FOVEA_RT_INTERNAL);
  EXPECT_EQ(invoke([] { fovea_rt_fail(9, nullptr); }), 9);
  EXPECT_STREQ(fovea_rt_last_error(),
               "kernel failed with code 9 and no message");
}

TEST_F(InvokeTest, refusesANullKernel) {
  EXPECT_EQ(fovea_rt_invoke(nullptr, nullptr), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "cannot invoke a null kernel");
}

TEST_F(InvokeTest, longTextsAreCutBetweenCharacters) {
  const std::string text(1022, 'a');
  const std::string full = text + "b";
  invoke([&] { fovea_rt_fail(1, full.c_str()); });
  EXPECT_EQ(fovea_rt_last_error(), full);
  // The two bytes of this letter straddle the limit.
  const std::string longer = text + "\xc3\xa9";
  invoke([&] { fovea_rt_fail(1, longer.c_str()); });
  EXPECT_EQ(fovea_rt_last_error(), text);
}

TEST_F(InvokeTest, theInnermostInvocationFails) {
  fovea_rt_status inner = FOVEA_RT_OK;
  bool continued = false;
  EXPECT_EQ(invoke([&] {
              fovea_rt_alloc(100, 64);
              inner = invoke([] {
                fovea_rt_alloc(50, 64);
                fovea_rt_fail(5, "inner");
              });
              continued = statistics().allocated_bytes == 100;
              fovea_rt_fail(6, "outer");
            }),
            6);
  EXPECT_EQ(inner, 5);
  EXPECT_TRUE(continued);
  EXPECT_STREQ(fovea_rt_last_error(), "outer");
  EXPECT_EQ(statistics().allocated_bytes, 0);
}

TEST_F(InvokeTest, errorsBelongToTheirThread) {
  invoke([] { fovea_rt_fail(5, "mine"); });
  std::thread([] {
    EXPECT_STREQ(fovea_rt_last_error(), "");
    invoke([] { fovea_rt_fail(5, "theirs"); });
  }).join();
  EXPECT_STREQ(fovea_rt_last_error(), "mine");
}

TEST_F(InvokeTest, aFailingBodyFailsTheInvocation) {
  for (int threads : {1, 2, 3, 7}) {
    fovea_rt_set_num_threads(threads);
    std::atomic<int> runs{0};
    EXPECT_EQ(invoke([&] {
                parallelFor(1000000, 64, [&](int64_t index, void *) {
                  // All threads take part before one fails.
                  ++runs;
                  waitFor([&] { return runs.load() >= threads; });
                  if (index == 1000000 - threads)
                    fovea_rt_fail(12, "body");
                });
                ADD_FAILURE() << "the loop returned";
              }),
              12);
    EXPECT_STREQ(fovea_rt_last_error(), "body");
    EXPECT_GE(runs.load(), threads);
    EXPECT_LT(runs.load(), 1000000) << "the rest is not run";
  }
}

TEST_F(InvokeTest, aFailureOnAWorkerReachesTheOwner) {
  fovea_rt_set_num_threads(2);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived{0};
    std::atomic<bool> ownerFinished{false};
    EXPECT_EQ(invoke([&] {
                parallelFor(2, 64, [&](int64_t, void *) {
                  ++arrived;
                  waitFor([&] { return arrived.load() == 2; });
                  if (std::this_thread::get_id() != caller)
                    fovea_rt_fail(31, "on a worker");
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  ownerFinished = true;
                });
              }),
              31);
    EXPECT_STREQ(fovea_rt_last_error(), "on a worker");
    EXPECT_TRUE(ownerFinished.load()) << "running bodies finish first";
  }
}

TEST_F(InvokeTest, aFailureOnTheOwnerWaitsForTheWorkers) {
  fovea_rt_set_num_threads(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::atomic<bool> workerFinished{false};
  EXPECT_EQ(invoke([&] {
              parallelFor(2, 64, [&](int64_t, void *) {
                ++arrived;
                waitFor([&] { return arrived.load() == 2; });
                if (std::this_thread::get_id() == caller)
                  fovea_rt_fail(32, "on the owner");
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                workerFinished = true;
              });
            }),
            32);
  EXPECT_TRUE(workerFinished.load());
  EXPECT_STREQ(fovea_rt_last_error(), "on the owner");
}

TEST_F(InvokeTest, theHighestFailingIndexIsReportedOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 7}) {
    fovea_rt_set_num_threads(threads);
    for (int round = 0; round < 50; ++round) {
      EXPECT_EQ(invoke([] {
                  parallelFor(40, 0, [](int64_t index, void *) {
                    if (index <= 35)
                      fovea_rt_fail(100 + static_cast<int>(index), "failed");
                  });
                }),
                135);
    }
  }
}

TEST_F(InvokeTest, nestedLoopsFailTheWholeLoopAndTheRuntimeStaysUsable) {
  for (int threads : {1, 3}) {
    fovea_rt_set_num_threads(threads);
    EXPECT_EQ(invoke([] {
                parallelFor(6, 128, [](int64_t, void *) {
                  parallelFor(6, 128, [](int64_t inner, void *) {
                    fovea_rt_alloc(100, 64);
                    if (inner == 3)
                      fovea_rt_fail(8, "deep");
                  });
                });
              }),
              8);
    EXPECT_STREQ(fovea_rt_last_error(), "deep");
    EXPECT_EQ(statistics().allocated_bytes, 0);

    // Depth and ownership of the workers are restored: loops use threads again.
    std::atomic<int> arrived{0};
    parallelFor(threads, 128, [&](int64_t, void *) {
      ++arrived;
      EXPECT_TRUE(waitFor([&] { return arrived.load() == threads; }));
    });
    fovea_rt_release_scratch();
    EXPECT_EQ(statistics().scratch_bytes, 0);
  }
}

TEST_F(InvokeTest, aBodyMayContainAnInvocation) {
  fovea_rt_set_num_threads(2);
  std::atomic<int> failures{0};
  EXPECT_EQ(invoke([&] {
              parallelFor(10, 64, [&](int64_t index, void *scratch) {
                memset(scratch, 1, 64);
                fovea_rt_status result = invoke([&] {
                  parallelFor(2, 64, [&](int64_t, void *nested) {
                    memset(nested, 2, 64);
                    if (index % 2)
                      fovea_rt_fail(4, "odd");
                  });
                });
                failures += result == 4;
                EXPECT_EQ(static_cast<char *>(scratch)[63], 1);
              });
            }),
            FOVEA_RT_OK);
  EXPECT_EQ(failures.load(), 5);
}

TEST_F(InvokeTest, hostThreadsFailIndependently) {
  fovea_rt_set_num_threads(3);
  std::vector<std::thread> hosts;
  for (int host = 1; host <= 4; ++host)
    hosts.emplace_back([host] {
      const std::string text = "host " + std::to_string(host);
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(invoke([&] {
                    fovea_rt_alloc(1000, 64);
                    parallelFor(10, 64, [&](int64_t index, void *) {
                      if (index == 4)
                        fovea_rt_fail(host, text.c_str());
                    });
                  }),
                  host);
        EXPECT_EQ(fovea_rt_last_error(), text);
      }
    });
  for (std::thread &host : hosts)
    host.join();
  EXPECT_EQ(statistics().allocated_bytes, 0);
}

#if defined(__x86_64__) || defined(__aarch64__)
/// Halves the smallest normal number, where the compiler cannot.
float makeSubnormal() {
  volatile float smallest = std::numeric_limits<float>::min();
  return smallest / 2;
}

TEST_F(InvokeTest, subnormalNumbersAreZeroInKernelsOnly) {
  ASSERT_GT(makeSubnormal(), 0.0f);
  fovea_rt_set_num_threads(3);
  float results[9];
  void *args[] = {results};
  auto kernel = [](void **args) {
    fovea_rt_parallel_for(
        9, 0,
        [](int64_t index, void *, void *results) {
          static_cast<float *>(results)[index] = makeSubnormal();
        },
        args[0]);
  };
  ASSERT_EQ(fovea_rt_invoke(kernel, args), FOVEA_RT_OK);
  for (float result : results)
    EXPECT_EQ(result, 0.0f);
  EXPECT_GT(makeSubnormal(), 0.0f);
  // A failing kernel leaves the caller's setting as it was, too.
  auto failing = [](void **) {
    fovea_rt_fail(FOVEA_RT_INTERNAL, "on purpose");
  };
  ASSERT_EQ(fovea_rt_invoke(failing, nullptr), FOVEA_RT_INTERNAL);
  EXPECT_GT(makeSubnormal(), 0.0f);
}
#endif

TEST_F(InvokeDeathTest, aFailureOutsideAnInvocationAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(fovea_rt_fail(5, "nobody listens"),
               "fovea: fatal: nobody listens");
  EXPECT_DEATH(
      {
        fovea_rt_set_num_threads(2);
        parallelFor(4, 0, [](int64_t, void *) { fovea_rt_fail(5, "in body"); });
      },
      "fovea: fatal: in body");
}

// CInterface.c: the headers are C and the calls work from C.
extern "C" int foveaRuntimeCInterfaceTest(void);

TEST_F(InvokeTest, worksFromC) { EXPECT_EQ(foveaRuntimeCInterfaceTest(), 0); }

TEST_F(InvokeTest, versionMatchesTheHeader) {
  EXPECT_EQ(fovea_rt_version(), FOVEA_RT_ABI_VERSION);
}

} // namespace
