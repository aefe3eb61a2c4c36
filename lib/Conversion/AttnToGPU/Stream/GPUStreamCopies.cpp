//===- GPUStreamCopies.cpp - Copies to shared memory ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

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
             return std::pair(locateRow(clamped), exists);
           });
}

/// A row of the source for row `row` of a tile, and whether it is the tile's.
std::pair<Value, Value> GPUStreamKernel::findRow(const Tile &tile, Value row) {
  Value exists = b.less(row, tile.count);
  Value last = b.sub(tile.count, b.i32(1));
  row = b.min(row, last);
  for (auto [index, source] : llvm::enumerate(sources))
    if (source.list)
      exists = whereSource(tile, index, exists, [&, &source = source] {
        return b.both(exists, findListed(source, b.add(tile.row, row)).exists);
      });
  return {getRow(tile, row), exists};
}

/// Copies the rows of operand `view` of the tile's source that `toRow` gives
/// for the rows of the tile and of the source: those of f32 to `wide`, if there
/// is such a place, and all others to `shared`.
void GPUStreamKernel::copyTile(const Tile &tile, Value SourceView::*view,
                               const SharedMatrix &shared,
                               const SharedMatrix &wide, Value stage,
                               const ColumnRange &columns,
                               function_ref<Value(Value, Value)> toRow) {
  auto copy = [&](Value source, int64_t bytes) {
    auto copySome = [&](const SharedMatrix &to, Value toSharedRow,
                        int64_t first, int64_t count) {
      copyRows(b, source, to, toSharedRow, count, columns, bytes,
               [&](Value number) {
                 Value row = b.add(number, first);
                 auto [own, exists] = findRow(tile, row);
                 return std::pair(Values{toRow(row, own)}, exists);
               });
    };
    if (!wide.memref || !getElementType(source).isF32())
      return copySome(shared, b.mul(stage, keyTile), 0, keyTile);
    // Of no more rows than narrow ones that are written out.
    for (int64_t first = 0; first < keyTile; first += 16)
      copySome(wide, b.i32(first), first, 16);
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

/// The same for one source, to rows of boxes: the boxes of a tile lie one after
/// another. `columns` of the `numColumns` of the boxes there are. Listed rows
/// have been found.
void GPUStreamKernel::copyToBoxes(const Tile &tile, const SourceView &source,
                                  Value SourceView::*view,
                                  const SharedMatrix &boxes, Value stage,
                                  Value slot, int64_t columns,
                                  int64_t numColumns) {
  int64_t perBox = boxes.chunks * boxes.chunkElements;
  int64_t numBoxes = llvm::divideCeil(numColumns, perBox);
  Value codes = view == &SourceView::keys ? source.codes : Value();
  for (int64_t box = 0; box < numBoxes; ++box) {
    Value sharedRow = b.mul(b.add(b.mul(stage, numBoxes), box), keyTile);
    int64_t first = box * perBox;
    copyRows(b, source.*view, boxes, sharedRow, keyTile,
             {b.i32(first), std::min(perBox, numColumns - first), columns},
             getRowBytes(source.*view), [&](Value row) {
               Value own, exists;
               if (source.list) {
                 Value at = b.add(b.mul(slot, keyTile), row);
                 own =
                     memref::LoadOp::create(b, sharedListedRows, b.toIndex(at));
                 exists = b.less(b.i32(-1), own);
                 own = b.max(own, 0);
               } else {
                 std::tie(own, exists) = findRow(tile, row);
               }
               if (codes)
                 own = memref::LoadOp::create(b, codes, b.toIndex(own));
               return std::pair(Values{own}, exists);
             });
  }
}

/// The row of the keys that row `row` of the source is.
Value GPUStreamKernel::getKeyRow(const Tile &tile, Value row) {
  Value keyRow = row;
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!source.codes)
      continue;
    keyRow = whereSource(tile, index, keyRow, [&, &source = source]() -> Value {
      return memref::LoadOp::create(b, source.codes, b.toIndex(row));
    });
  }
  return keyRow;
}

/// Numbers below `count` that are this thread's, each with what `find` makes of
/// it, as several are looked up before the first is waited for.
static Values findOwn(GPUKernelBuilder &b, int64_t count, Type type,
                      function_ref<Value(Value)> find) {
  Values found;
  for (int64_t first = 0; first < count; first += b.getNumThreads()) {
    Value number = b.add(b.thread(), first);
    if (first + b.getNumThreads() <= count)
      found.push_back(find(number));
    else
      found.push_back(b.select(
          b.less(number, b.i32(count)), type, [&] { return find(number); },
          [&]() -> Value {
            return arith::ConstantOp::create(b, b.getZeroAttr(type));
          }));
  }
  return found;
}

