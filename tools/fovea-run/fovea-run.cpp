//===- fovea-run.cpp - Compile and run a function -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Benchmark.h"
#include "Inspect.h"
#include "Values.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Support/Npy.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace fovea;

//===----------------------------------------------------------------------===//
// Command line
//===----------------------------------------------------------------------===//

static cl::OptionCategory category("fovea-run options");

static cl::opt<std::string> inputPath(cl::Positional, cl::Required,
                                      cl::desc("<file.mlir, or - for stdin>"),
                                      cl::cat(category));
static cl::opt<std::string>
    entryName("entry",
              cl::desc("function to run (default: the first public one)"),
              cl::value_desc("name"), cl::cat(category));
static cl::list<std::string>
    arguments("arg",
              cl::desc("argument, in order: a .npy file, or the number for a "
                       "scalar. A bf16 argument takes elements '|V2', or "
                       "'<u2' holding the bits"),
              cl::value_desc("file.npy"), cl::cat(category));
static cl::list<std::string> outputs("out",
                                     cl::desc("file for a result, in order"),
                                     cl::value_desc("file.npy"),
                                     cl::cat(category));
static cl::opt<uint64_t>
    randomSeed("random", cl::ValueOptional, cl::init(0),
               cl::desc("standard normal numbers for the arguments that "
                        "follow those given by --arg"),
               cl::value_desc("seed"), cl::cat(category));
static cl::list<std::string>
    shapes("shape",
           cl::desc("shape of a --random argument, one for each that has "
                    "dynamic extents, in order"),
           cl::value_desc("1x8x512x64"), cl::cat(category));
static cl::opt<std::string> targetName("target", cl::init("cpu"),
                                       cl::desc("cpu or reference"),
                                       cl::cat(category));
static cl::opt<std::string>
    cpuName("cpu", cl::init("native"),
            cl::desc("CPU to compile for, as LLVM names it"),
            cl::cat(category));
static cl::opt<unsigned>
    optLevel("opt-level", cl::init(1),
             cl::desc("effort of LLVM's optimizer, 0 to 3"), cl::cat(category));
static cl::opt<int> numThreads("threads", cl::init(0),
                               cl::desc("threads of parallel loops (default: "
                                        "FOVEA_NUM_THREADS, or all CPUs)"),
                               cl::cat(category));
static cl::opt<std::string>
    compareWith("compare",
                cl::desc("'reference': also compile for that target and fail "
                         "when results differ by more than the bound of their "
                         "type"),
                cl::value_desc("target"), cl::cat(category));
static cl::list<std::string>
    expected("expect", cl::desc("file that a result must agree with, in order"),
             cl::value_desc("file.npy"), cl::cat(category));
static cl::opt<double>
    tolerance("tolerance", cl::init(0),
              cl::desc("bound on max|a-b| / max|b| for --compare and --expect, "
                       "instead of f32 5e-6, bf16 1e-2, f16 2e-3, f64 1e-12, "
                       "integers 0, and 1e-5 absolute for lse"),
              cl::cat(category));
static cl::opt<double>
    benchSeconds("bench", cl::ValueOptional, cl::init(0),
                 cl::desc("time repeated runs for so long (default 1)"),
                 cl::value_desc("seconds"), cl::cat(category));
static cl::opt<bool> printValues("print",
                                 cl::desc("print the elements of all results"),
                                 cl::cat(category));
static cl::opt<bool>
    printSignature("print-signature",
                   cl::desc("print the type of the function and stop"),
                   cl::cat(category));
static cl::opt<bool> asJSON("json", cl::desc("report as one JSON object"),
                            cl::cat(category));

static cl::extrahelp examples(R"(
EXAMPLES:
  Run the first function of a file on random numbers, and print what comes out:
    fovea-run dense.mlir --random
  Check it against the plain loops in f64 that define every operation:
    fovea-run dense.mlir --random=7 --compare=reference
  Run on data, with results to files:
    fovea-run dense.mlir --arg q.npy --arg k.npy --arg v.npy --out out.npy
  Time it on one thread for three seconds:
    fovea-run dense.mlir --random --threads=1 --bench=3
  Check against results from elsewhere:
    fovea-run dense.mlir --arg q.npy --arg k.npy --arg v.npy --expect out.npy
)");

/// Prints the error and returns the exit status.
static int fail(const Twine &message) {
  std::string text = message.str();
  // Diagnostics of the compiler say where they come from themselves.
  if (StringRef(text).contains(": error: ")) {
    errs() << StringRef(text).rtrim() << '\n';
    errs() << "fovea-run: error: cannot compile '" << inputPath << "'\n";
    return 1;
  }
  StringRef rest(text);
  rest.consume_front("error: ");
  errs() << "fovea-run: error: " << rest.rtrim() << '\n';
  return 1;
}
static int fail(Error error) { return fail(toString(std::move(error))); }

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static std::string describeArgument(const Kernel &kernel, size_t index) {
  const ValueSpec &spec = kernel.getSignature().arguments[index];
  return ("argument " + Twine(index) +
          (spec.name.empty() ? "" : " (" + spec.name + ")") + " of @" +
          kernel.getName() + ", " + spec.getTypeString())
      .str();
}

