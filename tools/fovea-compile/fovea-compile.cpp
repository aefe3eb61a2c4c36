//===- fovea-compile.cpp - Ahead-of-time compiler -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/AheadOfTime.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/ToolVersion.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace fovea;

namespace {
/// The options, which exist while the tool runs: others with the same names are
/// those of other tools in the process.
struct CommandLine {
  cl::OptionCategory category{"fovea-compile options"};
  cl::extrahelp examples{R"(
EXAMPLES:
  A function as a shared library, with a C header that says how it is called:
    fovea-compile dense.mlir --emit=so -o dense.so
  For another CPU than this one:
    fovea-compile dense.mlir --cpu=x86-64-v3 -o dense.o
  A model of fovea-import, with the weights that lie beside it inside:
    fovea-compile model.mlir --name=embed --emit=so -o model.so
  Its machine code, to read:
    fovea-compile dense.mlir --emit=asm
  Its GPU kernels:
    fovea-compile dense.mlir --target=nvvm --chip=sm_90a --emit=ptx
)"};
  cl::opt<std::string> inputPath{cl::Positional, cl::Required,
                                 cl::desc("<file.mlir, or - for stdin>"),
                                 cl::cat(category)};
  cl::opt<std::string> outputPath{
      "o", cl::init("-"), cl::cat(category),
      cl::desc("file to write; '-', the default for text, is standard "
               "output"),
      cl::value_desc("file")};
  cl::opt<std::string> headerPath{
      "header", cl::cat(category),
      cl::desc("also write a C header; for obj and so it is otherwise "
               "named like the output"),
      cl::value_desc("file.h")};
  cl::opt<std::string> targetName{"target", cl::init("cpu"), cl::cat(category),
                                  cl::desc("cpu or nvvm")};
  cl::opt<CodeKind> kind{
      "emit", cl::init(CodeKind::Object), cl::cat(category),
      cl::desc("what to write:"),
      cl::values(
          clEnumValN(CodeKind::MLIR, "mlir",
                     "IR after the pipeline; for nvvm, kernels in the NVVM "
                     "dialect"),
          clEnumValN(CodeKind::LLVM, "llvm", "LLVM IR of the host's code"),
          clEnumValN(CodeKind::Assembly, "asm", "assembly of the host's code"),
          clEnumValN(CodeKind::Object, "obj",
                     "an object file; for nvvm, with the GPU's code inside"),
          clEnumValN(CodeKind::SharedLibrary, "so", "the same, linked"),
          clEnumValN(CodeKind::PTX, "ptx", "PTX of all kernels"),
          clEnumValN(CodeKind::Cubin, "cubin",
                     "machine code of all kernels, by ptxas"))};
  cl::opt<std::string> cpuName{
      "cpu", cl::init("native"), cl::cat(category),
      cl::desc("CPU to compile for, as LLVM names it")};
  cl::opt<std::string> chipName{
      "chip", cl::init("sm_80"), cl::cat(category),
      cl::desc("GPU to compile for, as LLVM names it, such as sm_90a")};
  cl::opt<std::string> constantsPath{
      "constants", cl::cat(category),
      cl::desc("what the first arguments are, in the format safetensors with "
               "names of the others; they become a part of the code (default: "
               "the file of the input's name that ends so, if it is there)"),
      cl::value_desc("file.safetensors")};
  cl::opt<bool> raise{"raise", cl::init(true), cl::cat(category),
                      cl::desc("find attention in linalg (default: true)")};
  cl::opt<std::string> f32Math{
      "f32", cl::init("tf32x3"), cl::cat(category),
      cl::desc("how GPUs multiply f32 data: tf32x3, nearly as accurate as "
               "f32, tf32, or exact, without tensor cores")};
  cl::opt<std::string> entryName{
      "entry", cl::cat(category),
      cl::desc("function to compile (default: the first public one)"),
      cl::value_desc("name")};
  cl::opt<std::string> name{
      "name", cl::cat(category),
      cl::desc("what the function is called in C (default: as in the file)"),
      cl::value_desc("name")};
  cl::opt<unsigned> optLevel{"opt-level", cl::init(1), cl::cat(category),
                             cl::desc("effort of LLVM's optimizer on the "
                                      "host's code, 0 to 3")};
};
} // namespace

