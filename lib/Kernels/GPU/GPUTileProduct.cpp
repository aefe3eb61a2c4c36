//===- GPUTileProduct.cpp - Products of matrices on a GPU -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   per block: a point of the grid, up to 64 rows, up to 96 columns
//     for each 32 of the depth
//       all threads look up elements of both factors and put them, the right
//       one transposed, in swizzled shared memory
//       each warp multiplies 16 rows on the tensor cores, and adds to its sums
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"
#include <numeric>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Value fovea::attn::getHiddenWeight(KernelBuilder &b) { return b.scalar(-0.0); }

Value fovea::attn::makeRead(KernelBuilder &b, Value weight) {
  return b.fadd(weight, b.scalar(0.0));
}

Value fovea::attn::isWeight(GPUKernelBuilder &b, Value weight) {
  Value bits = arith::BitcastOp::create(b, b.getI32Type(), weight);
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ne, bits,
                                       b.i32(INT32_MIN));
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

TileMultiplier::TileMultiplier(GPUKernelBuilder &builder, F32Math math,
                               int64_t columns, int64_t offset)
    : b(builder), math(math),
      rows(builder.getNumThreads() / kWarpSize * kFragmentRows),
      columns(columns) {
  left = b.sharedMatrix(offset, rows, kTileDepth, b.getF32Type());
  right = b.sharedMatrix(offset + rows * kTileDepth * sizeof(float), columns,
                         kTileDepth, b.getF32Type());
  place();
}

/// Where this thread's sums are.
void TileMultiplier::place() {
  firstRow = b.add(b.mul(b.warp(), kFragmentRows), b.div(b.lane(), 4));
  firstColumn = b.mul(b.rem(b.lane(), 4), 2);
}

int64_t TileMultiplier::getSharedBytes(int64_t numWarps, int64_t columns) {
  return (numWarps * kFragmentRows + columns) * kTileDepth * sizeof(float);
}

Value TileMultiplier::rowOf(int64_t i) {
  return b.add(firstRow, i % 4 / 2 * 8);
}

Value TileMultiplier::columnOf(int64_t i) {
  return b.add(firstColumn, i / 4 * 8 + i % 2);
}

Values TileMultiplier::multiply(Value begin, Value end, ValueRange sums,
                                Element leftElement, Element rightElement,
                                bool leftAlongRows, bool rightAlongDepth,
                                function_ref<Value(Value)> hides) {
  return b.loop(begin, end, kTileDepth, sums, [&](Value k, ValueRange running) {
    fill(left, rows, !leftAlongRows, k, end, leftElement);
    fill(right, columns, rightAlongDepth, k, end, rightElement);
    b.barrier();
    Values next(running);
    if (hides)
      next = changeIf(b, hides(k), next, [&] {
        Values taken;
        llvm::SaveAndRestore row(firstRow), column(firstColumn);
        b.rarely([&] {
          place();
          taken = takeUnbounded(running);
        });
        return taken;
      });
    next = multiplyShared(next);
    b.barrier();
    return next;
  });
}

/// Adds the products of weights that are not hidden with numbers that are not
/// finite, which become 0.
Values TileMultiplier::takeUnbounded(ValueRange sums) {
  SharedRows numbers = {right, b.i32(0), columns, kTileDepth};
  Value isFound = b.anyThread(findUnbounded(b, numbers));
  return changeIf(b, isFound, sums, [&] {
    auto load = [&](const SharedMatrix &matrix, Value row, Value k) {
      return b.loadScalar(
          matrix.memref,
          b.toIndices({row, getSharedColumn(b, matrix, row, k)}));
    };
    auto addDepth = [&](Value k, ValueRange running) {
      Values next(running), weights;
      for (int64_t half : {0, 1})
        weights.push_back(load(left, rowOf(2 * half), k));
      for (int64_t i = 0, e = next.size(); i < e; ++i) {
        if (i % 4 > 1)
          continue;
        Value number = load(right, columnOf(i), k);
        Value isTaken = isUnbounded(b, number);
        for (int64_t half : {0, 1}) {
          Value &sum = next[i + 2 * half];
          Value isRead = b.both(isTaken, isWeight(b, weights[half]));
          sum = b.select(isRead, b.fma(weights[half], number, sum), sum);
        }
      }
      return next;
    };
    Values taken = b.loop(b.i32(0), b.i32(kTileDepth), 1, sums, addDepth);
    keepRolled(b);
    b.barrier();
    clearUnbounded(b, numbers);
    b.barrier();
    return taken;
  });
}

