//===- StreamBias.cpp - A bias of scores that are looked up ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scores that are looked up (StreamTables.cpp) cost nothing but their bias. It
// is the largest operand, every element is read once, and the rows of a block
// of queries are as far apart as a row is long: often a multiple of 4 KB, which
// makes every row a page of its own and puts the lines of one square of rows
// and queries into one set of the first cache level. So the bias of a tile is
// copied, next to each other, during the product of the tile before with its
// values, which leaves loads and stores idle, and that of the tile after is
// asked for.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Vectors that one turn of a product copies, at most: values of fewer columns
/// have too few turns.
static constexpr int64_t kMaxCopiesPerTurn = 4;

/// Whether the bias of scores that are looked up is transposed in registers:
/// rows in order, and a row and a column of the bias for each of them.
bool StreamKernel::addsBiasInSquares(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  return source.keyTable && source.bias && !source.distanceTerms &&
         segment.kind == Segment::Rows && !source.biasRowBroadcasts &&
         !source.biasKeyBroadcasts;
}

/// Scores the rows that fill whole squares of rows and queries, whose bias is
/// transposed in registers. Returns how many they are.
Value StreamKernel::lookUpWithBias(const Segment &segment, Values &maximum) {
  const SourceView &source = sources[segment.source];
  Value whole = b.roundDown(segment.count, lanes);
  Value lastQuery = b.sub(b.extent(source.bias, 0), b.index(1));
  Value termScale = b.broadcast(getTermScale());
  Value masked = b.splat(softmax::kMasked);
  maximum = b.loop(
      b.index(0), whole, lanes, maximum, [&](Value offset, ValueRange running) {
        Values rows, weights, next(running);
        for (int64_t i = 0; i < lanes; ++i) {
          Value row = b.add(b.add(segment.row, offset), i);
          weights.push_back(weightAt(segment, b.add(offset, i)));
          rows.push_back(tableRowOf(source, row));
        }
        Value column = b.add(segment.biasColumn, offset);
        for (int64_t v = 0; v < vectors; ++v) {
          Value lane = b.index(v * lanes);
          Values tile;
          for (int64_t i = 0; i < lanes; ++i) {
            if (segment.biasRows) {
              tile.push_back(b.loadVector(segment.biasRows,
                                          {b.index(v * lanes + i), offset}));
              continue;
            }
            // Lanes without a query read the last one's bias.
            Value query = b.min(b.add(blockQuery, v * lanes + i), lastQuery);
            tile.push_back(b.loadVector(source.bias, {query, column}));
          }
          // Maxima of some rows each: one chain would be waited for.
          Values maxima(std::min<int64_t>(4, lanes));
          for (auto [i, bias] : llvm::enumerate(b.transpose(tile))) {
            Value score =
                b.loadVector(source.keyTable->scores, {rows[i], lane});
            if (isSoftmax && weights[i])
              score = b.fadd(score, weights[i]);
            score = b.fma(bias, termScale, score);
            Value hidden = hides(segment, b.add(offset, i), v, weights[i], bias,
                                 /*score=*/Value(), /*cuts=*/false);
            score = arith::SelectOp::create(b, hidden, masked, score);
            b.storeVector(score, scores,
                          {b.add(b.add(segment.scoreRow, offset), i), lane});
            Value &top = maxima[i % maxima.size()];
            top = top ? b.fmax(top, score) : score;
          }
          for (Value top : maxima)
            next[v] = b.fmax(next[v], top);
        }
        return next;
      });
  return whole;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Vectors of bias that a turn of a product of values copies, so that all turns
/// together copy a tile; 0 without turns.
int64_t StreamKernel::getBiasCopiesPerTurn() {
  int64_t turns =
      valueWidth / tiles.getColumns() * (getLookupTile() / kProductUnroll);
  int64_t copies = tiles.getQueryLanes() * getLookupTile() / lanes;
  return turns ? llvm::divideCeil(copies, turns) : 0;
}

/// Whether a segment of long ranges has its bias copied.
bool StreamKernel::copiesBias(const Segment &segment) {
  if (!manageCache || !biasRows || !addsBiasInSquares(segment))
    return false;
  Value bias = sources[segment.source].bias;
  int64_t columns = cast<MemRefType>(bias.getType()).getDimSize(1);
  int64_t perTurn = getBiasCopiesPerTurn();
  return !ShapedType::isDynamic(columns) && columns >= lanes &&
         getLookupTile() % lanes == 0 && perTurn > 0 &&
         perTurn <= kMaxCopiesPerTurn;
}

/// Makes all tiles of a segment take their bias from a copy, and copies that of
/// the first one.
void StreamKernel::copyBias(Segment &segment) {
  Value bias = sources[segment.source].bias;
  segment.biasRows = biasRows;
  // The rows of the diagonal follow.
  Value end =
      b.add(b.add(segment.biasColumn, segment.count), tiles.getQueryLanes());
  segment.lastBias = b.sub(b.min(end, b.extent(bias, 1)), b.index(lanes));
  Segment before = segment;
  before.nextBias = segment.biasColumn;
  int64_t copies = tiles.getQueryLanes() * getLookupTile() / lanes;
  b.loop(b.index(0), b.index(copies), 1,
         [&](Value copy) { moveBias(before, copy); });
}

/// Emitted in each turn of the product of a tile's rows from `offset` on with a
/// tile of value columns from `column` on.
void StreamKernel::copyNextBias(const Segment &tile, Value column,
                                Value offset) {
  int64_t turnsPerTile = getLookupTile() / kProductUnroll;
  int64_t perTurn = getBiasCopiesPerTurn();
  int64_t copies = tiles.getQueryLanes() * getLookupTile() / lanes;
  Value turn = b.add(b.mul(b.div(column, tiles.getColumns()), turnsPerTile),
                     b.div(offset, kProductUnroll));
  for (int64_t i = 0; i < perTurn; ++i) {
    // There may be more turns than copies.
    Value copy = b.min(b.add(b.mul(turn, perTurn), i), copies - 1);
    moveBias(tile, copy);
  }
}

/// Copies one vector of the next tile's bias and asks for that of the tile
/// after the next.
void StreamKernel::moveBias(const Segment &tile, Value copy) {
  Value bias = sources[tile.source].bias;
  int64_t perRow = getLookupTile() / lanes;
  Value query = b.div(copy, perRow);
  Value offset = b.mul(b.rem(copy, perRow), lanes);
  // Lanes without a query read the last one's bias.
  Value row =
      b.min(b.add(blockQuery, query), b.sub(b.extent(bias, 0), b.index(1)));
  Value column = b.add(tile.nextBias, offset);
  b.storeVector(b.loadVector(bias, {row, b.min(column, tile.lastBias)}),
                biasRows, {query, offset});
  Value later = b.min(b.add(column, getLookupTile()), tile.lastBias);
  b.prefetch(bias, {row, later}, 2);
}

/// What a block reads of a segment's bias before it can be asked for tile by
/// tile.
StreamKernel::Lookahead StreamKernel::lookAheadInBias(const Segment &segment) {
  Value bias = sources[segment.source].bias;
  int64_t columns = cast<MemRefType>(bias.getType()).getDimSize(1);
  if (copiesBias(segment))
    columns = std::min(columns, 2 * getLookupTile());
  Value last = b.sub(b.extent(bias, 1), b.index(1));
  // Rows are likely to be pages of their own, whose first lines are waited for
  // between products, but hardly when they are asked for at once.
  b.loop(b.index(0), b.index(tiles.getQueryLanes()), lanes, [&](Value query) {
    for (int64_t i = 0; i < lanes; ++i)
      b.prefetch(
          bias,
          {b.add(b.add(blockQuery, query), i), b.min(segment.biasColumn, last)},
          2);
  });
  return {bias, blockQuery, 2, segment.biasColumn, columns, last};
}
