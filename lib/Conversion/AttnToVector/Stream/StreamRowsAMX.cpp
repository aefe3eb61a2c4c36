//===- StreamRowsAMX.cpp - Products of many query rows by AMX -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where keys, values and rows are bf16, and too many for vectors of columns:
//
//   S[key][row]      = keys[key][D]       rowPairs[D / 2][row][2]
//   O[row][column]  += weights[row][keys] valuePairs[keys / 2][column][2]
//
// The rows of a tile of keys are copied, values in pairs, and zeros fill up
// whole tiles. Weights are rounded and transposed. Lines are asked for as rows
// are copied.
//
//===----------------------------------------------------------------------===//

#include "AMXProduct.h"
#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

static VectorType getNarrow(KernelBuilder &b, int64_t elements) {
  return VectorType::get({elements}, b.getBF16Type());
}

static Value roundUp(KernelBuilder &b, Value count) {
  return b.roundDown(b.add(count, kAMXDepth - 1), kAMXDepth);
}

/// A buffer as rows of so many elements.
static Value asRows(KernelBuilder &b, Value buffer, Value rows, Value pitch) {
  constexpr int64_t kAny = ShapedType::kDynamic;
  MLIRContext *context = b.getContext();
  auto type = MemRefType::get(
      {kAny, kAny}, cast<MemRefType>(buffer.getType()).getElementType(),
      StridedLayoutAttr::get(context, /*offset=*/0, {kAny, 1}));
  return memref::ReinterpretCastOp::create(
      b, type, buffer, /*offset=*/b.getIndexAttr(0),
      ArrayRef<OpFoldResult>{rows, pitch},
      ArrayRef<OpFoldResult>{pitch, b.getIndexAttr(1)});
}

void StreamRowsKernel::allocateForAMX() {
  Type bf16 = b.getBF16Type();
  int64_t rows = getRowCapacity();
  amxRows = b.scratch({rows * width}, bf16);
  amxKeys = b.scratch({kAMXTile, width}, bf16);
  amxValues = b.scratch({kAMXTile / 2, 2 * paddedValueWidth}, bf16);
  // Rows are an odd number of cache lines apart: those of a tile lie in
  // different sets of the cache.
  amxWeights = b.scratch({rows, kAMXTile + kAMXDepth}, bf16);
}

/// The rows as they are, in pairs. A pair moves like one f32.
void StreamRowsKernel::packRowsForAMX() {
  Value view = asRows(b, amxRows, b.index(width / 2), b.mul(paddedRows, 2));
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), b.index(width), kAMXDepth, [&](Value column) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i) {
        auto [head, query] = locate(b.add(row, i));
        Value part =
            vector::LoadOp::create(b, getNarrow(b, kAMXDepth), op.getQuery(),
                                   ValueRange{batch, head, query, column});
        square.push_back(vector::BitCastOp::create(b, b.getVectorType(), part));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(square))) {
        Value pairs =
            vector::BitCastOp::create(b, getNarrow(b, kAMXDepth), vector);
        vector::StoreOp::create(
            b, pairs, view,
            ValueRange{b.add(b.div(column, 2), i), b.mul(row, 2)});
      }
    });
  });
}

void StreamRowsKernel::scoreByAMX(const Rows &keys, const Plane &target) {
  int64_t ahead = getAhead(keys, lanes);
  b.loop(b.index(0), keys.count, 1, [&](Value key) {
    if (ahead)
      askRow(keys, b.add(key, ahead));
    b.copyRow(keys.memref, keys.at(b, key), amxKeys, key, width);
  });
  AMXProduct product;
  product.left = amxKeys;
  product.leftRow = product.leftColumn = product.rightRow = b.index(0);
  product.right = asRows(b, amxRows, b.index(width / 2), b.mul(paddedRows, 2));
  product.sums = asRows(b, target.memref, b.index(kAMXTile), target.pitch);
  product.sumsRow = b.index(0);
  // Rows behind the last one of the tile are those of an earlier one.
  product.numRows = b.mul(b.ceilDiv(keys.count, kAMXRows), kAMXRows);
  product.numColumns = paddedRows;
  product.depth = b.index(width);
  product.emit(b);
  Value scale = b.splat(op.getScale().convertToDouble() * softmax::kLog2E);
  b.loop(b.index(0), b.mul(keys.count, target.pitch), lanes, [&](Value at) {
    b.storeVector(b.fmul(b.loadVector(target.memref, at), scale), target.memref,
                  at);
  });
}

