//===- TreeTest.cpp - Trees of averages of arrays -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Tree.h"
#include "FunctionsTestUtils.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, N = 27, F = 5, kRatio = 3;

Array makeList(std::vector<int64_t> shape, std::vector<int> values) {
  Array list(std::move(shape), ElementType::I32);
  for (size_t i = 0; i < values.size(); ++i)
    list.set(i, values[i]);
  return list;
}

std::vector<int> toVector(const OwnedTensor &list) {
  const int32_t *data = list.getDataAs<int32_t>();
  return std::vector<int>(data, data + list.getNumElements());
}

class TreeFunctions : public testing::Test {
protected:
  Tree build(std::optional<int64_t> levels = {}) {
    TreeBuildOptions options;
    options.ratio = kRatio;
    options.levels = levels;
    return get(tree_build(c, options));
  }
  double mean(int64_t b, int64_t first, int64_t size, int64_t f) const {
    double sum = 0;
    for (int64_t t = first; t < first + size; ++t)
      sum += c.get((b * N + t) * F + f);
    return sum / size;
  }

  Array c = makeRandom({B, N, F}, 1);
};

TEST_F(TreeFunctions, FetchReadsMeans) {
  Tree tree = build();
  EXPECT_EQ(tree.levels, 3);
  EXPECT_EQ(tree.getNumRoots(), 1);
  EXPECT_EQ(tree.getNumTokens(), N);
  EXPECT_EQ(tree.getFirstRow(0), 1 + 3 + 9);
  Array level = makeList({4}, {3, 0, 2, 1}),
        index = makeList({B, 4}, {0, 26, 1, 8, 0, 3, 2, 4});
  TreeFetchOptions options;
  options.returnLogWeight = true;
  TreeFetchResult result = get(tree_fetch(tree, level, index, options));
  expectNear(
      result.rows, B * 4 * F,
      [&](int64_t i) {
        int64_t node = i / F, size = tree.getSegment(level.get(node % 4));
        return mean(node / 4, index.get(node) * size, size, i % F);
      },
      5e-6);
  expectNear(
      result.logWeight, B * 4,
      [&](int64_t i) {
        return std::log(double(tree.getSegment(level.get(i % 4))));
      },
      1e-6);
}

TEST_F(TreeFunctions, UpdateMovesTokensInPlace) {
  Tree tree = build(1);
  EXPECT_EQ(tree.getNumRoots(), 9);
  void *memory = tree.nodes.getData();
  // Segment 4 is read token by token, listed out of order.
  std::vector<int> levels, indices;
  for (int segment : {8, 0, 1, 2, 3, 5, 6, 7}) {
    levels.push_back(1);
    indices.push_back(segment);
  }
  for (int token : {14, 12, 13}) {
    levels.push_back(0);
    indices.push_back(token);
  }
  Array level = makeList({11}, levels), index = makeList({11}, indices),
        rows = makeRandom({B, 11, F}, 2);
  ASSERT_EQ(getText(tree_update(tree, level, index, rows)), "");
  EXPECT_EQ(tree.nodes.getData(), memory);
  expectNear(
      get(tree_fetch(tree, level, index)).rows, B * 11 * F,
      [&](int64_t i) { return rows.get(i); }, 5e-6);
  // Token 25 moves with segment 8, the first in the list.
  Array output({B, N, F});
  OwnedTensor tokens =
      get(tree_materialize(tree, Target::CPU, TensorRef(output)));
  EXPECT_EQ(tokens.getData(), output.bytes.data());
  for (int64_t f = 0; f < F; ++f)
    EXPECT_NEAR(output.get(25 * F + f),
                c.get(25 * F + f) + rows.get(f) - mean(0, 24, 3, f), 1e-5);
}

