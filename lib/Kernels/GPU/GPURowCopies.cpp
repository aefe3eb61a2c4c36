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
using Values = KernelBuilder::Values;

/// Copies of one thread that are written out one after the other.
static constexpr int64_t kMaxUnrolled = 16;
/// Loads of a thread whose results it waits for together.
static constexpr int64_t kLoadsAtOnce = 16;

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

namespace {
/// Some elements of a row: where they come from, whether that is to be read,
/// and where they go to.
struct Piece {
  Values from;
  Value isValid;
  Value to[2];
};
} // namespace

/// Copies `pieces` pieces of `elements` elements of each of `numRows` rows by
/// loads and stores. A thread has some loads on their way before it stores what
/// they bring.
static void copyByLoads(GPUKernelBuilder &b, Value source, Value target,
                        int64_t numRows, int64_t pieces, int64_t elements,
                        function_ref<Piece(Value tileRow, Value number)> find) {
  int64_t numThreads = b.getNumThreads(), total = numRows * pieces;
  int64_t turns = llvm::divideCeil(total, numThreads);
  int64_t groups = llvm::divideCeil(turns, kLoadsAtOnce);
  int64_t atOnce = llvm::divideCeil(turns, groups);
  bool isWhole = groups * atOnce * numThreads == total;
  // A thread may have the same piece of each of its rows.
  bool hasColumn = numThreads % pieces == 0;
  FloatType type = getElementType(target);
  Type loadedType =
      elements == 1 ? Type(type) : VectorType::get({elements}, type);
  auto copySome = [&](Value firstTurn) {
    SmallVector<Piece> found;
    Values loaded, exist;
    for (int64_t i = 0; i < atOnce; ++i) {
      Value turn = b.add(firstTurn, i), row, piece;
      Value number = b.add(b.thread(), b.mul(turn, numThreads));
      if (!isWhole) {
        exist.push_back(b.less(number, b.i32(total)));
        number = b.min(number, b.i32(total - 1));
      }
      if (hasColumn && isWhole) {
        row =
            b.add(b.div(b.thread(), pieces), b.mul(turn, numThreads / pieces));
        piece = b.rem(b.thread(), pieces);
      } else {
        row = b.div(number, pieces);
        piece = b.rem(number, pieces);
      }
      Piece one = find(row, piece);
      loaded.push_back(b.select(
          one.isValid, loadConverted(b, source, one.from, elements, type),
          makeZero(b, loadedType)));
      found.push_back(one);
    }
    for (auto [i, value] : llvm::enumerate(loaded)) {
      auto store = [&, &value = value, to = found[i].to] {
        if (elements == 1)
          memref::StoreOp::create(b, value, target,
                                  b.toIndices({to[0], to[1]}));
        else
          vector::StoreOp::create(b, value, target, b.toIndices({to[0], to[1]}))
              .setAlignment(elements * type.getWidth() / 8);
      };
      if (isWhole)
        store();
      else
        b.ifThen(exist[i], store);
    }
  };
  if (groups == 1)
    return copySome(b.i32(0));
  b.loop(b.i32(0), b.i32(groups * atOnce), atOnce, copySome);
}

void fovea::attn::copyRows(
    GPUKernelBuilder &b, Value source, const SharedMatrix &shared,
    Value sharedRow, int64_t numRows, const ColumnRange &columns, int64_t bytes,
    function_ref<std::pair<Values, Value>(Value)> getRow) {
  FloatType type = getElementType(shared.memref);
  FloatType sourceType = getElementType(source);
  int64_t elementBytes = sourceType.getWidth() / 8;
  // The last pass over wide values may be narrower than the others.
  bool cutsColumns =
      columns.count != columns.width && columns.width % columns.count != 0;
  // Asynchronous copies take at least 4 bytes.
  bool isAsync = sourceType == type && bytes >= 4;
  int64_t elements = isAsync ? bytes / elementBytes : 1;
  // Elements that are converted pass through registers, four at a time.
  if (sourceType != type && bytes >= 4 * elementBytes)
    elements = 4;
  int64_t pieces = llvm::divideCeil(columns.count, elements);
  auto find = [&](Value tileRow, Value number) -> Piece {
    Value tileColumn = b.mul(number, elements);
    auto [from, isValid] = getRow(tileRow);
    Value column = b.add(columns.first, tileColumn);
    if (cutsColumns) {
      Value exists = b.less(column, b.i32(columns.width));
      isValid = b.both(isValid, exists);
      column = b.select(exists, column, b.i32(0));
    }
    from.push_back(column);
    // Tiles start at multiples of 8 rows.
    return {from,
            isValid,
            {b.add(sharedRow, tileRow),
             getSharedColumn(b, shared, tileRow, tileColumn)}};
  };
  if (!isAsync)
    return copyByLoads(b, source, shared.memref, numRows, pieces, elements,
                       find);
  auto copyPiece = [&](Value tileRow, Value number) {
    Piece piece = find(tileRow, number);
    b.copyAsync(source, piece.from, shared.memref, piece.to, elements, bytes,
                piece.isValid);
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

void fovea::attn::convertRows(GPUKernelBuilder &b, const SharedMatrix &from,
                              const SharedMatrix &to, Value toRow,
                              int64_t numRows, int64_t columns) {
  constexpr int64_t kElements = 4, kRowsAtOnce = 16;
  for (int64_t first = 0; first < numRows; first += kRowsAtOnce)
    copyByLoads(
        b, from.memref, to.memref, std::min(kRowsAtOnce, numRows - first),
        llvm::divideCeil(columns, kElements), kElements,
        [&](Value number, Value piece) -> Piece {
          Value row = b.add(number, first);
          Value column = b.mul(piece, kElements);
          return {{row, getSharedColumn(b, from, row, column)},
                  b.i1(true),
                  {b.add(toRow, row), getSharedColumn(b, to, row, column)}};
        });
}
