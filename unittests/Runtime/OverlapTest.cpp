//===- OverlapTest.cpp - Tests of memory that arrays share ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

using namespace fovea::rt::test;

namespace {

/// The descriptor of a tensor.
template <size_t rank> struct Tensor {
  const char *base, *data;
  int64_t offset;
  int64_t extents[rank], strides[rank];
};

using OverlapTest = RuntimeTest;

TEST_F(OverlapTest, checksThatTensorsShareNoByte) {
  char memory[8];
  auto check = [&](int64_t first, int64_t firstBytes, int64_t second,
                   int64_t secondBytes) {
    Tensor<1> left = {memory, memory, first, {firstBytes}, {1}},
              right = {memory, memory + second, 0, {secondBytes}, {1}};
    return invoke([&] {
      fovea_rt_check_separate("not 100% apart", &left, 1, 1, &right, 1, 1);
    });
  };
  EXPECT_EQ(check(0, 4, 4, 4), FOVEA_RT_OK);
  EXPECT_EQ(check(4, 4, 0, 4), FOVEA_RT_OK);
  EXPECT_EQ(check(2, 0, 0, 8), FOVEA_RT_OK);
  EXPECT_EQ(check(0, 8, 2, 0), FOVEA_RT_OK);
  EXPECT_EQ(check(0, 5, 4, 4), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "not 100% apart");
  EXPECT_EQ(check(4, 4, 0, 5), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(check(2, 1, 0, 8), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(check(0, 8, 2, 1), FOVEA_RT_INVALID_ARGUMENT);
}

// Against marks of every byte, for arrays whose strides lie in one another and
// for any other ones.
TEST_F(OverlapTest, findsWhatStridedTensorsShare) {
  std::mt19937 random(7);
  auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  constexpr int64_t size = 4096;
  static char memory[size];
  int numShared = 0, numSpansOnly = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    std::vector<int> marks(size);
    Tensor<3> tensors[2];
    int64_t widths[2], ends[2][2];
    bool isShared = false, isUnique[2] = {true, true};
    for (int i : {0, 1}) {
      widths[i] = int64_t(1) << draw(0, 3);
      Tensor<3> &tensor = tensors[i];
      tensor = {memory, memory + draw(1200, 2800), draw(-1, 1), {}, {}};
      for (int dim = 0; dim < 3; ++dim) {
        tensor.extents[dim] = draw(0, 8) ? draw(1, 4) : 0;
        tensor.strides[dim] =
            turn % 2 ? draw(-16, 16) : draw(-1, 1) * (int64_t(1) << 2 * dim);
      }
      int64_t begin = tensor.data - memory + tensor.offset * widths[i];
      ends[i][0] = size, ends[i][1] = 0;
      std::set<int64_t> seen;
      for (int64_t x = 0; x < tensor.extents[0]; ++x)
        for (int64_t y = 0; y < tensor.extents[1]; ++y)
          for (int64_t z = 0; z < tensor.extents[2]; ++z) {
            int64_t at = begin + widths[i] * (x * tensor.strides[0] +
                                              y * tensor.strides[1] +
                                              z * tensor.strides[2]);
            isUnique[i] &= seen.insert(at).second;
            ends[i][0] = std::min(ends[i][0], at);
            ends[i][1] = std::max(ends[i][1], at + widths[i]);
            for (int64_t byte = at; byte < at + widths[i]; ++byte) {
              isShared |= i == 1 && marks[byte];
              marks[byte] |= i == 0;
            }
          }
    }
    auto overlaps = [&](int left, int right) {
      return fovea_rt_overlap(&tensors[left], 3, widths[left], &tensors[right],
                              3, widths[right]) != 0;
    };
    EXPECT_EQ(overlaps(0, 1), isShared) << turn;
    EXPECT_EQ(overlaps(1, 0), isShared) << turn;
    numShared += isShared;
    numSpansOnly +=
        !isShared && ends[0][0] < ends[1][1] && ends[1][0] < ends[0][1];
    // What shares no element may be taken to, but never the other way round.
    for (int i : {0, 1})
      if (!isUnique[i])
        EXPECT_TRUE(fovea_rt_shares_elements(&tensors[i], 3)) << turn;
  }
  EXPECT_GT(numShared, 100);
  EXPECT_GT(numSpansOnly, 30);
}

TEST_F(OverlapTest, tellsWhetherElementsShareMemory) {
  auto share = [](std::array<int64_t, 3> extents,
                  std::array<int64_t, 3> strides) {
    Tensor<3> tensor = {nullptr, nullptr, 0, {}, {}};
    std::copy(extents.begin(), extents.end(), tensor.extents);
    std::copy(strides.begin(), strides.end(), tensor.strides);
    return fovea_rt_shares_elements(&tensor, 3) != 0;
  };
  EXPECT_FALSE(share({2, 3, 4}, {12, 4, 1}));
  EXPECT_FALSE(share({2, 3, 4}, {4, 8, 1}));
  EXPECT_FALSE(share({2, 3, 4}, {-4, 8, -1}));
  EXPECT_FALSE(share({1, 3, 4}, {0, 4, 1}));
  EXPECT_FALSE(share({0, 3, 4}, {0, 0, 0}));
  EXPECT_TRUE(share({2, 3, 4}, {0, 4, 1}));
  EXPECT_TRUE(share({2, 3, 4}, {4, 4, 1}));
  EXPECT_TRUE(share({2, 3, 4}, {12, 3, 1}));
}

} // namespace
