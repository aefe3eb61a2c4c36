//===- statistics.h - Process-wide memory figures ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_STATISTICS_H
#define FOVEA_RT_LIB_STATISTICS_H

#include <atomic>
#include <cstdint>

namespace fovea::rt {

/// A quantity with a record of its highest value. The peak of concurrent
/// updates is exact: each addition sees a total that did exist.
class Gauge {
public:
  void add(int64_t amount) {
    int64_t now = value.fetch_add(amount, std::memory_order_relaxed) + amount;
    int64_t best = highest.load(std::memory_order_relaxed);
    while (now > best &&
           !highest.compare_exchange_weak(best, now, std::memory_order_relaxed))
      ;
  }
  void subtract(int64_t amount) {
    value.fetch_sub(amount, std::memory_order_relaxed);
  }
  int64_t current() const { return value.load(std::memory_order_relaxed); }
  int64_t peak() const { return highest.load(std::memory_order_relaxed); }
  void resetPeak() { highest.store(current(), std::memory_order_relaxed); }

private:
  std::atomic<int64_t> value{0};
  std::atomic<int64_t> highest{0};
};

extern Gauge scratchGauge;
extern Gauge allocationGauge;
extern Gauge cacheGauge;

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_STATISTICS_H
