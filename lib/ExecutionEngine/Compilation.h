//===- Compilation.h - From text to LLVM IR ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_COMPILATION_H
#define FOVEA_LIB_EXECUTIONENGINE_COMPILATION_H

#include "KernelImpl.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>

namespace mlir {
class PassManager;
} // namespace mlir

namespace fovea::detail {

/// One compilation, from text to LLVM IR.
class Compilation {
public:
  explicit Compilation(const CompileOptions &options);

  /// Reads the text and finds the entry.
  llvm::Error parse(llvm::StringRef text);
  /// Runs the pipeline of the target; with `stopAtKernels`, that of a GPU up to
  /// the NVVM dialect. `configure` may add instrumentations.
  llvm::Error
  runPasses(bool stopAtKernels = false,
            llvm::function_ref<void(mlir::PassManager &)> configure = {});
  /// The LLVM module of the host's code, with the packed entry, whose name is
  /// `entryName`.
  llvm::Expected<std::unique_ptr<llvm::Module>>
  translate(llvm::LLVMContext &llvmContext, llvm::TargetMachine &machine,
            llvm::StringRef &entryName);

  /// An error with all diagnostics so far; `what` where there are none.
  llvm::Error takeDiagnostics(const llvm::Twine &what) {
    std::string text = llvm::StringRef(diagnostics).rtrim().str();
    if (llvm::StringRef(text).contains("error:"))
      return llvm::createStringError(text);
    if (!text.empty())
      text += '\n';
    return llvm::createStringError(text + what);
  }

  const CompileOptions &options;
  llvm::SourceMgr sources;
  std::string diagnostics;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp entry;
  std::shared_ptr<Kernel::Impl> impl = std::make_shared<Kernel::Impl>();

private:
  llvm::raw_string_ostream diagnosticStream{diagnostics};
  std::optional<mlir::SourceMgrDiagnosticHandler> handler;
};

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_COMPILATION_H
