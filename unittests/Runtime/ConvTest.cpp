//===- ConvTest.cpp - Sums of convolutions in the runtime -----------------===//
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
#include <random>
#include <thread>
#include <vector>

namespace {

TEST(ConvTest, sizesDecreaseDownToZeros) {
  auto check = [](std::vector<int32_t> sizes, int64_t numTokens) {
    struct Arguments {
      std::vector<int32_t> sizes;
      int64_t numTokens;
    } arguments = {std::move(sizes), numTokens};
    void *packed[] = {&arguments};
    fovea_rt_status status = fovea_rt_invoke(
        [](void **args) {
          auto &a = *static_cast<Arguments *>(args[0]);
          int64_t count = static_cast<int64_t>(a.sizes.size());
          fovea_rt_check_sizes("sizes", a.sizes.data(), 1, 1, count, count,
                               count, 1, a.numTokens);
        },
        packed);
    return status == FOVEA_RT_OK ? std::string() : fovea_rt_last_error();
  };
  for (const std::vector<int32_t> &sizes :
       {std::vector<int32_t>{9}, {0}, {0, 0, 0}, {9, 8, 1}, {5, 1, 0, 0}})
    EXPECT_EQ(check(sizes, 9), "");
  EXPECT_EQ(check({0}, 0), "");
  EXPECT_EQ(check({}, 9), "sizes: expected at least one basis, but got none");
  EXPECT_EQ(check({10}, 9), "sizes[0, 0, 0] must be from 0 to 9, the number of "
                            "tokens, but got 10");
  EXPECT_EQ(check({9, 9}, 9), "sizes[0, 0, 1] must be from 0 to 8, since sizes "
                              "decrease down to zeros, but got 9");
  EXPECT_EQ(check({9, 0, 1}, 9), "sizes[0, 0, 2] must be from 0 to 0, since "
                                 "sizes decrease down to zeros, but got 1");
  EXPECT_EQ(check({-1}, 9), "sizes[0, 0, 0] must be from 0 to 9, the number of "
                            "tokens, but got -1");
}

TEST(ConvTest, piecesBeginWithSegments) {
  // Ten tokens in blocks of four; segments begin at 1, 3 and 8; one is missing.
  std::vector<int32_t> sizes = {9, 7, 2, 0};
  std::vector<int64_t> piece(4 * 7, -1), ends(3, -1), windows(4 * 4 + 8, -1);
  int64_t count =
      fovea_rt_conv_pieces(sizes.data(), 1, 4, 10, 4, 4, 100, 1000, 7, 8,
                           piece.data(), ends.data(), windows.data());
  std::vector<int64_t> expected = {0, 1, 3, 0, 0, 3, 7,  4,
                                   1, 7, 8, 4, 2, 8, 10, 8};
  EXPECT_EQ(std::vector<int64_t>(piece.begin(), piece.begin() + 16), expected);
  EXPECT_EQ(piece[16], -1);
  EXPECT_EQ(ends, (std::vector<int64_t>{2, 3, 4}));
  // Three windows are two pairs, and so is one.
  EXPECT_EQ(count, 16);
  windows.resize(count);
  EXPECT_EQ(windows,
            (std::vector<int64_t>{95, 99, 103, 107, 1093, 1097, 1101, 1105,
                                  2096, 2100, 7, 7, 7, 7, 7, 7}));
}

/// Checks that every pair of a row and a column of its past is multiplied by
/// the weight of its lag, whatever the sizes.
void checkPieces(const std::vector<int32_t> &sizes, int64_t numTokens,
                 int64_t block, int64_t longest) {
  constexpr int64_t lanes = 8;
  int64_t numBases = static_cast<int64_t>(sizes.size());
  int64_t numBlocks = (numTokens + block - 1) / block;
  int64_t length = block + longest;
  int64_t origin = length, stride = origin + numBlocks * block;
  int64_t zeros = numBases * stride;
  // With a guard behind what may be written.
  constexpr int64_t guard = -7;
  int64_t maxPieces = numBlocks + numBases - 1;
  int64_t maxWindows = numBases * (numBlocks + numBlocks % 2);
  maxWindows = (maxWindows + lanes - 1) / lanes * lanes;
  std::vector<int64_t> piece(4 * maxPieces + 1, guard),
      ends(numBlocks + 1, guard), windows(maxWindows + 1, guard);
  int64_t count = fovea_rt_conv_pieces(
      sizes.data(), 1, numBases, numTokens, block, longest, origin, stride,
      zeros, lanes, piece.data(), ends.data(), windows.data());
  ASSERT_EQ(piece.back(), guard);
  ASSERT_EQ(ends.back(), guard);
  ASSERT_EQ(windows.back(), guard);
  ASSERT_EQ(count % lanes, 0);
  ASSERT_LE(count, maxWindows);

  int64_t numPieces = numBlocks == 0 ? 0 : ends[numBlocks - 1];
  int64_t column = numTokens - sizes[0], emptyBlocks = 0, index = 0;
  for (int64_t segment = 0; segment < numBases; ++segment) {
    int64_t first = numTokens - sizes[segment], lagZero = origin;
    int64_t end =
        segment + 1 < numBases ? numTokens - sizes[segment + 1] : numTokens;
    lagZero += segment * stride;
    for (; column < end; ++index) {
      ASSERT_LT(index, numPieces);
      const int64_t *entry = &piece[4 * index];
      ASSERT_EQ(entry[0], column / block);
      ASSERT_EQ(entry[1], column);
      ASSERT_EQ(entry[2], end - column <= longest ? end : column + block);
      ASSERT_EQ(entry[3] % 2, 0);
      int64_t behind = entry[3] + numBlocks - first / block;
      if (behind % 2 != 0)
        ASSERT_EQ(windows[behind], windows[behind - 1] + block);
      for (int64_t at = entry[0]; at < numBlocks; ++at) {
        int64_t window = windows[entry[3] + at - entry[0]];
        ASSERT_GE(window, segment * stride);
        ASSERT_LE(window + length, (segment + 1) * stride);
        // Of their first rows and columns; each next is a lag more or less.
        ASSERT_EQ(window + longest, lagZero + at * block - entry[1]);
      }
      column = entry[2];
    }
  }
  EXPECT_EQ(column, numTokens);
  EXPECT_EQ(index, numPieces);
  for (int64_t at = 0, begun = 0; at < numBlocks; ++at) {
    emptyBlocks += ends[at] == begun;
    for (; begun < ends[at]; ++begun)
      ASSERT_EQ(piece[4 * begun], at);
  }
  if (sizes[0] != 0)
    EXPECT_LE(numPieces + emptyBlocks, maxPieces);
}

TEST(ConvTest, piecesCoverEveryPair) {
  checkPieces({0}, 0, 8, 8);
  checkPieces({0, 0}, 5, 8, 8);
  checkPieces({5}, 5, 8, 8);
  checkPieces({3, 1}, 5, 8, 8);
  // The last block has no piece of its own.
  checkPieces({31}, 33, 8, 8);
  // Nor have the second and the last.
  checkPieces({30, 15}, 30, 7, 15);
  std::mt19937 random(1);
  for (int64_t trial = 0; trial < 2000; ++trial) {
    int64_t numTokens = random() % 200, block = 8 << random() % 4;
    std::vector<int32_t> sizes(1 + random() % 12);
    int64_t most = random() % (numTokens + 1);
    for (int32_t &size : sizes) {
      size = static_cast<int32_t>(most);
      most -= std::min<int64_t>(most, 1 + random() % (1 + most / 3));
    }
    SCOPED_TRACE(trial);
    checkPieces(sizes, numTokens, block, block + random() % 8);
    if (HasFatalFailure())
      return;
  }
}

TEST(ConvTest, countsRecomputedRows) {
  int64_t before = fovea_rt_recomputed_rows();
  fovea_rt_count_recomputed(5);
  EXPECT_EQ(fovea_rt_recomputed_rows(), before + 5);
}

TEST(FFTTest, factorsAreMadeOnce) {
  // Radices 4 and 2, in eighths of a turn.
  int64_t radices = 2 | 1 << 4;
  auto *factors =
      static_cast<const double *>(fovea_rt_fft_twiddles(radices, 1));
  const int eighths[] = {
      0, 0,          // One transform: w^2 and w of frequency 0.
      0, -1, -2, -3, // Four of two rows, w = exp(-2 pi i f / 8).
      0, 0,  2,  1,  // Rows 0 and 1 of two, w = exp(2 pi i j / 8).
      0,             // The only row of one.
  };
  const double *next = factors;
  for (int eighth : eighths) {
    EXPECT_NEAR(*next++, std::cos(M_PI * eighth / 4), 1e-15);
    EXPECT_NEAR(*next++, std::sin(M_PI * eighth / 4), 1e-15);
  }
  std::vector<std::thread> threads;
  std::vector<const void *> found(8);
  for (const void *&result : found)
    threads.emplace_back(
        [&result] { result = fovea_rt_fft_twiddles(0x3333, 0); });
  for (std::thread &thread : threads)
    thread.join();
  for (const void *result : found)
    EXPECT_EQ(result, found[0]);
  EXPECT_NE(found[0], fovea_rt_fft_twiddles(0x3333, 1));
  EXPECT_EQ(factors, fovea_rt_fft_twiddles(radices, 1));
}

TEST(FFTTest, refusesWhatIsNoPlan) {
  static int64_t code;
  for (int64_t bad :
       {int64_t(0), int64_t(-1), int64_t(0x30), int64_t(0x333333333333)}) {
    code = bad;
    EXPECT_EQ(fovea_rt_invoke([](void **) { fovea_rt_fft_twiddles(code, 0); },
                              nullptr),
              FOVEA_RT_INVALID_ARGUMENT);
    EXPECT_NE(std::string(fovea_rt_last_error()).find("expected the radices"),
              std::string::npos);
  }
}

} // namespace
