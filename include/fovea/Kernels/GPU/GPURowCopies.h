//===- GPURowCopies.h - Rows from global to shared memory -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies of a block of threads that fill swizzled matrices in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_GPUROWCOPIES_H
#define FOVEA_KERNELS_GPU_GPUROWCOPIES_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"

namespace fovea::attn {

/// Runs `body` for the numbers below `count` that are this thread's.
void forEachOwn(GPUKernelBuilder &b, int64_t count,
                llvm::function_ref<void(mlir::Value)> body);

/// The column of element `column` of row `row` in shared memory.
mlir::Value getSharedColumn(GPUKernelBuilder &b, const SharedMatrix &matrix,
                            mlir::Value row, mlir::Value column);

/// The depth of a product is a multiple of 32 bytes: sets the columns that
/// `rows` rows of width `width` lack to zero.
void clearPadding(GPUKernelBuilder &b, const SharedMatrix &matrix, int64_t rows,
                  int64_t width);

/// Columns of rows that are copied.
struct ColumnRange {
  mlir::Value first;
  int64_t count, width; // of `width` columns there are
};

/// Copies `numRows` rows to `sharedRow` and the rows after it, `bytes` bytes at
/// a time. `getRow` maps a row of the tile to a row of the source that exists,
/// by its indices without the column, and whether it is to be read: rows and
/// columns that are not become zero.
/// Elements of another type than those of `shared` are converted; such copies,
/// and those of less than 4 bytes, are not asynchronous.
void copyRows(GPUKernelBuilder &b, mlir::Value source,
              const SharedMatrix &shared, mlir::Value sharedRow,
              int64_t numRows, const ColumnRange &columns, int64_t bytes,
              llvm::function_ref<
                  std::pair<KernelBuilder::Values, mlir::Value>(mlir::Value)>
                  getRow);

/// Copies the first `numRows` rows of a matrix in shared memory to row `toRow`,
/// a multiple of 8, of another of any type, and the rows after it. Columns that
/// `from` lacks to a multiple of 4 are those of clearPadding.
void convertRows(GPUKernelBuilder &b, const SharedMatrix &from,
                 const SharedMatrix &to, mlir::Value toRow, int64_t numRows,
                 int64_t columns);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPUROWCOPIES_H
