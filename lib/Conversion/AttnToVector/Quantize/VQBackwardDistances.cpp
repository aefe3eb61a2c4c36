//===- VQBackwardDistances.cpp - Gradients of terms by distance -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the gradients of the scores of a tile's queries give relative keys r and
// queries are products along distances and queries,
//
//   dQ[q] += sum_d dS[d][q] r[d]     dr[d] += sum_q dS[d][q] Q[q]
//
// where dS has a row for each distance. Tokens are read a step at a time, so
// the rows of a step are skewed (see SkewedRows.h) and added to those by
// distance, which all steps of a tile share. Every batch entry, head and chunk
// sums on its own, and the sums are added in one order.
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

static int64_t getExtent(Value memref, int64_t dim) {
  return cast<MemRefType>(memref.getType()).getDimSize(dim);
}

DistanceRows VQBackwardKernel::getDistanceRows() {
  Value terms =
      op.getRelativeKeys() ? op.getRelativeKeys() : op.getDistanceBias();
  return {getExtent(terms, 1), tile};
}

/// Once for all tasks.
void VQBackwardKernel::layOutDistances() {
  if (!op.hasDistances())
    return;
  distanceSums.allocate(numChunks);
  if (Value terms = op.getDistanceBias()) {
    DistanceRows distances = getDistanceRows();
    Value sets = b.extent(terms, 0);
    distanceBias = loops.allocate(sets, {distances.getCount()}, state);
    b.forAll({sets}, [&](ValueRange at) {
      copyByDistance(b, b.rowView(terms, at), b.rowView(distanceBias, at),
                     getScoreFactor(), distances);
    });
  }
}

/// Makes the memory of a task, and clears its sums.
void VQBackwardKernel::beginDistances() {
  if (!op.hasDistances())
    return;
  DistanceRows distances = getDistanceRows();
  int64_t count = distances.getCount(), lanes = b.getLanes();
  // Rows before and behind those of a step are skewed with them.
  localRows = b.scratch({lanes + kStep + lanes, tile}, state);
  fillRows(b, localRows, zero, b.index(lanes), softmax::kHidden);
  SmallVector<OpFoldResult> offsets = {b.getIndexAttr(lanes),
                                       b.getIndexAttr(0)},
                            sizes = {b.getIndexAttr(kStep),
                                     b.getIndexAttr(tile)},
                            strides(2, b.getIndexAttr(1));
  dLocal = memref::SubViewOp::create(b, localRows, offsets, sizes, strides);
  distanceGradients = b.scratch({count, tile}, state);
  if (op.getRelativeKeys()) {
    relativeRows = b.scratch({tile, width}, state);
    relativeQueries = b.scratch({width, tile}, state);
    // Lanes without a query may be far from a token.
    products = b.scratch({count, tile}, state);
    fillRows(b, products, zero, b.index(count), 0.0);
  }
  Value group = b.div(b.extent(op.getQuery(), 1), b.extent(op.getValue(), 1));
  b.loop(zero, group, 1, [&](Value i) {
    head = b.add(b.mul(keyHead, group), i);
    Value at[] = {batch, head, chunk};
    b.forColumns(distances.numTerms, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), b.rowView(distanceSums.distances, at),
                    column);
    });
    if (distanceSums.keys)
      b.loop(zero, b.index(distances.numTerms), 1, [&](Value row) {
        b.forColumns(width, [&](KernelBuilder &k, Value column) {
          k.storeVector(k.splat(0.0), b.rowView(distanceSums.keys, at),
                        {row, column});
        });
      });
  });
}

/// Views of what belongs to the present head.
void VQBackwardKernel::beginDistancesOfHead() {
  Value at[] = {batch, head, chunk};
  headDistanceSums = b.rowView(distanceSums.distances, at);
  if (Value keys = op.getRelativeKeys()) {
    headKeys = b.rowView(keys, b.broadcastIndex(keys, 0, head));
    headKeySums = b.rowView(distanceSums.keys, at);
  }
  if (Value terms = op.getDistanceBias())
    headTerms = b.rowView(distanceBias, b.broadcastIndex(terms, 0, head));
}

/// Distances of the tile's queries from what they read: none is as far as this.
Value VQBackwardKernel::getDistanceEnd() {
  Value farthest = b.add(b.sub(first, getMemoryBegin()), tile);
  return b.min(farthest, getDistanceRows().numTerms);
}

