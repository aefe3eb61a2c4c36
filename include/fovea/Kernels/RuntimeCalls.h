//===- RuntimeCalls.h - Calls of the runtime from IR ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_RUNTIMECALLS_H
#define FOVEA_KERNELS_RUNTIMECALLS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"

namespace fovea::attn {

/// Emits calls of checks: functions of the runtime without a result, whose
/// first argument is the text that a failure begins with.
class RuntimeCalls {
public:
  explicit RuntimeCalls(mlir::ModuleOp module)
      : module(module), symbols(module) {}

  void emitCheck(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef function,
                 llvm::StringRef text, mlir::ValueRange arguments);

  /// The address of a text, which ends with a zero.
  mlir::Value getTextAddress(mlir::ImplicitLocOpBuilder &builder,
                             llvm::StringRef text);

  /// The address of the first element of a memref.
  static mlir::Value getAddress(mlir::ImplicitLocOpBuilder &builder,
                                mlir::Value memref);

  /// The address, extents and strides, in elements, of a memref: the arguments
  /// that say where an array is.
  static llvm::SmallVector<mlir::Value>
  describe(mlir::ImplicitLocOpBuilder &builder, mlir::Value memref);

  /// Calls `function` with `arguments`. Returns its result; null for a null
  /// type.
  static mlir::Value emitCall(mlir::ImplicitLocOpBuilder &builder,
                              mlir::ModuleOp module, llvm::StringRef function,
                              mlir::Type resultType,
                              mlir::ValueRange arguments);

  /// How many threads a parallel loop would have here, an index.
  static mlir::Value emitLoopThreads(mlir::ImplicitLocOpBuilder &builder,
                                     mlir::ModuleOp module);

private:
  mlir::LLVM::LLVMFuncOp getFunction(mlir::ImplicitLocOpBuilder &builder,
                                     llvm::StringRef name,
                                     mlir::TypeRange argumentTypes);
  mlir::LLVM::GlobalOp getText(mlir::ImplicitLocOpBuilder &builder,
                               llvm::StringRef text);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  llvm::StringMap<mlir::LLVM::GlobalOp> texts;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_RUNTIMECALLS_H
