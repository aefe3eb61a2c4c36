//===- TreeTest.cpp - Trees of averages in the runtime --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"
#include "fovea_rt/fovea_rt.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using List = std::vector<int32_t>;

/// What checking a list of nodes of a tree says; empty if nothing.
std::string check(const List &level, const List &index, int64_t roots,
                  int64_t ratio, int64_t levels, bool mustCover) {
  struct Arguments {
    const List &level, &index;
    int64_t roots, ratio, levels;
    bool mustCover;
  } arguments = {level, index, roots, ratio, levels, mustCover};
  void *packed[] = {&arguments};
  fovea_rt_status status = fovea_rt_invoke(
      [](void **args) {
        auto &a = *static_cast<Arguments *>(args[0]);
        int64_t count = static_cast<int64_t>(a.level.size());
        fovea_rt_check_nodes(a.level.data(), count, a.index.data(), count, 1,
                             count, a.roots, a.ratio, a.levels, a.mustCover);
      },
      packed);
  EXPECT_EQ(status == FOVEA_RT_OK, *fovea_rt_last_error() == '\0');
  if (status != FOVEA_RT_OK)
    EXPECT_EQ(status, FOVEA_RT_INVALID_ARGUMENT);
  return fovea_rt_last_error();
}

TEST(TreeTest, NodesThatExist) {
  EXPECT_EQ(check({2, 0, 1, 0}, {0, 3, 1, 0}, 1, 2, 2, false), "");
  EXPECT_EQ(check({}, {}, 1, 2, 2, false), "");
  EXPECT_EQ(check({0, 3}, {0, 0}, 1, 2, 2, false),
            "attn.tree_fetch: level of node 1 in batch entry 0, expected 0 to "
            "2, but got 3");
  EXPECT_EQ(check({-1}, {0}, 1, 2, 2, false),
            "attn.tree_fetch: level of node 0 in batch entry 0, expected 0 to "
            "2, but got -1");
  EXPECT_EQ(check({1}, {2}, 1, 2, 2, false),
            "attn.tree_fetch: index of node 0 in batch entry 0, expected 0 to "
            "1 at level 1, but got 2");
  EXPECT_EQ(check({0}, {-7}, 1, 2, 2, true),
            "attn.tree_update: index of node 0 in batch entry 0, expected 0 to "
            "3 at level 0, but got -7");
}

