//===- ConvTest.cpp - Sums of convolutions in the runtime -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"
#include "fovea_rt/fovea_rt.h"
#include <cmath>
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