static bool isBinary(CodeKind kind) {
  return kind == CodeKind::Object || kind == CodeKind::SharedLibrary ||
         kind == CodeKind::Cubin;
}

static int fail(const Twine &message) {
  WithColor::error(errs(), "fovea-compile") << message << '\n';
  return 1;
}

static Error writeFile(StringRef path, StringRef text) {
  if (Error error = writeOutput(path, [&](raw_ostream &os) { os << text; }))
    return createStringError("cannot write '" + path +
                             "': " + toString(std::move(error)));
  return Error::success();
}

static int run(const CommandLine &line) {
  CompileOptions options;
  if (line.targetName == "nvvm")
    options.target = fovea::Target::GPU;
  else if (line.targetName != "cpu")
    return fail("unknown target '" + line.targetName +
                "'; expected 'cpu' or 'nvvm'");
  if (options.target == fovea::Target::CPU &&
      (line.chipName.getNumOccurrences() || line.f32Math.getNumOccurrences()))
    return fail("--chip and --f32 are for GPUs: expected --target=nvvm");
  if (line.optLevel > 3)
    return fail("expected --opt-level of 0 to 3, but got " +
                Twine(line.optLevel));
  if (isBinary(line.kind) && line.outputPath.getNumOccurrences() == 0)
    return fail("machine code goes to a file: expected -o with its name, or "
                "--emit=asm for text");
  options.cpu = line.cpuName;
  options.chip = line.chipName;
  options.f32 = line.f32Math;
  options.raise = line.raise;
  options.entry = line.entryName;
  options.optLevel = line.optLevel;
  options.sourceName = line.inputPath;
  options.constantsPath = line.constantsPath.getNumOccurrences()
                              ? line.constantsPath.getValue()
                              : findConstants(line.inputPath);
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFileOrSTDIN(line.inputPath);
  if (!file)
    return fail("cannot read '" + line.inputPath +
                "': " + file.getError().message());
  Expected<CompiledCode> code =
      compileAheadOfTime((*file)->getBuffer(), options, line.kind, line.name);
  if (!code)
    return fail(toString(code.takeError()));
  if (!line.headerPath.empty() && code->header.empty())
    return fail("only assembly, objects and libraries have a C header");
  std::string header = line.headerPath;
  if (header.empty() && !code->header.empty() && line.outputPath != "-" &&
      (line.kind == CodeKind::Object || line.kind == CodeKind::SharedLibrary)) {
    SmallString<128> path(line.outputPath);
    sys::path::replace_extension(path, "h");
    header = path.str().str();
  }
  for (StringRef path : {StringRef(line.outputPath), StringRef(header)})
    for (StringRef input :
         {StringRef(options.sourceName), StringRef(options.constantsPath)})
      if (Error error = refuseSameFile(path, input))
        return fail(toString(std::move(error)));
  SmallString<128> one(header), other(line.outputPath);
  sys::path::remove_dots(one, /*remove_dot_dot=*/false);
  sys::path::remove_dots(other, /*remove_dot_dot=*/false);
  if (header != "-" && (one == other || isSameFile(one, other)))
    return fail("cannot write '" + header +
                "': it would be both the code and its C header; name another "
                "file with -o or --header");
  if (Error error = writeFile(line.outputPath, code->code))
    return fail(toString(std::move(error)));
  if (header.empty())
    return 0;
  if (Error error = writeFile(header, code->header))
    return fail(toString(std::move(error)));
  return 0;
}

int fovea_compile_main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  setVersionPrinter();
  CommandLine line;
  cl::HideUnrelatedOptions(line.category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Compile a function on tensors to a file\n");
  return runWithOutput("fovea-compile", [&] { return run(line); });
}
