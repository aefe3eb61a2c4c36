//===- StreamBackwardProducts.cpp - Products of vectors -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The three products that give gradients, in register tiles of four rows.
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Steps of loops in one turn: short loops end as predicted.
static constexpr int64_t kUnroll = 4;

void StreamBackwardKernel::forEachColumns(
    int64_t columns, function_ref<void(Value, int64_t)> body) {
  int64_t numVectors = llvm::divideCeil(columns, lanes);
  int64_t whole = numVectors / columnVectors * columnVectors;
  // The last vector of a ragged width needs care, and has a tile to itself.
  if (columns % lanes != 0 && whole == numVectors)
    whole -= columnVectors;
  if (whole)
    b.loop(b.index(0), b.index(whole * lanes), columnVectors * lanes,
           [&](Value column) { body(column, columnVectors); });
  if (whole < numVectors)
    body(b.index(whole * lanes), numVectors - whole);
}

/// Emitted in each turn of a product at `depth`: turns of all tiles of columns
/// share the lines that go with a row.
void StreamBackwardKernel::prefetchInPanel(const Segment &segment, Value row,
                                           Step depth, Step column) {
  if (segment.lookahead.empty())
    return;
  int64_t panel = columnVectors * lanes;
  int64_t panels = llvm::divideCeil(column.end, panel);
  Value turn = b.add(b.mul(b.div(column.at, panel), depth.end), depth.at);
  prefetch(segment, row, turn, kUnroll, panels * depth.end);
}

/// `sum + weight * factor`, of hidden weights nothing if `onlyVisible`.
static Value addProduct(KernelBuilder &b, Value sum, Value weight, Value factor,
                        bool onlyVisible) {
  return onlyVisible ? softmax::addVisible(b, weight, factor, sum)
                     : b.fma(weight, factor, sum);
}

void StreamBackwardKernel::addQueryGradients(const Segment &tile,
                                             ArrayRef<Lookahead> ahead) {
  Segment segment = tile;
  segment.lookahead.assign(ahead.begin(), ahead.end());
  int64_t step = std::min(kRows, lanes);
  bool isDiagonal = tile.kind == Segment::Diagonal;
  Value weights = productGradientsOf(tile);
  Value low = isDiagonal ? tile.skip : b.index(0);
  b.loop(b.index(0), blockQueries, step, [&](Value query) {
    // Queries of a diagonal read the rows up to their own.
    Value high =
        isDiagonal ? b.min(tile.count, b.add(query, step)) : tile.count;
    forEachColumns(width, [&](Value column, int64_t count) {
      Values zeros(step * count, b.splat(0.0));
      bool onlyVisible = false;
      auto addRow = [&](Value offset, ValueRange running) {
        Value row = rowsOf(tile, offset, 1).front();
        Values keys, next;
        for (int64_t c = 0; c < count; ++c)
          keys.push_back(
              b.loadVector(tile.keys, {row, b.add(column, c * lanes)}));
        for (int64_t i = 0; i < step; ++i) {
          Value weight =
              b.broadcast(b.loadScalar(weights, {offset, b.add(query, i)}));
          for (int64_t c = 0; c < count; ++c)
            next.push_back(addProduct(b, running[i * count + c], weight,
                                      keys[c], onlyVisible));
        }
        return next;
      };
      Values sums =
          b.unrolledLoop(low, high, kUnroll, zeros, addRow, [&](Value offset) {
            prefetchInPanel(segment, query, {offset, tileRows},
                            {column, width});
          });
      sums = sumVisible(tile, keysAreSpecial, sums, [&] {
        onlyVisible = true;
        return b.loop(low, high, 1, zeros, addRow);
      });
      for (int64_t i = 0; i < step; ++i)
        for (int64_t c = 0; c < count; ++c) {
          Values at = {b.add(query, i), b.add(column, c * lanes)};
          b.storeVector(
              b.fadd(b.loadVector(queryGradients, at), sums[i * count + c]),
              queryGradients, at);
        }
    });
  });
}

