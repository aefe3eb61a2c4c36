//===- status.h - Failures and their messages -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_STATUS_H
#define FOVEA_RT_LIB_STATUS_H

#include <cstddef>
#include <cstdint>

namespace fovea::rt {

struct Invocation;

/// Longest message kept, including the terminating zero.
constexpr size_t messageBytes = 1024;

/// Calls function(context), whose failures end there: returns true if it
/// returned, false if it failed, with `failureCode` and `failureMessage` set.
/// Meanwhile blocks that this thread allocates belong to `invocation`.
bool callGuarded(Invocation *invocation, void (*function)(void *),
                 void *context);

/// The failure that this thread raised last.
int32_t failureCode();
const char *failureMessage();

/// Invocation that this thread works for, null if none.
Invocation *currentInvocation();

/// Copies at most `messageBytes - 1` bytes and does not cut a UTF-8 sequence.
void copyMessage(char *to, const char *from);

/// Fails with a formatted message. Callers of this and the next function hold
/// no lock and no object with a destructor.
[[noreturn]] void fail(int32_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Fails with the given message, which may be `failureMessage()`.
[[noreturn]] void failWith(int32_t code, const char *message);

/// Ends the process: the caller broke the rules in a way that no status could
/// report.
[[noreturn]] void fatal(const char *message);

/// Sets the text of `fovea_rt_last_error`.
void setLastError(const char *message);

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_STATUS_H
