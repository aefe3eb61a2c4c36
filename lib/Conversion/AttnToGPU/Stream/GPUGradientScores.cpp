//===- GPUGradientScores.cpp - Regions of scores of gradients on sm_90a ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread computes the region of the source for each of its entries, from the
// product in natural units, and the derivative beside it. Captures are read
// where they lie; who reads nothing by position loads none.
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void GradientBlock::enterScores() {
  if (score && !ofRows)
    score->enterHead(k, batch, head);
}

/// What the body makes of the product of one of the thread's rows and of row
/// `offset` of a tile.
ScoreBody::Result GradientBlock::evaluate(ScoreBody &body, const Tile &tile,
                                          int64_t half, Value offset,
                                          Value product) {
  Value ownRow = getOwnRow(half), other = k.add(tile.firstRow, offset);
  Value query = ofRows ? other : ownRow, row = ofRows ? ownRow : other;
  if (gathered)
    row = k.max(memref::LoadOp::create(k, gathered->getRows(), k.toIndex(row)),
                k.i32(0));
  // As masks count: the last query stands at the last key.
  Value shift = k.sub(k.toI32(ranges->getLength().tokens),
                      k.toI32(ranges->getNumQueries()));
  Value key = emitPosition(k, source.attr.getMask(), row);
  product = k.fmul(product, k.scalar(op.getScale().convertToDouble()));
  return body.evaluate(k, product, {k.toIndex(k.add(query, shift))},
                       {k.toIndex(key)});
}

void GradientBlock::computeScores(
    const Tile &tile, ValueRange products,
    function_ref<void(size_t, const Score &)> body) {
  withKeptNumbers([&] {
    if (ofRows)
      score->enterHead(k, batch, k.toIndex(tile.head));
    for (auto [i, product] : llvm::enumerate(products)) {
      Value offset = k.add(getPairColumn(), int64_t(i / 4 * 8 + i % 2));
      ScoreBody::Result result =
          evaluate(*score, tile, i % 4 / 2, offset, product);
      Score entry = {result.score};
      if (!matchPattern(result.derivative, m_OneFloat()))
        entry.derivative = result.derivative;
      if (mayRemove())
        entry.isRemoved = isMinusInfinity(entry.score);
      body(i, entry);
    }
  });
}

/// Of an entry whose product another thread has.
Value GradientBlock::removesEntry(const Tile &tile, int64_t half,
                                  Value offset) {
  Value ownRow = getOwnRow(half), other = k.add(tile.firstRow, offset);
  Value queryHead = ofRows ? k.toIndex(tile.head) : head;
  Value query = clampRow(op.getQuery(), ofRows ? other : ownRow),
        row = clampRow(source.keys, ofRows ? ownRow : other);
  Value product = k.loop(
      k.index(0), k.index(getWidth(source.keys)), 1, {k.scalar(0.0)},
      [&](Value column, ValueRange sum) -> Values {
        Value left =
            k.loadScalar(op.getQuery(), {batch, queryHead, query, column});
        Value right = k.loadScalar(source.keys, {batch, keyHead, row, column});
        return {k.fma(left, right, sum[0])};
      })[0];
  ScoreBody body = *score;
  body.enterHead(k, batch, queryHead);
  return isMinusInfinity(evaluate(body, tile, half, offset, product).score);
}

Value GradientBlock::readsEntry(const Tile &tile, int64_t half, Value offset) {
  Value isRead = reads(tile, half, offset);
  if (!mayRemove())
    return isRead;
  return k.both(isRead, k.equal(removesEntry(tile, half, offset), k.i1(false)));
}
