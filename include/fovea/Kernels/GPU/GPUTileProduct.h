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
#include <functional>

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

/// The weight of an entry and the gradient of its score.
struct WeighedEntry {
  mlir::Value weight, gradient; // the second may be null
};

/// A block of threads that computes 64 x 64 numbers, as the sums of a
/// TileMultiplier lie, and may put them in shared memory: to be the left factor
/// of another product, or for any thread to read. There is room for two such
/// tiles, or for one of either kind. Threads work on them in loops that are not
/// unrolled, so that sums of other products have the registers.
class SquareTile {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;
  using Element = TileMultiplier::Element;

  static constexpr int64_t kSize = kTileRows;
  /// The tiles in shared memory.
  enum class Kept { Weights, Gradients };

  /// Parts of so many columns that a block sums without spilling registers.
  static constexpr int64_t kMostParts = 2;

  /// Blocks that share sums of many columns, each of which makes the weights
  /// again, and the parts that each has.
  struct Columns {
    int64_t numBlocks = 1, numParts = 0;
    int64_t getStep() const { return numParts * kSize; }
  };
  static Columns divideColumns(int64_t width);
  static constexpr int64_t kNumThreads = kSize / kFragmentRows * kWarpSize;
  static int64_t getSharedBytes(int64_t numKept = 2);

  SquareTile(GPUKernelBuilder &builder, F32Math math, int64_t numKept = 2);

  Values makeSums() { return multiplier.makeSums(); }
  /// `left right^T`, whose rows lie side by side in memory.
  Values multiply(int64_t depth, Element left, Element right);
  /// Puts numbers, times `factor`, in shared memory for all threads, each at
  /// the place that `place(row, column)` says. They may be hidden weights.
  void keepAt(Kept kept, ValueRange numbers, double factor,
              llvm::function_ref<std::pair<Value, Value>(Value, Value)> place);
  /// The same, each at its own place.
  void keep(Kept kept, ValueRange numbers) {
    keepAt(kept, numbers, 1.0,
           [](Value row, Value column) { return std::pair(row, column); });
  }
  Value loadKept(Kept kept, Value row, Value column);
  /// The numbers of a kept tile as sums lie.
  Values loadKept(Kept kept);
  /// Adds `kept tile` times a matrix of 64 rows, `element(column, row)`.
  Values addKept(Kept kept, ValueRange sums, Element element);
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
  /// Puts the sums of a product that was just made in shared memory as they
  /// are, for `overEntries` or `weighPairs`.
  void put(Kept kept, ValueRange sums);
  void storeKept(Kept kept, Value row, Value column, Value number);
  /// Runs `body` for the entries that a thread works on, of one row and several
  /// columns at a time, when all threads have come here.
  Values overEntries(
      ValueRange running,
      llvm::function_ref<Values(Value row, ValueRange columns, ValueRange)>
          body);
  /// Makes weights of the products of queries and keys that are kept as
  /// weights, and gradients, times `factor`, of those kept as gradients, as
  /// `weigh(query, row, score, product)` says. What the query or the row of
  /// keys of a row needs is loaded once. A gradient is hidden where its weight
  /// is; there is none where `hasGradients` is false.
  template <typename LoadQuery, typename LoadRow, typename Weigh>
  void weighPairs(bool rowsAreQueries, bool hasGradients, double factor,
                  LoadQuery loadQuery, LoadRow loadRow, Weigh weigh) {
    Value number = getRow();
    if (rowsAreQueries) {
      auto query = loadQuery(number);
      weighEntries(hasGradients, factor, [&](Value column) {
        return [=, row = loadRow(column)](Value score, Value product) {
          return weigh(query, row, score, product);
        };
      });
    } else {
      auto row = loadRow(number);
      weighEntries(hasGradients, factor, [&](Value column) {
        return [=, query = loadQuery(column)](Value score, Value product) {
          return weigh(query, row, score, product);
        };
      });
    }
  }

  GPUKernelBuilder &b;

private:
  using Weigh = std::function<WeighedEntry(Value score, Value product)>;

  /// The row of the entries that a thread works on, in 32 bits.
  Value getRow();
  /// `weighPairs` for the pairs of the thread's row with columns.
  void weighEntries(bool hasGradients, double factor,
                    llvm::function_ref<Weigh(Value column)> load);
  Value getTile(Kept kept) { return tiles[static_cast<int>(kept)]; }
  Value &hidesAny(Kept kept) { return hides[static_cast<int>(kept)]; }

  TileMultiplier multiplier;
  Value tiles[2];
  /// Whether a tile that is kept has hidden weights.
  Value hides[2];
};

/// Emits a kernel with a block of threads for every tile of every point. Sums
/// are f32, products as `math` says.
void emitTileProduct(KernelBuilder &builder, F32Math math,
                     const TileProduct &product);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPUTILEPRODUCT_H
