//===- fovea-opt.cpp - Optimizer driver -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Help.h"
#include "fovea/InitAllDialects.h"
#include "fovea/InitAllPasses.h"
#include "fovea/Support/OutputFile.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

static llvm::cl::extrahelp examples(R"(
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
)");

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  fovea::registerAllDialects(registry);
  fovea::registerAllPasses();
  return fovea::runWithOutput("fovea-opt", [&] {
    std::string header =
        mlir::registerCLIOptions("Fovea attention compiler driver\n", registry);
    fovea::opt::arrangeHelp();
    auto [input, output] = mlir::parseCLIOptions(argc, argv, header);
    return mlir::asMainReturnCode(
        mlir::MlirOptMain(argc, argv, input, output, registry));
  });
}