Value StreamBackwardKernel::targetRow(const Segment &tile, Value entry) {
  if (!hasWindow(tile))
    return sourceRow(tile, entry);
  return memref::LoadOp::create(b, tableTargets, b.add(tile.table, entry));
}

void StreamBackwardKernel::addRowGradients(const Segment &tile,
                                           const RowProduct &product) {
  Segment segment = tile;
  segment.lookahead.assign(product.ahead.begin(), product.ahead.end());
  auto addRows = [&](Value low, Value high, int64_t step) {
    b.loop(low, high, step, [&](Value offset) {
      // Rows of a diagonal are read by their own query and later ones.
      Value begin = tile.kind == Segment::Diagonal ? offset : b.index(0);
      forEachColumns(product.columns, [&](Value column, int64_t count) {
        Values zeros(step * count, b.splat(0.0));
        bool onlyVisible = false;
        auto addQuery = [&](Value query, ValueRange running) {
          Values vectors, next;
          for (int64_t c = 0; c < count; ++c)
            vectors.push_back(
                b.loadVector(product.rows, {query, b.add(column, c * lanes)}));
          for (int64_t i = 0; i < step; ++i) {
            Value weight = b.broadcast(
                b.loadScalar(product.weights, {b.add(offset, i), query}));
            for (int64_t c = 0; c < count; ++c)
              next.push_back(addProduct(b, running[i * count + c], weight,
                                        vectors[c], onlyVisible));
          }
          return next;
        };
        Values sums = b.unrolledLoop(
            begin, blockQueries, kUnroll, zeros, addQuery, [&](Value query) {
              if (step == kRows)
                prefetchInPanel(segment, offset, {query, tiles.getQueryLanes()},
                                {column, product.columns});
            });
        sums = sumVisible(tile, product.areSpecial, sums, [&] {
          onlyVisible = true;
          return b.loop(begin, blockQueries, 1, zeros, addQuery);
        });
        for (int64_t i = 0; i < step; ++i)
          addToRow(product.target, targetRow(tile, b.add(offset, i)), column,
                   product.columns, ArrayRef(sums).slice(i * count, count),
                   product.factor);
      });
      if (step == kRows && product.endRows)
        product.endRows(offset);
    });
  };
  auto addTriangle = [&](Value low, Value high) {
    Value length = b.max(b.sub(high, low), b.index(0));
    Value whole = b.add(low, b.roundDown(length, kRows));
    addRows(low, whole, kRows);
    addRows(whole, high, 1);
  };
  if (tile.kind != Segment::Diagonal)
    return addTriangle(b.index(0), tile.count);
  // Rows of different triangles have weights for different vectors.
  b.loop(b.index(0), tile.count, lanes, [&](Value first) {
    addTriangle(b.max(tile.skip, first),
                b.min(tile.count, b.add(first, lanes)));
  });
}

/// Adds vectors of columns from `column` on to a row that has `columns`.
void StreamBackwardKernel::addToRow(Value target, Value row, Value column,
                                    int64_t columns, ValueRange sums,
                                    Value factor) {
  std::optional<int64_t> first = getConstantIntValue(column);
  for (auto [c, sum] : llvm::enumerate(sums)) {
    Values at = {row, b.add(column, c * lanes)};
    int64_t left = first ? columns - *first - int64_t(c) * lanes : lanes;
    if (left >= lanes) {
      Value old = b.loadVector(target, at);
      b.storeVector(factor ? b.fma(sum, factor, old) : b.fadd(old, sum), target,
                    at);
      continue;
    }
    b.storeVector(factor ? b.fmul(sum, factor) : sum, tail, b.index(0));
    for (int64_t i = 0; i < left; ++i)
      addTo(target, {row, b.add(at[1], i)}, b.loadScalar(tail, b.index(i)));
  }
}
