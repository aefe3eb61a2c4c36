//===- fovea-run.cpp - Compile and run a function -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Benchmark.h"
#include "Inspect.h"
#include "Options.h"
#include "Values.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea/Emulator/Runtime/Clocks.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/Tools/Npy/Npy.h"
#include "fovea/Tools/Shapes/ShapeOptions.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>
#include <cstring>

using namespace llvm;
using namespace fovea;

static run::Options options;

/// Prints the error and returns the exit status.
static int fail(const Twine &message) {
  std::string text = message.str();
  // What is wrong with an option's value is printed by its parser.
  if (text.empty())
    return 1;
  // Diagnostics of the compiler say where they come from themselves.
  if (StringRef(text).contains(": error: ")) {
    errs() << StringRef(text).rtrim() << '\n';
    errs() << "fovea-run: error: cannot compile '" << options.inputPath
           << "'\n";
    return 1;
  }
  errs() << "fovea-run: error: " << StringRef(text).rtrim() << '\n';
  return 1;
}
static int fail(Error error) { return fail(toString(std::move(error))); }

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static std::string describeArgument(const Kernel &kernel, size_t index) {
  return kernel.describeArgument(index) + ", " +
         kernel.getSignature().arguments[index].getTypeString();
}

static Expected<OwnedTensor> makeRandom(const Kernel &kernel, size_t index,
                                        ShapeOptions &shapes) {
  Expected<SmallVector<int64_t, 4>> shape = shapes.take(
      kernel.getSignature().arguments[index], describeArgument(kernel, index));
  if (!shape)
    return shape.takeError();
  Expected<OwnedTensor> tensor = allocateTensor(
      kernel.getSignature().arguments[index].elementType, *shape);
  if (tensor)
    run::fillRandom(*tensor, *options.randomSeed + index);
  return tensor;
}

