//===- ProductBuilder.cpp - Small products inside a kernel ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ProductBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Vectors of a register tile, and steps of its loop at a time.
static constexpr int64_t kTileVectors = 4, kUnroll = 4;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ProductBuilder::emitProduct(const Product &product) {
  int64_t panel = kTileVectors * getLanes();
  int64_t panels = product.columns / panel * panel;
  int64_t vectors = product.columns / getLanes() * getLanes();
  loop(index(0), index(panels), panel,
       [&](Value column) { emitPanel(*this, product, column, kTileVectors); });
  if (vectors != panels)
    loop(index(panels), index(vectors), getLanes(), [&](Value column) {
      emitPanel(*this, product, column, /*vectors=*/1);
    });
  if (product.columns == vectors)
    return;
  loop(index(vectors), index(product.columns), 1, [&](Value column) {
    KernelBuilder single(getLoc(), *this, getStateType(), /*lanes=*/1);
    emitPanel(single, product, column, /*vectors=*/1);
  });
}

void ProductBuilder::emitPanel(KernelBuilder &builder, const Product &product,
                               Value column, int64_t vectors) {
  Value whole = builder.roundDown(product.rows, kTileRows);
  builder.loop(builder.index(0), whole, kTileRows, [&](Value row) {
    emitTile(builder, product, row, kTileRows, column, vectors);
  });
  builder.loop(whole, product.rows, 1, [&](Value row) {
    emitTile(builder, product, row, /*numRows=*/1, column, vectors);
  });
}

void ProductBuilder::emitTile(KernelBuilder &builder, const Product &product,
                              Value row, int64_t numRows, Value column,
                              int64_t vectors) {
  auto columnOf = [&](int64_t vector) {
    return builder.add(column, vector * builder.getLanes());
  };
  bool onlyVisible = false;
  auto addStep = [&](Value k, ValueRange running) {
    Values right, sums(running);
    for (int64_t vector = 0; vector < vectors; ++vector)
      right.push_back(product.right(builder, k, columnOf(vector)));
    for (int64_t r = 0; r < numRows; ++r) {
      Value left =
          builder.broadcast(product.left(builder, builder.add(row, r), k));
      for (int64_t vector = 0; vector < vectors; ++vector) {
        Value &sum = sums[r * vectors + vector];
        Value next = builder.fma(left, right[vector], sum);
        if (onlyVisible)
          next = arith::SelectOp::create(builder, product.hides(builder, left),
                                         sum, next);
        sum = next;
      }
    }
    return sums;
  };
  if (product.startTile && numRows == kTileRows && vectors == kTileVectors)
    product.startTile(row);
  Values zeros(numRows * vectors, builder.splat(0.0));
  Value first =
      product.firstStep ? product.firstStep(builder, row) : builder.index(0);
  Values sums =
      builder.unrolledLoop(first, product.depth, kUnroll, zeros, addStep);
  if (product.hides)
    sums = softmax::unlessFinite(builder, sums, [&] {
      onlyVisible = true;
      return builder.loop(first, product.depth, 1, zeros, addStep);
    });
  for (int64_t r = 0; r < numRows; ++r) {
    Value at = builder.add(row, r);
    if (product.startRow)
      product.startRow(at);
    for (int64_t vector = 0; vector < vectors; ++vector)
      product.store(builder, at, columnOf(vector), sums[r * vectors + vector]);
  }
}

//===----------------------------------------------------------------------===//
// Transpositions
//===----------------------------------------------------------------------===//

static int64_t getWidth(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back();
}

/// Columns from `begin` on, element by element.
void ProductBuilder::emitElements(const Transposition &t, Value begin) {
  loop(begin, t.numColumns, 1, [&](Value column) {
    loop(index(0), index(getWidth(t.to)), 1, [&](Value row) {
      Value element = select(
          less(row, t.numRows), getStateType(),
          [&]() -> Value {
            Values at(t.leading);
            at.push_back(
                broadcastIndex(t.from, at.size(), add(t.firstRow, row)));
            at.push_back(add(t.firstColumn, column));
            return fmul(loadScalar(t.from, at), scalar(t.factor));
          },
          [&]() -> Value { return scalar(0.0); });
      storeScalar(element, t.to, {column, row});
    });
  });
}

void ProductBuilder::emitTransposition(const Transposition &t) {
  int64_t lanes = getLanes(), width = getWidth(t.to);
  Value zero = index(0);
  auto emitSquares = [&] {
    Value whole = roundDown(t.numColumns, lanes);
    loop(zero, whole, lanes, [&](Value column) {
      loop(zero, index(width), lanes, [&](Value row) {
        Values rows;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          Values at(t.leading);
          at.push_back(broadcastIndex(t.from, at.size(),
                                      add(add(t.firstRow, row), lane)));
          at.push_back(add(t.firstColumn, column));
          rows.push_back(loadVector(t.from, at));
          // Every row is a stream of its own, more than the CPU follows.
          if (t.isLong) {
            at.back() = add(at.back(), 2 * lanes);
            prefetch(t.from, at, /*locality=*/3);
          }
        }
        Values columns = transpose(rows);
        for (int64_t lane = 0; lane < lanes; ++lane)
          storeVector(fmul(columns[lane], splat(t.factor)), t.to,
                      {add(column, lane), row});
      });
    });
    emitElements(t, whole);
  };
  ifThenElse(equal(t.numRows, index(width)), emitSquares,
             [&] { emitElements(t, zero); });
}
