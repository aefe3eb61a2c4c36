//===- ListCalls.h - Calls of the runtime with lists ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_LISTCALLS_H
#define FOVEA_KERNELS_LISTCALLS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {

/// Emits calls of functions of the runtime that take lists of nodes, before
/// `op`. Arguments are 64-bit
/// integers and pointers.
class ListCalls {
public:
  using Value = mlir::Value;

  ListCalls(mlir::ModuleOp module, mlir::Operation *op)
      : module(module), builder(op->getLoc(), op) {}

  mlir::ImplicitLocOpBuilder &getBuilder() { return builder; }

  Value integer(int64_t value);
  /// An index as an integer.
  Value integer(Value index);
  Value extent(Value memref, int64_t dim);
  /// The elements from one entry of the first dimension of a memref to the
  /// next.
  Value stride(Value memref);
  /// The address of element `[batch, column]` of a memref of rank 2; null
  /// without a memref.
  Value address(Value memref, Value batch, int64_t column = 0);

  /// Calls `name`, which returns nothing.
  void call(llvm::StringRef name, mlir::ValueRange arguments);

private:
  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_LISTCALLS_H
