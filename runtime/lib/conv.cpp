//===- conv.cpp - Sums of convolutions ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
#include "status.h"
#include <algorithm>
#include <atomic>
#include <cinttypes>

using namespace fovea::rt;

void fovea_rt_check_sizes(const char *rule, const int32_t *sizes,
                          int64_t num_batches, int64_t num_heads,
                          int64_t num_bases, int64_t batch_stride,
                          int64_t head_stride, int64_t basis_stride,
                          int64_t num_tokens) {
  if (num_bases < 1)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s: expected at least one basis, but got none", rule);
  for (int64_t batch = 0; batch < num_batches; ++batch)
    for (int64_t head = 0; head < num_heads; ++head)
      for (int64_t basis = 0; basis < num_bases; ++basis) {
        const int32_t *size = sizes + batch * batch_stride +
                              head * head_stride + basis * basis_stride;
        // A basis that does not exist has size 0, and so have all after it.
        int64_t most = basis == 0 ? num_tokens : size[-basis_stride] - 1;
        if (*size >= 0 && *size <= (most > 0 ? most : 0))
          continue;
        fail(FOVEA_RT_INVALID_ARGUMENT,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must be from 0 to %" PRId64 "%s, but got %" PRId32,
             rule, batch, head, basis, most > 0 ? most : 0,
             basis == 0 ? ", the number of tokens"
                        : ", since sizes decrease down to zeros",
             *size);
      }
}

int64_t fovea_rt_conv_pieces(const int32_t *sizes, int64_t stride,
                             int64_t num_bases, int64_t num_tokens,
                             int64_t block, int64_t longest, int64_t origin,
                             int64_t profile_stride, int64_t zeros,
                             int64_t multiple, int64_t *piece, int64_t *ends,
                             int64_t *windows) {
  auto firstColumn = [=](int64_t segment) {
    return segment < num_bases ? num_tokens - sizes[segment * stride]
                               : num_tokens;
  };
  int64_t numBlocks = (num_tokens + block - 1) / block;
  int64_t numPieces = 0, numWindows = 0;
  std::fill_n(ends, numBlocks, 0);
  for (int64_t segment = 0; segment < num_bases; ++segment) {
    int64_t first = firstColumn(segment), end = firstColumn(segment + 1);
    if (first == end)
      continue;
    for (int64_t begin = first, next = first; next < end; begin = next) {
      next = end - begin <= longest ? end : begin + block;
      int64_t *entry = piece + 4 * numPieces++;
      entry[0] = begin / block;
      entry[1] = begin;
      entry[2] = next;
      entry[3] = numWindows;
      ++ends[begin / block];
    }
    int64_t window =
        origin + segment * profile_stride - first % block - longest;
    int64_t count = numBlocks - first / block;
    for (int64_t index = 0; index < count + count % 2; ++index) {
      windows[numWindows++] = window;
      window += block;
    }
  }
  while (numWindows % multiple != 0)
    windows[numWindows++] = zeros;

  for (int64_t index = 1; index < numBlocks; ++index)
    ends[index] += ends[index - 1];
  return numWindows;
}

static std::atomic<int64_t> recomputedRows{0};

void fovea_rt_count_recomputed(int64_t rows) {
  recomputedRows.fetch_add(rows, std::memory_order_relaxed);
}

int64_t fovea_rt_recomputed_rows(void) {
  return recomputedRows.load(std::memory_order_relaxed);
}
