//===- Benchmark.cpp - Timing of kernels ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Benchmark.h"
#include "fovea/ExecutionEngine/PeakKernel.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
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

/// The peak that a kernel is held against: f64 where all data is, otherwise
/// f32, also for the half types, whose products accumulate in f32.
static ElementType getPeakType(const Signature &signature) {
  bool isDouble = any_of(signature.results, [](const ValueSpec &spec) {
    return spec.elementType == ElementType::F64;
  });
  return isDouble ? ElementType::F64 : ElementType::F32;
}

Expected<run::Timing> run::benchmark(const Kernel &kernel,
                                     ArrayRef<TensorRef> inputs, double seconds,
                                     Clock clock,
                                     std::optional<double> usefulFlops) {
  Timing timing;
  timing.numThreads = fovea_rt_num_threads();
  timing.clock = clock == Clock::CPU ? "cpu" : "wall";
  timing.compile = kernel.getCompileTimes().getTotal();
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
  for (const TensorRef &input : inputs) {
    double bytes = getByteWidth(input.elementType);
    for (int64_t extent : input.shape)
      bytes *= extent;
    timing.bytes += bytes;
  }

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
  llvm::sort(runs);
  timing.numRuns = runs.size();
  timing.median = runs[runs.size() / 2];
  timing.min = runs.front();
  timing.max = runs.back();
  timing.peakFlops = peak->getMedian();
  return timing;
}

namespace {
/// What lives on a device for a benchmark.
class DeviceSession {
public:
  explicit DeviceSession(int32_t kind) : kind(kind) {}
  ~DeviceSession() {
    fovea_rt_gpu_set_stream(nullptr);
    for (fovea_rt_gpu_event *event : events)
      if (event)
        fovea_rt_gpu_event_destroy(event);
    if (stream)
      fovea_rt_gpu_stream_destroy(kind, stream);
    for (void *block : blocks)
      fovea_rt_gpu_release(kind, block);
  }

  Error open() {
    if (Error error = check(fovea_rt_gpu_stream_create(kind, &stream)))
      return error;
    fovea_rt_gpu_set_stream(stream);
    for (fovea_rt_gpu_event *&event : events)
      if (Error error = check(fovea_rt_gpu_event_create(kind, &event)))
        return error;
    return Error::success();
  }

  /// A copy of a tensor.
  Expected<TensorRef> upload(const TensorRef &tensor, int64_t bytes) {
    void *block = nullptr;
    if (Error error = check(fovea_rt_gpu_acquire(kind, bytes, &block)))
      return std::move(error);
    blocks.push_back(block);
    if (Error error =
            check(fovea_rt_gpu_transfer(kind, block, tensor.data, bytes)))
      return std::move(error);
    TensorRef copy = tensor;
    copy.data = block;
    return copy;
  }

  /// Seconds that the device takes for what `run` starts.
  Expected<double> time(function_ref<Error()> run) {
    if (Error error = check(fovea_rt_gpu_event_record(events[0], stream)))
      return std::move(error);
    if (Error error = run())
      return std::move(error);
    if (Error error = check(fovea_rt_gpu_event_record(events[1], stream)))
      return std::move(error);
    float milliseconds = 0;
    if (Error error = check(
            fovea_rt_gpu_event_elapsed(events[0], events[1], &milliseconds)))
      return std::move(error);
    return milliseconds * 1e-3;
  }

private:
  static Error check(fovea_rt_status status) {
    return status ? createStringError(fovea_rt_last_error()) : Error::success();
  }

  int32_t kind;
  void *stream = nullptr;
  fovea_rt_gpu_event *events[2] = {};
  SmallVector<void *> blocks;
};
} // namespace

