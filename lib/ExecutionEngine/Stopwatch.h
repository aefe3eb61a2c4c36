//===- Stopwatch.h - Time between two points --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_STOPWATCH_H
#define FOVEA_LIB_EXECUTIONENGINE_STOPWATCH_H

#include <chrono>

namespace fovea::detail {

class Stopwatch {
public:
  /// Seconds since construction or the last lap.
  double lap() {
    auto now = std::chrono::steady_clock::now();
    std::chrono::duration<double> elapsed = now - last;
    last = now;
    return elapsed.count();
  }

private:
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_STOPWATCH_H
