//===- AMXProduct.h - Products of matrices of bf16 by AMX -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// AMX adds the product of two matrices in tile registers to a third: 16 rows of
// 32 bf16, times 16 rows of 16 pairs, to 16 x 16 sums in f32.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_AMXPRODUCT_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_AMXPRODUCT_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// Rows of a tile register, and elements of one that are multiplied and added
/// up.
inline constexpr int64_t kAMXRows = 16, kAMXDepth = 32;

/// `sums[row][column] += left[row][depth] right[depth][column]`, where the
/// right factor is packed in pairs, `[depth / 2][column][2]`.
struct AMXProduct {
  using Value = mlir::Value;

  Value left, leftRow, leftColumn, right, rightRow, sums, sumsRow;
  Value numRows, numColumns, depth; // multiples of a tile's
  bool addsToSums = false;

  /// Tiles of sums from `row` and `column` on, to which a product of `depth`
  /// from `k` on is added.
  struct Step {
    Value row, column, k;
    int64_t numRows, numColumns; // of tiles
  };
  /// Emits the product, with what `each` emits at every step.
  void emit(KernelBuilder &b,
            llvm::function_ref<void(const Step &)> each = {}) const;
};

/// As many rows as fill whole tiles along the depth of a product.
mlir::Value alignToDepth(KernelBuilder &b, mlir::Value rows);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_AMXPRODUCT_H
