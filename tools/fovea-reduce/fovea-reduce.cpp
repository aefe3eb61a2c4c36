//===- fovea-reduce.cpp - Test case reducer -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/InitAllDialects.h"
#include "fovea/InitAllPasses.h"
#include "fovea/Support/OutputFile.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Support/raw_ostream.h"

int fovea_reduce_main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  fovea::registerAllDialects(registry);
  fovea::registerAllPasses();
  mlir::MLIRContext context(registry);
  // Most attempts to leave an operation out make the module invalid, which the
  // verifier says of each. Only the error that ends the reduction is one.
  std::string lastError;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
          return mlir::failure();
        lastError.clear();
        llvm::raw_string_ostream os(lastError);
        os << diagnostic.getLocation() << ": error: " << diagnostic << '\n';
        return mlir::success();
      });
  return fovea::runWithOutput("fovea-reduce", [&] {
    if (mlir::succeeded(mlir::mlirReduceMain(argc, argv, context)))
      return 0;
    llvm::errs() << lastError;
    return 1;
  });
}
