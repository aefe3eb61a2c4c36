//===- GPUGradientBias.cpp - Biases of scores of gradients on sm_90a ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has entries in two rows of scores and pairs of columns. Where these
// are rows of the source, a pair lies side by side, as in the forward kernel;
// where they are queries, the rows of eight threads do.
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "GPUGradientWarpgroups.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

bool GradientBlock::hidesByTerm() {
  return source.bias || (mayRemove() && !gathered) ||
         (source.logWeight && !ofRows && !gathered && !isScattered);
}

/// Of tiles that have some of these rows.
Value GradientBlock::addSquares(Value tiles, Value head, Value first,
                                int64_t rows) {
  Value last = k.sub(k.extent(tiles, 2), k.index(1)), sum = k.scalar(0.0);
  auto add = [&](int64_t offset) {
    Value tile = k.min(k.div(k.toIndex(k.add(first, offset)), kTile), last);
    sum = k.fadd(sum, k.loadScalar(tiles, {batch, k.toIndex(head), tile}));
  };
  for (int64_t offset = 0; offset < rows; offset += kTile)
    add(offset);
  add(rows - 1);
  return sum;
}

Value GradientBlock::isCutByTerm(const Tile &tile, Value squares) {
  Value passing = addSquares(passingSquares, ofRows ? tile.head : keyHead,
                             tile.firstRow, kTile);
  return k.either(tile.isCut, isUnbounded(k, k.fadd(squares, passing)));
}

/// The last one stands for those behind the end.
Value GradientBlock::clampRow(Value operand, Value row) {
  Value last = k.sub(k.toI32(k.extent(operand, 2)), k.i32(1));
  return k.toIndex(k.min(row, last));
}

/// The bias of the head of a tile [N or 1, M or 1].
Value GradientBlock::viewBias(const Tile &tile) {
  Value bias = source.bias;
  return k.rowView(
      bias, {k.broadcastIndex(bias, 0, batch),
             k.broadcastIndex(bias, 1, ofRows ? k.toIndex(tile.head) : head)});
}

Value GradientBlock::loadBias(const Tile &tile, int64_t half, Value offset) {
  Value view = viewBias(tile), own = getOwnRow(half),
        other = k.add(tile.firstRow, offset);
  Value at[] = {
      k.broadcastIndex(view, 0, clampRow(op.getQuery(), ofRows ? other : own)),
      k.broadcastIndex(view, 1, clampRow(source.keys, ofRows ? own : other))};
  return k.loadScalar(view, at);
}

Values GradientBlock::loadBias(const Tile &tile) {
  BiasTile part = {viewBias(tile),  {},   tile.firstRow, {},
                   getPairColumn(), kTile};
  for (int64_t half : {0, 1})
    part.rows[half] = {
        clampRow(ofRows ? source.keys : op.getQuery(), getOwnRow(half))};
  Values pairs;
  if (!ofRows) {
    part.count = k.sub(k.toI32(k.extent(source.keys, 2)), tile.firstRow);
    pairs = loadBiasPairs(k, part);
  }
  // Elements that stand for several are loaded once.
  auto type = cast<MemRefType>(part.bias.getType());
  bool sharesRows = type.getDimSize(ofRows ? 1 : 0) == 1,
       sharesColumns = type.getDimSize(ofRows ? 0 : 1) == 1;
  auto pair = VectorType::get({2}, type.getElementType());
  Value firstColumn = k.add(tile.firstRow, part.pairColumn);
  auto load = [&](int64_t half, int64_t column) -> Value {
    Value own = part.rows[half].front(),
          other = clampRow(ofRows ? op.getQuery() : source.keys,
                           k.add(firstColumn, column));
    Value at[] = {k.broadcastIndex(part.bias, 0, ofRows ? other : own),
                  k.broadcastIndex(part.bias, 1, ofRows ? own : other)};
    return memref::LoadOp::create(k, part.bias, at);
  };
  while (pairs.size() < kTile / 4) {
    int64_t half = pairs.size() % 2, column = pairs.size() / 2 * 8;
    if (sharesRows && half == 1) {
      pairs.push_back(pairs.back());
    } else if (sharesColumns && column > 0) {
      pairs.push_back(pairs[half]);
    } else {
      Value first = load(half, column);
      Value both[] = {first, sharesColumns ? first : load(half, column + 1)};
      pairs.push_back(vector::FromElementsOp::create(k, pair, both));
    }
  }
  return pairs;
}
