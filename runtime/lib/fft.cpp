//===- fft.cpp - Factors of Fourier transforms ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/abi.h"
#include "status.h"
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <mutex>

using namespace fovea::rt;

namespace {
/// The factors of one plan. Plans are few, so they are a list, and none is ever
/// freed: kernels keep addresses of theirs.
struct Plan {
  int64_t radices;
  bool isDouble;
  void *factors;
  Plan *next;
};
} // namespace

static std::mutex planLock;
static Plan *plans = nullptr;

/// Rows of the transform; 0 where the code is not one of radices.
static int64_t lengthOf(int64_t radices) {
  int64_t length = 1;
  if (radices <= 0)
    return 0;
  for (int64_t left = radices; left; left >>= 4) {
    int64_t logarithm = left & 15;
    if (logarithm == 0 || length > (int64_t(1) << 31 >> logarithm))
      return 0;
    length <<= logarithm;
  }
  return length;
}

/// Writes the factors of butterflies of `radix` rows: those of butterfly j are
/// powers of `exp(2 pi i sign order[j] / (count radix))` times roots of unity.
template <typename Real, typename Order>
static Real *writeFactors(Real *next, int64_t count, int64_t radix, double sign,
                          Order order) {
  int64_t turn = count * radix;
  for (int64_t j = 0; j < count; ++j)
    for (int64_t rows = radix; rows >= 2; rows /= 2)
      for (int64_t k = 0; k < std::max<int64_t>(radix / rows / 2, 1); ++k) {
        // Every angle from its own cosine: no error accumulates.
        int64_t part = rows / 2 * (order(j) + k * count) % turn;
        double angle = sign * 2 * 3.14159265358979323846 *
                       (static_cast<double>(part) / turn);
        *next++ = static_cast<Real>(std::cos(angle));
        *next++ = static_cast<Real>(std::sin(angle));
      }
  return next;
}

template <typename Real> static void *makeFactors(int64_t radices) {
  int64_t length = lengthOf(radices), count = 0, blocks = 1;
  for (int64_t left = radices; left; left >>= 4) {
    int64_t radix = int64_t(1) << (left & 15);
    count += (blocks + length / blocks / radix) * radix;
    blocks *= radix;
  }
  size_t bytes = (static_cast<size_t>(count) * sizeof(Real) + 127) / 64 * 64;
  auto *factors = static_cast<Real *>(aligned_alloc(64, bytes));
  auto *frequencies = static_cast<int64_t *>(malloc(length * sizeof(int64_t)));
  if (!factors || !frequencies) {
    free(factors);
    free(frequencies);
    return nullptr;
  }
  Real *next = factors;
  // The frequencies of blocks, their digits reversed.
  frequencies[0] = 0;
  blocks = 1;
  for (int64_t left = radices; left; left >>= 4) {
    int64_t radix = int64_t(1) << (left & 15);
    next = writeFactors(next, blocks, radix, -1.0,
                        [=](int64_t j) { return frequencies[j]; });
    for (int64_t block = blocks - 1; block >= 0; --block)
      for (int64_t k = radix - 1; k >= 0; --k)
        frequencies[block * radix + k] = frequencies[block] + k * blocks;
    blocks *= radix;
  }
  free(frequencies);
  int64_t rows = length;
  for (int64_t left = radices; left; left >>= 4) {
    int64_t radix = int64_t(1) << (left & 15);
    rows /= radix;
    next = writeFactors(next, rows, radix, 1.0, [](int64_t j) { return j; });
  }
  return factors;
}

const void *fovea_rt_fft_twiddles(int64_t radices, int64_t is_double) {
  if (lengthOf(radices) == 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "expected the radices of a transform of at most 2^31 rows, but got "
         "0x%" PRIx64,
         radices);
  bool isDouble = is_double != 0;
  // Failing jumps: the lock is given back first.
  void *factors = nullptr;
  {
    std::lock_guard<std::mutex> guard(planLock);
    for (Plan *plan = plans; plan && !factors; plan = plan->next)
      if (plan->radices == radices && plan->isDouble == isDouble)
        factors = plan->factors;
    if (!factors) {
      factors =
          isDouble ? makeFactors<double>(radices) : makeFactors<float>(radices);
      auto *plan =
          static_cast<Plan *>(factors ? malloc(sizeof(Plan)) : nullptr);
      if (plan) {
        *plan = {radices, isDouble, factors, plans};
        plans = plan;
      } else {
        free(factors);
        factors = nullptr;
      }
    }
  }
  if (!factors)
    fail(FOVEA_RT_OUT_OF_MEMORY,
         "no memory for the factors of a transform of %" PRId64 " rows",
         lengthOf(radices));
  return factors;
}
