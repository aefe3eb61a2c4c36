//===- checks.cpp - Checks of numbers that kernels index with -------------===//
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

#include <algorithm>
#include <cinttypes>
#include <cstdio>

using namespace fovea::rt;

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

static int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent-- > 0)
    result *= base;
  return result;
}

/// What is wrong with a node of a list, or, if its number is that of none,
/// with the end.
static void describeNode(char *text, size_t bytes, const char *op,
                         const int64_t *facts) {
  int64_t batch = facts[0], node = facts[1], level = facts[2], index = facts[3],
          next = facts[4], follows = facts[5], roots = facts[6],
          ratio = facts[7], levels = facts[8], count = facts[9];
  int64_t tokens = roots * power(ratio, levels);
  if (node == count) {
    snprintf(text, bytes,
             "%s: nodes of batch entry %" PRId64
             " must cover the sequence in order, but they end at token %" PRId64
             ", expected %" PRId64,
             op, batch, next, tokens);
    return;
  }
  if (level < 0 || level > levels) {
    snprintf(text, bytes,
             "%s: level of node %" PRId64 " in batch entry %" PRId64
             ", expected 0 to %" PRId64 ", but got %" PRId64,
             op, node, batch, levels, level);
    return;
  }
  int64_t segment = power(ratio, level), nodes = tokens / segment;
  if (index < 0 || index >= nodes) {
    snprintf(text, bytes,
             "%s: index of node %" PRId64 " in batch entry %" PRId64
             ", expected 0 to %" PRId64 " at level %" PRId64
             ", but got %" PRId64,
             op, node, batch, nodes - 1, level, index);
    return;
  }
  int used = snprintf(text, bytes,
                      "%s: nodes of batch entry %" PRId64
                      " must cover the sequence in order, but node %" PRId64
                      " (level %" PRId64 ", index %" PRId64 ") ",
                      op, batch, node, level, index);
  if (used < 0 || static_cast<size_t>(used) >= bytes)
    return;
  int64_t first = index * segment;
  if (follows)
    snprintf(text + used, bytes - used, "follows an absent one");
  else
    snprintf(text + used, bytes - used,
             "%s: it begins at token %" PRId64 ", expected %" PRId64,
             first < next ? "overlaps the one before" : "leaves a gap", first,
             next);
}

void fovea::rt::describeFailure(char *text, size_t bytes, const char *rule,
                                int32_t kind, const int64_t *facts) {
  switch (kind) {
  case FOVEA_RT_GPU_CODES:
  case FOVEA_RT_GPU_CODES_OR_ABSENT:
    snprintf(text, bytes,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must be %s and below %" PRId64 ", but got %" PRId64,
             rule, facts[0], facts[1], facts[2],
             kind == FOVEA_RT_GPU_CODES ? "at least 0" : "-1, or at least 0",
             facts[3], facts[4]);
    return;
  case FOVEA_RT_GPU_ROWS:
    snprintf(text, bytes,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
             "] must be -1, or at least 0 and below %" PRId64
             ", but got %" PRId64,
             rule, facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]);
    return;
  case FOVEA_RT_GPU_INTERVALS:
    snprintf(text, bytes,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must have 0 <= first <= last < %" PRId64 ", but got %" PRId64
             " and %" PRId64,
             rule, facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]);
    return;
  case FOVEA_RT_GPU_SIZES:
    snprintf(text, bytes,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must be from 0 to %" PRId64 "%s, but got %" PRId64,
             rule, facts[0], facts[1], facts[2], facts[3],
             facts[2] == 0 ? ", the number of tokens"
                           : ", since sizes decrease down to zeros",
             facts[4]);
    return;
  case FOVEA_RT_GPU_NODES:
    describeNode(text, bytes, rule, facts);
    return;
  case FOVEA_RT_GPU_ASSERTION:
    snprintf(text, bytes, "%s", rule);
    return;
  default:
    snprintf(text, bytes, "%s: a check of an unknown kind failed", rule);
  }
}

void fovea::rt::failCheck(const char *rule, int32_t kind,
                          std::initializer_list<int64_t> facts) {
  char text[messageBytes];
  describeFailure(text, sizeof(text), rule, kind, facts.begin());
  failWith(FOVEA_RT_INVALID_ARGUMENT, text);
}

//===----------------------------------------------------------------------===//
// Checks on the host
//===----------------------------------------------------------------------===//

namespace {
/// A strided array of codes.
struct Codes {
  const int32_t *data;
  int64_t numBatches, numHeads, numTokens;
  int64_t batchStride, headStride, tokenStride;
};
/// Strided numbers, from `least` to below `bound`.
struct Numbers {
  const int32_t *data;
  int64_t count, stride;
  int32_t least;
  int64_t bound;

