//===- fovea-explain.cpp - What a function reads, costs and becomes -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/GPUDriver.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/ToolVersion.h"
#include "fovea/Tools/Explain/Explain.h"
#include "fovea/Tools/Npy/Npy.h"
#include "fovea/Tools/Shapes/ShapeOptions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"
#include <map>
#include <tuple>

using namespace llvm;
using namespace fovea;

namespace {
/// The options, which exist while the tool runs: others with the same names are
/// those of other tools in the process.
struct CommandLine {
  cl::OptionCategory category{"fovea-explain options"};
  cl::extrahelp examples{R"(
EXAMPLES:
  Which rows every query reads and how often, what that costs, and what the
  passes have decided:
    fovea-explain pattern.mlir
  For extents that the types leave open, an argument after the other:
    fovea-explain pattern.mlir --shape=1x8x4096x64 --shape=1x2x4096x64
  With lists of rows, segments, lengths or masks that are arguments:
    fovea-explain pattern.mlir --input=ids=ids.npy --input=lengths=lengths.npy
  With lists that the function makes of its arguments, of another head:
    fovea-explain chosen.mlir --input=q=q.npy --input=k=k.npy --head=3
  A page with pictures to zoom into, and the IR by pass:
    fovea-explain pattern.mlir --emit=html -o pattern.html
  The same for a program to read, and a picture for a text:
    fovea-explain pattern.mlir --emit=json -o pattern.json
    fovea-explain pattern.mlir --emit=svg -o pattern.svg
  For a GPU, which need not be here:
    fovea-explain pattern.mlir --target=gpu --chip=sm_90a
A key that counts twice, or never although the mask admits it, and one that is
read ahead of a causal mask are reported with the first query and token.
)"};
  cl::opt<std::string> inputPath{cl::Positional, cl::Required,
                                 cl::desc("<file.mlir, or - for stdin>"),
                                 cl::cat(category)};
  cl::opt<std::string> outputPath{
      "o", cl::init("-"), cl::cat(category),
      cl::desc("file to write; '-', the default, is standard output"),
      cl::value_desc("file")};
  cl::opt<ExplanationKind> kind{
      "emit", cl::init(ExplanationKind::Text), cl::cat(category),
      cl::desc("what to write:"),
      cl::values(
          clEnumValN(ExplanationKind::Text, "text", "text"),
          clEnumValN(ExplanationKind::JSON, "json",
                     "one JSON object, with all that is drawn"),
          clEnumValN(ExplanationKind::SVG, "svg",
                     "a picture of the score matrix: which query reads which "
                     "tokens, by source"),
          clEnumValN(ExplanationKind::HTML, "html",
                     "a page that needs no other file: pictures to zoom into, "
                     "tiles, and the module after each pass"))};
  cl::list<std::string> shapes{
      "shape", cl::cat(category),
      cl::desc("shape of an argument, one for each that has dynamic extents, "
               "in order"),
      cl::value_desc("1x8x512x64")};
  cl::list<std::string> inputs{
      "input", cl::cat(category),
      cl::desc("elements of an argument, such as lists, segments or lengths, "
               "which say what is read, or of what these are computed from. "
               "Its shape is that of the argument"),
      cl::value_desc("name=file.npy")};
  cl::opt<int64_t> batch{"batch", cl::init(0), cl::cat(category),
                         cl::desc("batch entry to draw, from 0 on")};
  cl::opt<int64_t> head{"head", cl::init(0), cl::cat(category),
                        cl::desc("query head to draw, from 0 on")};
  cl::opt<std::string> targetName{"target", cl::init("cpu"), cl::cat(category),
                                  cl::desc("cpu, reference, gpu or gpu-sim")};
  cl::opt<std::string> cpuName{
      "cpu", cl::init("native"), cl::cat(category),
      cl::desc("CPU to compile for, as LLVM names it")};
  cl::opt<std::string> chipName{
      "chip", cl::init("sm_80"), cl::cat(category),
      cl::desc("GPU to compile for, as LLVM names it, such as sm_90a")};
  cl::opt<std::string> f32Math{
      "f32", cl::init("tf32x3"), cl::cat(category),
      cl::desc("how GPUs multiply f32 data: tf32x3, nearly as accurate as "
               "f32, tf32, or exact, without tensor cores")};
  cl::opt<bool> raise{"raise", cl::init(true), cl::cat(category),
                      cl::desc("find attention in linalg (default: true)")};
  cl::opt<std::string> entryName{
      "entry", cl::cat(category),
      cl::desc("function to explain (default: the first public one)"),
      cl::value_desc("name")};
};
} // namespace

static int fail(const Twine &message) {
  WithColor::error(errs(), "fovea-explain") << message << '\n';
  return 1;
}

namespace {
/// The files of --input, by the number of their argument.
using Inputs = std::map<size_t, OwnedTensor>;
} // namespace

