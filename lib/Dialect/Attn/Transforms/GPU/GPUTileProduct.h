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
/// Rows of the fragments of a warp.
constexpr int64_t kFragmentRows = 16;

/// Adds products of tiles whose elements are looked up to sums in registers:
/// four for every 8 columns, of rows `lane / 4` and 8 more of the warp's 16.
class TileMultiplier {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;
  /// The element at a row, or column, of the tile and a depth.
  using Element = llvm::function_ref<Value(Value number, Value k)>;

  /// Shared memory from `offset` on is used; rows are 16 for each warp.
  TileMultiplier(GPUKernelBuilder &builder, F32Math math, int64_t columns,
                 int64_t offset = 0);
  static int64_t getSharedBytes(int64_t numWarps, int64_t columns);

  Values makeSums() { return Values(columns / 8 * 4, b.scalar(0.0)); }
  /// Adds the products of depths `begin .. end - 1`. The flags say which
  /// elements lie side by side in memory, as in TileProduct.
  Values multiply(Value begin, Value end, mlir::ValueRange sums, Element left,
                  Element right, bool leftAlongRows, bool rightAlongDepth);
  /// The row and column in the tile of number `i` of the sums, in 32 bits.
  Value rowOf(int64_t i);
  Value columnOf(int64_t i);

private:
  void fill(const SharedMatrix &shared, int64_t count, bool alongDepth,
            Value firstDepth, Value lastDepth, Element element);
  Values multiplyShared(mlir::ValueRange sums);

  GPUKernelBuilder &b;
  F32Math math;
  int64_t rows, columns;
  SharedMatrix left, right;
  /// Of the first sum.
  Value firstRow, firstColumn;
};

/// Emits a kernel with a block of threads for every tile of every point. Sums
/// are f32, products as `math` says.
void emitTileProduct(KernelBuilder &builder, F32Math math,
                     const TileProduct &product);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPUTILEPRODUCT_H
