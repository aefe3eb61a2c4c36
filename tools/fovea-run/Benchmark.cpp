//===- Benchmark.cpp - Timing of kernels ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Benchmark.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Tools/Bench/PeakKernel.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include <thread>

using namespace llvm;
using namespace fovea;

namespace {
/// Measures the peak again and again between the runs of a kernel, because the
/// clock rate of a machine changes.
class PeakMeter {
public:
  static Expected<PeakMeter> create(ElementType type, unsigned numThreads,
                                    Clock clock) {
    Expected<PeakKernel> kernel = PeakKernel::create(type);
    if (!kernel)
      return kernel.takeError();
    return PeakMeter(std::move(*kernel), numThreads, clock);
  }

  /// Runs for about ten milliseconds on all threads.
  void measure() {
    std::vector<double> rates(numThreads);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < numThreads; ++i)
      threads.emplace_back([&, i] { rates[i] = kernel.measure(0.01, clock); });
    rates[0] = kernel.measure(0.01, clock);
    for (std::thread &thread : threads)
      thread.join();
    double sum = 0;
    for (double rate : rates)
      sum += rate;
    samples.push_back(sum);
  }

  double getMedian() {
    llvm::sort(samples);
    return samples[samples.size() / 2];
  }

private:
  PeakMeter(PeakKernel kernel, unsigned numThreads, Clock clock)
      : kernel(std::move(kernel)), numThreads(numThreads), clock(clock) {}

  PeakKernel kernel;
  unsigned numThreads;
  Clock clock;
  std::vector<double> samples;
};
} // namespace

//===----------------------------------------------------------------------===//
// Parts of all measurements
//===----------------------------------------------------------------------===//

ElementType run::getDataType(const Signature &signature) {
  for (const ValueSpec &spec : signature.results)
    if (!spec.isScalar && isFloat(spec.elementType))
      return spec.elementType;
  return ElementType::F32;
}

int64_t run::getNumBytes(const TensorRef &tensor) {
  int64_t bytes = getByteWidth(tensor.elementType);
  for (int64_t extent : tensor.shape)
    bytes *= extent;
  return bytes;
}

run::Spread run::getSpread(std::vector<double> &runs) {
  llvm::sort(runs);
  return {static_cast<int64_t>(runs.size()), runs[runs.size() / 2],
          runs.front(), runs.back()};
}

void run::reportCompilation(const Kernel &kernel, Measurement &measurement) {
  const CompileTimes &times = kernel.getCompileTimes();
  raw_string_ostream os(measurement.text);
  os << format("  compile   %.1f ms: parse %.1f, passes %.1f, translate %.1f, "
               "optimize %.1f, codegen %.1f, link %.1f\n",
               times.getTotal() * 1e3, times.parse * 1e3, times.passes * 1e3,
               times.translate * 1e3, times.optimize * 1e3, times.codegen * 1e3,
               times.link * 1e3);
  measurement.json["compile_seconds"] = times.getTotal();
}

//===----------------------------------------------------------------------===//
// On the CPU
//===----------------------------------------------------------------------===//

namespace {
struct Timing {
  run::Spread spread;
  int64_t numThreads = 0;
  std::optional<double> usefulFlops;
  /// Inputs and results.
  double bytes = 0;
  /// Fused multiply-adds of all threads together, per second, times two;
  /// measured between the runs.
  double peakFlops = 0;
  StringRef peakType, clock;
  /// Memory of the runtime at its most: results and intermediate tensors, and
  /// scratch of all threads.
  int64_t peakAllocatedBytes = 0, peakScratchBytes = 0;

  run::Measurement report(const Kernel &kernel) const;
};
} // namespace

/// The peak that a kernel is held against: f64 where all data is, otherwise
/// f32, also for the half types, whose products accumulate in f32.
static ElementType getPeakType(const Signature &signature) {
  bool isDouble = any_of(signature.results, [](const ValueSpec &spec) {
    return spec.elementType == ElementType::F64;
  });
  return isDouble ? ElementType::F64 : ElementType::F32;
}