/// Elements that a thread has on their way at once. With 16 registers spill.
static constexpr int64_t kMostLoads = 8;

/// Puts `count` rows of elements in shared memory; threads that are neighbours
/// differ by the depth, or by the row.
void TileMultiplier::fill(const SharedMatrix &shared, int64_t count,
                          bool alongDepth, Value firstDepth, Value lastDepth,
                          Element element) {
  int64_t numTurns = count * kTileDepth / b.getNumThreads();
  int64_t atOnce = std::gcd(numTurns, kMostLoads);
  b.loop(b.i32(0), b.i32(numTurns), atOnce, [&](Value turn) {
    // Places are worked out here: those of all elements take no registers.
    Value first =
        b.recompute(b.add(b.mul(turn, b.getNumThreads()), b.thread()));
    Values numbers, places;
    for (int64_t i = 0; i < atOnce; ++i) {
      Value number = b.add(first, i * b.getNumThreads());
      Value row = alongDepth ? b.div(number, kTileDepth) : b.rem(number, count);
      Value column =
          alongDepth ? b.rem(number, kTileDepth) : b.div(number, count);
      Value k = b.add(firstDepth, b.toIndex(column));
      numbers.push_back(b.select(
          b.less(k, lastDepth), b.getF32Type(),
          [&] { return element(b.toIndex(row), k); },
          [&] { return b.scalar(0.0); }));
      places.append({row, getSharedColumn(b, shared, row, column)});
    }
    for (int64_t i = 0; i < atOnce; ++i)
      memref::StoreOp::create(b, numbers[i], shared.memref,
                              b.toIndices({places[2 * i], places[2 * i + 1]}));
  });
  keepRolled(b);
}

/// Sums of a piece of the depth start from zero: many short sums lose less than
/// a long one.
Values TileMultiplier::multiplyShared(ValueRange sums) {
  SmallVector<GPUKernelBuilder::Sum> parts(columns / 8, b.makeSum());
  Value warpRow = b.mul(b.warp(), kFragmentRows);
  for (int64_t step = 0; step * 2 * left.chunkElements < kTileDepth; ++step)
    b.multiplyRows(b.getF32Type(), math, b.loadLeft(left, warpRow, step), right,
                   b.i32(0), columns, step, parts);
  Values next(sums);
  for (auto [tile, part] : llvm::enumerate(parts))
    for (auto [i, number] : llvm::enumerate(b.getTotal(part)))
      next[4 * tile + i] = b.fadd(next[4 * tile + i], number);
  return next;
}

//===----------------------------------------------------------------------===//
// Tiles that are kept
//===----------------------------------------------------------------------===//

/// The tiles that are kept lie behind what the multiplier needs; an odd stride
/// keeps threads of neighbouring rows, or diagonals, on different banks.
static constexpr int64_t kStride = SquareTile::kSize + 1;
static constexpr int64_t kTileBytes =
    SquareTile::kSize * kStride * sizeof(float);

/// Entries of a row that a thread works on, and at a time: what it loads for
/// one of these is on its way while it works on another.
static constexpr int64_t kEntries =
    SquareTile::kSize * SquareTile::kSize / SquareTile::kNumThreads;
static constexpr int64_t kEntriesAtOnce = 4;

static int64_t getKeptOffset() {
  return TileMultiplier::getSharedBytes(SquareTile::kNumThreads / kWarpSize,
                                        SquareTile::kSize);
}

SquareTile::SquareTile(GPUKernelBuilder &builder, F32Math math, int64_t numKept)
    : b(builder), multiplier(builder, math, kSize) {
  for (int64_t i : {0, 1})
    tiles[i] = i < numKept ? b.sharedBuffer(getKeptOffset() + i * kTileBytes,
                                            {kSize, kStride}, b.getF32Type())
                           : tiles[0];
}

