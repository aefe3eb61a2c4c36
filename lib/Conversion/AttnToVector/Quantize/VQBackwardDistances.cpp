//===- VQBackwardDistances.cpp - Gradients of terms by distance -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With queries along vectors, the gradient of the score of token j gives
//
//   dQ^T[k] += dS_j r^T[k][distances of j]     r^T[k][distances of j] += dS_j
//   Q^T[k]
//
// where the distances of a token from the queries of a tile are consecutive
// columns of the transposed keys: see ShiftedProduct.h. Every batch entry, head
// and chunk sums on its own, and the sums are added in one order.
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

static int64_t getExtent(Value memref, int64_t dim) {
  return cast<MemRefType>(memref.getType()).getDimSize(dim);
}

DistanceColumns VQBackwardKernel::getDistanceColumns() {
  Value terms =
      op.getRelativeKeys() ? op.getRelativeKeys() : op.getDistanceBias();
  return {getExtent(terms, 1), tile};
}

ShiftedTile VQBackwardKernel::getShiftedTile(Value low, Value number) {
  return {zero,
          number,
          b.sub(first, low),
          kTileVectors,
          ProductBuilder::kTileRows,
          getDistanceColumns()};
}

/// Once for all tasks.
void VQBackwardKernel::layOutDistances() {
  if (!op.hasDistances())
    return;
  DistanceColumns columns = getDistanceColumns();
  int64_t numColumns = columns.getCount(b.getLanes());
  Value batches = b.extent(op.getQuery(), 0),
        heads = b.extent(op.getQuery(), 1);
  Value sumExtents[] = {batches, heads, numChunks};
  if (Value keys = op.getRelativeKeys()) {
    Value sets = b.extent(keys, 0);
    relativeKeys = loops.allocate(sets, {width, numColumns}, state);
    b.forAll({sets}, [&](ValueRange at) {
      transposeByDistance(b, b.rowView(keys, at), b.rowView(relativeKeys, at),
                          columns);
    });
    keySums = loops.allocate(sumExtents, {width, numColumns}, state);
    biasSums = loops.allocate(sumExtents, {width}, state);
  }
  if (Value terms = op.getDistanceBias()) {
    Value sets = b.extent(terms, 0);
    distanceBias = loops.allocate(sets, {numColumns}, state);
    b.forAll({sets}, [&](ValueRange at) {
      copyByDistance(b, b.rowView(terms, at), b.rowView(distanceBias, at),
                     getScoreFactor(), columns);
    });
    distanceSums = loops.allocate(sumExtents, {numColumns}, state);
  }
}

/// Clears the sums of a task.
void VQBackwardKernel::beginDistances() {
  if (!op.hasDistances())
    return;
  if (op.getRelativeKeys()) {
    relativeQueries = b.scratch({width, tile}, state);
    relativeGradients = b.scratch({width, tile}, state);
  }
  Value group = b.div(b.extent(op.getQuery(), 1), b.extent(op.getValue(), 1));
  b.loop(zero, group, 1, [&](Value i) {
    head = b.add(b.mul(keyHead, group), i);
    for (Value sums : {keySums, biasSums, distanceSums}) {
      if (!sums)
        continue;
      Value view = b.rowView(sums, {batch, head, chunk});
      auto type = cast<MemRefType>(view.getType());
      int64_t numRows = type.getRank() == 2 ? type.getDimSize(0) : 1;
      b.loop(zero, b.index(numRows), 1, [&](Value row) {
        b.forColumns(type.getShape().back(),
                     [&](KernelBuilder &k, Value column) {
                       Values at = {column};
                       if (type.getRank() == 2)
                         at.insert(at.begin(), row);
                       k.storeVector(k.splat(0.0), view, at);
                     });
      });
    }
  });
}

