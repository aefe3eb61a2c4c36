//===- status.cpp - Failures and their messages ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "status.h"

#include "fovea_rt/fovea_rt.h"
#include "scratch.h"

#include <algorithm>
#include <cinttypes>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace fovea::rt;

namespace {

/// A point that a failure returns to. Those of a thread form a stack.
struct FailureFrame {
  jmp_buf target;
  FailureFrame *outer;
  Invocation *outerInvocation;
  int scratchDepth;
};

/// Plain data on purpose: a failure abandons frames, so nothing on its way may
/// own memory.
struct ThreadStatus {
  FailureFrame *frame = nullptr;
  Invocation *invocation = nullptr;
  int32_t code = FOVEA_RT_OK;
  char message[messageBytes] = "";
  char lastError[messageBytes] = "";
};

} // namespace

static thread_local ThreadStatus status;

void fovea::rt::copyMessage(char *to, const char *from) {
  size_t length = strnlen(from, messageBytes);
  if (length == messageBytes) {
    length = messageBytes - 1;
    while (length > 0 &&
           (static_cast<unsigned char>(from[length]) & 0xC0) == 0x80)
      --length;
  }
  memmove(to, from, length);
  to[length] = '\0';
}

static void popFrame(ThreadStatus &thread) {
  thread.invocation = thread.frame->outerInvocation;
  thread.frame = thread.frame->outer;
}

bool fovea::rt::callGuarded(Invocation *invocation, void (*function)(void *),
                            void *context) {
  // No object of this function changes between the two returns of setjmp, so
  // none needs to be volatile.
  ThreadStatus &thread = status;
  FailureFrame frame;
  frame.outer = thread.frame;
  frame.outerInvocation = thread.invocation;
  frame.scratchDepth = scratchDepth();
  thread.frame = &frame;
  thread.invocation = invocation;
  if (setjmp(frame.target) != 0)
    return false;
  function(context);
  popFrame(thread);
  return true;
}

Invocation *fovea::rt::currentInvocation() { return status.invocation; }

int32_t fovea::rt::failureCode() { return status.code; }

const char *fovea::rt::failureMessage() { return status.message; }

void fovea::rt::failWith(int32_t code, const char *message) {
  ThreadStatus &thread = status;
  FailureFrame *frame = thread.frame;
  if (!frame)
    fatal(message);
  copyMessage(thread.message, message);
  thread.code = code > 0 ? code : FOVEA_RT_INTERNAL;
  popFrame(thread);
  leaveScratch(frame->scratchDepth);
  longjmp(frame->target, 1);
}

void fovea::rt::fail(int32_t code, const char *format, ...) {
  char text[messageBytes];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  failWith(code, text);
}

void fovea::rt::fatal(const char *message) {
  fprintf(stderr, "fovea: fatal: %s\n", message);
  abort();
}

void fovea::rt::setLastError(const char *message) {
  copyMessage(status.lastError, message);
}

void fovea_rt_fail(int32_t code, const char *message) {
  if (!message)
    fail(code, "kernel failed with code %d and no message", code);
  failWith(code, message);
}

void fovea_rt_check_extent(const char *rule, int64_t found, int64_t expected) {
  if (found != expected)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s, expected %" PRId64 ", but got %" PRId64, rule, expected, found);
}

void fovea_rt_check_multiple(const char *rule, int64_t found, int64_t divisor) {
  if (divisor > 0 ? found % divisor != 0 : found != 0)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s, expected a multiple of %" PRId64 ", but got %" PRId64, rule,
         divisor, found);
}

void fovea_rt_check_ranges(const char *rule, int64_t block, int64_t first_begin,
                           int64_t first_end, int64_t second_begin,
                           int64_t second_end) {
  if (std::max(first_begin, second_begin) < std::min(first_end, second_end))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s must not overlap, but for block %" PRId64 " found rows %" PRId64
         " .. %" PRId64 " and %" PRId64 " .. %" PRId64,
         rule, block, first_begin, first_end - 1, second_begin, second_end - 1);
}

void fovea_rt_check_distances(const char *rule, int64_t block, int64_t least,
                              int64_t greatest, int64_t rows) {
  if (least <= greatest && (least < 0 || greatest >= rows))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s must have a row for each distance, but for block %" PRId64
         " found distances %" PRId64 " .. %" PRId64 " and %" PRId64 " rows",
         rule, block, least, greatest, rows);
}

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

/// `needed` says what codes from `least` to below `num_codes` must be.
static void checkCodes(const char *rule, const Codes &codes, int32_t least,
                       int64_t num_codes, const char *needed) {
  for (int64_t batch = 0; batch < codes.numBatches; ++batch) {
    for (int64_t head = 0; head < codes.numHeads; ++head) {
      const int32_t *row =
          codes.data + batch * codes.batchStride + head * codes.headStride;
      Numbers numbers = {row, codes.numTokens, codes.tokenStride, least,
                         num_codes};
      int64_t token = numbers.findOut();
      if (token < codes.numTokens)
        fail(FOVEA_RT_INVALID_ARGUMENT,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must be %s and below %" PRId64 ", but got %" PRId32,
             rule, batch, head, token, needed, num_codes,
             row[token * codes.tokenStride]);
    }
  }
}

void fovea_rt_check_codes(const char *rule, const int32_t *codes,
                          int64_t num_batches, int64_t num_heads,
                          int64_t num_tokens, int64_t batch_stride,
                          int64_t head_stride, int64_t token_stride,
                          int64_t num_codes) {
  checkCodes(rule,
             {codes, num_batches, num_heads, num_tokens, batch_stride,
              head_stride, token_stride},
             /*least=*/0, num_codes, "at least 0");
}

void fovea_rt_check_codes_or_absent(const char *rule, const int32_t *codes,
                                    int64_t num_batches, int64_t num_heads,
                                    int64_t num_tokens, int64_t batch_stride,
                                    int64_t head_stride, int64_t token_stride,
                                    int64_t num_codes) {
  checkCodes(rule,
             {codes, num_batches, num_heads, num_tokens, batch_stride,
              head_stride, token_stride},
             /*least=*/-1, num_codes, "-1, or at least 0");
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
          fail(FOVEA_RT_INVALID_ARGUMENT,
               "%s[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
               "] must be -1, or at least 0 and below %" PRId64
               ", but got %" PRId32,
               rule, batch, head, block, row, bound, list[row * row_stride]);
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
        fail(FOVEA_RT_INVALID_ARGUMENT,
             "%s[%" PRId64 ", %" PRId64 ", %" PRId64
             "] must have 0 <= first <= last < %" PRId64 ", but got %" PRId32
             " and %" PRId32,
             rule, batch, head, row, bound, begin, end);
      }
    }
  }
}

const char *fovea_rt_last_error(void) { return status.lastError; }