static Expected<SmallVector<OwnedTensor>> makeInputs(const Kernel &kernel) {
  const Signature &signature = kernel.getSignature();
  bool isRandom = options.randomSeed.has_value();
  size_t numNeeded = signature.arguments.size(),
         numGiven = options.arguments.size();
  if (numGiven > numNeeded || (numGiven < numNeeded && !isRandom))
    return createStringError(
        "@" + kernel.getName() + " expects " + Twine(numNeeded) +
        " arguments, but got " + Twine(numGiven) +
        (numGiven < numNeeded ? "; use --arg, or --random for the rest" : "") +
        "; its type is " + signature.getString());
  SmallVector<OwnedTensor> inputs;
  ShapeOptions shapes(options.shapes);
  for (auto [index, spec] : enumerate(signature.arguments)) {
    Expected<OwnedTensor> input =
        index >= numGiven ? makeRandom(kernel, index, shapes)
        : spec.isScalar
            ? run::parseScalar(options.arguments[index], spec.elementType)
            : readNpy(options.arguments[index], spec.elementType);
    if (!input) {
      std::string text = toString(input.takeError()),
                  argument = describeArgument(kernel, index);
      // What a shape lacks is said of the argument already.
      return createStringError(StringRef(text).starts_with(argument)
                                   ? text
                                   : argument + ": " + text);
    }
    inputs.push_back(std::move(*input));
  }
  if (Error error = shapes.finish("--random argument"))
    return std::move(error);
  return std::move(inputs);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

static void printResults(ArrayRef<OwnedTensor> results) {
  for (auto [index, result] : enumerate(results)) {
    run::Summary summary = run::summarize(result);
    outs() << "result " << index << ": " << run::describe(result);
    if (result.getNumElements() > 0)
      outs() << format(", min %.6g, max %.6g, mean %.6g", summary.min,
                       summary.max, summary.mean);
    if (summary.numNaN)
      outs() << ", " << summary.numNaN << " NaN";
    outs() << '\n';
    if (options.printValues) {
      run::printElements(result, outs());
      outs() << '\n';
    }
  }
}

namespace {
/// Compares results with what they should be, and reports each.
class Checker {
public:
  explicit Checker(const run::Inspection &inspection)
      : inspection(inspection) {}

  void check(size_t index, const OwnedTensor &found,
             const OwnedTensor &expected, StringRef against);

  /// Every schedule of the emulator has to give the same bits.
  void checkBits(ArrayRef<OwnedTensor> found, ArrayRef<OwnedTensor> expected,
                 StringRef schedule);

  /// Comparing nothing is a failure.
  void expectElements(int64_t before, StringRef against) {
    if (numCompared > before)
      return;
    allAgree = false;
    errs() << "fovea-run: error: there are no elements to compare with "
           << against << '\n';
  }

  bool allAgree = true;
  int64_t numCompared = 0;
  json::Array report;

private:
  const run::Inspection &inspection;
};
} // namespace

void Checker::check(size_t index, const OwnedTensor &found,
                    const OwnedTensor &expected, StringRef against) {
  run::Comparison comparison = run::compare(found, expected);
  bool isAbsolute = inspection.isLogSumExp[index] && !options.tolerance;
  double bound = options.tolerance ? *options.tolerance
                 : isAbsolute ? 1e-5
                              : run::getRelativeBound(found.getElementType());
  double error = isAbsolute ? comparison.maxAbsolute : comparison.maxRelative;
  bool agrees = comparison.mismatch.empty() && comparison.numUnordered == 0 &&
                error <= bound;
  allAgree &= agrees;
  numCompared += comparison.numCompared;
  report.push_back(json::Object{
      {"result", int64_t(index)},
      {"against", against},
      {"compared", comparison.numCompared},
      {"max_absolute", comparison.maxAbsolute},
      // Infinite where the expected values are all zero, which JSON lacks.
      {"max_relative", std::isfinite(comparison.maxRelative)
                           ? json::Value(comparison.maxRelative)
                           : json::Value(nullptr)},
      {"bound", bound},
      {"agrees", agrees}});
  if (options.asJSON && agrees)
    return;
  raw_ostream &os = agrees ? outs() : errs();
  os << (agrees ? "" : "fovea-run: error: ") << "result " << index << ": ";
  if (!comparison.mismatch.empty()) {
    os << comparison.mismatch << '\n';
    return;
  }
  os << format("max|a-b| %.3g, max|a-b|/max|b| %.3g, bound %.3g%s",
               comparison.maxAbsolute, comparison.maxRelative, bound,
               isAbsolute ? " absolute" : "")
     << " over " << comparison.numCompared << " elements";
  if (comparison.numUnordered)
    os << ", " << comparison.numUnordered
       << " elements NaN or infinite in one only";
  os << (agrees ? ": agrees with " : ": differs from ") << against << '\n';
}

void Checker::checkBits(ArrayRef<OwnedTensor> found,
                        ArrayRef<OwnedTensor> expected, StringRef schedule) {
  bool agrees = true;
  for (auto [index, one, other] : enumerate(found, expected)) {
    if (one.getShape() == other.getShape() &&
        std::memcmp(one.getData(), other.getData(), one.getNumBytes()) == 0)
      continue;
    agrees = false;
    errs() << "fovea-run: error: result " << index
           << " depends on the order of threads and copies: schedule '"
           << schedule << "' gives other bits\n";
  }
  allAgree &= agrees;
  report.push_back(json::Object{{"schedule", schedule}, {"agrees", agrees}});
  if (!options.asJSON && agrees)
    outs() << "schedule '" << schedule << "' gives the same bits\n";
}

static Error writeResults(const Kernel &kernel, ArrayRef<OwnedTensor> results) {
  for (auto [path, result] : zip(options.outputs, results))
    if (Error error = writeNpy(path, result.getRef()))
      return error;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Main
//===----------------------------------------------------------------------===//

static Expected<SmallVector<OwnedTensor, 2>>
invoke(const Kernel &kernel, ArrayRef<TensorRef> inputs) {
  SmallVector<OwnedTensor, 2> results;
  if (Error error = kernel.invoke(inputs, results))
    return std::move(error);
  return std::move(results);
}

/// The results of a call that leaves the inputs alone even where the function
/// writes to them.
static Expected<SmallVector<OwnedTensor, 2>>
invokeOnCopies(const Kernel &kernel, ArrayRef<TensorRef> inputs) {
  SmallVector<OwnedTensor> copies;
  SmallVector<TensorRef> refs(inputs);
  for (auto [ref, spec] : zip(refs, kernel.getSignature().arguments)) {
    if (!spec.isWritten)
      continue;
    Expected<OwnedTensor> copy = allocateTensor(ref.elementType, ref.shape);
    if (!copy)
      return copy.takeError();
    std::memcpy(copy->getData(), ref.data, copy->getNumBytes());
    ref.data = copy->getData();
    copies.push_back(std::move(*copy));
  }
  return invoke(kernel, refs);
}

static Expected<SmallVector<OwnedTensor, 2>>
runReference(StringRef text, ArrayRef<TensorRef> inputs) {
  CompileOptions reference = options.compile;
  reference.target = Target::Reference;
  Expected<Kernel> oracle = compile(text, reference);
  if (!oracle)
    return oracle.takeError();
  return invokeOnCopies(*oracle, inputs);
}

/// The results under a schedule of the emulator.
static Expected<SmallVector<OwnedTensor, 2>>
runSchedule(const Kernel &kernel, ArrayRef<TensorRef> inputs,
            StringRef schedule) {
  simt::Options usual = simt::getEmulatorOptions();
  Expected<simt::Options> changed = simt::parseEmulatorOptions(schedule, usual);
  if (!changed)
    return createStringError("--schedule: " + toString(changed.takeError()));
  simt::setEmulatorOptions(*changed);
  scope_exit restore([&] { simt::setEmulatorOptions(usual); });
  return invokeOnCopies(kernel, inputs);
}

/// What clocks say of a launch, for --json.
static json::Object toJSON(StringRef kernel, const simt::LaunchClocks &clocks) {
  auto toArray = [](const simt::Times &times) { return json::Array(times); };
  json::Object pipes;
  for (const auto &[pipe, share] : clocks.pipes)
    pipes[pipe] = share;
  json::Array waits;
  for (const simt::LaunchClocks::Wait &wait : clocks.waits)
    waits.push_back(json::Object{{"who", wait.who},
                                 {"where", wait.where},
                                 {"for", wait.whom},
                                 {"cycles", wait.cycles}});
  json::Array estimates;
  for (const simt::LaunchClocks::Estimate &estimate : clocks.estimates)
    estimates.push_back(json::Object{
        {"device", estimate.device},
        {"gigahertz", estimate.gigahertz},
        {"milliseconds", estimate.milliseconds
                             ? json::Value(toArray(*estimate.milliseconds))
                             : json::Value(nullptr)}});
  return json::Object{
      {"kernel", kernel},
      {"blocks", int64_t(clocks.clusters.size() * clocks.clusterBlocks)},
      {"resident", int64_t(clocks.resident)},
      {"loads", json::Array{"L2", "middle", "HBM", "all"}},
      {"longest_cycles", toArray(clocks.getLongest())},
      {"median_cycles", toArray(clocks.getMedian())},
      {"tiles", clocks.tiles},
      {"tile_cycles", toArray(clocks.tileCycles)},
      {"beside_cycles", toArray(clocks.besideCycles)},
      {"busy", std::move(pipes)},
      {"waits", std::move(waits)},
      {"estimates", std::move(estimates)}};
}

/// Calls the function; `clocks` and `text` get what clocks say of its launches,
/// if they are wanted.
static Expected<SmallVector<OwnedTensor, 2>>
invokeWithClocks(const Kernel &kernel, ArrayRef<TensorRef> inputs,
                 json::Array &clocks, std::string &text) {
  if (!options.readsClocks)
    return invoke(kernel, inputs);
  simt::Options usual = simt::getEmulatorOptions(), changed = usual;
  changed.clocks = true;
  simt::setEmulatorOptions(changed);
  simt::setLaunchObserver(
      [&](const char *name, const simt::Counters &counters) {
        clocks.push_back(toJSON(name, *counters.clocks));
        text += simt::describeClocks(name, *counters.clocks);
      });
  scope_exit restore([&] {
    simt::setLaunchObserver(nullptr);
    simt::setEmulatorOptions(usual);
  });
  return invoke(kernel, inputs);
}

/// Compares the results with everything that the command line names.
static Error checkAll(const Kernel &kernel, ArrayRef<OwnedTensor> results,
                      ArrayRef<OwnedTensor> referenceResults,
                      Checker &checker) {
  if (options.comparesReference) {
    StringRef against = "the reference";
    for (size_t index = 0; index < results.size(); ++index)
      checker.check(index, results[index], referenceResults[index], against);
    checker.expectElements(0, against);
  }
  for (auto [index, path] : enumerate(options.expected)) {
    Expected<OwnedTensor> tensor =
        readNpy(path, kernel.getSignature().results[index].elementType);
    if (!tensor)
      return tensor.takeError();
    int64_t before = checker.numCompared;
    checker.check(index, results[index], *tensor, path);
    checker.expectElements(before, path);
  }
  return Error::success();
}

/// What --bench asks for.
static Expected<run::Measurement> measure(const Kernel &kernel,
                                          ArrayRef<TensorRef> inputs,
                                          std::optional<double> usefulFlops) {
  switch (options.compile.target) {
  case Target::GPU:
    return run::benchmarkOnDevice(kernel, inputs, *options.benchSeconds,
                                  options.compile, usefulFlops);
  case Target::GPUEmulator:
    return run::countInEmulator(kernel, inputs, usefulFlops);
  default:
    return run::benchmark(kernel, inputs, *options.benchSeconds,
                          options.benchClock, usefulFlops);
  }
}

/// The type of the function, and with --json the work that it does on arguments
/// of these shapes.
static Error printSignature(const Kernel &kernel, StringRef text) {
  const Signature &signature = kernel.getSignature();
  if (!options.asJSON) {
    outs() << '@' << kernel.getName() << signature.getString() << '\n';
    return Error::success();
  }
  ShapeOptions given(options.shapes);
  SmallVector<SmallVector<int64_t, 4>> shapes;
  for (auto [index, spec] : enumerate(signature.arguments)) {
    Expected<SmallVector<int64_t, 4>> shape =
        given.take(spec, describeArgument(kernel, index));
    if (!shape)
      return shape.takeError();
    shapes.push_back(std::move(*shape));
  }
  SmallVector<TensorRef> inputs(shapes.size());
  for (auto [input, shape] : zip(inputs, shapes))
    input.shape = shape;
  json::Object report{{"entry", kernel.getName()},
                      {"signature", signature.getString()}};
  run::Inspection inspection = run::inspect(text, kernel.getName(), inputs);
  if (inspection.usefulFlops)
    report["useful_gflop"] = *inspection.usefulFlops * 1e-9;
  outs() << json::Value(std::move(report)) << '\n';
  return Error::success();
}

static int runMain() {
  if (options.numThreads > 0)
    fovea_rt_set_num_threads(options.numThreads);
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFileOrSTDIN(options.inputPath);
  if (!file)
    return fail("cannot read '" + options.inputPath +
                "': " + file.getError().message());
  Expected<Kernel> kernel = compile((*file)->getBuffer(), options.compile);
  if (!kernel)
    return fail(kernel.takeError());
  const Signature &signature = kernel->getSignature();
  if (options.printSignature) {
    if (Error error = printSignature(*kernel, (*file)->getBuffer()))
      return fail(std::move(error));
    return 0;
  }
  if (options.outputs.size() > signature.results.size())
    return fail("@" + kernel->getName() + " has " +
                Twine(signature.results.size()) + " results, but got " +
                Twine(options.outputs.size()) + " --out");
  if (options.expected.size() > signature.results.size())
    return fail("@" + kernel->getName() + " has " +
                Twine(signature.results.size()) + " results, but got " +
                Twine(options.expected.size()) + " --expect");

  for (const std::string &output : options.outputs)
    for (StringRef input : {StringRef(options.inputPath),
                            StringRef(options.compile.constantsPath)})
      if (Error error = refuseSameFile(output, input))
        return fail(std::move(error));
  Expected<SmallVector<OwnedTensor>> inputs = makeInputs(*kernel);
  if (!inputs)
    return fail(inputs.takeError());
  SmallVector<TensorRef> refs;
  for (const OwnedTensor &input : *inputs)
    refs.push_back(input.getRef());
  // The last call may write to its arguments; those before it get copies.
  SmallVector<OwnedTensor, 2> referenceResults;
  if (options.comparesReference) {
    Expected<SmallVector<OwnedTensor, 2>> results =
        runReference((*file)->getBuffer(), refs);
    if (!results)
      return fail(results.takeError());
    referenceResults = std::move(*results);
  }
  SmallVector<SmallVector<OwnedTensor, 2>, 0> scheduledResults;
  for (StringRef schedule : options.schedules) {
    Expected<SmallVector<OwnedTensor, 2>> results =
        runSchedule(*kernel, refs, schedule);
    if (!results)
      return fail(results.takeError());
    scheduledResults.push_back(std::move(*results));
  }
  json::Array clocks;
  std::string clocksText;
  Expected<SmallVector<OwnedTensor, 2>> results =
      invokeWithClocks(*kernel, refs, clocks, clocksText);
  if (!results)
    return fail(results.takeError());

  run::Inspection inspection =
      run::inspect((*file)->getBuffer(), kernel->getName(), refs);
  Checker checker(inspection);
  if (Error error = checkAll(*kernel, *results, referenceResults, checker))
    return fail(std::move(error));
  for (auto [schedule, other] : zip(options.schedules, scheduledResults))
    checker.checkBits(other, *results, schedule);
  if (Error error = writeResults(*kernel, *results))
    return fail(std::move(error));
  json::Object report{
      {"entry", kernel->getName()},
      {"target", getName(options.compile.target)},
      {"cpu", kernel->getCPU()},
      {"threads", int64_t(fovea_rt_num_threads())},
      {"compile_seconds", kernel->getCompileTimes().getTotal()}};
  if (!checker.report.empty())
    report["checks"] = std::move(checker.report);
  if (!options.asJSON && (options.outputs.empty() || options.printValues))
    printResults(*results);
  if (options.readsClocks && options.asJSON)
    report["clocks"] = std::move(clocks);
  else
    outs() << clocksText;
  if (options.benchSeconds) {
    Expected<run::Measurement> measured =
        measure(*kernel, refs, inspection.usefulFlops);
    if (!measured)
      return fail(measured.takeError());
    if (options.asJSON)
      report["bench"] = std::move(measured->json);
    else
      outs() << measured->text;
  }
  if (options.asJSON)
    outs() << json::Value(std::move(report)) << '\n';
  return checker.allAgree ? 0 : 1;
}

int fovea_run_main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  simt::registerEmulator();
  Expected<run::Options> parsed = run::parseOptions(argc, argv);
  if (!parsed)
    return fail(parsed.takeError());
  options = std::move(*parsed);
  return runWithOutput("fovea-run", runMain);
}
