//===- PeakKernel.h - The most this machine can compute ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_BENCH_PEAKKERNEL_H
#define FOVEA_TOOLS_BENCH_PEAKKERNEL_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "fovea/Support/Clock.h"

namespace fovea {

/// A loop of independent fused multiply-adds on full vectors in registers.
class PeakKernel {
public:
  /// `type` is f32, f64, or bf16 for dot products of bf16 accumulated in f32,
  /// which is an error on a CPU without them.
  static llvm::Expected<PeakKernel> create(ElementType type);

  /// Floating-point operations per second, two for each multiply-add, on the
  /// calling thread over about `seconds` of the clock.
  double measure(double seconds, Clock clock = Clock::Wall) const;

private:
  std::shared_ptr<const void> code;
  /// Runs the given number of iterations.
  void (*loop)(int64_t, void *) = nullptr;
  double flopsPerIteration = 0;
};

} // namespace fovea

#endif // FOVEA_TOOLS_BENCH_PEAKKERNEL_H
