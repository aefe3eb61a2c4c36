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
#include "fovea/ToolVersion.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/raw_ostream.h"

/// The file that -o names, if any. Upstream's driver keeps its options to
/// itself.
static llvm::StringRef findOutput(llvm::ArrayRef<char *> arguments) {
  llvm::StringRef found;
  for (auto [index, each] : llvm::enumerate(arguments)) {
    llvm::StringRef argument(each);
    if (!argument.consume_front("--o") && !argument.consume_front("-o"))
      continue;
    if (argument.consume_front("="))
      found = argument;
    else if (argument.empty() && index + 1 < arguments.size())
      found = arguments[index + 1];
  }
  return found;
}

/// Why the file cannot be written, which upstream's driver does not say.
static std::error_code findObstacle(llvm::StringRef path) {
  if (llvm::sys::fs::is_directory(path))
    return std::make_error_code(std::errc::is_a_directory);
  if (llvm::sys::fs::exists(path))
    return llvm::sys::fs::access(path, llvm::sys::fs::AccessMode::Write);
  llvm::SmallString<128> folder = llvm::sys::path::parent_path(path);
  return llvm::sys::fs::access(folder.empty() ? "." : folder.str(),
                               llvm::sys::fs::AccessMode::Write);
}

/// Upstream's driver would reduce an input that is the output, too, to nothing.
static bool checkOutput(llvm::ArrayRef<char *> arguments) {
  llvm::StringRef output = findOutput(arguments);
  if (output.empty() || output == "-")
    return true;
  std::string message;
  for (llvm::StringRef argument : arguments)
    if (argument.data() != output.data() && message.empty())
      message = llvm::toString(fovea::refuseSameFile(output, argument));
  if (message.empty())
    if (std::error_code code = findObstacle(output))
      message = ("cannot write '" + output + "': " + code.message()).str();
  if (!message.empty())
    llvm::WithColor::error(llvm::errs(), "fovea-reduce") << message << '\n';
  return message.empty();
}

int fovea_reduce_main(int argc, char **argv) {
  if (!checkOutput(llvm::ArrayRef(argv, argc)))
    return 1;
  fovea::setVersionPrinter();
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
    // The reduction tree says nothing of an input that is of no interest.
    if (lastError.empty())
      llvm::WithColor::error(llvm::errs(), "fovea-reduce")
          << "the input is not of interest: expected the test to return 1 for "
             "it\n";
    llvm::errs() << lastError;
    return 1;
  });
}