static Error readInput(StringRef value, const Signature &signature,
                       function_ref<std::string(size_t)> describe,
                       Inputs &inputs) {
  StringRef name, path;
  std::tie(name, path) = value.split('=');
  if (name.empty() || path.empty())
    return createStringError(
        "expected an input such as 'ids=ids.npy', but got '" + value + "'");
  name.consume_front("%");
  const auto *found = find_if(signature.arguments, [&](const ValueSpec &spec) {
    return StringRef(spec.name).drop_front(!spec.name.empty()) == name;
  });
  if (found == signature.arguments.end())
    return createStringError("--input=" + value + ": no argument is named '" +
                             name + "'; the function has " +
                             signature.getString());
  size_t index = found - signature.arguments.begin();
  auto failOn = [&](const Twine &message) {
    return createStringError(describe(index) + ": " + message);
  };
  if (found->isScalar)
    return failOn("expected a tensor for --input, but got " +
                  found->getTypeString());
  Expected<OwnedTensor> tensor = readNpy(path, found->elementType);
  if (!tensor)
    return failOn(toString(tensor.takeError()));
  if (tensor->getElementType() != found->elementType)
    return failOn("expected elements of type " +
                  getElementInfo(found->elementType).name + ", but got " +
                  getElementInfo(tensor->getElementType()).name);
  if (!inputs.emplace(index, std::move(*tensor)).second)
    return failOn("expected one --input, but got another");
  return Error::success();
}

/// The shapes of all arguments, by their types and the options; reads inputs.
static Expected<ArgumentShapes> getShapes(
    const Signature &signature, function_ref<std::string(size_t)> describe,
    ArrayRef<std::string> values, ArrayRef<std::string> files, Inputs &inputs) {
  for (const std::string &file : files)
    if (Error error = readInput(file, signature, describe, inputs))
      return std::move(error);
  ShapeOptions options(values);
  ArgumentShapes shapes;
  for (auto [index, spec] : enumerate(signature.arguments)) {
    if (auto given = inputs.find(index); given != inputs.end()) {
      shapes.emplace_back(given->second.getShape());
      continue;
    }
    Expected<SmallVector<int64_t, 4>> shape =
        options.take(spec, describe(index) + ", " + spec.getTypeString());
    if (!shape)
      return shape.takeError();
    shapes.emplace_back(ArrayRef<int64_t>(*shape));
  }
  if (Error error = options.finish())
    return std::move(error);
  return shapes;
}

static int run(const CommandLine &line) {
  ExplainOptions options;
  Expected<fovea::Target> target = parseTarget(line.targetName);
  if (!target)
    return fail(toString(target.takeError()));
  options.compile.target = *target;
  bool usesGPU =
      *target == fovea::Target::GPU || *target == fovea::Target::GPUEmulator;
  if (!usesGPU &&
      (line.chipName.getNumOccurrences() || line.f32Math.getNumOccurrences()))
    return fail("--chip and --f32 are for GPUs: expected --target of gpu or "
                "gpu-sim, but got " +
                line.targetName);
  options.compile.cpu = line.cpuName;
  options.compile.chip = line.chipName;
  options.compile.f32 = line.f32Math;
  options.compile.raise = line.raise;
  options.compile.entry = line.entryName;
  options.compile.sourceName = line.inputPath;
  options.batch = line.batch;
  options.head = line.head;
  Inputs inputs;
  options.getShapes = [&](const Signature &signature, auto describe) {
    return getShapes(signature, describe, line.shapes, line.inputs, inputs);
  };
  options.getData = [&](size_t index) -> std::optional<TensorRef> {
    auto given = inputs.find(index);
    if (given == inputs.end())
      return std::nullopt;
    return given->second.getRef();
  };
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFileOrSTDIN(line.inputPath);
  if (!file)
    return fail("cannot read '" + line.inputPath +
                "': " + file.getError().message());
  Expected<std::vector<std::string>> explanation =
      explain((*file)->getBuffer(), options, {line.kind.getValue()});
  if (!explanation)
    return fail(toString(explanation.takeError()));
  if (Error error = refuseSameFile(line.outputPath, line.inputPath))
    return fail(toString(std::move(error)));
  if (Error error = writeOutput(line.outputPath, [&](raw_ostream &os) {
        os << explanation->front();
      }))
    return fail("cannot write '" + line.outputPath +
                "': " + toString(std::move(error)));
  return 0;
}

int fovea_explain_main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  setVersionPrinter();
  simt::registerEmulator();
  CommandLine line;
  cl::HideUnrelatedOptions(line.category);
  cl::ParseCommandLineOptions(
      argc, argv, "Tell what a function reads, costs and becomes\n");
  return runWithOutput("fovea-explain", [&] { return run(line); });
}