TEST_F(TreeFunctions, MaterializeInvertsBuild) {
  for (ElementType type : {ElementType::F32, ElementType::F64}) {
    Array sequence = makeRandom({B, N, F}, 3, type);
    TreeBuildOptions options;
    options.ratio = kRatio;
    expectNear(
        get(tree_materialize(get(tree_build(sequence, options)))), B * N * F,
        [&](int64_t i) { return sequence.get(i); }, getBound(type));
  }
}

TEST_F(TreeFunctions, PaddingDoesNotCount) {
  Array mask({B, N}, ElementType::I1);
  for (int64_t t = 0; t < 13; ++t)
    mask.set(t, 1);
  for (int64_t t = 0; t < 27; ++t)
    mask.set(N + t, 1);
  TreeBuildOptions options;
  options.ratio = kRatio;
  options.mask = TensorRef(mask);
  Tree tree = get(tree_build(c, options));
  ASSERT_TRUE(tree.hasCounts());
  EXPECT_EQ(tree.counts.getDataAs<int32_t>()[0], 13);
  Array lengths({B}, ElementType::I32);
  lengths.set(0, 13);
  lengths.set(1, 27);
  TreeBuildOptions byLength;
  byLength.ratio = kRatio;
  byLength.lengths = TensorRef(lengths);
  Tree same = get(tree_build(c, byLength));
  EXPECT_EQ(toVector(same.counts), toVector(tree.counts));
  byLength.mask = TensorRef(mask);
  EXPECT_EQ(getText(tree_build(c, byLength)),
            "lengths: found mask as well, needed one of the two");
  // The first sequence has two segments of level 2 with tokens: what the third
  // would be split into is absent.
  TreeSelection chosen = get(
      tree_select(tree, {{3, 1}, {2, 3}, {1, 8}}, makeRandom({B, 1, F}, 2)));
  std::vector<int> level = toVector(chosen.level),
                   index = toVector(chosen.index);
  int64_t size = level.size() / B, there = 5 * 3 + 1 + 1;
  ASSERT_EQ(size, 1 + 2 + 6 + 16);
  EXPECT_EQ(level[there - 1], 2);
  EXPECT_EQ(index[there - 1], 2);
  for (int64_t j = 0; j < size; ++j) {
    EXPECT_EQ(level[j] == -1, j >= there);
    EXPECT_EQ(index[j] == -1, j >= there);
    EXPECT_GE(level[size + j], 0);
  }
  TreeFetchOptions weighted;
  weighted.returnLogWeight = true;
  TreeFetchResult rows = get(
      tree_fetch(tree, chosen.level.getRef(), chosen.index.getRef(), weighted));
  EXPECT_EQ(rows.rows.getDataAs<float>()[(size - 1) * F], 0.0f);
  EXPECT_EQ(rows.logWeight.getDataAs<float>()[size - 1],
            -std::numeric_limits<float>::infinity());
  // Rows of absent nodes are ignored, wherever they are listed.
  std::vector<char> before(static_cast<char *>(tree.nodes.getData()),
                           static_cast<char *>(tree.nodes.getData()) +
                               tree.nodes.getNumBytes());
  for (int64_t i = there * F; i < size * F; ++i)
    rows.rows.getDataAs<float>()[i] = NAN;
  ASSERT_EQ(getText(tree_update(tree, chosen.level.getRef(),
                                chosen.index.getRef(), rows.rows.getRef())),
            "");
  EXPECT_EQ(std::memcmp(before.data(), tree.nodes.getData(), before.size()), 0);
  EXPECT_EQ(getText(tree_fetch(tree, makeList({2}, {-1, -1}),
                               makeList({2}, {-1, 0}))),
            "level[0, 1]: found -1, needed 0 to 3");
}

