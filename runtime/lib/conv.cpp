//===- conv.cpp - Sums of convolutions ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checks.h"
#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
#include "status.h"
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
        failCheck(rule, FOVEA_RT_GPU_SIZES,
                  {batch, head, basis, most > 0 ? most : 0, *size});
      }
}

static std::atomic<int64_t> recomputedRows{0};

void fovea_rt_count_recomputed(int64_t rows) {
  recomputedRows.fetch_add(rows, std::memory_order_relaxed);
}

int64_t fovea_rt_recomputed_rows(void) {
  return recomputedRows.load(std::memory_order_relaxed);
}
