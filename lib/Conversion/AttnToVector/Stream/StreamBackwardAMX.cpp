//===- StreamBackwardAMX.cpp - Gradients by AMX ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The five products of a tile of bf16 rows, none of which is a diagonal, all
// with sums of f32:
//
//   S[row][L]   = keys[row][D] queryPairs[D / 2][L][2]
//   dP[row][L]  = values[row][E] outputGradientPairs[E / 2][L][2]
//   dQT[D][L]  += keysT[D][row] scoreGradientPairs[rows / 2][L][2]
//   dV[row][E]  = P[row][L] outputGradientRowPairs[L / 2][E][2]
//   dK[row][D]  = dS[row][L] queryRowPairs[L / 2][D][2]
//
// S and dP take the places of P and dS, which are f32 until they are factors.
// A factor of a hidden entry is zero. Where some are, keysT and the pairs of
// rows are finite: products of vectors add the rest, for entries that are not
// hidden. So sums without it keep their bits.
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

void StreamBackwardKernel::allocateForGradients() {
  Type bf16 = b.getBF16Type(), state = b.getStateType();
  int64_t queries = tiles.getQueryLanes();
  int64_t depth = llvm::alignTo(queries, kAMXDepth);
  int64_t rows = llvm::alignTo(tileRows, kAMXDepth);
  int64_t columns = llvm::alignTo(width, kAMXDepth),
          valueColumns = llvm::alignTo(valueWidth, kAMXDepth);
  stagedPairs = b.scratch({depth, columns}, bf16);
  stagedGradientPairs = b.scratch({depth, valueColumns}, bf16);
  queryPairs = b.scratch({columns / 2, 2 * queries}, bf16);
  outputGradientPairs = b.scratch({valueColumns / 2, 2 * queries}, bf16);
  queryRowPairs = b.scratch({depth / 2, 2 * columns}, bf16);
  outputGradientRowPairs = b.scratch({depth / 2, 2 * valueColumns}, bf16);
  tileKeys = b.scratch({rows, columns}, bf16);
  tileValues = b.scratch({rows, valueColumns}, bf16);
  // An odd number of cache lines, as in StreamAMX.cpp.
  int64_t pitch = llvm::alignDown(rows, 2 * kAMXDepth) + kAMXDepth;
  tileKeyColumns = b.scratch({columns, pitch}, bf16);
  narrowScores = b.scratch({rows, depth}, bf16);
  narrowGradientRows = b.scratch({rows, depth}, bf16);
  scoreGradientPairs = b.scratch({rows / 2, 2 * queries}, bf16);
  keySums = b.scratch({rows, columns}, state);
  valueSums = b.scratch({rows, valueColumns}, state);
  queryGradientColumns = b.scratch({columns, queries}, state);
}

StreamKernel::Segment StreamBackwardKernel::stageForGradients(Segment tile) {
  Value end = alignToDepth(b, tile.count);
  auto copy = [&](Value from, Value to, int64_t columns) {
    int64_t padded = llvm::alignTo(columns, kAMXDepth);
    b.loop(b.index(0), tile.count, 1, [&](Value offset) {
      Value row = tile.kind == Segment::Table ? tableRow(tile, offset)
                                              : b.add(tile.base, offset);
      if (columns != padded)
        StreamKernel::clearRow(to, offset, columns, padded);
      b.copyRow(from, row, to, offset, columns);
    });
    b.loop(tile.count, end, 1, [&](Value offset) {
      StreamKernel::clearRow(to, offset, 0, padded);
    });
  };
  copy(tile.keys, tileKeys, width);
  copy(tile.values, tileValues, valueWidth);
  b.loop(b.index(0), end, kAMXDepth, [&](Value offset) {
    transposeForAMX(tileKeys, offset, llvm::alignTo(width, kAMXRows),
                    tileKeyColumns, offset, /*clears=*/mayHide(tile));
  });
  tile.keys = tileKeys;
  tile.values = tileValues;
  tile.base = b.index(0);
  return tile;
}

