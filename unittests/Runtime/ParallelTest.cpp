//===- ParallelTest.cpp - Tests of parallel loops -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <cfenv>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

using namespace fovea::rt::test;

namespace {

class ParallelTest : public RuntimeTest {};

TEST_F(ParallelTest, oneThreadRunsIndicesInDescendingOrder) {
  fovea_rt_set_num_threads(1);
  std::vector<int64_t> order;
  parallelFor(5, 0, [&](int64_t index, void *) { order.push_back(index); });
  EXPECT_EQ(order, (std::vector<int64_t>{4, 3, 2, 1, 0}));
}

TEST_F(ParallelTest, eachThreadSeesDescendingIndices) {
  fovea_rt_set_num_threads(3);
  std::mutex lock;
  std::vector<std::pair<std::thread::id, int64_t>> order;
  parallelFor(300, 0, [&](int64_t index, void *) {
    std::lock_guard<std::mutex> guard(lock);
    order.emplace_back(std::this_thread::get_id(), index);
  });
  ASSERT_EQ(order.size(), 300u);
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j)
      if (order[i].first == order[j].first)
        ASSERT_GT(order[i].second, order[j].second);
}

TEST_F(ParallelTest, everyIndexRunsExactlyOnce) {
  for (int threads : {1, 2, 3, 7}) {
    fovea_rt_set_num_threads(threads);
    for (int64_t count : {1, 2, 3, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      parallelFor(count, 0, [&](int64_t index, void *) {
        ++runs.at(static_cast<size_t>(index));
      });
      for (auto &n : runs)
        ASSERT_EQ(n.load(), 1) << threads << " threads, count " << count;
    }
  }
}

TEST_F(ParallelTest, manyShortLoopsLoseNothing) {
  fovea_rt_set_num_threads(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 5000; ++round)
    parallelFor(5, 0, [&](int64_t index, void *) { sum += index; });
  EXPECT_EQ(sum.load(), 5000 * 10);
}

TEST_F(ParallelTest, writesOfBodiesAreVisibleAfterTheLoop) {
  fovea_rt_set_num_threads(3);
  std::vector<int64_t> values(1000);
  parallelFor(1000, 0, [&](int64_t index, void *) {
    values[static_cast<size_t>(index)] = index * index;
  });
  for (int64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(values[static_cast<size_t>(i)], i * i);
}

TEST_F(ParallelTest, bodiesRunOnAsManyThreadsAsSet) {
  // Every body waits for all the others, so fewer threads could not finish.
  for (int threads : {2, 3, 7}) {
    fovea_rt_set_num_threads(threads);
    std::atomic<int> arrived{0};
    std::atomic<int> late{0};
    std::mutex lock;
    std::set<std::thread::id> ids;
    parallelFor(threads, 0, [&](int64_t, void *) {
      ++arrived;
      if (!waitFor([&] { return arrived.load() >= threads; }))
        ++late;
      std::lock_guard<std::mutex> guard(lock);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(late.load(), 0);
    EXPECT_EQ(ids.size(), static_cast<size_t>(threads));
    EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u)
        << "the calling thread takes part";
  }
}

TEST_F(ParallelTest, noMoreThreadsThanSetRunBodies) {
  // After a loop on seven threads, two must mean two.
  fovea_rt_set_num_threads(7);
  parallelFor(100, 0, [](int64_t, void *) {});
  fovea_rt_set_num_threads(2);
  std::mutex lock;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 20; ++round)
    parallelFor(50, 0, [&](int64_t, void *) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      std::lock_guard<std::mutex> guard(lock);
      ids.insert(std::this_thread::get_id());
    });
  EXPECT_LE(ids.size(), 2u);
}

TEST_F(ParallelTest, sleepingWorkersWakeUp) {
  fovea_rt_set_num_threads(2);
  // Loops with another number of indices are new ones, about which nothing is
  // known.
  for (int count : {2, 3, 4}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> arrived{0};
    parallelFor(count, 0, [&](int64_t, void *) {
      ++arrived;
      EXPECT_TRUE(waitFor([&] { return arrived.load() >= 2; }));
    });
  }
}

/// A loop of 64 indices; those from the second on wait for another thread if
/// `needsTwo`.
static void runShortOrLong(bool needsTwo, std::vector<std::atomic<int>> &runs) {
  std::atomic<bool> isShared{false};
  const auto owner = std::this_thread::get_id();
  parallelFor(64, 0, [&](int64_t index, void *) {
    ++runs.at(static_cast<size_t>(index));
    if (std::this_thread::get_id() != owner)
      isShared = true;
    if (!needsTwo)
      return;
    // Long enough for the loop to be shared, before somebody waits.
    if (index > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    else
      EXPECT_TRUE(waitFor([&] { return isShared.load(); }));
  });
}

TEST_F(ParallelTest, loopsThatWereShortAreSharedOnceTheyAreLong) {
  fovea_rt_set_num_threads(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::atomic<int>> runs(64);
    for (int i = 0; i < 50; ++i)
      runShortOrLong(false, runs);
    runShortOrLong(true, runs);
    for (auto &n : runs)
      ASSERT_EQ(n.load(), 51);
  }
}

TEST_F(ParallelTest, failuresOfShortLoopsAreThoseOfTheHighestIndex) {
  fovea_rt_set_num_threads(2);
  for (int round = 0; round < 20; ++round) {
    const bool fails = round % 4 == 3;
    fovea_rt_status status = invoke([=] {
      parallelFor(9, 0, [=](int64_t index, void *) {
        if (fails && index < 7)
          fovea_rt_fail(100 + static_cast<int>(index), "no");
      });
    });
    EXPECT_EQ(status, fails ? 106 : FOVEA_RT_OK);
  }
}

TEST_F(ParallelTest, ownerWaitsForASlowWorker) {
  fovea_rt_set_num_threads(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::atomic<bool> workerDone{false};
  parallelFor(2, 0, [&](int64_t, void *) {
    ++arrived;
    waitFor([&] { return arrived.load() == 2; });
    if (std::this_thread::get_id() == caller)
      return;
    // Longer than the owner spins.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    workerDone = true;
  });
  EXPECT_TRUE(workerDone.load());
}

TEST_F(ParallelTest, zeroAndNegativeCountsRunNothing) {
  for (int64_t count : {int64_t(0), int64_t(-1), INT64_MIN})
    parallelFor(count, 64, [](int64_t, void *) { ADD_FAILURE(); });
  fovea_rt_parallel_for(0, 64, nullptr, nullptr);
}

TEST_F(ParallelTest, nestedLoopsRunInlineOnTheBodysThread) {
  fovea_rt_set_num_threads(3);
  std::atomic<int> inner{0};
  parallelFor(6, 256, [&](int64_t, void *outerScratch) {
    auto *mine = static_cast<char *>(outerScratch);
    memset(mine, 1, 256);
    const auto self = std::this_thread::get_id();
    int64_t expected = 9;
    parallelFor(10, 256, [&](int64_t index, void *innerScratch) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(index, expected--);
      memset(innerScratch, 2, 256);
      parallelFor(2, 256, [&](int64_t, void *deepest) {
        EXPECT_NE(deepest, innerScratch);
        memset(deepest, 3, 256);
        ++inner;
      });
      EXPECT_EQ(static_cast<char *>(innerScratch)[255], 2);
    });
    EXPECT_EQ(mine[0], 1);
    EXPECT_EQ(mine[255], 1);
  });
  EXPECT_EQ(inner.load(), 6 * 10 * 2);
}

TEST_F(ParallelTest, aLoopInsideALoopHasOneThread) {
  fovea_rt_set_num_threads(3);
  EXPECT_EQ(fovea_rt_loop_threads(), 3);
  parallelFor(4, 0,
              [&](int64_t, void *) { EXPECT_EQ(fovea_rt_loop_threads(), 1); });
  EXPECT_EQ(fovea_rt_loop_threads(), 3);
}

TEST_F(ParallelTest, aLoopInsideALoopOfOneIndexRunsInline) {
  fovea_rt_set_num_threads(3);
  const auto self = std::this_thread::get_id();
  parallelFor(1, 0, [&](int64_t, void *) {
    parallelFor(10, 0, [&](int64_t, void *) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
  });
}

TEST_F(ParallelTest, aShortLoopEngagesNoMoreThreadsThanIndices) {
  fovea_rt_set_num_threads(7);
  for (int round = 0; round < 100; ++round) {
    // Leaves workers awake, eager to join the short loop.
    parallelFor(20, 0, [](int64_t, void *) {});
    fovea_rt_release_scratch();
    parallelFor(2, 1 << 20, [](int64_t, void *) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    EXPECT_LE(statistics().scratch_bytes, (2 << 20) + 7 * 64);
  }
}

TEST_F(ParallelTest, hostThreadsRunLoopsAtTheSameTime) {
  fovea_rt_set_num_threads(3);
  std::vector<std::thread> hosts;
  std::atomic<int64_t> total{0};
  for (int host = 0; host < 4; ++host)
    hosts.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum{0};
        fovea_rt_status result = invoke([&] {
          parallelFor(20, 1024, [&](int64_t index, void *scratch) {
            static_cast<int64_t *>(scratch)[0] = index;
            sum += static_cast<int64_t *>(scratch)[0];
          });
        });
        EXPECT_EQ(result, FOVEA_RT_OK);
        EXPECT_EQ(sum.load(), 190);
        total += sum;
      }
    });
  for (std::thread &host : hosts)
    host.join();
  EXPECT_EQ(total.load(), 4 * 200 * 190);
}

TEST_F(ParallelTest, aLoopDoesNotWaitForAnotherHostThreadsLoop) {
  fovea_rt_set_num_threads(2);
  std::atomic<bool> started{false};
  std::atomic<bool> secondDone{false};
  std::thread other([&] {
    parallelFor(2, 0, [&](int64_t, void *) {
      started = true;
      EXPECT_TRUE(waitFor([&] { return secondDone.load(); }));
    });
  });
  ASSERT_TRUE(waitFor([&] { return started.load(); }));
  int runs = 0;
  const auto self = std::this_thread::get_id();
  parallelFor(8, 0, [&](int64_t, void *) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    ++runs;
  });
  EXPECT_EQ(runs, 8);
  secondDone = true;
  other.join();
}

