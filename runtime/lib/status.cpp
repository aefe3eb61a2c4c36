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

const char *fovea_rt_last_error(void) { return status.lastError; }