static Expected<OwnedTensor> makeRandom(const Kernel &kernel, size_t index,
                                        size_t &nextShape) {
  const ValueSpec &spec = kernel.getSignature().arguments[index];
  SmallVector<int64_t, 4> shape(spec.shape);
  if (is_contained(shape, kDynamicExtent)) {
    if (nextShape >= shapes.size())
      return createStringError(
          describeArgument(kernel, index) +
          ", has dynamic extents: expected a --shape for it");
    Expected<SmallVector<int64_t, 4>> given =
        run::parseShape(shapes[nextShape]);
    if (!given)
      return given.takeError();
    ++nextShape;
    shape = std::move(*given);
  }
  Expected<OwnedTensor> tensor = run::allocateTensor(spec.elementType, shape);
  if (tensor)
    run::fillRandom(*tensor, randomSeed + index);
  return tensor;
}

static Expected<SmallVector<OwnedTensor>> makeInputs(const Kernel &kernel) {
  const Signature &signature = kernel.getSignature();
  bool isRandom = randomSeed.getNumOccurrences() > 0;
  size_t numNeeded = signature.arguments.size(), numGiven = arguments.size();
  if (numGiven > numNeeded || (numGiven < numNeeded && !isRandom))
    return createStringError(
        "@" + kernel.getName() + " expects " + Twine(numNeeded) +
        " arguments, but got " + Twine(numGiven) +
        (numGiven < numNeeded ? "; use --arg, or --random for the rest" : "") +
        "; its type is " + signature.getString());
  SmallVector<OwnedTensor> inputs;
  size_t nextShape = 0;
  for (auto [index, spec] : enumerate(signature.arguments)) {
    Expected<OwnedTensor> input =
        index >= numGiven ? makeRandom(kernel, index, nextShape)
        : spec.isScalar   ? run::parseScalar(arguments[index], spec.elementType)
                          : readNpy(arguments[index], spec.elementType);
    if (!input)
      return createStringError(describeArgument(kernel, index) + ": " +
                               toString(input.takeError()));
    inputs.push_back(std::move(*input));
  }
  if (nextShape < shapes.size())
    return createStringError("expected a --shape for each --random argument "
                             "with dynamic extents, " +
                             Twine(nextShape) + ", but got " +
                             Twine(shapes.size()));
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
    if (printValues) {
      run::printElements(result, outs());
      outs() << '\n';
    }
  }
}