  /// The first one that is not; `count` if there is none.
  int64_t findOut() const {
    // Numbers below the least are large as unsigned numbers.
    auto most = static_cast<uint32_t>(
        std::clamp<int64_t>(bound, 0, int64_t(INT32_MAX) + 1) - least);
    auto isOut = [=](int64_t i) {
      return static_cast<uint32_t>(data[i * stride]) -
                 static_cast<uint32_t>(least) >=
             most;
    };
    // Without an early exit the loop is vectorised.
    bool anyOut = false;
    if (stride == 1)
      for (int64_t i = 0; i < count; ++i)
        anyOut |=
            static_cast<uint32_t>(data[i]) - static_cast<uint32_t>(least) >=
            most;
    else
      for (int64_t i = 0; i < count; ++i)
        anyOut |= isOut(i);
    if (!anyOut)
      return count;
    int64_t first = 0;
    while (!isOut(first))
      ++first;
    return first;
  }
};
} // namespace

static void checkCodes(const char *rule, int32_t kind, const Codes &codes,
                       int64_t num_codes) {
  int32_t least = kind == FOVEA_RT_GPU_CODES ? 0 : -1;
  for (int64_t batch = 0; batch < codes.numBatches; ++batch) {
    for (int64_t head = 0; head < codes.numHeads; ++head) {
      const int32_t *row =
          codes.data + batch * codes.batchStride + head * codes.headStride;
      Numbers numbers = {row, codes.numTokens, codes.tokenStride, least,
                         num_codes};
      int64_t token = numbers.findOut();
      if (token < codes.numTokens)
        failCheck(
            rule, kind,
            {batch, head, token, num_codes, row[token * codes.tokenStride]});
    }
  }
}

void fovea_rt_check_codes(const char *rule, const int32_t *codes,
                          int64_t num_batches, int64_t num_heads,
                          int64_t num_tokens, int64_t batch_stride,
                          int64_t head_stride, int64_t token_stride,
                          int64_t num_codes) {
  checkCodes(rule, FOVEA_RT_GPU_CODES,
             {codes, num_batches, num_heads, num_tokens, batch_stride,
              head_stride, token_stride},
             num_codes);
}

void fovea_rt_check_codes_or_absent(const char *rule, const int32_t *codes,
                                    int64_t num_batches, int64_t num_heads,
                                    int64_t num_tokens, int64_t batch_stride,
                                    int64_t head_stride, int64_t token_stride,
                                    int64_t num_codes) {
  checkCodes(rule, FOVEA_RT_GPU_CODES_OR_ABSENT,
             {codes, num_batches, num_heads, num_tokens, batch_stride,
              head_stride, token_stride},
             num_codes);
}

void fovea_rt_check_rows(const char *rule, const int32_t *rows,
                         int64_t num_batches, int64_t num_heads,
                         int64_t num_blocks, int64_t num_rows,
                         int64_t batch_stride, int64_t head_stride,
                         int64_t block_stride, int64_t row_stride,
                         int64_t bound) {
  for (int64_t batch = 0; batch < num_batches; ++batch)
    for (int64_t head = 0; head < num_heads; ++head)
      for (int64_t block = 0; block < num_blocks; ++block) {
        const int32_t *list = rows + batch * batch_stride + head * head_stride +
                              block * block_stride;
        Numbers numbers = {list, num_rows, row_stride, /*least=*/-1, bound};
        int64_t row = numbers.findOut();
        if (row < num_rows)
          failCheck(rule, FOVEA_RT_GPU_ROWS,
                    {batch, head, block, row, bound, list[row * row_stride]});
      }
}

void fovea_rt_check_intervals(
    const char *rule, const int32_t *first, int64_t num_batches,
    int64_t num_heads, int64_t num_rows, int64_t first_batch_stride,
    int64_t first_head_stride, int64_t first_row_stride, const int32_t *last,
    int64_t /*last_num_batches*/, int64_t /*last_num_heads*/,
    int64_t /*last_num_rows*/, int64_t last_batch_stride,
    int64_t last_head_stride, int64_t last_row_stride, int64_t bound) {
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const int32_t *begins =
          first + batch * first_batch_stride + head * first_head_stride;
      const int32_t *ends =
          last + batch * last_batch_stride + head * last_head_stride;
      for (int64_t row = 0; row < num_rows; ++row) {
        int32_t begin = begins[row * first_row_stride];
        int32_t end = ends[row * last_row_stride];
        if (0 <= begin && begin <= end && end < bound)
          continue;
        failCheck(rule, FOVEA_RT_GPU_INTERVALS,
                  {batch, head, row, bound, begin, end});
      }
    }
  }
}
