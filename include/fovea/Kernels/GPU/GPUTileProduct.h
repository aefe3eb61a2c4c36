//===- GPUTileProduct.h - Products of matrices on a GPU ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tiles of products whose factors are looked up, on tensor cores, and the
// emitter of TileProduct.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_GPUTILEPRODUCT_H
#define FOVEA_KERNELS_GPU_GPUTILEPRODUCT_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "fovea/Kernels/TileProduct.h"

namespace fovea::attn {

/// The weight of an entry that is not read: a zero that not even NaN changes.
/// What is read has weights that are not -0; `makeRead` sees to that.
mlir::Value getHiddenWeight(KernelBuilder &b);
mlir::Value makeRead(KernelBuilder &b, mlir::Value weight);
/// Whether a weight is not hidden.
mlir::Value isWeight(GPUKernelBuilder &b, mlir::Value weight);

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
  /// elements lie side by side in memory, and `hides` where hidden weights are,
  /// as in TileProduct.
  Values multiply(Value begin, Value end, mlir::ValueRange sums, Element left,
                  Element right, bool leftAlongRows, bool rightAlongDepth,
                  llvm::function_ref<Value(Value k)> hides = {});
  /// The row and column in the tile of number `i` of the sums, in 32 bits.
  Value rowOf(int64_t i);
  Value columnOf(int64_t i);

private:
  void fill(const SharedMatrix &shared, int64_t count, bool alongDepth,
            Value firstDepth, Value lastDepth, Element element);
  Values multiplyShared(mlir::ValueRange sums);
  void place();
  Values takeUnbounded(mlir::ValueRange sums);

  GPUKernelBuilder &b;
  F32Math math;
  int64_t rows, columns;
  SharedMatrix left, right;
  /// Of the first sum.
  Value firstRow, firstColumn;
};

/// A block of threads that computes 64 x 64 numbers, as the sums of a
/// TileMultiplier lie, and may put them in shared memory: to be the left factor
/// of another product, or for any thread to read.
class SquareTile {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;
  using Element = TileMultiplier::Element;

  static constexpr int64_t kSize = kTileRows;
  /// Parts of so many columns that a block sums without spilling registers,
  /// beside a tile of weights and one of gradients.
  static constexpr int64_t kMostParts = 2;

  /// Blocks that share sums of many columns, each of which makes the weights
  /// again, and the parts that each has.
  struct Columns {
    int64_t numBlocks = 1, numParts = 0;
    int64_t getStep() const { return numParts * kSize; }
  };
  static Columns divideColumns(int64_t width);
  static constexpr int64_t kNumThreads = kSize / kFragmentRows * kWarpSize;
  static int64_t getSharedBytes();

  SquareTile(GPUKernelBuilder &builder, F32Math math);

  Values makeSums() { return multiplier.makeSums(); }
  /// `left right^T`, whose rows lie side by side in memory.
  Values multiply(int64_t depth, Element left, Element right);
  /// Puts a tile, times `factor`, in shared memory for all threads. Numbers may
  /// be hidden weights.
  void keep(ValueRange numbers, double factor) {
    keepAt(numbers, factor,
           [](Value row, Value column) { return std::pair(row, column); });
  }
  /// The same, with each number at the place that `place(row, column)` says.
  void keepAt(ValueRange numbers, double factor,
              llvm::function_ref<std::pair<Value, Value>(Value, Value)> place);
  Value loadKept(Value row, Value column);
  /// Adds `kept tile` times a matrix of 64 rows, `element(column, row)`.
  Values addKept(ValueRange sums, Element element);
  /// Runs `body` with the row and column of the tile of every sum.
  void
  forEach(ValueRange sums,
          llvm::function_ref<void(Value row, Value column, Value sum)> body);

protected:
  /// The number that `load` makes where `exists`, 0 elsewhere.
  Value loadOr0(Value exists, llvm::function_ref<Value()> load);
  /// `multiply` of what belongs to queries with what belongs to rows of keys,
  /// or the other way round.
  Values multiplyPairs(bool rowsAreQueries, int64_t depth, Element ofQueries,
                       Element ofRows) {
    return rowsAreQueries ? multiply(depth, ofQueries, ofRows)
                          : multiply(depth, ofRows, ofQueries);
  }
  /// Runs `body(query, row, i)` for the sums `i` of a thread. What queries and
  /// rows of keys need is loaded once for each row and column.
  template <typename LoadQuery, typename LoadRow, typename Body>
  void forEachPair(bool rowsAreQueries, LoadQuery loadQuery, LoadRow loadRow,
                   Body body) {
    auto queries = llvm::map_to_vector(
        rowsAreQueries ? getRows() : getColumns(), loadQuery);
    auto rows =
        llvm::map_to_vector(rowsAreQueries ? getColumns() : getRows(), loadRow);
    for (int64_t i = 0; i < kNumSums; ++i) {
      int64_t row = i % 4 / 2, column = i / 4 * 2 + i % 2;
      body(queries[rowsAreQueries ? row : column],
           rows[rowsAreQueries ? column : row], i);
    }
  }

  GPUKernelBuilder &b;

private:
  /// Sums of a thread.
  static constexpr int64_t kNumSums = kSize / 8 * 4;

  /// The rows and columns of a thread, in 32 bits.
  Values getRows();
  Values getColumns();

  TileMultiplier multiplier;
  Value tile;
  /// Whether the tile that is kept has hidden weights.
  Value hides;
};

/// Emits a kernel with a block of threads for every tile of every point. Sums
/// are f32, products as `math` says.
void emitTileProduct(KernelBuilder &builder, F32Math math,
                     const TileProduct &product);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPUTILEPRODUCT_H
