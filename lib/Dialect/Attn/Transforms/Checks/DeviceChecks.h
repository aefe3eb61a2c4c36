//===- DeviceChecks.h - Checks of arrays on a GPU ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_DEVICECHECKS_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_DEVICECHECKS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/RuntimeCalls.h"

namespace fovea::attn {

/// Emits checks of numbers that lie on a device as kernels: what the runtime's
/// fovea_rt_check_codes and the like do on the host. What a kernel finds, the
/// runtime tells later; kernels behind it do nothing.
class DeviceChecks {
public:
  /// Of what `op`, behind them, takes.
  DeviceChecks(RuntimeCalls &calls, mlir::Operation *op);

  void checkCodes(CheckCodesOp op);
  void checkIntervals(CheckIntervalsOp op);
  void checkSizes(mlir::Value sizes, mlir::Value numTokens,
                  llvm::StringRef rule);
  void checkNodes(mlir::Value level, mlir::Value index, mlir::Value tree,
                  TreeAttr shape, bool mustCover, llvm::StringRef rule);

private:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;
  /// At a point of the grid: whether something is wrong, and what.
  struct Finding {
    Value isWrong;
    Values facts;
  };

  /// Finds the first point of a grid where something is wrong.
  void emit(llvm::StringRef rule, DeviceCheck kind,
            llvm::ArrayRef<Value> extents,
            llvm::function_ref<Finding(mlir::ValueRange point)> find);
  Values getExtents(Value memref);

  RuntimeCalls &calls;
  mlir::OpBuilder builder;
  KernelBuilder b;
  mlir::Operation *op;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_CHECKS_DEVICECHECKS_H
