//===- PairProduct.h - Products of matrices of bf16 -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// AMX adds the product of two matrices in tile registers to a third: 16 rows of
// 32 bf16, times 16 rows of 16 pairs, to 16 x 16 sums in f32. vdpbf16ps adds
// the products of a pair and of a row of 16 pairs to 16 sums. Both take the
// same operands from memory.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_PAIRPRODUCT_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_PAIRPRODUCT_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// Rows of a tile register, and elements of one that are multiplied and added
/// up.
inline constexpr int64_t kAMXRows = 16, kAMXDepth = 32;

/// `sums[row][column] += left[row][depth] right[depth][column]`, where the
/// right factor is packed in pairs, `[depth / 2][column][2]`.
struct PairProduct {
  using Value = mlir::Value;

  Value left, leftRow, leftColumn, right, rightRow, sums, sumsRow;
  /// Multiples of a tile's. Without AMX rows may be a multiple of 8.
  Value numRows, numColumns, depth;
  bool addsToSums = false;
  bool byAMX = true; // or by vdpbf16ps

  /// Sums from `row` and `column` on, to which a product of `kAMXDepth` from
  /// `k` on is added.
  struct Step {
    Value row, column, k;
    int64_t numRows, numColumns;
  };
  using EachStep = llvm::function_ref<void(const Step &)>;
  /// Emits the product, with what `each` emits at every step.
  void emit(KernelBuilder &b, EachStep each = {}) const;

private:
  void emitTiles(KernelBuilder &b, EachStep each) const;
  void emitVectors(KernelBuilder &b, EachStep each) const;
};

/// As many rows as fill whole tiles along the depth of a product.
mlir::Value alignToDepth(KernelBuilder &b, mlir::Value rows);

/// A vector of bf16.
mlir::VectorType getNarrow(KernelBuilder &b, int64_t elements);

/// `sums` and the products of the pairs of both.
mlir::Value dotPairs(KernelBuilder &b, mlir::Value one, mlir::Value other,
                     mlir::Value sums);

/// The pair of bf16 at `indices` in all of so many lanes.
mlir::Value broadcastPair(KernelBuilder &b, int64_t lanes, mlir::Value memref,
                          mlir::ValueRange indices);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_STREAM_PAIRPRODUCT_H