/// Views of what belongs to the present head.
void VQBackwardKernel::beginDistancesOfHead() {
  auto viewTerms = [&](Value terms, Value operand) {
    return b.rowView(terms, b.broadcastIndex(operand, 0, head));
  };
  if (op.getRelativeKeys()) {
    headKeys = viewTerms(relativeKeys, op.getRelativeKeys());
    headKeySums = b.rowView(keySums, {batch, head, chunk});
    headBiasSums = b.rowView(biasSums, {batch, head, chunk});
  }
  if (op.getDistanceBias()) {
    headTerms = viewTerms(distanceBias, op.getDistanceBias());
    headDistanceSums = b.rowView(distanceSums, {batch, head, chunk});
  }
}

/// The queries of the tile with the bias that relative keys see, scaled as the
/// others are.
void VQBackwardKernel::loadDistanceQueries() {
  if (!op.hasDistances())
    return;
  beginDistancesOfHead();
  if (!op.getRelativeKeys())
    return;
  Value bias = b.rowView(op.getRelativeBias(),
                         b.broadcastIndex(op.getRelativeBias(), 0, head));
  Value factor = b.scalar(getScale() * getScoreFactor());
  b.loop(zero, b.index(width), 1, [&](Value k) {
    Value addend = b.broadcast(b.fmul(b.loadScalar(bias, k), factor));
    b.loop(zero, b.index(tile), b.getLanes(), [&](Value column) {
      b.storeVector(b.fadd(b.loadVector(queries, {k, column}), addend),
                    relativeQueries, {k, column});
      b.storeVector(b.splat(0.0), relativeGradients, {k, column});
    });
  });
}

/// Adds the terms of tokens from `low` on to their biases, or makes them these.
void VQBackwardKernel::addDistanceTerms(Value low, Value number) {
  emitShiftedProduct(b, getShiftedTile(low, number), headKeys, relativeQueries,
                     width,
                     [&](Value row, int64_t vector, Value column, Value sum) {
                       Value at[] = {row, b.index(vector * b.getLanes())};
                       if (headTerms)
                         sum = b.fadd(sum, b.loadVector(headTerms, column));
                       if (op.getBias())
                         sum = b.fadd(sum, b.loadVector(biases, at));
                       b.storeVector(sum, biases, at);
                     });
}

/// Adds what the gradients of the scores of tokens from `low` on give.
void VQBackwardKernel::addDistanceGradients(Value low, Value number) {
  int64_t lanes = b.getLanes();
  ShiftedTile shifted = getShiftedTile(low, number);
  shifted.forEachGroup(b, [&](Value row, int64_t numRows) {
    Values gradients, columns;
    for (int64_t t = 0; t < numRows; ++t)
      for (int64_t v = 0; v < kTileVectors; ++v)
        gradients.push_back(
            b.loadVector(dLocal, {b.add(row, t * lanes), b.index(v * lanes)}));
    for (int64_t apart = 1 - numRows; apart < kTileVectors; ++apart)
      columns.push_back(shifted.getColumn(b, row, apart));
    // Calls `body` with each gradient and which of the columns it is for.
    auto forEachTerm =
        [&](llvm::function_ref<void(Value, int64_t, int64_t)> body) {
          for (int64_t t = 0; t < numRows; ++t)
            for (int64_t v = 0; v < kTileVectors; ++v)
              body(gradients[t * kTileVectors + v], v, v - t + numRows - 1);
        };
    auto addToColumns = [&](Value sums, ValueRange leading,
                            ValueRange changes) {
      for (auto [column, change] : llvm::zip_equal(columns, changes)) {
        Values at(leading);
        at.push_back(column);
        b.storeVector(b.fadd(b.loadVector(sums, at), change), sums, at);
      }
    };
    if (headTerms) {
      Values changes(columns.size(), b.splat(0.0));
      forEachTerm([&](Value gradient, int64_t, int64_t column) {
        changes[column] = b.fadd(changes[column], gradient);
      });
      addToColumns(headDistanceSums, {}, changes);
    }
    if (!headKeys)
      return;
    b.loop(zero, b.index(width), 1, [&](Value k) {
      Values keys, packed, dQuery, changes(columns.size(), b.splat(0.0));
      for (Value column : columns)
        keys.push_back(b.loadVector(headKeys, {k, column}));
      for (int64_t v = 0; v < kTileVectors; ++v) {
        Value at[] = {k, b.index(v * lanes)};
        packed.push_back(b.loadVector(relativeQueries, at));
        dQuery.push_back(b.loadVector(relativeGradients, at));
      }
      forEachTerm([&](Value gradient, int64_t v, int64_t column) {
        dQuery[v] = b.fma(gradient, keys[column], dQuery[v]);
        changes[column] = b.fma(gradient, packed[v], changes[column]);
      });
      for (int64_t v = 0; v < kTileVectors; ++v)
        b.storeVector(dQuery[v], relativeGradients, {k, b.index(v * lanes)});
      addToColumns(headKeySums, k, changes);
    });
  });
}

