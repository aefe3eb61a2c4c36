//===- fovea-opt.cpp - Optimizer driver -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Help.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/InitAllDialects.h"
#include "fovea/InitAllPasses.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/ToolVersion.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static constexpr const char *kExamples = R"(
EXAMPLES:
  The sources that attention patterns are made of:
    fovea-opt kernel.mlir --attn-expand-patterns --canonicalize
  Everything down to LLVM, for this CPU, for a GPU, or as plain loops:
    fovea-opt kernel.mlir --attn-cpu-pipeline="cpu=native"
    fovea-opt kernel.mlir --attn-nvvm-pipeline="chip=sm_90a"
    fovea-opt kernel.mlir --attn-reference-pipeline
  The IR after every pass, a file for each:
    fovea-opt kernel.mlir --attn-cpu-pipeline --mlir-print-ir-after-all --mlir-print-ir-tree-dir=ir -o /dev/null
  What was decided, and why:
    fovea-opt kernel.mlir --attn-cpu-pipeline --remarks-filter='attn.*' --remark-policy=all -o /dev/null
docs/Pipelines.md tells about the passes.
)";

/// The input is mapped, and stays what it is where a pass fails: the result
/// takes its place as a whole.
static LogicalResult rewriteInPlace(std::unique_ptr<llvm::MemoryBuffer> buffer,
                                    StringRef path, DialectRegistry &registry,
                                    const MlirOptMainConfig &config) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (failed(MlirOptMain(os, std::move(buffer), registry, config)))
    return failure();
  llvm::Error error =
      fovea::writeOutput(path, [&](llvm::raw_ostream &file) { file << text; });
  if (!error)
    return success();
  llvm::errs() << "cannot write '" << path
               << "': " << llvm::toString(std::move(error)) << "\n";
  return failure();
}

/// Upstream's driver, with the dialect loaded before passes are made: its
/// canonicalization comes before patterns of upstream that crash, also for IR
/// that has nothing of it.
static LogicalResult run(int argc, char **argv, StringRef input,
                         StringRef output, DialectRegistry &registry) {
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return MlirOptMain(argc, argv, input, output, registry);
  config.setPassPipelineSetupFn([inner = config](PassManager &passes) {
    passes.getContext()->loadDialect<fovea::attn::AttnDialect>();
    return inner.setupPassPipeline(passes);
  });

  llvm::InitLLVM init(argc, argv);
  if (input == "-" &&
      llvm::sys::Process::FileDescriptorIsDisplayed(fileno(stdin)))
    llvm::errs() << "(processing input from stdin now, hit ctrl-c/ctrl-d to "
                    "interrupt)\n";
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(input, &error);
  std::unique_ptr<llvm::ToolOutputFile> file;
  if (buffer && fovea::isSameFile(input, output))
    return rewriteInPlace(std::move(buffer), output, registry, config);
  if (buffer)
    file = openOutputFile(output, &error);
  if (!file) {
    llvm::errs() << error << "\n";
    return failure();
  }
  if (failed(MlirOptMain(file->os(), std::move(buffer), registry, config)))
    return failure();
  file->keep();
  return success();
}

int fovea_opt_main(int argc, char **argv) {
  fovea::setVersionPrinter();
  DialectRegistry registry;
  fovea::registerAllDialects(registry);
  fovea::registerAllPasses();
  return fovea::runWithOutput("fovea-opt", [&] {
    std::string header =
        registerCLIOptions("Fovea attention compiler driver\n", registry);
    llvm::cl::extrahelp examples(kExamples);
    fovea::opt::arrangeHelp();
    auto [input, output] = parseCLIOptions(argc, argv, header);
    return asMainReturnCode(run(argc, argv, input, output, registry));
  });
}
