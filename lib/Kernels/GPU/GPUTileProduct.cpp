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
    keepRolled(taken);
    b.barrier();
    clearUnbounded(b, numbers);
    b.barrier();
    return taken;
  });
}

/// Puts `count` rows of elements in shared memory; threads that are neighbours
/// differ by the depth, or by the row.
void TileMultiplier::fill(const SharedMatrix &shared, int64_t count,
                          bool alongDepth, Value firstDepth, Value lastDepth,
                          Element element) {
  int64_t numTurns = count * kTileDepth / b.getNumThreads();
  b.loop(b.i32(0), b.i32(numTurns), 1, [&](Value turn) {
    Value number = b.add(b.mul(turn, b.getNumThreads()), b.thread());
    Value row = alongDepth ? b.div(number, kTileDepth) : b.rem(number, count);
    Value column =
        alongDepth ? b.rem(number, kTileDepth) : b.div(number, count);
    Value k = b.add(firstDepth, b.toIndex(column));
    Value value = b.select(
        b.less(k, lastDepth), b.getF32Type(),
        [&] { return element(b.toIndex(row), k); },
        [&] { return b.scalar(0.0); });
    Value at[] = {row, getSharedColumn(b, shared, row, column)};
    memref::StoreOp::create(b, value, shared.memref, b.toIndices(at));
  });
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

/// The tile that is kept lies behind what the multiplier needs; an odd stride
/// keeps threads of neighbouring rows, or diagonals, on different banks.
static constexpr int64_t kStride = SquareTile::kSize + 1;

static int64_t getKeptOffset() {
  return TileMultiplier::getSharedBytes(SquareTile::kNumThreads / kWarpSize,
                                        SquareTile::kSize);
}

SquareTile::SquareTile(GPUKernelBuilder &builder, F32Math math)
    : b(builder), multiplier(builder, math, kSize) {
  tile = b.sharedBuffer(getKeptOffset(), {kSize, kStride}, b.getF32Type());
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

int64_t SquareTile::getSharedBytes() {
  return getKeptOffset() + kSize * kStride * sizeof(float);
}

Values SquareTile::multiply(int64_t depth, Element left, Element right) {
  return multiplier.multiply(b.index(0), b.index(depth), makeSums(), left,
                             right, /*leftAlongRows=*/false,
                             /*rightAlongDepth=*/true);
}

void SquareTile::keepAt(
    ValueRange numbers, double factor,
    function_ref<std::pair<Value, Value>(Value, Value)> place) {
  // All threads have read the tile before.
  b.barrier();
  Value isHiding = b.i1(false);
  forEach(numbers, [&](Value row, Value column, Value number) {
    Value isRead = isWeight(b, number);
    Value product = makeRead(b, b.fmul(number, b.scalar(factor)));
    isHiding = b.select(isRead, isHiding, b.i1(true));
    auto [toRow, toColumn] = place(row, column);
    b.storeScalar(b.select(isRead, product, getHiddenWeight(b)), tile,
                  {toRow, toColumn});
  });
  hides = b.anyThread(isHiding);
}

Value SquareTile::loadKept(Value row, Value column) {
  return b.loadScalar(tile, {row, column});
}

Values SquareTile::addKept(ValueRange sums, Element element) {
  auto left = [&](Value row, Value k) { return loadKept(row, k); };
  return multiplier.multiply(b.index(0), b.index(kSize), sums, left, element,
                             /*leftAlongRows=*/false,
                             /*rightAlongDepth=*/false,
                             [&](Value) { return hides; });
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

Values SquareTile::getRows() {
  return {multiplier.rowOf(0), multiplier.rowOf(2)};
}

Values SquareTile::getColumns() {
  Values columns;
  for (int64_t i = 0; i < kSize / 2; i += 4)
    columns.append({multiplier.columnOf(i), multiplier.columnOf(i + 1)});
  return columns;
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