SquareTile::Columns SquareTile::divideColumns(int64_t width) {
  // Registers for the sums of 256 columns: no more than all.
  constexpr int64_t kMaxParts = 4;
  int64_t numParts = llvm::divideCeil(width, kSize);
  int64_t numBlocks =
      std::max<int64_t>(llvm::divideCeil(numParts, kMaxParts), 1);
  return {numBlocks,
          static_cast<int64_t>(llvm::divideCeil(numParts, numBlocks))};
}

int64_t SquareTile::getSharedBytes(int64_t numKept) {
  return getKeptOffset() + numKept * kTileBytes;
}

Values SquareTile::multiply(int64_t depth, Element left, Element right) {
  return multiplier.multiply(b.index(0), b.index(depth), makeSums(), left,
                             right, /*leftAlongRows=*/false,
                             /*rightAlongDepth=*/true);
}

void SquareTile::keepAt(
    Kept kept, ValueRange numbers, double factor,
    function_ref<std::pair<Value, Value>(Value, Value)> place) {
  // All threads have read the tile before.
  b.barrier();
  Value isHiding = b.i1(false);
  forEach(numbers, [&](Value row, Value column, Value number) {
    Value isRead = isWeight(b, number);
    Value product = makeRead(b, b.fmul(number, b.scalar(factor)));
    isHiding = b.select(isRead, isHiding, b.i1(true));
    auto [toRow, toColumn] = place(row, column);
    storeKept(kept, toRow, toColumn,
              b.select(isRead, product, getHiddenWeight(b)));
  });
  hidesAny(kept) = b.anyThread(isHiding);
}

Value SquareTile::loadKept(Kept kept, Value row, Value column) {
  return b.loadScalar(getTile(kept), b.toIndices({row, column}));
}

Values SquareTile::loadKept(Kept kept) {
  Values numbers;
  forEach(makeSums(), [&](Value row, Value column, Value) {
    numbers.push_back(loadKept(kept, row, column));
  });
  return numbers;
}

void SquareTile::storeKept(Kept kept, Value row, Value column, Value number) {
  b.storeScalar(number, getTile(kept), b.toIndices({row, column}));
}

// All threads have read the tile before: products have barriers.
void SquareTile::put(Kept kept, ValueRange sums) {
  forEach(sums, [&](Value row, Value column, Value sum) {
    storeKept(kept, row, column, sum);
  });
}

Values SquareTile::addKept(Kept kept, ValueRange sums, Element element) {
  auto left = [&](Value row, Value k) { return loadKept(kept, row, k); };
  return multiplier.multiply(b.index(0), b.index(kSize), sums, left, element,
                             /*leftAlongRows=*/false,
                             /*rightAlongDepth=*/false,
                             [&](Value) { return hidesAny(kept); });
}

void SquareTile::forEach(ValueRange sums,
                         function_ref<void(Value, Value, Value)> body) {
  for (auto [i, sum] : llvm::enumerate(sums))
    body(b.toIndex(multiplier.rowOf(i)), b.toIndex(multiplier.columnOf(i)),
         sum);
}