/// Copies values in pairs, those of the last row of an odd number with zeros.
void StreamRowsKernel::packValuePairs(const Rows &values, bool onlyFinite) {
  int64_t ahead = getAhead(values, lanes);
  VectorType type = getNarrow(b, lanes);
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(type));
  auto load = [&](Value row, Value column) -> Value {
    Value part =
        vector::LoadOp::create(b, type, values.memref, ValueRange{row, column});
    if (!onlyFinite)
      return part;
    Value wide = arith::ExtFOp::create(b, b.getVectorType(), part);
    return arith::SelectOp::create(b, isFinite(wide), part, zeros);
  };
  b.loop(b.index(0), values.count, 2, [&](Value key) {
    Value hasSecond = b.less(b.add(key, 1), values.count);
    Value first = values.at(b, key), second = rowOf(values, b.add(key, 1));
    if (ahead && !onlyFinite)
      for (int64_t i = 0; i < 2; ++i)
        askRow(values, b.add(key, ahead + i));
    b.overVectors(valueWidth, [&](Value column) {
      Value other =
          arith::SelectOp::create(b, hasSecond, load(second, column), zeros);
      Value pairs = vector::InterleaveOp::create(b, load(first, column), other);
      vector::StoreOp::create(b, pairs, amxValues,
                              ValueRange{b.div(key, 2), b.mul(column, 2)});
    });
  });
  b.loop(b.ceilDiv(values.count, 2), b.div(roundUp(b, values.count), 2), 1,
         [&](Value pair) {
           b.overVectors(2 * valueWidth, [&](Value column) {
             vector::StoreOp::create(b, zeros, amxValues,
                                     ValueRange{pair, column});
           });
         });
}

void StreamRowsKernel::packWeights(Value count) {
  Value end = roundUp(b, count);
  b.loop(b.mul(count, scores.pitch), b.mul(end, scores.pitch), lanes,
         [&](Value at) { b.storeVector(b.splat(0.0), scores.memref, at); });
  b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
    b.loop(b.index(0), end, lanes, [&](Value key) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(
            b.loadVector(scores.memref, scores.at(b, b.add(key, i), row)));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, amxWeights, {b.add(row, i), key});
    });
  });
}

/// `accumulate` by AMX. Values that are not finite count as zeros first where
/// entries are removed, and are then added where they are read: so all sums
/// add in one order.
void StreamRowsKernel::accumulateByAMX(const Tile &tile) {
  const SourceView &source = tile.source;
  Rows values = rowsOf(tile, source.values);
  packWeights(tile.count);
  auto multiply = [&](bool onlyFinite) {
    packValuePairs(values, onlyFinite);
    AMXProduct product;
    product.left = amxWeights;
    product.leftRow = product.leftColumn = product.rightRow = b.index(0);
    product.right = amxValues;
    product.sums = outputs;
    product.sumsRow = b.index(0);
    product.numRows = paddedRows;
    product.numColumns = b.index(paddedValueWidth);
    product.depth = roundUp(b, tile.count);
    product.addsToSums = true;
    product.emit(b);
  };
  if (!tile.removesAny)
    return multiply(/*onlyFinite=*/false);
  Value isPlain = areFinite(values, tile.removesAny);
  b.ifThenElse(
      isPlain, [&] { multiply(/*onlyFinite=*/false); },
      [&] {
        multiply(/*onlyFinite=*/true);
        markHidden(tile);
        accumulateVisible(values, /*onlyInfinite=*/true);
      });
}