/// The queries of the tile with the bias that relative keys see, scaled as the
/// others are, and their products with these keys.
void VQBackwardKernel::loadDistanceQueries() {
  if (!op.hasDistances())
    return;
  beginDistancesOfHead();
  DistanceRows distances = getDistanceRows();
  fillRows(b, distanceGradients, zero,
           b.add(getDistanceEnd(), 2 * distances.padding), softmax::kHidden);
  if (!op.getRelativeKeys())
    return;
  Value bias = b.rowView(op.getRelativeBias(),
                         b.broadcastIndex(op.getRelativeBias(), 0, head));
  double factor = getScale() * getScoreFactor();
  b.loop(zero, b.index(width), 1, [&](Value k) {
    Value addend = b.broadcast(b.fmul(b.loadScalar(bias, k), b.scalar(factor)));
    b.loop(zero, b.index(tile), b.getLanes(), [&](Value column) {
      b.storeVector(b.fadd(b.loadVector(queries, {k, column}), addend),
                    relativeQueries, {k, column});
    });
  });
  b.loop(zero, count, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value query = k.loadVector(window.queries,
                                 {batch, head, k.add(firstRow, row), column});
      Value sum = k.fadd(query, k.loadVector(bias, column));
      k.storeVector(k.fmul(sum, k.splat(factor)), relativeRows, {row, column});
    });
  });
  b.emitProduct(
      {getDistanceEnd(), b.index(width), tile,
       [&](KernelBuilder &kb, Value distance, Value k) {
         return kb.loadScalar(headKeys, {distance, k});
       },
       [&](KernelBuilder &kb, Value k, Value column) {
         return kb.loadVector(relativeQueries, {k, column});
       },
       [&](KernelBuilder &kb, Value distance, Value column, Value sum) {
         kb.storeVector(sum, products,
                        {distances.getRow(kb, distance), column});
       }});
}

/// Adds the terms of tokens from `low` on to their biases, or makes them these.
void VQBackwardKernel::addDistanceTerms(Value low, Value number) {
  SkewedTile skewed = {zero, number, b.sub(first, low), tile,
                       getDistanceRows()};
  skewed.forEachVector(b, products,
                       [&](Value row, Value query, Value place, Value sum) {
                         Value at[] = {row, query};
                         if (headTerms)
                           sum = b.fadd(sum, b.loadVector(headTerms, place));
                         if (op.getBias())
                           sum = b.fadd(sum, b.loadVector(biases, at));
                         b.storeVector(sum, biases, at);
                       });
}

/// Adds the gradients of the scores of tokens from `low` on to those by
/// distance.
void VQBackwardKernel::addDistanceGradients(Value low, Value number) {
  int64_t lanes = b.getLanes();
  Value end = b.mul(b.ceilDiv(number, lanes), lanes);
  fillRows(b, localRows, b.add(number, lanes), b.add(end, 2 * lanes),
           softmax::kHidden);
  // Vectors that begin with the gradient of row `row - lanes + i`.
  b.loop(zero, b.add(end, lanes), lanes, [&](Value row) {
    b.loop(zero, b.index(tile), lanes, [&](Value query) {
      Value distance = b.add(b.sub(first, low), query);
      Values skewed = skewRows(b, localRows, row, lanes, query);
      for (int64_t i = 0; i < lanes; ++i) {
        Value behind = b.add(b.sub(distance, row), lanes - i);
        Value at[] = {getDistanceRows().getRow(b, behind), query};
        Value old = b.loadVector(distanceGradients, at);
        b.storeVector(b.fadd(old, skewed[i]), distanceGradients, at);
      }
    });
  });
}

/// Adds what gradients by distance give the tile's queries and the terms.
void VQBackwardKernel::takeDistanceGradients() {
  if (!op.hasDistances())
    return;
  DistanceRows distances = getDistanceRows();
  Value end = getDistanceEnd();
  auto addSums = [&](Value first, int64_t count) {
    Values totals;
    for (int64_t i = 0; i < count; ++i) {
      Value row = distances.getRow(b, b.add(first, i)), total = b.splat(0.0);
      for (int64_t query = 0; query < tile; query += b.getLanes())
        total = b.fadd(total,
                       b.loadVector(distanceGradients, {row, b.index(query)}));
      totals.push_back(total);
    }
    return b.sumEach(totals);
  };
  Value whole = b.roundDown(end, b.getLanes());
  b.loop(zero, whole, b.getLanes(), [&](Value distance) {
    Value old = b.loadVector(headDistanceSums, distance);
    b.storeVector(b.fadd(old, addSums(distance, b.getLanes())),
                  headDistanceSums, distance);
  });
  b.loop(whole, end, 1, [&](Value distance) {
    Value sum = vector::ExtractOp::create(b, addSums(distance, 1), 0);
    b.storeScalar(b.fadd(b.loadScalar(headDistanceSums, distance), sum),
                  headDistanceSums, distance);
  });
  if (!headKeys)
    return;
  addQueryGradients(distanceGradients, distances.padding, headKeys, end,
                    softmax::isHidden);
  b.emitProduct(
      {end, count, width,
       [&](KernelBuilder &kb, Value distance, Value k) {
         return kb.loadScalar(distanceGradients,
                              {distances.getRow(kb, distance), k});
       },
       [&](KernelBuilder &kb, Value k, Value column) {
         return kb.loadVector(relativeRows, {k, column});
       },
       [&](KernelBuilder &kb, Value distance, Value column, Value sum) {
         Value at[] = {distance, column};
         Value old = kb.loadVector(headKeySums, at);
         kb.storeVector(kb.fadd(old, sum), headKeySums, at);
       },
       /*startRow=*/{},
       /*startTile=*/{},
       /*firstStep=*/{}, softmax::isHidden});
}
