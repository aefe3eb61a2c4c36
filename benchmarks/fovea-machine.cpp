//===- fovea-machine.cpp - What this machine can do -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The figures that the benchmarks hold kernels against: multiply-adds and
// copied bytes per second, of one thread and of all, and how long the compiler
// and its cache take for a given file. Prints one JSON object.
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Support/Clock.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/ToolVersion.h"
#include "fovea/Tools/Bench/PeakKernel.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include <cstring>
#include <functional>
#include <thread>
#include <unistd.h>

using namespace llvm;
using namespace fovea;

static Clock measureClock = Clock::Wall;

static double now() { return now(measureClock); }
static double secondsSince(double start) { return now() - start; }

/// Median, least and greatest of the samples.
static json::Object describe(std::vector<double> samples) {
  llvm::sort(samples);
  return json::Object{{"median", samples[samples.size() / 2]},
                      {"min", samples.front()},
                      {"max", samples.back()},
                      {"samples", int64_t(samples.size())}};
}

/// The sum over `numThreads` threads of what `rate(thread)` returns on each,
/// all at the same time, sampled for about `seconds`.
static json::Object sample(unsigned numThreads, double seconds,
                           const std::function<double(unsigned)> &rate) {
  std::vector<double> samples;
  double start = now();
  while (samples.size() < 3 || secondsSince(start) < seconds) {
    std::vector<double> rates(numThreads);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < numThreads; ++i)
      threads.emplace_back([&, i] { rates[i] = rate(i); });
    rates[0] = rate(0);
    for (std::thread &thread : threads)
      thread.join();
    double sum = 0;
    for (double value : rates)
      sum += value;
    samples.push_back(sum);
  }
  return describe(std::move(samples));
}

static Error addPeaks(ElementType type, unsigned numThreads, double seconds,
                      json::Object &report) {
  Expected<PeakKernel> kernel = PeakKernel::create(type);
  if (!kernel) {
    // No dot products of bf16 on this CPU: its peak is missing in the report.
    if (type != ElementType::BF16)
      return kernel.takeError();
    consumeError(kernel.takeError());
    return Error::success();
  }
  auto rate = [&](unsigned) {
    return kernel->measure(0.01, measureClock) * 1e-9;
  };
  json::Object peaks{{"one", sample(1, seconds, rate)}};
  if (numThreads > 1)
    peaks["all"] = sample(numThreads, seconds, rate);
  report[(getName(type) + "_gflops").str()] = std::move(peaks);
  return Error::success();
}

/// Bytes read plus bytes written, between arrays larger than any cache.
static void addCopy(unsigned numThreads, double seconds, size_t megabytes,
                    json::Object &report) {
  size_t bytes = megabytes << 20, part = bytes / numThreads;
  std::vector<char> from(bytes, 1), to(bytes, 2);
  auto copy = [&](size_t begin, size_t count) {
    double start = now();
    std::memcpy(to.data() + begin, from.data() + begin, count);
    return 2e-9 * count / secondsSince(start);
  };
  json::Object peaks{
      {"one", sample(1, seconds, [&](unsigned) { return copy(0, bytes); })}};
  if (numThreads > 1)
    peaks["all"] = sample(numThreads, seconds,
                          [&](unsigned i) { return copy(i * part, part); });
  report["copy_gbytes"] = std::move(peaks);
}

