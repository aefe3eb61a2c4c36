//===- TileProduct.h - Products whose factors are looked up -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One description of all products whose factors are looked up, not laid out:
// sums of outer products over listed keys, Toeplitz matrices, gathered rows.
// Each target has an emitter: that of CPUs is here, that of GPUs in
// GPU/GPUTileProduct.h.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_TILEPRODUCT_H
#define FOVEA_KERNELS_TILEPRODUCT_H

#include "fovea/Kernels/RegisterFile.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

/// Rows of a tile, and the most columns.
constexpr int64_t kTileRows = 64, kMaxTileColumns = 96;
/// What of the depth a GPU has in shared memory at once: rows of 128 bytes.
constexpr int64_t kTileDepth = 32;

/// For every point of a grid, `sum_k left(row, k) right(k, column)`. The
/// callbacks emit code of one thread; they are asked only for rows, columns and
/// depths that there are. A CPU asks for vectors of rows of the left factor
/// that lie side by side, and for vectors of columns.
struct TileProduct {
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Element = llvm::function_ref<Value(KernelBuilder &, ValueRange point,
                                           Value, Value)>;

  llvm::SmallVector<Value> grid;
  Value rows;
  int64_t columns;
  /// The first `k` and the one after the last, for a tile of at most `tileRows`
  /// rows that begins at (row, column).
  llvm::function_ref<std::pair<Value, Value>(KernelBuilder &, ValueRange point,
                                             Value row, Value column)>
      depth;
  Element left, right;
  llvm::function_ref<void(KernelBuilder &, ValueRange point, Value row,
                          Value column, Value sum)>
      store;
  /// Whether elements that lie side by side in memory differ by row of the left
  /// factor, rather than by depth; and by depth of the right one, rather than
  /// by column.
  bool leftAlongRows = false, rightAlongDepth = false;
  /// Whether the left factor of the tile of rows that begins at `row` may have
  /// hidden weights in the `kTileDepth` of the depth from `k` on; null: never.
  llvm::function_ref<Value(KernelBuilder &, ValueRange point, Value row,
                           Value k)>
      hides = {};
  /// Rows of the left factor, and columns of the right one, from which on
  /// elements do not lie beside those before: no vector has both. 0: nowhere.
  int64_t leftBreak = 0, rightBreak = 0;
  int64_t tileRows = kTileRows;
};

/// The size of tiles along a side: as few as can be of at most `most`, a
/// multiple of `unit`.
int64_t getTileSize(int64_t extent, int64_t most, int64_t unit);

/// `sums[d, :] = before[d, :] + sum_(j < depth) left[j, d] right[j, :]` for
/// `rows` rows, where the sums over `j` start from zero. Buffers have as many
/// rows and columns as whole register tiles need.
struct OuterProducts {
  mlir::Value left, right, depth, before, sums;
  int64_t rows, columns;
};
void emitOuterProducts(KernelBuilder &builder, RegisterFile registers,
                       const OuterProducts &products);

/// Emits a parallel loop with a task for every tile of every point. Elements
/// are looked up one by one where they do not lie side by side by row of the
/// left factor, or column of the right one. There may be no hidden weights.
void emitTileProduct(ThreadTeamBuilder &builder, RegisterFile registers,
                     const TileProduct &product);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TILEPRODUCT_H