/// Compares results and reports them. Comparing nothing is a failure.
static bool checkResults(ArrayRef<OwnedTensor> found,
                         ArrayRef<OwnedTensor> expected, StringRef against,
                         ArrayRef<bool> isLogSumExp, json::Array &report) {
  bool allAgree = true;
  int64_t numCompared = 0;
  for (size_t index = 0; index < expected.size(); ++index) {
    ElementType type = found[index].getElementType();
    run::Comparison comparison = run::compare(found[index], expected[index]);
    bool isAbsolute = isLogSumExp[index] && !tolerance.getNumOccurrences();
    double bound = tolerance.getNumOccurrences() ? tolerance.getValue()
                   : isAbsolute                  ? 1e-5
                                                 : run::getRelativeBound(type);
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
    if (asJSON && agrees)
      continue;
    raw_ostream &os = agrees ? outs() : errs();
    os << (agrees ? "" : "fovea-run: error: ") << "result " << index << ": ";
    if (!comparison.mismatch.empty()) {
      os << comparison.mismatch << '\n';
      continue;
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
  if (numCompared == 0) {
    errs() << "fovea-run: error: there are no elements to compare with "
           << against << '\n';
    return false;
  }
  return allAgree;
}

static Error writeResults(const Kernel &kernel, ArrayRef<OwnedTensor> results) {
  for (auto [path, result] : zip(outputs, results))
    if (Error error = writeNpy(path, result.getRef()))
      return error;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Main
//===----------------------------------------------------------------------===//

static Error checkOptions() {
  auto checkCompare = [] {
    return compareWith.empty() || compareWith == "reference";
  };
  if (!checkCompare())
    return createStringError("unknown value '" + compareWith +
                             "' of --compare; expected 'reference'");
  if (optLevel > 3)
    return createStringError("expected --opt-level of 0 to 3, but got " +
                             Twine(optLevel));
  if (benchSeconds.getNumOccurrences() && benchSeconds == 0)
    benchSeconds = 1;
  if (!(benchSeconds >= 0 && benchSeconds < 1e6))
    return createStringError("expected --bench of more than 0 seconds");
  if (tolerance.getNumOccurrences() && !(tolerance >= 0))
    return createStringError("expected --tolerance of at least 0");
  if (numThreads.getNumOccurrences() &&
      fovea_rt_set_num_threads(numThreads) != FOVEA_RT_OK)
    return createStringError("--threads: " + StringRef(fovea_rt_last_error()));
  return Error::success();
}

static Expected<SmallVector<OwnedTensor, 2>>
invoke(const Kernel &kernel, ArrayRef<TensorRef> inputs) {
  SmallVector<OwnedTensor, 2> results;
  if (Error error = kernel.invoke(inputs, results))
    return std::move(error);
  return std::move(results);
}

static int runMain() {
  if (Error error = checkOptions())
    return fail(std::move(error));
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFileOrSTDIN(inputPath);
  if (!file)
    return fail("cannot read '" + inputPath +
                "': " + file.getError().message());
  CompileOptions options;
  Expected<Target> target = parseTarget(targetName);
  if (!target)
    return fail(target.takeError());
  options.target = *target;
  options.cpu = cpuName;
  options.entry = entryName;
  options.optLevel = optLevel;
  options.sourceName = inputPath;
  Expected<Kernel> kernel = compile((*file)->getBuffer(), options);
  if (!kernel)
    return fail(kernel.takeError());
  const Signature &signature = kernel->getSignature();
  if (printSignature) {
    outs() << '@' << kernel->getName() << signature.getString() << '\n';
    return 0;
  }
  if (outputs.size() > signature.results.size())
    return fail("@" + kernel->getName() + " has " +
                Twine(signature.results.size()) + " results, but got " +
                Twine(outputs.size()) + " --out");
  if (expected.size() > signature.results.size())
    return fail("@" + kernel->getName() + " has " +
                Twine(signature.results.size()) + " results, but got " +
                Twine(expected.size()) + " --expect");

  Expected<SmallVector<OwnedTensor>> inputs = makeInputs(*kernel);
  if (!inputs)
    return fail(inputs.takeError());
  SmallVector<TensorRef> refs;
  for (const OwnedTensor &input : *inputs)
    refs.push_back(input.getRef());
  // The reference goes first: a function may write to its arguments.
  bool comparesReference = !compareWith.empty();
  SmallVector<OwnedTensor, 2> referenceResults;
  if (comparesReference) {
    CompileOptions reference = options;
    reference.target = Target::Reference;
    Expected<Kernel> oracle = compile((*file)->getBuffer(), reference);
    if (!oracle)
      return fail(oracle.takeError());
    Expected<SmallVector<OwnedTensor, 2>> results = invoke(*oracle, refs);
    if (!results)
      return fail(results.takeError());
    referenceResults = std::move(*results);
  }
  Expected<SmallVector<OwnedTensor, 2>> results = invoke(*kernel, refs);
  if (!results)
    return fail(results.takeError());

  run::Inspection inspection =
      run::inspect((*file)->getBuffer(), kernel->getName(), refs);
  json::Array checks;
  bool agrees = true;
  if (comparesReference)
    agrees &= checkResults(*results, referenceResults, "the reference",
                           inspection.isLogSumExp, checks);
  for (auto [index, path] : enumerate(expected)) {
    Expected<OwnedTensor> tensor =
        readNpy(path, signature.results[index].elementType);
    if (!tensor)
      return fail(tensor.takeError());
    agrees &=
        checkResults(ArrayRef(*results).slice(index, 1), *tensor, path,
                     ArrayRef(inspection.isLogSumExp).slice(index, 1), checks);
  }
  if (Error error = writeResults(*kernel, *results))
    return fail(std::move(error));
  json::Object report{
      {"entry", kernel->getName()},
      {"target", getName(options.target)},
      {"cpu", kernel->getCPU()},
      {"threads", int64_t(fovea_rt_num_threads())},
      {"compile_seconds", kernel->getCompileTimes().getTotal()}};
  if (!checks.empty())
    report["checks"] = std::move(checks);
  if (!asJSON && (outputs.empty() || printValues))
    printResults(*results);
  if (benchSeconds > 0) {
    Expected<run::Timing> timing =
        run::benchmark(*kernel, refs, benchSeconds, inspection.usefulFlops);
    if (!timing)
      return fail(timing.takeError());
    if (asJSON)
      report["bench"] = timing->toJSON();
    else
      timing->print(*kernel, outs());
  }
  if (asJSON)
    outs() << json::Value(std::move(report)) << '\n';
  return agrees ? 0 : 1;
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  // Options of LLVM's own libraries are not part of this tool.
  cl::HideUnrelatedOptions(category);
  std::string problems;
  raw_string_ostream os(problems);
  if (!cl::ParseCommandLineOptions(
          argc, argv, "Compile a function on tensors and run it\n", &os)) {
    StringRef text(problems);
    text.consume_front("fovea-run: ");
    return fail(text);
  }
  return runMain();
}