/// Compiles the file again and again, and then finds it in the cache.
static Error addCompilation(StringRef path, double seconds,
                            json::Object &report) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(path);
  if (!file)
    return createStringError("cannot read '" + path +
                             "': " + file.getError().message());
  CompileOptions options;
  options.sourceName = path;
  std::vector<double> compiles, hits;
  double start = now();
  KernelCache cache;
  while (compiles.size() < 4 || secondsSince(start) < seconds) {
    cache.clear();
    double begin = now();
    if (Error error =
            cache.getOrCompile((*file)->getBuffer(), options).takeError())
      return error;
    compiles.push_back(secondsSince(begin));
  }
  // Loading the compiler's own code and tables is not compiling.
  report["first_compile_seconds"] = compiles.front();
  compiles.erase(compiles.begin());
  start = now();
  while (hits.size() < 100 ||
         (secondsSince(start) < seconds && hits.size() < 100000)) {
    double begin = now();
    if (Error error =
            cache.getOrCompile((*file)->getBuffer(), options).takeError())
      return error;
    hits.push_back(secondsSince(begin));
  }
  KernelCache::Statistics statistics = cache.getStatistics();
  if (statistics.hits < hits.size())
    return createStringError("expected " + Twine(hits.size()) +
                             " cache hits, but got " + Twine(statistics.hits));
  report["compile_seconds"] = describe(std::move(compiles));
  report["cache_hit_seconds"] = describe(std::move(hits));
  return Error::success();
}

int fovea_machine_main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  // The options of LLVM's own libraries are not part of this tool.
  cl::ResetCommandLineParser();
  setVersionPrinter();
  cl::OptionCategory category("Options of fovea-machine");
  cl::opt<double> seconds("seconds", cl::cat(category), cl::init(0.2),
                          cl::desc("time for each figure"));
  cl::opt<unsigned> numThreads(
      "threads", cl::cat(category), cl::init(0),
      cl::desc("what 'all' means (default: FOVEA_NUM_THREADS, or all CPUs)"));
  cl::opt<unsigned> megabytes("copy-megabytes", cl::cat(category),
                              cl::init(256),
                              cl::desc("size of the arrays that are copied, 0 "
                                       "for no copies"));
  cl::opt<std::string> clock("clock", cl::cat(category), cl::init("wall"),
                             cl::desc("'wall', or 'cpu': the time of each "
                                      "thread"));
  cl::opt<std::string> path("compile", cl::cat(category),
                            cl::value_desc("file.mlir"),
                            cl::desc("time compilation of this file instead"));
  cl::ParseCommandLineOptions(argc, argv, "Measure this machine\n");

  auto fail = [](Error error) {
    errs() << "fovea-machine: error: " << toString(std::move(error)) << '\n';
    return 1;
  };
  if (clock != "wall" && clock != "cpu")
    return fail(createStringError("unknown value '" + clock +
                                  "' of --clock; expected 'wall' or 'cpu'"));
  if (!(seconds > 0 && seconds < 1e6))
    return fail(createStringError("expected --seconds of more than 0"));
  if (numThreads.getNumOccurrences() &&
      (numThreads < 1 || numThreads > FOVEA_RT_MAX_THREADS))
    return fail(createStringError("expected --threads of 1 to " +
                                  Twine(FOVEA_RT_MAX_THREADS) + ", but got " +
                                  Twine(numThreads)));
  uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (uint64_t(megabytes) > memory >> 21)
    return fail(createStringError(
        "expected --copy-megabytes of 0 to " + Twine(memory >> 21) +
        ", half of this machine's memory, but got " + Twine(megabytes)));
  measureClock = clock == "cpu" ? Clock::CPU : Clock::Wall;
  json::Object report;
  unsigned all = numThreads ? numThreads : fovea_rt_num_threads();
  report["cpu"] = sys::getHostCPUName();
  report["threads"] = int64_t(all);
  if (!path.empty()) {
    if (Error error = addCompilation(path, seconds, report))
      return fail(std::move(error));
  } else {
    for (ElementType type :
         {ElementType::F32, ElementType::F64, ElementType::BF16})
      if (Error error = addPeaks(type, all, seconds, report))
        return fail(std::move(error));
    if (megabytes)
      addCopy(all, seconds, megabytes, report);
  }
  return runWithOutput("fovea-machine", [&] {
    outs() << json::Value(std::move(report)) << '\n';
    return 0;
  });
}
