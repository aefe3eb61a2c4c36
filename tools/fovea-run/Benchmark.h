//===- Benchmark.h - Timing of kernels --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEARUN_BENCHMARK_H
#define FOVEA_TOOLS_FOVEARUN_BENCHMARK_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Support/Clock.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace fovea::run {

/// What --bench has found, for people and for programs.
struct Measurement {
  std::string text;
  llvm::json::Object json;
};

/// Runs the kernel for `seconds` after a warm-up, and at least three times
/// unless one run takes longer than four times that. Rates are fractions of the
/// CPU's multiply-adds, measured between the runs.
llvm::Expected<Measurement> benchmark(const Kernel &kernel,
                                      llvm::ArrayRef<TensorRef> inputs,
                                      double seconds, Clock clock,
                                      std::optional<double> usefulFlops);

/// The same on the GPU that `options` were for: inputs are copied there once,
/// results stay there, and the device's events take the time. Rates are
/// fractions of what loops of products and a copy reach on the same device,
/// before and after.
llvm::Expected<Measurement>
benchmarkOnDevice(const Kernel &kernel, llvm::ArrayRef<TensorRef> inputs,
                  double seconds, const CompileOptions &options,
                  std::optional<double> usefulFlops);

/// What the kernels do in one run in the emulator, whose time says nothing of a
/// GPU's.
llvm::Expected<Measurement> countInEmulator(const Kernel &kernel,
                                            llvm::ArrayRef<TensorRef> inputs,
                                            std::optional<double> usefulFlops);

// Parts of all three.

/// The type of what is computed, by the results: that of the first tensor of
/// floating-point numbers, else f32.
ElementType getDataType(const Signature &signature);
int64_t getNumBytes(const TensorRef &tensor);
struct Spread {
  int64_t numRuns;
  /// Seconds of a run.
  double median, min, max;
};
Spread getSpread(std::vector<double> &runs);
/// Says what the compilation took.
void reportCompilation(const Kernel &kernel, Measurement &measurement);

} // namespace fovea::run

#endif // FOVEA_TOOLS_FOVEARUN_BENCHMARK_H
