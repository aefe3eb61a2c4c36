//===- GPUTileProduct.h - Products of matrices on a GPU ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One kernel for all products whose factors are looked up, not laid out: sums
// of outer products over listed keys, Toeplitz matrices, gathered rows.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUTILEPRODUCT_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUTILEPRODUCT_H

#include "GPUKernelBuilder.h"

namespace fovea::attn {

/// For every point of a grid, `sum_k left(row, k) right(k, column)`. The
/// callbacks emit code of one thread; they are asked only for rows, columns and
/// depths that there are.
struct TileProduct {
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Element = llvm::function_ref<Value(GPUKernelBuilder &, ValueRange point,
                                           Value, Value)>;

  llvm::SmallVector<Value> grid;
  Value rows;
  int64_t columns;
  /// The first `k` and the one after the last, for the tile of `kTileRows` rows
  /// that begins at (row, column).
  llvm::function_ref<std::pair<Value, Value>(
      GPUKernelBuilder &, ValueRange point, Value row, Value column)>
      depth;
  Element left, right;
  llvm::function_ref<void(GPUKernelBuilder &, ValueRange point, Value row,
                          Value column, Value sum)>
      store;
  /// Whether elements that lie side by side in memory differ by row of the left
  /// factor, rather than by depth; and by depth of the right one, rather than
  /// by column.
  bool leftAlongRows = false, rightAlongDepth = false;
};

/// Rows of a tile.
constexpr int64_t kTileRows = 64;

/// Emits a kernel with a block of threads for every tile of every point. Sums
/// are f32, products as `math` says.
void emitTileProduct(KernelBuilder &builder, F32Math math,
                     const TileProduct &product);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUTILEPRODUCT_H