/// Looks up which rows the keys of a tile are: a warp that did so ahead of each
/// copy would wait for memory as often.
Values GPUStreamKernel::findKeyRows(const Tile &tile) {
  return findOwn(b, keyTile, b.getI32Type(), [&](Value row) {
    return getKeyRow(tile, findRow(tile, row).first);
  });
}

void GPUStreamKernel::storeKeyRows(ArrayRef<Value> found) {
  // Other lanes may still copy the rows of the tile before.
  b.warpBarrier();
  const Value *next = found.begin();
  forEachOwn(b, keyTile, [&](Value row) {
    memref::StoreOp::create(b, *next++, sharedKeyRows, b.toIndex(row));
  });
  b.warpBarrier();
}

/// Whether `view` of the tile's source is of f32.
Value GPUStreamKernel::isWide(const Tile &tile, Value SourceView::*view) {
  Value found;
  bool isAll = true;
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!getElementType(source.*view).isF32()) {
      isAll = false;
      continue;
    }
    if (sources.size() == 1)
      break;
    Value isThis = b.equal(tile.source, b.i32(index));
    found = found ? b.either(found, isThis) : isThis;
  }
  return isAll ? b.i1(true) : found;
}

/// Rounds the rows of a tile that were copied as they are. After it, the next
/// tile may be copied to where they were.
void GPUStreamKernel::roundTile(const Tile &tile, Value stage) {
  auto round = [&](Value SourceView::*view, const SharedMatrix &wide,
                   const SharedMatrix &shared, int64_t columns) {
    if (!wide.memref)
      return;
    b.ifThen(isWide(tile, view), [&] {
      b.waitCopies(0);
      b.barrier();
      convertRows(b, wide, shared, b.mul(stage, keyTile), keyTile, columns);
      b.barrier();
    });
  };
  round(&SourceView::keys, wideKeys, sharedKeys, width);
  round(&SourceView::values, wideValues, sharedValues, layout.valueColumns);
}

void GPUStreamKernel::loadTile(const Tile &tile, Value stage, Value column) {
  copyTile(tile, &SourceView::keys, sharedKeys, wideKeys, stage,
           {b.i32(0), width, width}, [&](Value tileRow, Value row) -> Value {
             if (sharedKeyRows)
               return memref::LoadOp::create(b, sharedKeyRows,
                                             b.toIndex(tileRow));
             return getKeyRow(tile, row);
           });
  copyTile(tile, &SourceView::values, sharedValues, wideValues, stage,
           {column, layout.valueColumns, valueWidth},
           [](Value, Value row) { return row; });
  if (hasWeights && !looksAhead())
    storeWeights(findWeights(tile), stage);
  if (hasLists)
    loadPlaces(tile, stage);
}

/// Logarithms of how many tokens the rows of a tile stand for, in base 2.
Values GPUStreamKernel::findWeights(const Tile &tile) {
  // Of whole warps, which vote.
  int64_t count = getHiddenWords() * kWarpSize;
  return findOwn(b, count, b.getF32Type(), [&](Value number) {
    Value row = findRow(tile, number).first;
    auto load = [&](const SourceView &source) -> Value {
      if (!source.logWeight)
        return b.scalar(0.0);
      Value at = b.broadcastIndex(source.logWeight, 0, b.toIndex(row));
      return b.loadScalar(source.logWeight, at);
    };
    if (sources.size() == 1)
      return load(sources.front());
    Value weight = b.scalar(0.0);
    for (auto [index, source] : llvm::enumerate(sources)) {
      if (!source.logWeight)
        continue;
      Value isThis = b.equal(tile.source, b.i32(index));
      Value otherwise = weight;
      weight = b.select(
          isThis, b.getF32Type(),
          [&, &source = source] { return load(source); },
          [&] { return otherwise; });
    }
    return weight;
  });
}

/// For squared scores, the roots of these numbers of tokens are left.
void GPUStreamKernel::storeWeights(ArrayRef<Value> found, Value stage) {
  const Value *next = found.begin();
  forEachOwn(b, getHiddenWords() * kWarpSize, [&](Value number) {
    Value weight = b.fmul(*next++, b.scalar(softmax::kLog2E));
    // An absent row is masked; a NaN stays.
    weight = b.fmax(b.scalar(softmax::kMasked), weight);
    noteHidden(stage, number, weight);
    if (!isSoftmax)
      weight = b.exp2(b.fmul(weight, b.scalar(0.5)));
    Value at = b.add(b.mul(stage, keyTile), number);
    b.ifThen(b.less(number, b.i32(keyTile)), [&] {
      memref::StoreOp::create(b, weight, sharedWeights, b.toIndex(at));
    });
  });
}
