//===- GPUStreamCopies.cpp - Copies to shared memory ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPURowCopies.h"
#include "GPUStreamKernel.h"
#include "RowAlignment.h"
#include "SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

static Type getElementType(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementType();
}

static int64_t getRowBytes(Value view) {
  return getCopyBytes(view, getElementType(view).getIntOrFloatBitWidth() / 8);
}

void GPUStreamKernel::loadQueries() {
  Value last = b.sub(blockQueries, b.i32(1));
  copyRows(b, queryRows, sharedQueries, b.i32(0), queryTile,
           {b.i32(0), width, width}, getRowBytes(op.getQuery()),
           [&](Value row) {
             Value exists = b.less(row, blockQueries);
             Value clamped = b.min(row, last);
             return std::pair(b.add(blockQuery, clamped), exists);
           });
}

/// Copies the rows of operand `view` of the tile's source that `toRow` gives
/// for the rows of the source.
void GPUStreamKernel::copyTile(const Tile &tile, Value SourceView::*view,
                               const SharedMatrix &shared, Value stage,
                               const ColumnRange &columns,
                               function_ref<Value(Value)> toRow) {
  Value sharedRow = b.mul(stage, keyTile);
  Value last = b.sub(tile.count, b.i32(1));
  auto copy = [&](Value source, int64_t bytes) {
    copyRows(b, source, shared, sharedRow, keyTile, columns, bytes,
             [&](Value row) {
               Value exists = b.less(row, tile.count);
               return std::pair(toRow(getRow(tile, b.min(row, last))), exists);
             });
  };
  Type elementType = getElementType(sources.front().*view);
  int64_t bytes = kChunkBytes;
  bool isUniform = true;
  for (const SourceView &source : sources) {
    isUniform &= getElementType(source.*view) == elementType;
    bytes = std::min(bytes, getRowBytes(source.*view));
  }
  if (!isUniform) {
    for (auto [index, source] : llvm::enumerate(sources))
      b.ifThen(b.equal(tile.source, b.i32(index)), [&, &source = source] {
        copy(source.*view, getRowBytes(source.*view));
      });
    return;
  }
  // One type for the views of all sources.
  auto viewType = MemRefType::get(
      {ShapedType::kDynamic, columns.width}, elementType,
      StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic,
                             {ShapedType::kDynamic, 1}));
  copy(selectBySource(tile,
                      [&](const SourceView &source) -> Value {
                        return b.createOrFold<memref::CastOp>(viewType,
                                                              source.*view);
                      }),
       bytes);
}

/// The row of the keys that row `row` of the source is.
Value GPUStreamKernel::getKeyRow(const Tile &tile, Value row) {
  Value keyRow = row;
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!source.codes)
      continue;
    auto look = [&, &source = source]() -> Value {
      return memref::LoadOp::create(b, source.codes, b.toIndex(row));
    };
    Value before = keyRow;
    keyRow = sources.size() == 1
                 ? look()
                 : b.select(b.equal(tile.source, b.i32(index)), b.getI32Type(),
                            look, [&] { return before; });
  }
  return keyRow;
}

void GPUStreamKernel::loadTile(const Tile &tile, Value stage, Value column) {
  copyTile(tile, &SourceView::keys, sharedKeys, stage, {b.i32(0), width, width},
           [&](Value row) { return getKeyRow(tile, row); });
  copyTile(tile, &SourceView::values, sharedValues, stage,
           {column, layout.valueColumns, valueWidth},
           [](Value row) { return row; });
  if (hasWeights)
    loadWeights(tile, stage);
}

/// Logarithms of how many tokens the rows of a tile stand for, in base 2; for
/// squared scores, the roots of these numbers.
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
    if (!isSoftmax)
      weight = b.exp2(b.fmul(weight, b.scalar(0.5)));
    Value at = b.add(b.mul(stage, keyTile), number);
    memref::StoreOp::create(b, weight, sharedWeights, b.toIndex(at));
  });
}
