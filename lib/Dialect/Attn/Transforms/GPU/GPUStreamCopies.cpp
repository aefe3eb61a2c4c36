//===- GPUStreamCopies.cpp - Copies to shared memory ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Copies of one thread that are written out one after the other.
static constexpr int64_t kMaxUnrolled = 16;

/// The column of element `column` of row `row` in shared memory.
static Value getSharedColumn(GPUKernelBuilder &b, const SharedMatrix &matrix,
                             Value row, Value column) {
  Value chunk = b.div(column, matrix.chunkElements);
  Value moved = b.bitXor(chunk, b.swizzle(matrix, row));
  return b.add(b.mul(moved, matrix.chunkElements),
               b.rem(column, matrix.chunkElements));
}

/// Runs `body` for the numbers below `count` that are this thread's.
static void forEachOwn(GPUKernelBuilder &b, int64_t count,
                       function_ref<void(Value)> body) {
  int64_t numThreads = b.getNumThreads();
  if (count > kMaxUnrolled * numThreads)
    return b.loop(b.thread(), b.i32(count), numThreads, body);
  for (int64_t first = 0; first < count; first += numThreads) {
    Value number = b.add(b.thread(), first);
    if (first + numThreads <= count)
      body(number);
    else
      b.ifThen(b.less(number, b.i32(count)), [&] { body(number); });
  }
}

/// The depth of a product is a multiple of 32 bytes: what queries and keys lack
/// is zero, once and for all.
void GPUStreamKernel::clearPadding() {
  int64_t step = 2 * sharedQueries.chunkElements;
  int64_t padding = llvm::alignTo(width, step) - width;
  if (padding == 0)
    return;
  Value zero = arith::ConstantOp::create(b, b.getFloatAttr(type, 0.0));
  for (auto [matrix, rows] :
       {std::pair(&sharedQueries, queryTile), {&sharedKeys, 2 * keyTile}})
    forEachOwn(b, rows * padding, [&, matrix = matrix](Value number) {
      Value row = b.div(number, padding);
      Value column = b.add(b.rem(number, padding), width);
      memref::StoreOp::create(
          b, zero, matrix->memref,
          b.toIndices({row, getSharedColumn(b, *matrix, row, column)}));
    });
}

/// Copies `numRows` rows of `numColumns` columns, from `firstColumn` of `width`
/// on, by `bytes` bytes at a time. `getRow` maps a row of the tile to a row of
/// the source that exists, and whether it is to be read: rows and columns that
/// are not become zero.
void GPUStreamKernel::copyRows(
    Value source, const SharedMatrix &shared, Value sharedRow, int64_t numRows,
    Value firstColumn, int64_t numColumns, int64_t width, int64_t bytes,
    function_ref<std::pair<Value, Value>(Value)> getRow) {
  int64_t elementBytes = type.getWidth() / 8;
  // The last pass over wide values may be narrower than the others.
  bool cutsColumns = numColumns != width && width % numColumns != 0;
  // Asynchronous copies take at least 4 bytes.
  bool isAsync = bytes >= 4;
  int64_t elements = isAsync ? bytes / elementBytes : 1;
  int64_t pieces = llvm::divideCeil(numColumns, elements);
  Value zero = arith::ConstantOp::create(b, b.getFloatAttr(type, 0.0));
  forEachOwn(b, numRows * pieces, [&](Value number) {
    Value tileRow = b.div(number, pieces);
    Value tileColumn = b.mul(b.rem(number, pieces), elements);
    auto [row, isValid] = getRow(tileRow);
    Value column = b.add(firstColumn, tileColumn);
    if (cutsColumns) {
      Value exists = b.less(column, b.i32(width));
      isValid = b.both(isValid, exists);
      column = b.select(exists, column, b.i32(0));
    }
    Value target = b.add(sharedRow, tileRow);
    // Tiles start at multiples of 8 rows.
    Value to[] = {target, getSharedColumn(b, shared, tileRow, tileColumn)};
    if (isAsync)
      return b.copyAsync(source, {row, column}, shared.memref, to, elements,
                         bytes, isValid);
    Value element = b.select(
        isValid, type,
        [&, row = row]() -> Value {
          return memref::LoadOp::create(b, source, b.toIndices({row, column}));
        },
        [&] { return zero; });
    memref::StoreOp::create(b, element, shared.memref, b.toIndices(to));
  });
}

void GPUStreamKernel::loadQueries() {
  Value last = b.sub(blockQueries, b.i32(1));
  copyRows(queryRows, sharedQueries, b.i32(0), queryTile, b.i32(0), width,
           width, queryBytes, [&](Value row) {
             Value exists = b.less(row, blockQueries);
             Value clamped = b.min(row, last);
             return std::pair(b.add(blockQuery, clamped), exists);
           });
}

void GPUStreamKernel::loadTile(const Tile &tile, Value stage, Value column) {
  Value sharedRow = b.mul(stage, keyTile);
  Value last = b.sub(tile.count, b.i32(1));
  auto getSourceRow = [&](Value row) {
    Value exists = b.less(row, tile.count);
    return std::pair(getRow(tile, b.min(row, last)), exists);
  };
  // One type for the views of all sources.
  auto selectView = [&](Value SourceView::*view, int64_t columns) {
    auto viewType = MemRefType::get(
        {ShapedType::kDynamic, columns}, type,
        StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic,
                               {ShapedType::kDynamic, 1}));
    return selectBySource(tile, [&](const SourceView &source) -> Value {
      return b.createOrFold<memref::CastOp>(viewType, source.*view);
    });
  };
  copyRows(selectView(&SourceView::keys, width), sharedKeys, sharedRow, keyTile,
           b.i32(0), width, width, keyBytes, getSourceRow);
  copyRows(selectView(&SourceView::values, valueWidth), sharedValues, sharedRow,
           keyTile, column, layout.valueColumns, valueWidth, valueBytes,
           getSourceRow);
  if (hasWeights)
    loadWeights(tile, stage);
}

/// Logarithms of how many tokens the rows of a tile stand for, in base 2.
void GPUStreamKernel::loadWeights(const Tile &tile, Value stage) {
  forEachOwn(b, keyTile, [&](Value number) {
    Value row = getRow(tile, b.min(number, b.sub(tile.count, b.i32(1))));
    auto load = [&](const SourceView &source) -> Value {
      if (!source.logWeight)
        return b.scalar(0.0);
      Value at = b.broadcastIndex(source.logWeight, 0, b.toIndex(row));
      Value weight =
          b.fmul(b.loadScalar(source.logWeight, at), b.scalar(softmax::kLog2E));
      // An absent row is masked; a NaN stays.
      return b.fmax(b.scalar(softmax::kMasked), weight);
    };
    Value weight = sources.front().logWeight || sources.size() == 1
                       ? Value()
                       : b.scalar(0.0);
    for (auto [index, source] : llvm::enumerate(sources)) {
      if (sources.size() == 1) {
        weight = load(source);
        break;
      }
      if (!source.logWeight)
        continue;
      Value isThis = b.equal(tile.source, b.i32(index));
      Value otherwise = weight ? weight : b.scalar(0.0);
      weight = b.select(
          isThis, b.getF32Type(),
          [&, &source = source] { return load(source); },
          [&] { return otherwise; });
    }
    Value at = b.add(b.mul(stage, keyTile), number);
    memref::StoreOp::create(b, weight, sharedWeights, b.toIndex(at));
  });
}
