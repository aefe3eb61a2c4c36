//===- Benchmark.h - Timing of kernels --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEARUN_BENCHMARK_H
#define FOVEA_TOOLS_FOVEARUN_BENCHMARK_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "fovea/Support/Clock.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace fovea::run {

struct Timing {
  int64_t numRuns = 0, numThreads = 0;
  /// Seconds of a run.
  double median = 0, min = 0, max = 0;
  /// Seconds of compilation.
  double compile = 0;
  std::optional<double> usefulFlops;
  /// Inputs and results.
  double bytes = 0;
  /// Fused multiply-adds of all threads together, per second, times two;
  /// measured between the runs; 0 if unknown.
  double peakFlops = 0;
  llvm::StringRef peakType, clock;
  /// Memory of the runtime at its most: results and intermediate tensors, and
  /// scratch of all threads.
  int64_t peakAllocatedBytes = 0, peakScratchBytes = 0;

  void print(const Kernel &kernel, llvm::raw_ostream &os) const;
  llvm::json::Object toJSON() const;
};

/// Runs the kernel for `seconds` after a warm-up, and at least three times
/// unless one run takes longer than four times that.
llvm::Expected<Timing> benchmark(const Kernel &kernel,
                                 llvm::ArrayRef<TensorRef> inputs,
                                 double seconds, Clock clock,
                                 std::optional<double> usefulFlops);

/// The same on the device of a GPU of this kind: inputs are copied there once,
/// results stay there, and the device's events take the time.
llvm::Expected<Timing> benchmarkOnDevice(const Kernel &kernel,
                                         llvm::ArrayRef<TensorRef> inputs,
                                         double seconds, int32_t kind,
                                         std::optional<double> usefulFlops);

} // namespace fovea::run

#endif // FOVEA_TOOLS_FOVEARUN_BENCHMARK_H