/// Pairs of rows 2i and 2i + 1 of `staged`.
static void pairRows(KernelBuilder &b, Value staged, Value pairs, bool clears) {
  auto type = cast<MemRefType>(staged.getType());
  VectorType narrow = getNarrow(b, kAMXRows);
  b.loop(b.index(0), b.extent(staged, 0), 2, [&](Value row) {
    b.loop(
        b.index(0), b.index(type.getDimSize(1)), kAMXRows, [&](Value column) {
          auto load = [&](Value at) -> Value {
            return vector::LoadOp::create(b, narrow, staged,
                                          ValueRange{at, column});
          };
          Value both =
              vector::InterleaveOp::create(b, load(row), load(b.add(row, 1)));
          vector::StoreOp::create(b, clears ? clearSpecials(b, both) : both,
                                  pairs,
                                  ValueRange{b.div(row, 2), b.mul(column, 2)});
        });
  });
}

void StreamBackwardKernel::packForGradients(Value query, Value numQueries,
                                            ArrayRef<Segment> segments) {
  clearsFactors = llvm::any_of(
      segments, [&](const Segment &segment) { return mayHide(segment); });
  packPairs({queryRows, stagedPairs, queryPairs, width}, query, numQueries);
  packPairs({dOutputRows, stagedGradientPairs, outputGradientPairs, valueWidth},
            query, numQueries);
  pairRows(b, stagedPairs, queryRowPairs, clearsFactors);
  pairRows(b, stagedGradientPairs, outputGradientRowPairs, clearsFactors);
  b.loop(b.index(0), b.index(llvm::alignTo(width, kAMXRows)), 1,
         [&](Value column) {
           for (int64_t v = 0; v < vectors; ++v)
             b.storeVector(b.splat(0.0), queryGradientColumns,
                           {column, b.index(v * lanes)});
         });
}

/// A product whose factors and sums begin at the first row and column.
static PairProduct startProduct(KernelBuilder &b, Value left, Value right,
                                Value sums) {
  PairProduct product;
  product.left = left;
  product.right = right;
  product.sums = sums;
  product.leftRow = product.leftColumn = product.rightRow = product.sumsRow =
      b.index(0);
  return product;
}

void StreamBackwardKernel::scoreGradientsByAMX(const Segment &tile) {
  auto multiply = [&](Value rows, Value pairs, Value sums, int64_t depth) {
    PairProduct product = startProduct(b, rows, pairs, sums);
    product.numRows = alignToDepth(b, tile.count);
    product.numColumns = b.index(tiles.getQueryLanes());
    product.depth = b.index(llvm::alignTo(depth, kAMXDepth));
    product.emit(b);
  };
  multiply(tile.keys, queryPairs, scores, width);
  multiply(tile.values, outputGradientPairs, scoreGradients, valueWidth);
}

/// Rounds weights, and gradients of products, to factors: zeros where there is
/// no row or no query.
void StreamBackwardKernel::narrowGradients(const Segment &tile) {
  Value gradients = productGradientsOf(tile);
  Value end = alignToDepth(b, tile.count), none = b.splat(0.0);
  b.loop(tile.count, end, 1, [&](Value offset) {
    for (int64_t v = 0; v < vectors; ++v)
      for (Value rows : {scores, gradients})
        b.storeVector(none, rows, {offset, b.index(v * lanes)});
  });
  VectorType narrow = getNarrow(b, lanes);
  auto maskType = VectorType::get({lanes}, b.getI1Type());
  int64_t columns = cast<MemRefType>(narrowScores.getType()).getDimSize(1);
  Values arePresent;
  for (int64_t v = 0; v < vectors; ++v)
    arePresent.push_back(vector::CreateMaskOp::create(
        b, maskType,
        ValueRange{b.clamp(b.sub(blockQueries, b.index(v * lanes)), b.index(0),
                           b.index(lanes))}));
  b.loop(b.index(0), end, 2, [&](Value offset) {
    for (int64_t v = 0; v * lanes < columns; ++v) {
      Value lane = b.index(v * lanes);
      auto round = [&](Value rows, Value to, Value row) {
        Value factor = none;
        if (v < vectors)
          factor = arith::SelectOp::create(
              b, arePresent[v], b.loadVector(rows, {row, lane}), none);
        factor = arith::TruncFOp::create(b, narrow, factor);
        vector::StoreOp::create(b, factor, to, ValueRange{row, lane});
        return factor;
      };
      Values pair;
      for (int64_t i = 0; i < 2; ++i) {
        Value row = b.add(offset, i);
        round(scores, narrowScores, row);
        pair.push_back(round(gradients, narrowGradientRows, row));
      }
      if (v < vectors)
        vector::StoreOp::create(
            b, vector::InterleaveOp::create(b, pair[0], pair[1]),
            scoreGradientPairs,
            ValueRange{b.div(offset, 2), b.index(2 * v * lanes)});
    }
  });
}