Expected<run::Timing>
run::benchmarkOnDevice(const Kernel &kernel, ArrayRef<TensorRef> inputs,
                       double seconds, int32_t kind,
                       std::optional<double> usefulFlops) {
  Timing timing;
  timing.numThreads = fovea_rt_num_threads();
  timing.clock = "device";
  timing.compile = kernel.getCompileTimes().getTotal();
  timing.usefulFlops = usefulFlops;
  DeviceSession session(kind);
  if (Error error = session.open())
    return std::move(error);
  SmallVector<TensorRef> onDevice;
  for (auto [input, spec] :
       zip_equal(inputs, kernel.getSignature().arguments)) {
    int64_t bytes = getByteWidth(input.elementType);
    for (int64_t extent : input.shape)
      bytes *= extent;
    timing.bytes += bytes;
    if (spec.isScalar) {
      onDevice.push_back(input);
      continue;
    }
    Expected<TensorRef> copy = session.upload(input, bytes);
    if (!copy)
      return copy.takeError();
    onDevice.push_back(*copy);
  }
  // The first run loads the code.
  SmallVector<OwnedTensor, 2> results;
  if (Error error = kernel.invoke(onDevice, results))
    return std::move(error);
  for (const OwnedTensor &result : results)
    timing.bytes += result.getNumBytes();
  std::vector<double> runs;
  double total = 0;
  while (total < seconds || runs.size() < (total < 4 * seconds ? 3 : 1)) {
    Expected<double> run =
        session.time([&] { return kernel.invoke(onDevice, results); });
    if (!run)
      return run.takeError();
    runs.push_back(*run);
    // Runs that take next to no time on the device end, too.
    total += std::max(*run, 1e-5);
  }
  llvm::sort(runs);
  timing.numRuns = runs.size();
  timing.median = runs[runs.size() / 2];
  timing.min = runs.front();
  timing.max = runs.back();
  return timing;
}

void run::Timing::print(const Kernel &kernel, raw_ostream &os) const {
  os << '@' << kernel.getName();
  if (clock == "device")
    os << " on the device, ";
  else
    os << " on '" << kernel.getCPU() << "', " << numThreads
       << (numThreads == 1 ? " thread, " : " threads, ");
  os << numRuns << " runs\n";
  os << format("  %s %.6g ms median, %.6g .. %.6g ms\n",
               clock == "cpu"      ? "CPU time "
               : clock == "device" ? "on device"
                                   : "time     ",
               median * 1e3, min * 1e3, max * 1e3);
  if (usefulFlops) {
    double rate = *usefulFlops / median;
    os << format("  work      %.6g GFLOP, %.5g GFLOP/s", *usefulFlops * 1e-9,
                 rate * 1e-9);
    if (peakFlops)
      os << format(", %.1f %% of the %s peak (%.5g GFLOP/s)",
                   100 * rate / peakFlops, peakType.data(), peakFlops * 1e-9);
    os << '\n';
  }
  os << format("  data      %.6g MB in and out, %.4g GB/s\n", bytes * 1e-6,
               bytes / median * 1e-9);
  if (peakFlops)
    os << format(
        "  memory    %.6g MB for results and intermediates, %.4g MB of "
        "scratch\n",
        peakAllocatedBytes * 1e-6, peakScratchBytes * 1e-6);
  const CompileTimes &times = kernel.getCompileTimes();
  os << format("  compile   %.1f ms: parse %.1f, passes %.1f, translate %.1f, "
               "optimize %.1f, codegen %.1f, link %.1f\n",
               times.getTotal() * 1e3, times.parse * 1e3, times.passes * 1e3,
               times.translate * 1e3, times.optimize * 1e3, times.codegen * 1e3,
               times.link * 1e3);
}

json::Object run::Timing::toJSON() const {
  json::Object object{{"runs", numRuns},
                      {"threads", numThreads},
                      {"clock", clock},
                      {"median_seconds", median},
                      {"min_seconds", min},
                      {"max_seconds", max},
                      {"compile_seconds", compile},
                      {"bytes", bytes},
                      {"bytes_per_second", bytes / median}};
  if (peakFlops) {
    object["peak_type"] = peakType;
    object["peak_gflops"] = peakFlops * 1e-9;
    object["peak_allocated_bytes"] = peakAllocatedBytes;
    object["peak_scratch_bytes"] = peakScratchBytes;
  }
  if (usefulFlops) {
    object["useful_gflop"] = *usefulFlops * 1e-9;
    object["gflops"] = *usefulFlops / median * 1e-9;
    if (peakFlops)
      object["fraction_of_peak"] = *usefulFlops / median / peakFlops;
  }
  return object;
}
