//===- TreeTest.cpp - Trees of averages in the runtime --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"
#include "fovea_rt/fovea_rt.h"
#include <vector>

namespace {

using List = std::vector<int32_t>;

/// What checking a list of nodes of a tree says; empty if nothing.
static std::string check(const List &level, const List &index, int64_t roots,
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
        fovea_rt_check_nodes(
            a.mustCover ? "attn.tree_update" : "attn.tree_fetch",
            a.level.data(), 1, count, count, 1, a.index.data(), 1, count, count,
            1, a.roots, a.ratio, a.levels, a.mustCover);
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

TEST(TreeTest, NodesInStridedLists) {
  // Two batch entries of two nodes; the other numbers are not read.
  static const List level = {1, 9, 1, 9, 9, 0, 9, 7, 9, 9};
  static const List index = {0, 9, 9, 1, 9, 9, 3, 9, 9, 0};
  fovea_rt_status status = fovea_rt_invoke(
      [](void **) {
        fovea_rt_check_nodes("op", level.data(), 2, 2, 5, 2, index.data(), 2, 2,
                             6, 3, 1, 2, 2, 0);
      },
      nullptr);
  EXPECT_EQ(status, FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "op: level of node 1 in batch entry 1, expected 0 to 2, but got "
               "7");
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