TEST(TreeTest, NodesThatCover) {
  EXPECT_EQ(check({2}, {0}, 1, 2, 2, true), "");
  EXPECT_EQ(check({1, 0, 0}, {0, 2, 3}, 1, 2, 2, true), "");
  EXPECT_EQ(check({1, 1, 1}, {0, 1, 2}, 3, 16, 1, true), "");
  EXPECT_EQ(check({1, 1}, {0, 0}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but node 1 (level 1, index 0) overlaps the one before: "
            "it begins at token 0, expected 2");
  EXPECT_EQ(check({0, 1}, {0, 1}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but node 1 (level 1, index 1) leaves a gap: it begins "
            "at token 2, expected 1");
  EXPECT_EQ(check({1}, {0}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but they end at token 2, expected 4");
  EXPECT_EQ(check({}, {}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but they end at token 0, expected 4");
}

/// The candidates that are split, by sorting.
template <typename T>
std::vector<int> sortBest(const std::vector<T> &scores, int64_t split) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  auto rank = [&](int i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<T>::infinity()
                                 : scores[i];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return rank(a) > rank(b); });
  order.resize(split);
  std::sort(order.begin(), order.end());
  return order;
}

template <typename T> void testSplits() {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    int64_t count = 1 + random() % 60, split = random() % (count + 1);
    std::vector<T> scores(count);
    for (T &score : scores) {
      // Many ties, and a few that are no numbers.
      score = static_cast<T>(static_cast<int>(random() % 7)) - 3;
      if (random() % 10 == 0)
        score = std::numeric_limits<T>::quiet_NaN();
    }
    List level(count + split * 2), index(count + split * 2),
        children(split * 3);
    fovea_rt_tree_split(scores.data(), sizeof(T) == 8, nullptr, count, nullptr,
                        nullptr, count, nullptr, level.data(), index.data(),
                        children.data(), 4, split, 3);
    std::vector<int> best = sortBest(scores, split);
    List wantedLevel, wantedIndex, wantedChildren;
    for (int node = 0; node < count; ++node) {
      if (!std::binary_search(best.begin(), best.end(), node)) {
        wantedLevel.push_back(4);
        wantedIndex.push_back(node);
        continue;
      }
      for (int child = 0; child < 3; ++child) {
        wantedLevel.push_back(3);
        wantedIndex.push_back(3 * node + child);
        wantedChildren.push_back(3 * node + child);
      }
    }
    EXPECT_EQ(level, wantedLevel);
    EXPECT_EQ(index, wantedIndex);
    EXPECT_EQ(children, wantedChildren);
  }
}

TEST(TreeTest, SplitsTheBest) {
  testSplits<float>();
  testSplits<double>();
}

TEST(TreeTest, SplitsInTheFrontier) {
  // Nodes 0 of level 2, 2 and 3 of level 1, of which 3 is split.
  List level = {2, 1, 1}, index = {0, 2, 3}, candidates = {2, 3};
  List counts = {1, 1, 0, 1};
  float scores[] = {9, 1};
  List newLevel(4), newIndex(4), children(2);
  fovea_rt_tree_split(scores, 0, candidates.data(), 2, level.data(),
                      index.data(), 3, counts.data(), newLevel.data(),
                      newIndex.data(), children.data(), 1, 1, 2);
  EXPECT_EQ(newLevel, (List{2, 1, 0, 0}));
  EXPECT_EQ(newIndex, (List{0, 2, 6, 7}));
  EXPECT_EQ(children, (List{6, 7}));
}

TEST(TreeTest, FewerThanTheBudgetHaveTokens) {
  // Of four candidates, one is absent and two have tokens.
  List level = {2, 1, 1, 1, -1}, index = {0, 2, 3, 4, -1},
       candidates = {2, 3, 4, -1};
  List counts = {1, 1, 1, 0, 1};
  float scores[] = {1, 9, 1, 9};
  List newLevel(8, 7), newIndex(8, 7), children(6, 7);
  fovea_rt_tree_split(scores, 0, candidates.data(), 4, level.data(),
                      index.data(), 5, counts.data(), newLevel.data(),
                      newIndex.data(), children.data(), 1, 3, 2);
  EXPECT_EQ(newLevel, (List{2, 0, 0, 1, 0, 0, -1, -1}));
  EXPECT_EQ(newIndex, (List{0, 4, 5, 3, 8, 9, -1, -1}));
  EXPECT_EQ(children, (List{4, 5, 8, 9, -1, -1}));
}

TEST(TreeTest, AbsentNodes) {
  EXPECT_EQ(check({-1, 0, -1}, {-1, 3, -1}, 1, 2, 2, false), "");
  EXPECT_EQ(check({1, 1, -1, -1}, {0, 1, -1, -1}, 1, 2, 2, true), "");
  EXPECT_EQ(check({1, -1, 1}, {0, -1, 1}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but node 2 (level 1, index 1) follows an absent one");
  EXPECT_EQ(check({1, -1}, {0, -1}, 1, 2, 2, true),
            "attn.tree_update: nodes of batch entry 0 must cover the sequence "
            "in order, but they end at token 2, expected 4");
  EXPECT_EQ(check({0}, {-1}, 1, 2, 2, false),
            "attn.tree_fetch: index of node 0 in batch entry 0, expected 0 to "
            "3 at level 0, but got -1");
}

TEST(TreeTest, BuffersOfTheHost) {
  EXPECT_EQ(fovea_rt_tree_nodes(64, 2, 6), 127);
  EXPECT_EQ(fovea_rt_tree_nodes(48, 16, 1), 51);
  EXPECT_EQ(fovea_rt_tree_nodes(48, 16, 2), -1);
  EXPECT_EQ(fovea_rt_tree_nodes(0, 2, 1), -1);
  EXPECT_EQ(fovea_rt_tree_nodes(int64_t(1) << 31, 2, 31), -1);

  fovea_rt_tree tree;
  ASSERT_EQ(fovea_rt_tree_create(2, 48, 10, 4, 2, 4, 1, &tree), FOVEA_RT_OK);
  EXPECT_EQ(tree.nodes, 63);
  EXPECT_EQ(tree.roots, 3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tree.data) % 64, 0u);
  ASSERT_NE(tree.counts, nullptr);
  // Levels are views: the roots first, then level by level, then the next
  // entry.
  auto *data = static_cast<float *>(tree.data);
  int64_t nodes = 0;
  EXPECT_EQ(fovea_rt_tree_level(&tree, 0, 2, &nodes), data);
  EXPECT_EQ(nodes, 3);
  EXPECT_EQ(fovea_rt_tree_level(&tree, 0, 1, &nodes), data + 3 * 10);
  EXPECT_EQ(nodes, 12);
  EXPECT_EQ(fovea_rt_tree_level(&tree, 1, 0, &nodes), data + (63 + 15) * 10);
  EXPECT_EQ(nodes, 48);
  EXPECT_EQ(fovea_rt_tree_level(&tree, 0, 3, nullptr), nullptr);
  EXPECT_EQ(fovea_rt_tree_level(&tree, 2, 0, nullptr), nullptr);
  fovea_rt_tree_destroy(&tree);
  EXPECT_EQ(tree.data, nullptr);
  fovea_rt_tree_destroy(&tree);
}

TEST(TreeTest, BuffersThatCannotBe) {
  fovea_rt_tree tree;
  EXPECT_EQ(fovea_rt_tree_create(1, 50, 10, 4, 2, 4, 0, &tree),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(tree.data, nullptr);
  EXPECT_STREQ(
      fovea_rt_last_error(),
      "fovea_rt_tree_create: expected tokens that are a multiple of "
      "ratio^levels, at least one column and elements of 2, 4 or 8 bytes, but "
      "got 50 tokens, ratio 4, levels 2, width 10 and 4 bytes");
  EXPECT_EQ(
      fovea_rt_tree_create(1, 1 << 30, int64_t(1) << 33, 2, 1, 8, 0, &tree),
      FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(
      fovea_rt_tree_create(1, 1 << 30, int64_t(1) << 27, 2, 1, 8, 0, &tree),
      FOVEA_RT_OUT_OF_MEMORY);
  EXPECT_EQ(tree.data, nullptr);
}

} // namespace