Value SquareTile::loadOr0(Value exists, llvm::function_ref<Value()> load) {
  return b.select(exists, b.getF32Type(), load, [&] { return b.scalar(0.0); });
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// Threads of a warp have different rows, which are on different banks.
Value SquareTile::getRow() { return b.rem(b.thread(), kSize); }

Values SquareTile::overEntries(
    ValueRange running,
    function_ref<Values(Value row, ValueRange columns, ValueRange)> body) {
  // All threads have put their sums there.
  b.barrier();
  Value row = getRow();
  Value first = b.mul(b.div(b.thread(), kSize), kEntries);
  Values results = b.loop(b.i32(0), b.i32(kEntries), kEntriesAtOnce, running,
                          [&](Value number, ValueRange running) {
                            Values columns;
                            for (int64_t i = 0; i < kEntriesAtOnce; ++i)
                              columns.push_back(b.add(b.add(first, number), i));
                            return body(row, columns, running);
                          });
  keepRolled(b);
  return results;
}

void SquareTile::weighEntries(bool hasGradients, double factor,
                              function_ref<Weigh(Value column)> load) {
  Value isHiding = overEntries(
      {b.i1(false)},
      [&](Value row, ValueRange columns, ValueRange running) -> Values {
        auto loadAll = [&](Kept kept) {
          return llvm::map_to_vector(columns, [&](Value column) {
            return loadKept(kept, row, column);
          });
        };
        SmallVector<Weigh> weighs = llvm::map_to_vector(columns, load);
        Values scores = loadAll(Kept::Weights), products(columns.size());
        if (hasGradients)
          products = loadAll(Kept::Gradients);
        Value isHiding = running.front(), hidden = getHiddenWeight(b);
        for (auto [column, weigh, score, product] :
             llvm::zip_equal(columns, weighs, scores, products)) {
          WeighedEntry entry = weigh(score, product);
          Value isRead = isWeight(b, entry.weight);
          isHiding = b.select(isRead, isHiding, b.i1(true));
          storeKept(Kept::Weights, row, column, entry.weight);
          if (!hasGradients)
            continue;
          Value gradient =
              makeRead(b, b.fmul(entry.gradient, b.scalar(factor)));
          storeKept(Kept::Gradients, row, column,
                    b.select(isRead, gradient, hidden));
        }
        return {isHiding};
      })[0];
  hidesAny(Kept::Weights) = hidesAny(Kept::Gradients) = b.anyThread(isHiding);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// One block of threads; `point` is the grid's, with the tile's row and column.
static void emitTile(GPUKernelBuilder &b, F32Math math,
                     const TileProduct &product, Values point, int64_t tileRows,
                     int64_t tileColumns) {
  Value firstColumn = b.mul(point.pop_back_val(), tileColumns);
  Value firstRow = b.mul(point.pop_back_val(), tileRows);
  TileMultiplier tile(b, math, tileColumns);
  auto [begin, end] = product.depth(b, point, firstRow, firstColumn);
  Value columns = b.index(product.columns);
  auto elementOr0 = [&](Value exists, function_ref<Value()> element) {
    return b.select(exists, b.getF32Type(), element,
                    [&] { return b.scalar(0.0); });
  };
  auto left = [&](Value number, Value k) {
    Value row = b.add(firstRow, number);
    return elementOr0(b.less(row, product.rows),
                      [&] { return product.left(b, point, row, k); });
  };
  auto right = [&](Value number, Value k) {
    Value column = b.add(firstColumn, number);
    return elementOr0(b.less(column, columns),
                      [&] { return product.right(b, point, k, column); });
  };
  auto hides = [&](Value k) { return product.hides(b, point, firstRow, k); };
  Values sums = tile.multiply(begin, end, tile.makeSums(), left, right,
                              product.leftAlongRows, product.rightAlongDepth,
                              product.hides ? function_ref<Value(Value)>(hides)
                                            : nullptr);
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value row = b.add(firstRow, b.toIndex(tile.rowOf(i)));
    Value column = b.add(firstColumn, b.toIndex(tile.columnOf(i)));
    Value exists = b.both(b.less(row, product.rows), b.less(column, columns));
    b.ifThen(exists,
             [&, &sum = sum] { product.store(b, point, row, column, sum); });
  }
}

void fovea::attn::emitTileProduct(KernelBuilder &builder, F32Math math,
                                  const TileProduct &product) {
  int64_t numWarps = kTileRows / kFragmentRows;
  // A power of two, which divides the work of filling a tile.
  if (auto rows = getConstantIntValue(product.rows))
    numWarps = std::min<int64_t>(
        numWarps, llvm::PowerOf2Ceil(llvm::divideCeil(*rows, kFragmentRows)));
  int64_t tileRows = numWarps * kFragmentRows;
  int64_t tileColumns = getTileSize(product.columns, kMaxTileColumns, 16);
  GPUKernelBuilder b(builder.getLoc(), builder, numWarps * kWarpSize);
  Values grid(product.grid);
  grid.append({b.ceilDiv(product.rows, tileRows),
               b.index(llvm::divideCeil(product.columns, tileColumns))});
  Values point = beginBlocks(
      b, grid, TileMultiplier::getSharedBytes(numWarps, tileColumns));
  emitTile(b, math, product, point, tileRows, tileColumns);
}
