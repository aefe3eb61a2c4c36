//===- DeviceBenchmark.cpp - Timing of kernels on GPUs --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Benchmark.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea/Tools/Bench/DevicePeak.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include <map>

using namespace llvm;
using namespace fovea;

static Error check(fovea_rt_status status) {
  return status ? createStringError(fovea_rt_last_error()) : Error::success();
}

namespace {
/// What lives on a device for a benchmark.
class DeviceSession {
public:
  explicit DeviceSession(int32_t kind) : kind(kind) {}
  ~DeviceSession() {
    results.clear();
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

  /// Copies of the tensors, and scalars as they are.
  Error upload(ArrayRef<TensorRef> inputs, const Signature &signature) {
    for (auto [input, spec] : zip_equal(inputs, signature.arguments)) {
      bytes += run::getNumBytes(input);
      tensors.push_back(input);
      if (!spec.isScalar)
        if (Error error = upload(tensors.back()))
          return error;
    }
    return Error::success();
  }

  /// Runs the kernel and leaves its results on the device.
  Error invoke(const Kernel &kernel) { return kernel.invoke(tensors, results); }

  /// Bytes of the inputs and of the last results.
  int64_t getNumBytes() const {
    int64_t total = bytes;
    for (const OwnedTensor &result : results)
      total += result.getNumBytes();
    return total;
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
  /// Replaces a tensor by a copy of it.
  Error upload(TensorRef &tensor) {
    int64_t size = run::getNumBytes(tensor);
    void *block = nullptr;
    if (Error error = check(fovea_rt_gpu_acquire(kind, size, &block)))
      return error;
    blocks.push_back(block);
    if (Error error =
            check(fovea_rt_gpu_transfer(kind, block, tensor.data, size)))
      return error;
    tensor.data = block;
    return Error::success();
  }

  int32_t kind;
  void *stream = nullptr;
  fovea_rt_gpu_event *events[2] = {};
  SmallVector<void *> blocks;
  SmallVector<TensorRef> tensors;
  SmallVector<OwnedTensor, 2> results;
  int64_t bytes = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// On a GPU
//===----------------------------------------------------------------------===//

namespace {
/// What the device reaches in loops of our own, or why that is not known.
class PeakMeter {
public:
  PeakMeter(const CompileOptions &options, ElementType type)
      : peak(DevicePeak::create(options, type)) {
    if (!peak)
      setProblems(toString(peak.takeError()));
  }

  /// To be called before and after what is measured: the clock rate changes.
  void measure(DevicePeak::Timer time) {
    constexpr int kSamples = 3;
    for (int i = 0; i < kSamples; ++i) {
      if (products.problem.empty())
        products.add(peak->measureProducts(time, /*seconds=*/0.002));
      if (copy.problem.empty())
        copy.add(peak->measureCopy(time));
    }
  }

  /// ", 61.3 % of ... (... GFLOP/s)", or that it is unknown.
  void describeProducts(double flops, raw_ostream &os) {
    describe(products, flops, peak ? peak->getProductName() : StringRef(),
             " products", 1e-12, "TFLOP/s", os);
  }
  void describeCopy(double bytes, raw_ostream &os) {
    describe(copy, bytes, "a", " copy", 1e-9, "GB/s", os);
  }
  void addTo(json::Object &object, std::optional<double> flops, double bytes) {
    if (peak)
      object["chip"] = peak->getGPU().chip;
    if (products.problem.empty()) {
      object["peak_type"] = peak->getProductName();
      object["peak_gflops"] = products.getMedian() * 1e-9;
      if (flops)
        object["fraction_of_peak"] = *flops / products.getMedian();
    }
    if (copy.problem.empty()) {
      object["peak_bytes_per_second"] = copy.getMedian();
      object["fraction_of_copy"] = bytes / copy.getMedian();
    }
    for (const Rate *rate : {&products, &copy})
      if (!rate->problem.empty())
        object["peak_problem"] = rate->problem;
  }

private:
  struct Rate {
    std::vector<double> samples;
    std::string problem;

    void add(Expected<double> sample) {
      if (sample)
        samples.push_back(*sample);
      else
        problem = toString(sample.takeError());
    }
    double getMedian() const {
      std::vector<double> sorted(samples);
      return run::getSpread(sorted).median;
    }
  };

  void setProblems(const std::string &problem) {
    products.problem = copy.problem = problem;
  }

  static void describe(const Rate &rate, double value, StringRef of,
                       StringRef what, double unit, const char *unitName,
                       raw_ostream &os) {
    if (!rate.problem.empty()) {
      os << "; the device's peak is not known: " << rate.problem;
      return;
    }
    double most = rate.getMedian();
    os << format(", %.1f %% of ", 100 * value / most) << of << what
       << format(" (%.5g %s)", most * unit, unitName);
  }

  Expected<DevicePeak> peak;
  Rate products, copy;
};
} // namespace

Expected<run::Measurement>
run::benchmarkOnDevice(const Kernel &kernel, ArrayRef<TensorRef> inputs,
                       double seconds, const CompileOptions &options,
                       std::optional<double> usefulFlops) {
  DeviceSession session(FOVEA_RT_GPU_CUDA);
  if (Error error = session.open())
    return std::move(error);
  if (Error error = session.upload(inputs, kernel.getSignature()))
    return std::move(error);
  // The first run loads the code.
  if (Error error = session.invoke(kernel))
    return std::move(error);
  fovea_rt_gpu_properties properties;
  if (Error error = check(fovea_rt_gpu_get_properties(
          FOVEA_RT_GPU_CUDA, /*device=*/0, &properties)))
    return std::move(error);
  auto time = [&](function_ref<Error()> run) { return session.time(run); };
  PeakMeter peak(options, getDataType(kernel.getSignature()));
  peak.measure(time);
  std::vector<double> runs;
  double total = 0;
  while (total < seconds || runs.size() < (total < 4 * seconds ? 3 : 1)) {
    Expected<double> run = time([&] { return session.invoke(kernel); });
    if (!run)
      return run.takeError();
    runs.push_back(*run);
    // Runs that take next to no time on the device end, too.
    total += std::max(*run, 1e-5);
  }
  peak.measure(time);

  Spread spread = getSpread(runs);
  double bytes = session.getNumBytes(), byteRate = bytes / spread.median;
  std::optional<double> flopRate;
  if (usefulFlops)
    flopRate = *usefulFlops / spread.median;
  Measurement measurement;
  raw_string_ostream os(measurement.text);
  os << '@' << kernel.getName() << " on " << properties.name << ", "
     << spread.numRuns << " runs\n";
  os << format("  on device %.6g ms median, %.6g .. %.6g ms\n",
               spread.median * 1e3, spread.min * 1e3, spread.max * 1e3);
  if (flopRate) {
    os << format("  work      %.6g GFLOP, %.5g TFLOP/s", *usefulFlops * 1e-9,
                 *flopRate * 1e-12);
    peak.describeProducts(*flopRate, os);
    os << '\n';
  }
  os << format("  data      %.6g MB in and out, %.4g GB/s", bytes * 1e-6,
               byteRate * 1e-9);
  peak.describeCopy(byteRate, os);
  os << '\n';
  measurement.json = json::Object{{"device", std::string(properties.name)},
                                  {"runs", spread.numRuns},
                                  {"clock", "device"},
                                  {"median_seconds", spread.median},
                                  {"min_seconds", spread.min},
                                  {"max_seconds", spread.max},
                                  {"bytes", bytes},
                                  {"bytes_per_second", byteRate}};
  if (flopRate) {
    measurement.json["useful_gflop"] = *usefulFlops * 1e-9;
    measurement.json["gflops"] = *flopRate * 1e-9;
  }
  peak.addTo(measurement.json, flopRate, byteRate);
  reportCompilation(kernel, measurement);
  return measurement;
}

//===----------------------------------------------------------------------===//
// In the emulator
//===----------------------------------------------------------------------===//

Expected<run::Measurement>
run::countInEmulator(const Kernel &kernel, ArrayRef<TensorRef> inputs,
                     std::optional<double> usefulFlops) {
  DeviceSession session(FOVEA_RT_GPU_EMULATOR);
  if (Error error = session.open())
    return std::move(error);
  if (Error error = session.upload(inputs, kernel.getSignature()))
    return std::move(error);
  simt::Counters sum;
  std::map<std::string, int64_t> operations;
  int64_t numLaunches = 0;
  simt::setLaunchObserver([&](const char *, const simt::Counters &counters) {
    ++numLaunches;
    sum.blocks += counters.blocks;
    sum.threads += counters.threads;
    sum.barriers += counters.barriers;
    sum.matrixPhases += counters.matrixPhases;
    sum.matrixPhasesIdeal += counters.matrixPhasesIdeal;
    sum.copiedBytes += counters.copiedBytes;
    sum.sharedBytes = std::max(sum.sharedBytes, counters.sharedBytes);
    for (const auto &[name, count] : counters.operations)
      operations[name] += count;
  });
  Error error = session.invoke(kernel);
  simt::setLaunchObserver(nullptr);
  if (error)
    return std::move(error);
  // Names of instructions are those of intrinsics or of PTX.
  int64_t products = 0, warpgroupProducts = 0;
  for (const auto &[name, count] : operations)
    if (StringRef(name).contains("wgmma."))
      warpgroupProducts += StringRef(name).contains("mma_async") ? count : 0;
    else if (StringRef(name).contains("mma."))
      products += count;

  Measurement measurement;
  raw_string_ostream os(measurement.text);
  os << '@' << kernel.getName()
     << " in the emulator, one run: its time says nothing of a GPU's\n";
  if (usefulFlops)
    os << format("  work      %.6g GFLOP in ", *usefulFlops * 1e-9) << products
       << " mma.sync and " << warpgroupProducts << " wgmma\n";
  os << format(
      "  data      %.6g MB in and out, %.6g MB copied asynchronously\n",
      session.getNumBytes() * 1e-6, sum.copiedBytes * 1e-6);
  os << "  launches  " << numLaunches << " kernels, " << sum.blocks
     << " blocks, " << sum.threads << " threads, " << sum.barriers
     << " barriers\n";
  os << format("  shared    %.4g KB of a block at most",
               sum.sharedBytes / 1024.0);
  if (sum.matrixPhasesIdeal)
    os << format(", %.2f passes over its banks for each ideal one of ldmatrix",
                 double(sum.matrixPhases) / sum.matrixPhasesIdeal);
  os << '\n';
  json::Object counts;
  for (const auto &[name, count] : operations)
    counts[name] = count;
  measurement.json =
      json::Object{{"clock", "none"},
                   {"bytes", session.getNumBytes()},
                   {"launches", numLaunches},
                   {"blocks", int64_t(sum.blocks)},
                   {"threads", int64_t(sum.threads)},
                   {"barriers", int64_t(sum.barriers)},
                   {"shared_bytes", int64_t(sum.sharedBytes)},
                   {"copied_bytes", int64_t(sum.copiedBytes)},
                   {"matrix_phases", int64_t(sum.matrixPhases)},
                   {"matrix_phases_ideal", int64_t(sum.matrixPhasesIdeal)},
                   {"operations", std::move(counts)}};
  if (usefulFlops)
    measurement.json["useful_gflop"] = *usefulFlops * 1e-9;
  reportCompilation(kernel, measurement);
  return measurement;
}
