//===- TurnsTest.cpp - Tests of sums in one order -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <numeric>
#include <vector>

using namespace fovea::rt::test;

namespace {

class TurnsTest : public RuntimeTest {
protected:
  /// Progress of `chains` chains of `items`.
  static std::vector<int64_t> makeProgress(int64_t chains, int64_t items) {
    return std::vector<int64_t>(
        static_cast<size_t>(chains * items * FOVEA_RT_TURN_STRIDE), 0);
  }
};

// Every item appends its number to the rows that it adds to; item i goes
// through the first i + 1 of them, as under a causal mask, or through all.
TEST_F(TurnsTest, rowsAreAddedToInDescendingOrderOfItems) {
  constexpr int64_t items = 24, chains = 3;
  for (bool causal : {false, true})
    for (int threads : {1, 2, 3, 7}) {
      fovea_rt_set_num_threads(threads);
      std::vector<int64_t> progress = makeProgress(chains, items);
      std::vector<std::vector<int64_t>> rows(chains * items);
      parallelFor(items * chains, 0, [&](int64_t index, void *) {
        int64_t item = index / chains, chain = index % chains;
        int64_t *mine = progress.data() + chain * items * FOVEA_RT_TURN_STRIDE;
        int64_t end = causal ? item + 1 : items;
        for (int64_t row = 0; row < end; ++row) {
          fovea_rt_wait_for_turn(mine, item, items, chains, row + 1);
          rows[static_cast<size_t>(chain * items + row)].push_back(item);
          fovea_rt_end_turn(mine, item, row + 1);
        }
        fovea_rt_end_turn(mine, item, FOVEA_RT_LAST_TURN);
      });
      for (int64_t row = 0; row < chains * items; ++row) {
        std::vector<int64_t> expected(
            static_cast<size_t>(causal ? items - row % items : items));
        std::iota(expected.rbegin(), expected.rend(), causal ? row % items : 0);
        ASSERT_EQ(rows[static_cast<size_t>(row)], expected)
            << threads << " threads, row " << row;
      }
    }
}

// An item may end without adding anything; earlier ones still wait for those
// behind it.
TEST_F(TurnsTest, endedItemsAreNotTheLastWord) {
  fovea_rt_set_num_threads(2);
  std::vector<int64_t> progress = makeProgress(1, 3);
  std::atomic<bool> added{false};
  parallelFor(3, 0, [&](int64_t item, void *) {
    if (item == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      added = true;
    } else if (item == 0) {
      fovea_rt_wait_for_turn(progress.data(), item, 3, 1, 1);
      EXPECT_TRUE(added.load());
    }
    fovea_rt_end_turn(progress.data(), item, FOVEA_RT_LAST_TURN);
  });
}

// Item 0 as index 1 would wait for an item that starts after it.
TEST_F(TurnsTest, waitingForWhatStartsLaterFails) {
  fovea_rt_set_num_threads(1);
  std::vector<int64_t> progress = makeProgress(1, 2);
  std::string message;
  fovea_rt_status status = invoke([&] {
    parallelFor(2, 0, [&](int64_t index, void *) {
      fovea_rt_wait_for_turn(progress.data(), 1 - index, 2, 1, 1);
    });
  });
  EXPECT_EQ(status, FOVEA_RT_INTERNAL);
  EXPECT_NE(
      std::string(fovea_rt_last_error())
          .find("ordered sum: item 0 of 1 chains runs as index 1 of its loop"),
      std::string::npos)
      << fovea_rt_last_error();
}

} // namespace
