//===- GPURowCopies.cpp - Rows from global to shared memory ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Copies of one thread that are written out one after the other.
static constexpr int64_t kMaxUnrolled = 16;

void fovea::attn::forEachOwn(GPUKernelBuilder &b, int64_t count,
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

Value fovea::attn::getSharedColumn(GPUKernelBuilder &b,
                                   const SharedMatrix &matrix, Value row,
                                   Value column) {
  Value chunk = b.div(column, matrix.chunkElements);
  Value moved = b.bitXor(chunk, b.swizzle(matrix, row));
  return b.add(b.mul(moved, matrix.chunkElements),
               b.rem(column, matrix.chunkElements));
}

static FloatType getElementType(Value memref) {
  return cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
}

static Value makeZero(GPUKernelBuilder &b, Type type) {
  return arith::ConstantOp::create(b, b.getZeroAttr(type));
}

void fovea::attn::clearPadding(GPUKernelBuilder &b, const SharedMatrix &matrix,
                               int64_t rows, int64_t width) {
  int64_t padding = llvm::alignTo(width, 2 * matrix.chunkElements) - width;
  if (padding == 0)
    return;
  Value zero = makeZero(b, getElementType(matrix.memref));
  forEachOwn(b, rows * padding, [&](Value number) {
    Value row = b.div(number, padding);
    Value column = b.add(b.rem(number, padding), width);
    memref::StoreOp::create(
        b, zero, matrix.memref,
        b.toIndices({row, getSharedColumn(b, matrix, row, column)}));
  });
}

/// Loads one element, or four that lie side by side, as type `to`.
static Value loadConverted(GPUKernelBuilder &b, Value source, ValueRange at,
                           int64_t elements, FloatType to) {
  FloatType from = getElementType(source);
  auto shaped = [&](FloatType type) -> Type {
    return elements == 1 ? Type(type) : VectorType::get({elements}, type);
  };
  Value loaded;
  if (elements == 1) {
    loaded = memref::LoadOp::create(b, source, b.toIndices(at));
  } else {
    auto load = vector::LoadOp::create(b, cast<VectorType>(shaped(from)),
                                       source, b.toIndices(at));
    load.setAlignment(elements * from.getWidth() / 8);
    loaded = load;
  }
  if (from == to)
    return loaded;
  FloatType wide = b.getF32Type();
  if (from != wide)
    loaded = arith::ExtFOp::create(b, shaped(wide), loaded);
  return to == wide ? loaded
                    : Value(arith::TruncFOp::create(b, shaped(to), loaded));
}

void fovea::attn::copyRows(
    GPUKernelBuilder &b, Value source, const SharedMatrix &shared,
    Value sharedRow, int64_t numRows, const ColumnRange &columns, int64_t bytes,
    function_ref<std::pair<Value, Value>(Value)> getRow) {
  FloatType type = getElementType(shared.memref), from = getElementType(source);
  int64_t elementBytes = from.getWidth() / 8;
  // The last pass over wide values may be narrower than the others.
  bool cutsColumns =
      columns.count != columns.width && columns.width % columns.count != 0;
  // Asynchronous copies take at least 4 bytes.
  bool isAsync = from == type && bytes >= 4;
  int64_t elements = isAsync ? bytes / elementBytes : 1;
  // Elements that are converted pass through registers, four at a time.
  if (from != type && bytes >= 4 * elementBytes)
    elements = 4;
  int64_t pieces = llvm::divideCeil(columns.count, elements);
  auto copyPiece = [&](Value tileRow, Value piece) {
    Value tileColumn = b.mul(piece, elements);
    auto [row, isValid] = getRow(tileRow);
    Value column = b.add(columns.first, tileColumn);
    if (cutsColumns) {
      Value exists = b.less(column, b.i32(columns.width));
      isValid = b.both(isValid, exists);
      column = b.select(exists, column, b.i32(0));
    }
    Value target = b.add(sharedRow, tileRow);
    // Tiles start at multiples of 8 rows.
    Value to[] = {target, getSharedColumn(b, shared, tileRow, tileColumn)};
    if (isAsync)
      return b.copyAsync(source, {row, column}, shared.memref, to, elements,
                         bytes, isValid);
    Type loadedType =
        elements == 1 ? Type(type) : VectorType::get({elements}, type);
    Value loaded = b.select(
        isValid, loadedType,
        [&, row = row] {
          return loadConverted(b, source, {row, column}, elements, type);
        },
        [&] { return makeZero(b, loadedType); });
    if (elements == 1)
      memref::StoreOp::create(b, loaded, shared.memref, b.toIndices(to));
    else
      vector::StoreOp::create(b, loaded, shared.memref, b.toIndices(to))
          .setAlignment(elements * type.getWidth() / 8);
  };
  int64_t numThreads = b.getNumThreads();
  if (numThreads % pieces != 0 || numRows * pieces > kMaxUnrolled * numThreads)
    return forEachOwn(b, numRows * pieces, [&](Value number) {
      copyPiece(b.div(number, pieces), b.rem(number, pieces));
    });
  // A thread has the same piece of rows that are a constant apart: most of
  // their addresses is common.
  int64_t rowsAtOnce = numThreads / pieces;
  Value own = b.div(b.thread(), pieces), piece = b.rem(b.thread(), pieces);
  for (int64_t first = 0; first < numRows; first += rowsAtOnce) {
    Value row = b.add(own, first);
    if (first + rowsAtOnce <= numRows)
      copyPiece(row, piece);
    else
      b.ifThen(b.less(row, b.i32(numRows)), [&] { copyPiece(row, piece); });
  }
}
