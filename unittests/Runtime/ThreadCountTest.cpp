//===- ThreadCountTest.cpp - Tests of the number of threads ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <cstdlib>
#include <sched.h>

using namespace fovea::rt::test;

namespace {

class ThreadCountTest : public RuntimeTest {};

TEST_F(ThreadCountTest, refusesImpossibleCounts) {
  ASSERT_EQ(fovea_rt_set_num_threads(3), FOVEA_RT_OK);
  for (int bad : {-1, INT32_MIN, FOVEA_RT_MAX_THREADS + 1}) {
    EXPECT_EQ(fovea_rt_set_num_threads(bad), FOVEA_RT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(fovea_rt_last_error()),
              "invalid number of threads: got " + std::to_string(bad) +
                  ", expected 1 to 4096, or 0 for the default");
  }
  EXPECT_EQ(fovea_rt_num_threads(), 3);
  EXPECT_EQ(fovea_rt_set_num_threads(0), FOVEA_RT_OK);
  EXPECT_STREQ(fovea_rt_last_error(), "");
}

/// The variable is read once per process, so each value needs a new one. The
/// "threadsafe" style of death tests starts the test binary again.
class ThreadCountDeathTest : public ::testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    unsetenv("FOVEA_NUM_THREADS");
  }

  static int cpus() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;
  }

  /// Reports what a fresh process makes of `value`, twice to see repetitions.
  [[noreturn]] static void report(const char *value) {
    if (value)
      setenv("FOVEA_NUM_THREADS", value, 1);
    fprintf(stderr, "[");
    int first = fovea_rt_num_threads();
    fovea_rt_set_num_threads(9);
    fovea_rt_set_num_threads(0);
    fprintf(stderr, "]%d %d\n", first, fovea_rt_num_threads());
    exit(0);
  }

  static std::string plain(int threads) {
    std::string n = std::to_string(threads);
    return "^\\[\\]" + n + " " + n + "\n$";
  }
};

TEST_F(ThreadCountDeathTest, defaultIsTheNumberOfAvailableCpus) {
  EXPECT_EXIT(report(nullptr), testing::ExitedWithCode(0), plain(cpus()));
  EXPECT_EXIT(report(""), testing::ExitedWithCode(0), plain(cpus()));
}

TEST_F(ThreadCountDeathTest, defaultFollowsTheAffinityMask) {
  EXPECT_EXIT(
      {
        cpu_set_t set;
        sched_getaffinity(0, sizeof(set), &set);
        int cpu = 0;
        while (!CPU_ISSET(cpu, &set))
          ++cpu;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof(set), &set);
        report(nullptr);
      },
      testing::ExitedWithCode(0), plain(1));
}

TEST_F(ThreadCountDeathTest, environmentSetsTheDefault) {
  EXPECT_EXIT(report("5"), testing::ExitedWithCode(0), plain(5));
  EXPECT_EXIT(report("4096"), testing::ExitedWithCode(0), plain(4096));
}

TEST_F(ThreadCountDeathTest, badEnvironmentIsReportedOnceAndIgnored) {
  const std::string n = std::to_string(cpus());
  for (const char *bad : {"0", "4097", "-2", "two", "3x", " 3", "1.5",
                          "99999999999999999999", "0x4"})
    EXPECT_EXIT(report(bad), testing::ExitedWithCode(0),
                std::string("^\\[fovea: ignoring FOVEA_NUM_THREADS='") + bad +
                    "': expected an integer from 1 to 4096; using " + n +
                    "\n\\]" + n + " " + n + "\n$");
}

} // namespace
