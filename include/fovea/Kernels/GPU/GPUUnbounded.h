//===- GPUUnbounded.h - NaN and infinity in shared memory -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is not read has no influence, whatever it holds. A product with tensor
// cores multiplies it by a weight of 0, which is right as long as it is finite.
// So where a tile has entries that are not read,
//
//   all threads look for numbers that are NaN or infinite      (a vote)
//   if there is one, which is rare:
//     what reads such a number takes it, product by product
//     all threads set these numbers to 0
//   the product of what is left
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_GPUUNBOUNDED_H
#define FOVEA_KERNELS_GPU_GPUUNBOUNDED_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"

namespace fovea::attn {

/// `rows` rows of a matrix from `row` on, a multiple of 8.
struct SharedRows {
  SharedMatrix matrix;
  mlir::Value row;
  int64_t rows, columns;

  /// Columns that a row of the matrix has room for.
  int64_t getWidth() const { return matrix.chunks * matrix.chunkElements; }
};

/// Whether a number is NaN or infinite.
mlir::Value isUnbounded(GPUKernelBuilder &b, mlir::Value number);
/// Whether there are such numbers in what of the rows is this thread's.
mlir::Value findUnbounded(GPUKernelBuilder &b, const SharedRows &shared);
/// The same of narrow numbers, for threads with registers to spare: the product
/// of such a number and 0 is NaN, and so is each sum of it. Two numbers take an
/// instruction, where their exponents take four, of another pipe.
mlir::Value findByProducts(GPUKernelBuilder &b, const SharedRows &shared);
/// Sets them to zero. All threads together have all of the rows.
void clearUnbounded(GPUKernelBuilder &b, const SharedRows &shared);

/// Makes the sums NaN whose row reads a number that is not finite, in the
/// column of the number. `values` are the boxes of rows that are summed; `sums`
/// lie as products leave them, in two rows of the thread and `pairColumn`, the
/// column after it, and so on every 8 columns. `readsRow` says whether the
/// first or the second of the two rows reads a row of the values.
void takeUnbounded(
    GPUKernelBuilder &b, llvm::ArrayRef<SharedRows> values,
    mlir::Value pairColumn, KernelBuilder::Values &sums,
    llvm::function_ref<mlir::Value(int64_t half, mlir::Value row)> readsRow);

/// Tells LLVM and ptxas not to unroll the loop that was just made: its
/// registers are taken from the rest of the kernel.
void keepRolled(GPUKernelBuilder &b);

/// Runs `body` where `condition` holds for numbers that it changes, and returns
/// what they are then.
KernelBuilder::Values
changeIf(GPUKernelBuilder &b, mlir::Value condition, mlir::ValueRange numbers,
         llvm::function_ref<KernelBuilder::Values()> body);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPUUNBOUNDED_H
