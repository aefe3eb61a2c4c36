//===- fovea-lsp-server.cpp - Language server -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/InitAllDialects.h"
#include "fovea/Support/OutputFile.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  fovea::registerAllDialects(registry);
  return fovea::runWithOutput("fovea-lsp-server", [&] {
    return int(mlir::failed(mlir::MlirLspServerMain(argc, argv, registry)));
  });
}
