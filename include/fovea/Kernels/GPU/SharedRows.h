//===- SharedRows.h - Rows that lanes of a warp share -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread that goes through a row alone loads from a line of its own: a warp
// asks for 32 lines at a time, and uses an element of each. Lanes that share a
// row read it side by side and exchange their sums.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_SHAREDROWS_H
#define FOVEA_KERNELS_GPU_SHAREDROWS_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"

namespace fovea::attn {

/// What makes the sum of a row.
struct RowSum {
  using Value = mlir::Value;

  /// A lane's part.
  llvm::function_ref<Value(GPUKernelBuilder &, mlir::ValueRange at, Value lane)>
      part;
  llvm::function_ref<Value(GPUKernelBuilder &, Value, Value)> combine;
  /// What one lane does with all of it.
  llvm::function_ref<void(GPUKernelBuilder &, mlir::ValueRange at, Value total)>
      store;
};

/// A kernel in which `lanes` lanes, a power of two of a warp at most, share
/// each row of a grid.
void launchSharedRows(KernelBuilder &host, mlir::ValueRange extents,
                      int64_t lanes, const RowSum &sum);

/// `dots[b, h, n] = factor (left[b, h, n, :] . right[b, h, n, :] - minus[b, h,
/// n])` in f32; `minus` may be null.
void emitRowDots(KernelBuilder &host, mlir::Value left, mlir::Value right,
                 double factor, mlir::Value dots, mlir::Value minus = {});

/// The sums of the squares of rows `[b, h, n, :]` of all `operands`, and of
/// what `extra` gives for the row, stored to `squares`.
void emitRowSquares(
    KernelBuilder &host, mlir::ValueRange operands, mlir::Value squares,
    llvm::function_ref<mlir::Value(KernelBuilder &, mlir::ValueRange at)>
        extra);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_SHAREDROWS_H