TEST_F(ParallelTest, bodiesSeeTheCallersRoundingMode) {
  fovea_rt_set_num_threads(2);
  std::atomic<int> arrived{0};
  std::atomic<int> downward{0};
  ASSERT_EQ(fesetround(FE_DOWNWARD), 0);
  parallelFor(2, 0, [&](int64_t, void *) {
    ++arrived;
    waitFor([&] { return arrived.load() == 2; });
    if (fegetround() == FE_DOWNWARD)
      ++downward;
  });
  ASSERT_EQ(fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(downward.load(), 2);
}

TEST_F(ParallelTest, numberOfThreadsChangesBetweenLoops) {
  for (int round = 0; round < 30; ++round)
    for (int threads : {2, 5, 1, 3}) {
      ASSERT_EQ(fovea_rt_set_num_threads(threads), FOVEA_RT_OK);
      EXPECT_EQ(fovea_rt_num_threads(), threads);
      std::atomic<int> runs{0};
      parallelFor(40, 0, [&](int64_t, void *) { ++runs; });
      ASSERT_EQ(runs.load(), 40);
    }
}

/// Threads of this process.
static int64_t countTasks() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST_F(ParallelTest, workersBeyondTheNumberSetEnd) {
  // A joined thread may stay in /proc for a moment.
  auto becomes = [](int64_t tasks) {
    return waitFor([&] { return countTasks() == tasks; });
  };
  fovea_rt_set_num_threads(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t base = countTasks();
  fovea_rt_set_num_threads(5);
  parallelFor(5, 0, [](int64_t, void *) {});
  EXPECT_TRUE(becomes(base + 4));
  // During a loop the workers are in use; the next loop ends them.
  parallelFor(5, 0, [](int64_t, void *) { fovea_rt_set_num_threads(2); });
  parallelFor(5, 0, [](int64_t, void *) {});
  EXPECT_TRUE(becomes(base + 1));
  fovea_rt_set_num_threads(1);
  EXPECT_TRUE(becomes(base));
}

TEST_F(ParallelTest, numberOfThreadsMayChangeDuringALoop) {
  fovea_rt_set_num_threads(3);
  std::atomic<int> runs{0};
  parallelFor(200, 0, [&](int64_t index, void *) {
    EXPECT_EQ(fovea_rt_set_num_threads(1 + static_cast<int>(index % 5)),
              FOVEA_RT_OK);
    ++runs;
  });
  EXPECT_EQ(runs.load(), 200);
  std::thread resizer([] {
    for (int i = 0; i < 200; ++i)
      fovea_rt_set_num_threads(1 + i % 4);
  });
  for (int round = 0; round < 200; ++round)
    parallelFor(10, 0, [&](int64_t, void *) { ++runs; });
  resizer.join();
  EXPECT_EQ(runs.load(), 2200);
}

} // namespace
