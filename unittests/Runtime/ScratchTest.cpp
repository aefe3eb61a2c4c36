//===- ScratchTest.cpp - Tests of scratch memory --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using namespace fovea::rt::test;

namespace {

class ScratchTest : public RuntimeTest {
protected:
  /// Address of this thread's scratch in a loop that asks for `bytes`.
  static void *addressFor(int64_t bytes) {
    void *address = nullptr;
    parallelFor(1, bytes, [&](int64_t, void *scratch) { address = scratch; });
    return address;
  }
};

TEST_F(ScratchTest, isAlignedAndLargeEnough) {
  fovea_rt_set_num_threads(2);
  for (int64_t bytes : {0, 1, 63, 64, 65, 4096, 100000, 3 << 20, 5 << 20})
    parallelFor(4, bytes, [&](int64_t, void *scratch) {
      ASSERT_NE(scratch, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch) % 64, 0u);
      if (bytes >= 2 << 20)
        EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch) % (2 << 20), 0u);
      memset(scratch, 0x5a, static_cast<size_t>(bytes));
    });
}

TEST_F(ScratchTest, isNotSharedBetweenThreads) {
  fovea_rt_set_num_threads(3);
  std::atomic<int> arrived{0};
  std::mutex lock;
  std::map<void *, int> uses;
  parallelFor(3, 1000, [&](int64_t, void *scratch) {
    ++arrived;
    EXPECT_TRUE(waitFor([&] { return arrived.load() == 3; }));
    std::lock_guard<std::mutex> guard(lock);
    ++uses[scratch];
  });
  EXPECT_EQ(uses.size(), 3u);
}

TEST_F(ScratchTest, isReusedByLaterLoops) {
  void *first = addressFor(100000);
  int64_t held = statistics().scratch_bytes;
  EXPECT_GE(held, 100000);
  EXPECT_EQ(addressFor(100000), first);
  EXPECT_EQ(addressFor(10), first) << "a smaller demand fits";
  EXPECT_EQ(statistics().scratch_bytes, held);
}

TEST_F(ScratchTest, growsGeometrically) {
  fovea_rt_set_num_threads(1);
  int changes = 0;
  int64_t held = 0;
  for (int64_t bytes = 1000; bytes <= 1000000; bytes += 1000) {
    addressFor(bytes);
    int64_t now = statistics().scratch_bytes;
    changes += now != held;
    held = now;
  }
  EXPECT_LT(changes, 25);
  EXPECT_GE(held, 1000000);
  EXPECT_LE(held, 1600000);
}

TEST_F(ScratchTest, releaseGivesEverythingBack) {
  fovea_rt_set_num_threads(3);
  std::atomic<int> arrived{0};
  parallelFor(3, 50000, [&](int64_t, void *) {
    ++arrived;
    waitFor([&] { return arrived.load() == 3; });
  });
  EXPECT_GE(statistics().scratch_bytes, 3 * 50000);
  fovea_rt_release_scratch();
  EXPECT_EQ(statistics().scratch_bytes, 0);
  addressFor(50000);
  EXPECT_GE(statistics().scratch_bytes, 50000);
}

TEST_F(ScratchTest, releaseSparesRunningLoops) {
  fovea_rt_set_num_threads(2);
  parallelFor(8, 4096, [&](int64_t index, void *scratch) {
    memset(scratch, static_cast<int>(index), 4096);
    parallelFor(1, 4096,
                [&](int64_t, void *inner) { memset(inner, 99, 4096); });
    fovea_rt_release_scratch();
    EXPECT_EQ(static_cast<char *>(scratch)[4095], static_cast<char>(index));
  });
}

TEST_F(ScratchTest, endedThreadsHoldNothing) {
  std::thread([] { addressFor(70000); }).join();
  EXPECT_EQ(statistics().scratch_bytes, 0);
  EXPECT_GE(statistics().peak_scratch_bytes, 70000);
}

TEST_F(ScratchTest, peakCountsAllThreadsAndCanBeReset) {
  fovea_rt_set_num_threads(3);
  std::atomic<int> arrived{0};
  parallelFor(3, 1 << 20, [&](int64_t, void *) {
    ++arrived;
    waitFor([&] { return arrived.load() == 3; });
  });
  fovea_rt_release_scratch();
  EXPECT_EQ(statistics().peak_scratch_bytes, 3 << 20);
  fovea_rt_reset_statistics();
  EXPECT_EQ(statistics().peak_scratch_bytes, 0);
}

TEST_F(ScratchTest, impossibleSizesFail) {
  fovea_rt_set_num_threads(2);
  auto ask = [](int64_t bytes) {
    return invoke([bytes] {
      parallelFor(4, bytes, [](int64_t, void *) { ADD_FAILURE(); });
    });
  };
  EXPECT_EQ(ask(-1), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(
      fovea_rt_last_error(),
      "invalid parallel loop: scratch is -1 bytes, expected zero or more");
  for (int64_t bytes : {INT64_MAX, int64_t(1) << 60, int64_t(1) << 50}) {
    EXPECT_EQ(ask(bytes), FOVEA_RT_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(fovea_rt_last_error()),
              "out of memory: kernel asked for " + std::to_string(bytes) +
                  " bytes of scratch for each thread");
  }
  EXPECT_NE(addressFor(100), nullptr) << "usable after a failure";
}

/// The sanitizers need address space of their own, so these run without them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define FOVEA_TEST_ADDRESS_LIMIT 1
#endif
#else
#define FOVEA_TEST_ADDRESS_LIMIT 1
#endif
#endif

#ifdef FOVEA_TEST_ADDRESS_LIMIT
class ScratchDeathTest : public ::testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Refuses this process further address space, apart from 1 MiB.
  static void limitAddressSpace() {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
      exit(90);
    fclose(file);
    rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    rlimit limit{bytes + (1 << 20), bytes + (1 << 20)};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
      exit(91);
  }

  /// Ends the process with status 0 if all of a loop runs on this thread.
  [[noreturn]] static void expectLoopOnCaller(int64_t scratchBytes) {
    std::atomic<int> runs{0};
    std::atomic<int> elsewhere{0};
    const auto self = std::this_thread::get_id();
    parallelFor(8, scratchBytes, [&](int64_t, void *scratch) {
      memset(scratch, 1, static_cast<size_t>(scratchBytes));
      ++runs;
      elsewhere += std::this_thread::get_id() != self;
    });
    exit(runs.load() == 8 && elsewhere.load() == 0 ? 0 : 1);
  }
};

TEST_F(ScratchDeathTest, workersWithoutMemoryLeaveTheWorkToOthers) {
  EXPECT_EXIT(
      {
        const int64_t bytes = 64 << 20;
        fovea_rt_set_num_threads(2);
        std::atomic<int> arrived{0};
        parallelFor(2, 64, [&](int64_t, void *) {
          ++arrived;
          waitFor([&] { return arrived.load() == 2; });
        });
        parallelFor(1, bytes, [](int64_t, void *) {});
        limitAddressSpace();
        expectLoopOnCaller(bytes);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ScratchDeathTest, loopsCompleteWhenNoThreadCanBeStarted) {
  EXPECT_EXIT(
      {
        fovea_rt_set_num_threads(4);
        limitAddressSpace();
        expectLoopOnCaller(64);
      },
      testing::ExitedWithCode(0), "");
}
#endif // FOVEA_TEST_ADDRESS_LIMIT

} // namespace
