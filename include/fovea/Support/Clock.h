//===- Clock.h - Two ways to tell the time ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_SUPPORT_CLOCK_H
#define FOVEA_SUPPORT_CLOCK_H

#include <chrono>
#include <time.h>

namespace fovea {

enum class Clock {
  /// The time that passes.
  Wall,
  /// The time that the calling thread runs: on a machine that does something
  /// else too, what a computation on one thread takes.
  CPU
};

/// Seconds since some moment.
inline double now(Clock clock) {
  if (clock == Clock::CPU) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
  }
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Stopwatch {
public:
  /// Seconds since construction or the last lap.
  double lap() {
    double before = last;
    last = now(Clock::Wall);
    return last - before;
  }

private:
  double last = now(Clock::Wall);
};

} // namespace fovea

#endif // FOVEA_SUPPORT_CLOCK_H