TEST_F(TreeFunctions, SelectSplitsTheBest) {
  Tree tree = build();
  // The score of a candidate is its first column.
  std::vector<int64_t> asked;
  auto score = [&](const TensorRef &rows,
                   int64_t level) -> llvm::Expected<OwnedTensor> {
    asked.push_back(level);
    int64_t count = rows.shape[0] * rows.shape[1];
    auto *scores = static_cast<float *>(std::malloc(count * sizeof(float)));
    for (int64_t i = 0; i < count; ++i)
      scores[i] = static_cast<float *>(rows.data)[i * F];
    return OwnedTensor(scores, std::free, scores, ElementType::F32,
                       rows.shape.take_front(2));
  };
  TreeSelection selection = get(tree_select(tree, {{3, 1}, {2, 1}}, score));
  EXPECT_EQ(asked, std::vector<int64_t>{2});
  EXPECT_EQ(selection.level.getShape(), llvm::ArrayRef<int64_t>({B, 5}));
  std::vector<int> levels, indices;
  for (int64_t b = 0; b < B; ++b) {
    int best = 0;
    for (int segment = 1; segment < 3; ++segment)
      if (mean(b, segment * 9, 9, 0) > mean(b, best * 9, 9, 0))
        best = segment;
    for (int segment = 0; segment < 3; ++segment)
      for (int child = 0; child < (segment == best ? 3 : 1); ++child) {
        levels.push_back(segment == best ? 1 : 2);
        indices.push_back(segment == best ? segment * 3 + child : segment);
      }
  }
  EXPECT_EQ(toVector(selection.level), levels);
  EXPECT_EQ(toVector(selection.index), indices);

  // (53) for two VIP rows, the largest of which decides.
  Array vip({B, 2, F});
  for (int64_t b = 0; b < B; ++b)
    vip.set(b * 2 * F, 50);
  TreeSelection byVip = get(tree_select(tree, {{3, 1}, {2, 1}}, vip));
  EXPECT_EQ(toVector(byVip.level), levels);
  EXPECT_EQ(toVector(byVip.index), indices);
}

