//===- GPURuntimeCalls.h - Calls of the GPU runtime -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calls of the functions that fovea_rt/gpu.h declares, from host code on
// memrefs.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPURUNTIMECALLS_H
#define FOVEA_KERNELS_GPURUNTIMECALLS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace fovea::attn {

/// Kinds of checks on the device and words of a failure: the numbers of
/// fovea_rt/gpu.h.
enum class DeviceCheck : int32_t {
  Codes = 0,
  CodesOrAbsent = 1,
  Rows = 2,
  Intervals = 3,
  Sizes = 4,
  Nodes = 5,
  Assertion = 6
};
constexpr int64_t kFailureWords = 16;
/// A check of the host that kernels repeat: where they read all that it is for,
/// it is not needed.
constexpr llvm::StringLiteral kRepeatedCheckAttrName = "attn.repeated_check";

/// Types of elements that products and maps of tensors have, and what products
/// are told: the numbers of fovea_rt/gpu.h.
enum class DeviceType : int32_t { F16 = 6, F32 = 7, BF16 = 9 };
DeviceType getDeviceType(mlir::Type elementType);

namespace product {
enum AxisKind : int64_t { Batch = 0, Rows = 1, Columns = 2, Depth = 3 };
enum Flag : int32_t { Add = 1, TF32 = 2 };
/// What it runs along, its extent, and strides in four arrays.
constexpr size_t kAxisNumbers = 6;
constexpr size_t kMostAxes = 16;
} // namespace product

class GPURuntimeCalls {
public:
  using Value = mlir::Value;

  explicit GPURuntimeCalls(mlir::ModuleOp module)
      : pointerType(mlir::LLVM::LLVMPointerType::get(module.getContext())),
        module(module) {}

  /// Calls `name`, which is declared with the types of the operands. Returns
  /// its result, null without a result type.
  Value call(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef name,
             mlir::ValueRange operands, mlir::Type resultType = {});

  /// The address of the first element of a memref without offset.
  Value getPointer(mlir::OpBuilder &builder, mlir::Location loc, Value memref);
  /// The address of one element of any memref.
  Value getElementPointer(mlir::OpBuilder &builder, mlir::Location loc,
                          Value memref, mlir::ValueRange indices);
  static int64_t getElementBytes(mlir::MemRefType type);
  /// The size of a contiguous buffer, as an i64.
  Value getNumBytes(mlir::OpBuilder &builder, mlir::Location loc,
                    mlir::MemRefType type, mlir::ValueRange dynamicSizes);
  Value getNumBytes(mlir::OpBuilder &builder, mlir::Location loc, Value memref);
  /// The memory at `pointer` as a memref of a type, or of the type and sizes of
  /// another: contiguous, or with strides as integers of 64 bits.
  Value makeBuffer(mlir::OpBuilder &builder, mlir::Location loc, Value pointer,
                   mlir::MemRefType type, mlir::ValueRange dynamicSizes,
                   mlir::ValueRange strides = {});
  Value makeBuffer(mlir::OpBuilder &builder, mlir::Location loc, Value pointer,
                   Value like, mlir::ValueRange strides = {});

  /// Memory of the host for one value of a type, or with numbers of a type, for
  /// one call of `function`.
  Value makeSlot(mlir::OpBuilder &builder, mlir::Location loc,
                 mlir::func::FuncOp function, mlir::Type type,
                 unsigned alignment = 0);
  Value makeList(mlir::OpBuilder &builder, mlir::Location loc,
                 mlir::func::FuncOp function, mlir::Type type,
                 mlir::ValueRange values);
  Value getListElement(mlir::OpBuilder &builder, mlir::Location loc, Value list,
                       mlir::Type type, int32_t index);

  /// The words in which checks on the device tell the failure of a call of
  /// `function`, a memref that is there from its start; null if nothing is
  /// checked, unless `make`.
  Value getFailure(mlir::func::FuncOp function, bool make = false);
  /// Memory of such words.
  Value makeFailureWords(mlir::OpBuilder &builder, mlir::Location loc,
                         Value pointer);

  /// Fourier transforms in place of the lines of a contiguous buffer [..,
  /// length, 2] of f32 on the device, not scaled.
  void transformLines(mlir::OpBuilder &builder, mlir::Location loc, Value lines,
                      bool inverse);

  mlir::LLVM::LLVMPointerType pointerType;

private:
  mlir::ModuleOp module;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPURUNTIMECALLS_H
