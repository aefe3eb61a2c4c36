//===- ShiftedProduct.cpp - Products of queries and relative keys ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ShiftedProduct.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

int64_t DistanceColumns::getCount(int64_t lanes) const {
  return llvm::alignTo(padding + numTerms + padding, lanes);
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

static void clearRow(KernelBuilder &b, Value memref, ValueRange row) {
  int64_t columns = cast<MemRefType>(memref.getType()).getShape().back();
  b.loop(b.index(0), b.index(columns), b.getLanes(), [&](Value column) {
    SmallVector<Value> at(row);
    at.push_back(column);
    b.storeVector(b.splat(0.0), memref, at);
  });
}

void fovea::attn::transposeByDistance(KernelBuilder &b, Value keys, Value to,
                                      DistanceColumns columns) {
  int64_t width = cast<MemRefType>(keys.getType()).getDimSize(1);
  int64_t lanes = b.getLanes(), numTerms = columns.numTerms;
  b.loop(b.index(0), b.index(width), 1,
         [&](Value row) { clearRow(b, to, row); });
  auto copyElements = [&](int64_t firstTerm, int64_t firstK, int64_t endK) {
    b.loop(b.index(firstTerm), b.index(numTerms), 1, [&](Value distance) {
      b.loop(b.index(firstK), b.index(endK), 1, [&](Value k) {
        b.storeScalar(b.loadScalar(keys, {distance, k}), to,
                      {k, b.add(distance, columns.padding)});
      });
    });
  };
  // Whole squares are transposed in registers.
  int64_t wholeTerms = numTerms / lanes * lanes;
  int64_t wholeWidth = width / lanes * lanes;
  b.loop(b.index(0), b.index(wholeTerms), lanes, [&](Value distance) {
    b.loop(b.index(0), b.index(wholeWidth), lanes, [&](Value k) {
      Values square;
      for (int64_t i = 0; i < lanes; ++i)
        square.push_back(b.loadVector(keys, {b.add(distance, i), k}));
      for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
        b.storeVector(vector, to,
                      {b.add(k, i), b.add(distance, columns.padding)});
    });
  });
  copyElements(wholeTerms, 0, wholeWidth);
  copyElements(0, wholeWidth, width);
}

void fovea::attn::copyByDistance(KernelBuilder &b, Value terms, Value to,
                                 double factor, DistanceColumns columns) {
  clearRow(b, to, {});
  b.loop(b.index(0), b.index(columns.numTerms), 1, [&](Value distance) {
    b.storeScalar(b.fmul(b.loadScalar(terms, distance), b.scalar(factor)), to,
                  b.add(distance, columns.padding));
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void ShiftedTile::forEachGroup(KernelBuilder &b,
                               function_ref<void(Value, int64_t)> body) const {
  int64_t lanes = b.getLanes(), group = lanes * keys;
  Value length = b.max(b.sub(high, low), b.index(0));
  Value whole = b.add(low, b.roundDown(length, group));
  b.loop(low, whole, group, [&](Value first) {
    b.loop(first, b.add(first, lanes), 1, [&](Value row) { body(row, keys); });
  });
  b.loop(whole, high, 1, [&](Value row) { body(row, 1); });
}

Value ShiftedTile::getColumn(KernelBuilder &b, Value row, int64_t apart) const {
  return b.add(b.sub(distance, row), columns.padding + apart * b.getLanes());
}

void fovea::attn::emitShiftedProduct(
    KernelBuilder &b, const ShiftedTile &tile, Value keys, Value queries,
    int64_t width, function_ref<void(Value, int64_t, Value, Value)> store) {
  int64_t lanes = b.getLanes(), vectors = tile.vectors;
  tile.forEachGroup(b, [&](Value row, int64_t count) {
    // Row t and vector v take the vector of terms that is v - t apart.
    Values columns, totals(count * vectors, b.splat(0.0));
    for (int64_t apart = 1 - count; apart < vectors; ++apart)
      columns.push_back(tile.getColumn(b, row, apart));
    auto termsOf = [&](int64_t t, int64_t v) { return v - t + count - 1; };
    if (keys) {
      int64_t unroll = width % 2 ? 1 : 2;
      totals = b.loop(b.index(0), b.index(width), unroll, totals,
                      [&](Value first, ValueRange sums) {
                        Values next(sums);
                        for (int64_t u = 0; u < unroll; ++u) {
                          Value k = b.add(first, u);
                          Values terms, packed;
                          for (Value column : columns)
                            terms.push_back(b.loadVector(keys, {k, column}));
                          for (int64_t v = 0; v < vectors; ++v)
                            packed.push_back(
                                b.loadVector(queries, {k, b.index(v * lanes)}));
                          for (int64_t t = 0; t < count; ++t)
                            for (int64_t v = 0; v < vectors; ++v) {
                              Value &sum = next[t * vectors + v];
                              sum = b.fma(terms[termsOf(t, v)], packed[v], sum);
                            }
                        }
                        return next;
                      });
    }
    for (int64_t t = 0; t < count; ++t)
      for (int64_t v = 0; v < vectors; ++v)
        store(b.add(row, t * lanes), v, columns[termsOf(t, v)],
              totals[t * vectors + v]);
  });
}