void StreamBackwardKernel::multiplyGradients(const Segment &tile) {
  Value rows = alignToDepth(b, tile.count);
  PairProduct queries =
      startProduct(b, tileKeyColumns, scoreGradientPairs, queryGradientColumns);
  queries.numRows = b.index(llvm::alignTo(width, kAMXRows));
  queries.numColumns = b.index(tiles.getQueryLanes());
  queries.depth = rows;
  queries.addsToSums = true;
  queries.emit(b);
  auto multiply = [&](Value factors, Value pairs, Value sums, int64_t columns) {
    PairProduct product = startProduct(b, factors, pairs, sums);
    product.numRows = rows;
    product.numColumns = b.index(llvm::alignTo(columns, kAMXRows));
    product.depth = b.index(llvm::alignTo(tiles.getQueryLanes(), kAMXDepth));
    product.emit(b);
  };
  multiply(narrowScores, outputGradientRowPairs, valueSums, valueWidth);
  multiply(narrowGradientRows, queryRowPairs, keySums, width);
}

void StreamBackwardKernel::addSumsToRows(const Segment &tile, Value sums,
                                         Value target, int64_t columns,
                                         Value factor) {
  b.loop(b.index(0), tile.count, 1, [&](Value offset) {
    Value row = targetRow(tile, offset);
    forEachColumns(columns, [&](Value column, int64_t count) {
      Values found;
      for (int64_t c = 0; c < count; ++c)
        found.push_back(b.loadVector(sums, {offset, b.add(column, c * lanes)}));
      addToRow(target, row, column, columns, found, factor);
    });
  });
}

void StreamBackwardKernel::finishQueryGradients() {
  b.loop(b.index(0), b.index(tiles.getQueryLanes()), lanes, [&](Value query) {
    b.loop(b.index(0), b.index(width), lanes, [&](Value column) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i)
        tile.push_back(
            b.loadVector(queryGradientColumns, {b.add(column, i), query}));
      for (auto [i, sums] : llvm::enumerate(b.transpose(tile))) {
        Values at = {b.add(query, i), column};
        b.storeVector(b.fadd(b.loadVector(queryGradients, at), sums),
                      queryGradients, at);
      }
    });
  });
}

Value StreamBackwardKernel::isSpecial(const Segment &tile) {
  if (!clearsFactors)
    return Value();
  Value special = b.either(queriesAreSpecial, gradientsAreSpecial);
  return keysAreSpecial ? b.either(keysAreSpecial, special) : special;
}

void StreamBackwardKernel::addSpecials(Segment tile) {
  tile = convert(tile);
  // Rows in f32 with zeros for what is finite.
  auto keepSpecials = [&](Value from, Value to, Value count, int64_t columns) {
    b.loop(b.index(0), count, 1, [&](Value row) {
      b.loop(b.index(0), b.index(columns), lanes, [&](Value column) {
        Value found = b.loadVector(from, {row, column});
        Value product = b.fmul(found, b.splat(0.0));
        Value isSpecial = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO,
                                                product, product);
        b.storeVector(
            arith::SelectOp::create(b, isSpecial, found, b.splat(0.0)), to,
            {row, column});
      });
    });
  };
  // A tile that hides nothing has met those of its keys.
  keepSpecials(tile.keys, tile.keys, tile.count, width);
  keepSpecials(queryTile, keySums, blockQueries, width);
  keepSpecials(gradientTile, valueSums, blockQueries,
               llvm::alignTo(valueWidth, lanes));
  keysAreSpecial = Value();
  if (mayHide(tile))
    addQueryGradients(tile, /*ahead=*/{});
  addRowGradients(tile, {scores, valueSums, valueTarget(tile), valueWidth,
                         /*ahead=*/{}, /*areSpecial=*/Value()});
  addRowGradients(tile, {productGradientsOf(tile), keySums, keyTarget(tile),
                         width, /*ahead=*/{}, /*areSpecial=*/Value(),
                         b.splat(op.getScale().convertToDouble())});
}
