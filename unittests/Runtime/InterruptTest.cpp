//===- InterruptTest.cpp - Kernels that end early -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <cfloat>
#include <vector>

using namespace fovea::rt::test;

namespace {

/// Stops kernels of this thread from the first question on.
class InterruptTest : public RuntimeTest {
protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    fovea_rt_set_interrupt_check(
        [](void *count) -> int32_t {
          ++*static_cast<std::atomic<int> *>(count);
          return 1;
        },
        &questions);
  }
  void TearDown() override {
    fovea_rt_set_interrupt_check(nullptr, nullptr);
    RuntimeTest::TearDown();
  }

  void expectInterrupted(fovea_rt_status status) {
    EXPECT_EQ(status, FOVEA_RT_INTERRUPTED);
    EXPECT_STREQ(fovea_rt_last_error(), "interrupted");
    EXPECT_EQ(questions.load(), 1);
    EXPECT_EQ(statistics().allocated_bytes, 0);
    expectReusable();
  }

  /// Later calls find all threads, and nobody asks during short ones.
  static void expectReusable() {
    std::atomic<int> sum{0};
    EXPECT_EQ(invoke([&] {
                parallelFor(100, 64,
                            [&](int64_t index, void *) { sum += index; });
              }),
              FOVEA_RT_OK);
    EXPECT_EQ(sum.load(), 4950);
  }

  static void work(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }

  std::atomic<int> questions{0};
};

TEST_F(InterruptTest, loopsEndBetweenBodies) {
  for (int threads : {1, 2, 5}) {
    questions = 0;
    fovea_rt_set_num_threads(threads);
    std::atomic<int> bodies{0};
    expectInterrupted(invoke([&] {
      fovea_rt_alloc(100, 64);
      parallelFor(1000000, 64, [&](int64_t, void *) {
        fovea_rt_alloc(100, 64);
        ++bodies;
        work(1);
      });
    }));
    EXPECT_LT(bodies.load(), 1000000);
  }
}

TEST_F(InterruptTest, bodiesEndWhereTheyCheck) {
  for (int threads : {1, 2}) {
    questions = 0;
    fovea_rt_set_num_threads(threads);
    expectInterrupted(invoke([&] {
      parallelFor(2, 64, [&](int64_t, void *) {
        for (;;)
          fovea_rt_check_interrupt();
      });
    }));
  }
}

// The caller has nothing left to do and asks for a worker that goes on.
TEST_F(InterruptTest, theCallerAsksWhileItWaits) {
  fovea_rt_set_num_threads(2);
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> joined{false};
  expectInterrupted(invoke([&] {
    parallelFor(2, 0, [&](int64_t, void *) {
      if (std::this_thread::get_id() == caller) {
        waitFor([&] { return joined.load(); });
        return;
      }
      joined = true;
      for (;;)
        fovea_rt_check_interrupt();
    });
  }));
}

// Of items that add in turns, some end early and others wait for them.
TEST_F(InterruptTest, nobodyWaitsForTheTurnOfAnInterruptedItem) {
  fovea_rt_set_num_threads(2);
  constexpr int64_t items = 1000;
  std::vector<int64_t> progress(items * FOVEA_RT_TURN_STRIDE, 0);
  expectInterrupted(invoke([&] {
    parallelFor(items, 0, [&](int64_t item, void *) {
      fovea_rt_wait_for_turn(progress.data(), item, items, 1, 1);
      for (int i = 0; i < 10; ++i) {
        work(1);
        fovea_rt_check_interrupt();
      }
      fovea_rt_end_turn(progress.data(), item, FOVEA_RT_LAST_TURN);
    });
  }));
}

// What stopped it has been told so: it must not get results.
TEST_F(InterruptTest, aKernelThatIsDoneIsInterruptedToo) {
  fovea_rt_set_num_threads(2);
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> joined{false};
  expectInterrupted(invoke([&] {
    fovea_rt_alloc(100, 64);
    parallelFor(2, 0, [&](int64_t, void *) {
      if (std::this_thread::get_id() == caller) {
        waitFor([&] { return joined.load(); });
        return;
      }
      joined = true;
      waitFor([&] { return questions.load() > 0; });
    });
  }));
}

TEST_F(InterruptTest, otherThreadsAreNotAsked) {
  std::thread([] {
    EXPECT_EQ(invoke([] {
                work(60);
                fovea_rt_check_interrupt();
              }),
              FOVEA_RT_OK);
  }).join();
  EXPECT_EQ(questions.load(), 0);
}

TEST_F(InterruptTest, withoutAKernelNothingEnds) {
  work(60);
  fovea_rt_check_interrupt();
  EXPECT_EQ(questions.load(), 0);
}

TEST_F(InterruptTest, theHostComputesWithSubnormalNumbers) {
  static volatile float smallest, half;
  smallest = FLT_MIN;
  fovea_rt_set_interrupt_check(
      [](void *) -> int32_t {
        half = smallest / 2;
        return 0;
      },
      nullptr);
  float inKernel = 1;
  EXPECT_EQ(invoke([&] {
              work(60);
              fovea_rt_check_interrupt();
              inKernel = smallest / 2;
            }),
            FOVEA_RT_OK);
  EXPECT_GT(half, 0);
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EQ(inKernel, 0);
#endif
}

} // namespace
