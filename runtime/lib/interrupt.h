//===- interrupt.h - Ending kernels early -----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Only the thread that called a kernel asks its host whether to go on, now and
// then. The answer is kept in the invocation, where all threads see it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_INTERRUPT_H
#define FOVEA_RT_LIB_INTERRUPT_H

#include <chrono>

namespace fovea::rt {

/// The text of FOVEA_RT_INTERRUPTED.
extern const char *const interruptedText;

/// How often the host is asked: rarely enough to cost nothing where it has to
/// wait for a lock, often enough for a person who waits.
constexpr std::chrono::milliseconds interruptInterval{40};

/// Whether this thread has somebody to ask.
bool hasInterruptCheck();

/// Asks, if it is time, and returns whether the invocation that this thread
/// works for is to end. The caller may own what it likes.
bool isInterrupted();

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_INTERRUPT_H