TEST_F(TreeFunctions, SaysWhatIsWrong) {
  Tree tree = build();
  TreeBuildOptions options;
  EXPECT_EQ(getText(tree_build(c, options)),
            "c: found 27 tokens, needed a power of the ratio 2, or levels");
  options.levels = 2;
  EXPECT_EQ(getText(tree_build(c, options)),
            "c: found 27 tokens, needed a multiple of 2^2");
  options.ratio = 1;
  EXPECT_EQ(getText(tree_build(c, options)),
            "ratio: found 1, needed an integer of at least 2");
  Array root = makeList({1}, {3}), zero = makeList({1}, {0});
  EXPECT_EQ(getText(tree_fetch(tree, makeList({1}, {4}), zero)),
            "level[0, 0]: found 4, needed 0 to 3");
  EXPECT_EQ(getText(tree_fetch(tree, root, makeList({1}, {1}))),
            "index[0, 0]: found 1, needed 0 to 0");
  EXPECT_EQ(getText(tree_fetch(tree, root, makeList({2}, {0, 0}))),
            "index: found 2 nodes, needed 1, as in level");
  EXPECT_EQ(getText(tree_fetch(Tree(), root, zero)),
            "tree: found none, needed a tree of tree_build");
  Array rows({B, 2, F});
  std::vector<char> before(static_cast<char *>(tree.nodes.getData()),
                           static_cast<char *>(tree.nodes.getData()) +
                               tree.nodes.getNumBytes());
  EXPECT_EQ(getText(tree_update(tree, makeList({2}, {2, 2}),
                                makeList({2}, {0, 2}), rows)),
            "index[0, 1]: found node 2 of level 2, which leaves a gap; needed "
            "one that begins at token 9");
  EXPECT_EQ(getText(tree_update(tree, makeList({2}, {3, 0}),
                                makeList({2}, {0, 5}), rows)),
            "index[0, 1]: found node 5 of level 0, which overlaps an earlier "
            "one; needed one that begins at token 27");
  EXPECT_EQ(getText(tree_update(tree, makeList({2}, {2, 2}),
                                makeList({2}, {0, 1}), rows)),
            "index: found nodes that cover 18 tokens of batch entry 0, needed "
            "all 27");
  EXPECT_EQ(std::memcmp(before.data(), tree.nodes.getData(), before.size()), 0);
  EXPECT_EQ(getText(tree_select(tree, {{4, 1}}, c)),
            "budgets: found level 4, needed 1 to 3");
  EXPECT_EQ(getText(tree_select(tree, {{3, 2}}, c)),
            "budgets[3]: found 2, needed at most 1, the candidates of level 3");
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// A tree whose nodes lie in `nodes`.
Tree makeTree(Array &nodes) {
  Tree tree;
  tree.nodes = OwnedTensor(
      nullptr, [](void *) {}, nodes.bytes.data(), nodes.type, nodes.shape);
  tree.ratio = kRatio;
  tree.levels = 3;
  return tree;
}

TEST_F(TreeFunctions, GradientsAreSlopes) {
  constexpr ElementType f64 = ElementType::F64;
  Array sequence = makeRandom({B, N, F}, 1, f64),
        nodes = makeRandom({B, 40, F}, 2, f64),
        rows = makeRandom({B, 3, F}, 3, f64),
        dNodes = makeRandom({B, 40, F}, 4, f64),
        dSequence = makeRandom({B, N, F}, 5, f64),
        level = makeList({3}, {2, 2, 2}), index = makeList({3}, {2, 0, 1});
  Tree tree = makeTree(nodes);
  TreeBuildOptions options;
  options.ratio = kRatio;
  OwnedTensor gradient = get(tree_build_backward(dNodes, tree));
  expectSlopes({&sequence}, {&gradient}, dNodes, [&] {
    return std::move(get(tree_build(sequence, options)).nodes);
  });
  gradient = get(tree_materialize_backward(dSequence, tree));
  expectSlopes({&nodes}, {&gradient}, dSequence,
               [&] { return get(tree_materialize(tree)); });
  gradient = get(tree_fetch_backward(rows, tree, level, index));
  expectSlopes({&nodes}, {&gradient}, rows, [&] {
    return std::move(get(tree_fetch(tree, level, index)).rows);
  });
}

TEST_F(TreeFunctions, AnotherTreeAfterAnUpdateHasItsSlopes) {
  constexpr ElementType f64 = ElementType::F64;
  Array nodes = makeRandom({B, 40, F}, 2, f64),
        rows = makeRandom({B, 3, F}, 3, f64),
        dNodes = makeRandom({B, 40, F}, 4, f64),
        level = makeList({3}, {2, 2, 2}), index = makeList({3}, {0, 1, 2});
  Tree tree = makeTree(nodes);
  auto run = [&] { return get(tree_updated(tree, level, index, rows)); };
  std::vector<char> before = nodes.bytes;
  OwnedTensor after = run();
  EXPECT_EQ(nodes.bytes, before);
  TreeUpdateGradients gradients =
      get(tree_update_backward(dNodes, tree, level, index));
  expectSlopes({&nodes, &rows}, {&gradients.nodes, &gradients.rows}, dNodes,
               run);
  EXPECT_EQ(getText(tree_update(tree, level, index, rows)), "");
  expectNear(
      after, nodes.size(), [&](int64_t i) { return nodes.get(i); }, 1e-12);
}

TEST_F(TreeFunctions, PartsThatAreNoTreeAreNamed) {
  Array nodes = makeRandom({B, 40, F}, 2), counts({B, 40}, ElementType::I32);
  EXPECT_EQ(getText(tree_check(nodes, TensorRef(counts), kRatio, 3)), "");
  EXPECT_EQ(getText(tree_check(nodes, {}, kRatio, 2)),
            "nodes: found shape [2, 40, 5], needed the nodes of a tree of "
            "ratio 3 with 2 levels");
  EXPECT_EQ(getText(tree_check(nodes, {}, 1, 3)),
            "ratio: found 1, needed an integer of at least 2");
  EXPECT_EQ(getText(tree_check(nodes, TensorRef(nodes), kRatio, 3)),
            "counts: found element type float32, needed int32");
}

} // namespace