Expected<run::Measurement> run::benchmark(const Kernel &kernel,
                                          ArrayRef<TensorRef> inputs,
                                          double seconds, Clock clock,
                                          std::optional<double> usefulFlops) {
  Timing timing;
  timing.numThreads = fovea_rt_num_threads();
  timing.clock = clock == Clock::CPU ? "cpu" : "wall";
  timing.usefulFlops = usefulFlops;
  ElementType peakType = getPeakType(kernel.getSignature());
  timing.peakType = getName(peakType);
  Expected<PeakMeter> peak =
      PeakMeter::create(peakType, timing.numThreads, clock);
  if (!peak)
    return peak.takeError();

  // Warm-up: caches, memory and clock rate.
  {
    SmallVector<OwnedTensor, 2> results;
    fovea_rt_reset_statistics();
    fovea_rt_statistics before, statistics;
    fovea_rt_get_statistics(&before);
    if (Error error = kernel.invoke(inputs, results))
      return std::move(error);
    fovea_rt_get_statistics(&statistics);
    // Results of earlier runs may still be alive.
    timing.peakAllocatedBytes =
        statistics.peak_allocated_bytes - before.allocated_bytes;
    timing.peakScratchBytes = statistics.peak_scratch_bytes;
    for (const OwnedTensor &result : results)
      timing.bytes += result.getNumBytes();
  }
  for (const TensorRef &input : inputs)
    timing.bytes += getNumBytes(input);

  std::vector<double> runs;
  double start = now(clock);
  double sinceMeasured = 1;
  auto wantsMore = [&] {
    double elapsed = now(clock) - start;
    return elapsed < seconds || runs.size() < (elapsed < 4 * seconds ? 3 : 1);
  };
  while (wantsMore()) {
    // Once in a while, so that short kernels keep their caches.
    if (sinceMeasured > 0.1) {
      peak->measure();
      sinceMeasured = 0;
    }
    SmallVector<OwnedTensor, 2> results;
    double begin = now(clock);
    if (Error error = kernel.invoke(inputs, results))
      return std::move(error);
    runs.push_back(now(clock) - begin);
    sinceMeasured += runs.back();
  }
  peak->measure();
  timing.spread = getSpread(runs);
  timing.peakFlops = peak->getMedian();
  return timing.report(kernel);
}

run::Measurement Timing::report(const Kernel &kernel) const {
  double median = spread.median;
  run::Measurement measurement;
  raw_string_ostream os(measurement.text);
  os << '@' << kernel.getName() << " on '" << kernel.getCPU() << "', "
     << numThreads << (numThreads == 1 ? " thread, " : " threads, ")
     << spread.numRuns << " runs\n";
  os << format("  %s %.6g ms median, %.6g .. %.6g ms\n",
               clock == "cpu" ? "CPU time " : "time     ", median * 1e3,
               spread.min * 1e3, spread.max * 1e3);
  if (usefulFlops)
    os << format("  work      %.6g GFLOP, %.5g GFLOP/s, %.1f %% of the %s peak "
                 "(%.5g GFLOP/s)\n",
                 *usefulFlops * 1e-9, *usefulFlops / median * 1e-9,
                 100 * *usefulFlops / median / peakFlops, peakType.data(),
                 peakFlops * 1e-9);
  os << format("  data      %.6g MB in and out, %.4g GB/s\n", bytes * 1e-6,
               bytes / median * 1e-9);
  os << format("  memory    %.6g MB for results and intermediates, %.4g MB of "
               "scratch\n",
               peakAllocatedBytes * 1e-6, peakScratchBytes * 1e-6);
  measurement.json = json::Object{{"runs", spread.numRuns},
                                  {"threads", numThreads},
                                  {"clock", clock},
                                  {"median_seconds", median},
                                  {"min_seconds", spread.min},
                                  {"max_seconds", spread.max},
                                  {"bytes", bytes},
                                  {"bytes_per_second", bytes / median},
                                  {"peak_type", peakType},
                                  {"peak_gflops", peakFlops * 1e-9},
                                  {"peak_allocated_bytes", peakAllocatedBytes},
                                  {"peak_scratch_bytes", peakScratchBytes}};
  if (usefulFlops) {
    measurement.json["useful_gflop"] = *usefulFlops * 1e-9;
    measurement.json["gflops"] = *usefulFlops / median * 1e-9;
    measurement.json["fraction_of_peak"] = *usefulFlops / median / peakFlops;
  }
  run::reportCompilation(kernel, measurement);
  return measurement;
}