/// Adds to the gradients of the tile's queries, and those of their bias, what
/// relative keys give them.
void VQBackwardKernel::addDistanceGradientsOfQueries() {
  if (!op.getRelativeKeys())
    return;
  b.loop(zero, count, 1, [&](Value row) {
    b.loop(zero, b.index(width), 1, [&](Value k) {
      Value change = b.loadScalar(relativeGradients, {k, row});
      Value old = b.loadScalar(dQueries, {row, k});
      b.storeScalar(b.fadd(old, change), dQueries, {row, k});
      b.storeScalar(b.fadd(b.loadScalar(headBiasSums, k), change), headBiasSums,
                    k);
    });
  });
}

/// Stores gradients of terms, which are the sums of all batch entries and
/// chunks, and of all heads that share them.
void VQBackwardKernel::storeDistanceGradients() {
  double scale = getScale();
  // Queries were scaled, and in base 2 for the exponential.
  if (op.getDRelativeKeys()) {
    storeDistanceSums(keySums, op.getDRelativeKeys(), 1.0 / getScoreFactor());
    storeDistanceSums(biasSums, op.getDRelativeBias(), scale);
  }
  if (op.getDDistanceBias())
    storeDistanceSums(distanceSums, op.getDDistanceBias(), 1.0);
}

/// `sums` are [B, H, chunks, (D,) columns or D] and `gradient` [H or 1, (R,)
/// ..].
void VQBackwardKernel::storeDistanceSums(Value sums, Value gradient,
                                         double factor) {
  auto type = cast<MemRefType>(gradient.getType());
  bool isMatrix = type.getRank() == 3, isBias = sums == biasSums;
  int64_t numRows = isMatrix ? width : 1;
  int64_t numColumns = isBias ? width : getDistanceColumns().numTerms;
  int64_t firstColumn = isBias ? 0 : getDistanceColumns().padding;
  Value heads = b.extent(op.getQuery(), 1), sets = b.extent(gradient, 0);
  Value batches = b.extent(op.getQuery(), 0);
  b.forAll({sets, b.index(numRows)}, [&](ValueRange at) {
    Value begin = type.getDimSize(0) == 1 ? zero : at[0];
    Value end = type.getDimSize(0) == 1 ? heads : b.add(at[0], 1);
    b.loop(zero, b.index(numColumns), 1, [&](Value column) {
      auto addUp = [&](Value low, Value high, Value init,
                       llvm::function_ref<Value(Value, Value)> body) {
        return b.loop(low, high, 1, init, [&](Value i, ValueRange sum) {
          return Values{body(i, sum[0])};
        })[0];
      };
      Value total =
          addUp(zero, batches, b.scalar(0.0), [&](Value n, Value sum) {
            return addUp(begin, end, sum, [&](Value h, Value sum) {
              return addUp(zero, numChunks, sum, [&](Value c, Value sum) {
                Values place = {n, h, c};
                if (isMatrix)
                  place.push_back(at[1]);
                place.push_back(b.add(column, firstColumn));
                return b.fadd(sum, b.loadScalar(sums, place));
              });
            });
          });
      Values place = {at[0], column};
      if (isMatrix)
        place.push_back(at[1]);
      b.storeScalar(b.fmul(total, b.scalar(factor)), gradient, place);
    });
  });
}
