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

#include "GPUTileProduct.h"
#include "GPULaunch.h"
#include "GPURowCopies.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of the fragments of a warp, the most columns of a tile, and the depth
/// of what is in shared memory: rows of 128 bytes.
static constexpr int64_t kWarpRows = 16, kMaxColumns = 96, kDepth = 32;

namespace {
class TileProductKernel {
public:
  TileProductKernel(KernelBuilder &builder, F32Math math,
                    const TileProduct &product, int64_t numWarps)
      : product(product), math(math), tileRows(numWarps * kWarpRows),
        numTiles(llvm::divideCeil(product.columns, kMaxColumns)),
        tileColumns(
            llvm::alignTo(llvm::divideCeil(product.columns, numTiles), 16)),
        b(builder.getLoc(), builder, numWarps * kWarpSize) {}

  void emit();

private:
  void fill(const SharedMatrix &shared, int64_t count, bool alongDepth,
            llvm::function_ref<Value(Value number, Value k)> element);
  void fillLeft();
  void fillRight();
  Values multiply(ValueRange sums);
  void store(ValueRange sums);

  const TileProduct &product;
  F32Math math;
  int64_t tileRows, numTiles, tileColumns;
  GPUKernelBuilder b;
  SharedMatrix left, right;
  // Of the block.
  Values point;
  Value firstRow, firstColumn, firstDepth, lastDepth;
};
} // namespace

void TileProductKernel::emit() {
  int64_t leftBytes = tileRows * kDepth * sizeof(float);
  int64_t rightBytes = tileColumns * kDepth * sizeof(float);
  Values grid(product.grid);
  grid.append({b.ceilDiv(product.rows, tileRows), b.index(numTiles)});
  point = beginBlocks(b, grid, leftBytes + rightBytes);
  firstColumn = b.mul(point.pop_back_val(), tileColumns);
  firstRow = b.mul(point.pop_back_val(), tileRows);
  left = b.sharedMatrix(0, tileRows, kDepth, b.getF32Type());
  right = b.sharedMatrix(leftBytes, tileColumns, kDepth, b.getF32Type());
  auto [begin, end] = product.depth(b, point, firstRow, firstColumn);
  lastDepth = end;
  Values sums(tileColumns / 8 * 4, b.scalar(0.0));
  sums = b.loop(begin, end, kDepth, sums, [&](Value k, ValueRange running) {
    firstDepth = k;
    fillLeft();
    fillRight();
    b.barrier();
    Values next = multiply(running);
    b.barrier();
    return next;
  });
  store(sums);
}

/// Puts `count` rows of elements in shared memory; threads that are neighbours
/// differ by the depth, or by the row.
void TileProductKernel::fill(
    const SharedMatrix &shared, int64_t count, bool alongDepth,
    llvm::function_ref<Value(Value number, Value k)> element) {
  int64_t numTurns = count * kDepth / b.getNumThreads();
  b.loop(b.i32(0), b.i32(numTurns), 1, [&](Value turn) {
    Value number = b.add(b.mul(turn, b.getNumThreads()), b.thread());
    Value row = alongDepth ? b.div(number, kDepth) : b.rem(number, count);
    Value column = alongDepth ? b.rem(number, kDepth) : b.div(number, count);
    Value k = b.add(firstDepth, b.toIndex(column));
    Value value = element(b.toIndex(row), k);
    Value at[] = {row, getSharedColumn(b, shared, row, column)};
    memref::StoreOp::create(b, value, shared.memref, b.toIndices(at));
  });
}

void TileProductKernel::fillLeft() {
  fill(left, tileRows, !product.leftAlongRows, [&](Value number, Value k) {
    Value row = b.add(firstRow, number);
    Value exists = b.both(b.less(row, product.rows), b.less(k, lastDepth));
    return b.select(
        exists, b.getF32Type(), [&] { return product.left(b, point, row, k); },
        [&] { return b.scalar(0.0); });
  });
}

void TileProductKernel::fillRight() {
  fill(right, tileColumns, product.rightAlongDepth, [&](Value number, Value k) {
    Value column = b.add(firstColumn, number);
    Value exists =
        b.both(b.less(column, b.index(product.columns)), b.less(k, lastDepth));
    return b.select(
        exists, b.getF32Type(),
        [&] { return product.right(b, point, k, column); },
        [&] { return b.scalar(0.0); });
  });
}

/// Sums of a piece of the depth start from zero: many short sums lose less than
/// a long one.
Values TileProductKernel::multiply(ValueRange sums) {
  SmallVector<GPUKernelBuilder::Sum> parts(tileColumns / 8, b.makeSum());
  Value warpRow = b.mul(b.warp(), kWarpRows);
  for (int64_t step = 0; step * 2 * left.chunkElements < kDepth; ++step)
    b.multiplyRows(b.getF32Type(), math, b.loadLeft(left, warpRow, step), right,
                   b.i32(0), tileColumns, step, parts);
  Values next(sums);
  for (auto [tile, part] : llvm::enumerate(parts))
    for (auto [i, number] : llvm::enumerate(b.getTotal(part)))
      next[4 * tile + i] = b.fadd(next[4 * tile + i], number);
  return next;
}

void TileProductKernel::store(ValueRange sums) {
  Value row = b.add(b.mul(b.warp(), kWarpRows), b.div(b.lane(), 4));
  Value column = b.mul(b.rem(b.lane(), 4), 2);
  for (int64_t half : {0, 1}) {
    Value at = b.add(firstRow, b.toIndex(b.add(row, 8 * half)));
    b.ifThen(b.less(at, product.rows), [&] {
      for (int64_t tile = 0; tile < tileColumns / 8; ++tile)
        for (int64_t i : {0, 1}) {
          Value place =
              b.add(firstColumn, b.toIndex(b.add(column, tile * 8 + i)));
          b.ifThen(b.less(place, b.index(product.columns)), [&] {
            product.store(b, point, at, place, sums[4 * tile + 2 * half + i]);
          });
        }
    });
  }
}

void fovea::attn::emitTileProduct(KernelBuilder &builder, F32Math math,
                                  const TileProduct &product) {
  int64_t numWarps = kTileRows / kWarpRows;
  // A power of two, which divides the work of filling a tile.
  if (auto rows = getConstantIntValue(product.rows))
    numWarps = std::min<int64_t>(
        numWarps, llvm::PowerOf2Ceil(llvm::divideCeil(*rows, kWarpRows)));
  TileProductKernel(builder, math, product, numWarps).emit();
}
