//===- Options.cpp - The command line of fovea-run ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "fovea/ToolVersion.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;
using namespace fovea;

static constexpr const char *kExamples = R"(
EXAMPLES:
  Run the first function of a file on random numbers, and print what comes out:
    fovea-run dense.mlir --random
  Check it against the plain loops in f64 that define every operation:
    fovea-run dense.mlir --random=7 --compare=reference
  Run on data, with results to files:
    fovea-run dense.mlir --arg q.npy --arg k.npy --arg v.npy --out out.npy
  Time it on one thread for three seconds:
    fovea-run dense.mlir --random --threads=1 --bench=3
  Look for mistakes of synchronisation in GPU kernels, on the CPU:
    fovea-run dense.mlir --random --target=gpu-sim --schedule=seed=3 --schedule=seed=8,eager
  See what its GPU kernels wait for, without a GPU:
    fovea-run dense.mlir --random --target=gpu-sim --chip=sm_90a --clocks
  Check against results from elsewhere:
    fovea-run dense.mlir --arg q.npy --arg k.npy --arg v.npy --expect out.npy
)";

Expected<run::Options> run::parseOptions(int argc, char **argv) {
  // The options of LLVM's own libraries are not part of this tool, and some
  // have names that we need.
  cl::ResetCommandLineParser();
  setVersionPrinter();
  cl::OptionCategory category("Options of fovea-run");
  cl::opt<std::string> inputPath(cl::Positional, cl::Required,
                                 cl::cat(category),
                                 cl::desc("<file.mlir, or - for stdin>"));
  cl::opt<std::string> entryName(
      "entry", cl::cat(category),
      cl::desc("function to run (default: the first public one)"),
      cl::value_desc("name"));
  cl::list<std::string> arguments(
      "arg", cl::cat(category),
      cl::desc("argument, in order: a .npy file, or the number for a "
               "scalar. A bf16 argument takes elements '|V2', or "
               "'<u2' holding the bits"),
      cl::value_desc("file.npy"));
  cl::opt<std::string> constantsPath(
      "constants", cl::cat(category),
      cl::desc("what the first arguments are, in the format safetensors with "
               "names of the others (default: the file of the input's name "
               "that ends so, if it is there)"),
      cl::value_desc("file.safetensors"));
  cl::list<std::string> outputs("out", cl::cat(category),
                                cl::desc("file for a result, in order"),
                                cl::value_desc("file.npy"));
  cl::opt<std::string> randomSeed(
      "random", cl::ValueOptional, cl::cat(category),
      cl::desc("standard normal numbers for the arguments that "
               "follow those given by --arg"),
      cl::value_desc("seed"));
  cl::list<std::string> shapes(
      "shape", cl::cat(category),
      cl::desc("shape of a --random argument, one for each that has "
               "dynamic extents, in order"),
      cl::value_desc("1x8x512x64"));
  cl::opt<std::string> targetName("target", cl::init("cpu"), cl::cat(category),
                                  cl::desc("cpu, reference, gpu or gpu-sim"));
  cl::opt<std::string> cpuName(
      "cpu", cl::init("native"), cl::cat(category),
      cl::desc("CPU to compile for, as LLVM names it"));
  cl::opt<std::string> chipName(
      "chip", cl::init("native"), cl::cat(category),
      cl::desc("GPU to compile for, as LLVM names it, such as sm_90a"));
  cl::opt<std::string> f32Math(
      "f32", cl::init("tf32x3"), cl::cat(category),
      cl::desc("how GPUs multiply f32 data: tf32x3, nearly as accurate as f32, "
               "tf32, or exact, without tensor cores"));
  cl::opt<bool> raise("raise", cl::init(true), cl::cat(category),
                      cl::desc("find attention in linalg (default: true)"));
  cl::opt<unsigned> optLevel("opt-level", cl::init(1), cl::cat(category),
                             cl::desc("effort of LLVM's optimizer, 0 to 3"));
  cl::opt<int> numThreads("threads", cl::init(0), cl::cat(category),
                          cl::desc("threads of parallel loops (default: "
                                   "FOVEA_NUM_THREADS, or all CPUs)"));
  cl::opt<std::string> compareWith(
      "compare", cl::cat(category),
      cl::desc("'reference': also compile for that target and fail "
               "when results differ by more than the bound of their "
               "type"),
      cl::value_desc("target"));
  cl::list<std::string> schedules(
      "schedule", cl::cat(category),
      cl::desc("on gpu-sim, also run the kernels in another order of threads "
               "and copies, and fail when any bit of a result differs; a "
               "list as in FOVEA_SIMT"),
      cl::value_desc("seed=3,eager"));
  cl::opt<bool> readsClocks(
      "clocks", cl::cat(category),
      cl::desc("on gpu-sim, model the time of every kernel: cycles of its "
               "blocks and tiles, pipes, who waits for whom, and an estimate "
               "for H100, H200 and B200"));
  cl::list<std::string> expected(
      "expect", cl::cat(category),
      cl::desc("file that a result must agree with, in order"),
      cl::value_desc("file.npy"));
  cl::opt<double> tolerance(
      "tolerance", cl::init(0), cl::cat(category),
      cl::desc("bound on max|a-b| / max|b| for --compare and --expect, "
               "instead of f32 5e-6, bf16 1e-2, f16 2e-3, f64 1e-12, "
               "integers 0, and 1e-5 absolute for lse"));
  cl::opt<std::string> benchSeconds(
      "bench", cl::ValueOptional, cl::cat(category),
      cl::desc("time repeated runs for so long (default 1)"),
      cl::value_desc("seconds"));
  cl::opt<std::string> benchClock(
      "bench-clock", cl::init("wall"), cl::cat(category),
      cl::desc(
          "'wall', or 'cpu': the time of the thread, for a machine that is "
          "not idle; needs --threads=1"),
      cl::value_desc("clock"));
  cl::opt<bool> printValues("print", cl::cat(category),
                            cl::desc("print the elements of all results"));
  cl::opt<bool> printSignature(
      "print-signature", cl::cat(category),
      cl::desc("print the type of the function and stop; with --json and "
               "--shape also its useful floating-point operations"));
  cl::opt<bool> asJSON("json", cl::cat(category),
                       cl::desc("report as one JSON object"));

  cl::extrahelp examples(kExamples);

  std::string problems;
  raw_string_ostream os(problems);
  if (!cl::ParseCommandLineOptions(
          argc, argv, "Compile a function on tensors and run it\n", &os)) {
    StringRef text(problems);
    text.consume_front("fovea-run: ");
    return createStringError(text);
  }

  Options options;
  options.inputPath = inputPath;
  Expected<Target> target = parseTarget(targetName);
  if (!target)
    return target.takeError();
  bool usesGPU = *target == Target::GPU || *target == Target::GPUEmulator;
  if (!usesGPU && (chipName.getNumOccurrences() || f32Math.getNumOccurrences()))
    return createStringError("--chip and --f32 are for GPUs: expected --target "
                             "of gpu or gpu-sim, but got " +
                             targetName);
  if (!schedules.empty() && *target != Target::GPUEmulator)
    return createStringError("--schedule is for the emulator: expected "
                             "--target=gpu-sim, but got " +
                             targetName);
  options.schedules = std::move(schedules);
  if (readsClocks && *target != Target::GPUEmulator)
    return createStringError("--clocks are those of the emulator: expected "
                             "--target=gpu-sim, but got " +
                             targetName);
  options.readsClocks = readsClocks;
  options.compile.target = *target;
  options.compile.cpu = cpuName;
  options.compile.chip = chipName;
  options.compile.f32 = f32Math;
  options.compile.raise = raise;
  options.compile.entry = entryName;
  options.compile.optLevel = optLevel;
  options.compile.sourceName = inputPath;
  options.compile.constantsPath = constantsPath.getNumOccurrences()
                                      ? constantsPath.getValue()
                                      : findConstants(inputPath);
  if (optLevel > 3)
    return createStringError("expected --opt-level of 0 to 3, but got " +
                             Twine(optLevel));
  options.arguments = std::move(arguments);
  options.outputs = std::move(outputs);
  options.expected = std::move(expected);
  options.shapes = std::move(shapes);
  if (randomSeed.getNumOccurrences()) {
    uint64_t seed = 0;
    if (!randomSeed.empty() && StringRef(randomSeed).getAsInteger(10, seed))
      return createStringError("expected --random to be a number of 64 bits, "
                               "but got '" +
                               randomSeed + "'");
    options.randomSeed = seed;
  }
  if (numThreads.getNumOccurrences() &&
      (numThreads < 1 || numThreads > FOVEA_RT_MAX_THREADS))
    return createStringError("expected --threads of 1 to " +
                             Twine(FOVEA_RT_MAX_THREADS) + ", but got " +
                             Twine(numThreads));
  options.numThreads = numThreads;
  if (!compareWith.empty() && compareWith != "reference")
    return createStringError("unknown value '" + compareWith +
                             "' of --compare; expected 'reference'");
  options.comparesReference = !compareWith.empty();
  if (tolerance.getNumOccurrences()) {
    if (!(tolerance >= 0))
      return createStringError("expected --tolerance of at least 0");
    options.tolerance = tolerance;
  }
  if (benchSeconds.getNumOccurrences()) {
    double seconds = 1;
    if (!benchSeconds.empty() &&
        (StringRef(benchSeconds).getAsDouble(seconds) ||
         !(seconds > 0 && seconds < 1e6)))
      return createStringError("expected --bench of more than 0 seconds, but "
                               "got '" +
                               benchSeconds + "'");
    options.benchSeconds = seconds;
  }
  if (benchClock != "wall" && benchClock != "cpu")
    return createStringError("unknown value '" + benchClock +
                             "' of --bench-clock; expected 'wall' or 'cpu'");
  if (benchClock == "cpu") {
    if (numThreads != 1)
      return createStringError("--bench-clock=cpu is the time of one thread: "
                               "expected --threads=1");
    options.benchClock = Clock::CPU;
  }
  options.printValues = printValues;
  options.printSignature = printSignature;
  options.asJSON = asJSON;
  return options;
}
