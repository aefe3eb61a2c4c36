//===- SkewedRows.cpp - Rows by distance and rows by key ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/SkewedRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void fovea::attn::fillRows(KernelBuilder &b, Value rows, Value low, Value high,
                           double value) {
  int64_t columns = cast<MemRefType>(rows.getType()).getShape().back();
  b.loop(low, high, 1, [&](Value row) {
    b.overVectors(columns, [&](Value column) {
      b.storeVector(b.splat(value), rows, {row, column});
    });
  });
}

void fovea::attn::copyByDistance(KernelBuilder &b, Value terms, Value to,
                                 double factor, DistanceRows distances) {
  b.loop(b.index(0), b.index(distances.getCount()), 1,
         [&](Value row) { b.storeScalar(b.scalar(0.0), to, row); });
  b.loop(b.index(0), b.index(distances.numTerms), 1, [&](Value distance) {
    b.storeScalar(b.fmul(b.loadScalar(terms, distance), b.scalar(factor)), to,
                  distances.getRow(b, distance));
  });
}

/// The lanes whose number has a bit.
static Value haveBit(KernelBuilder &b, int64_t bit) {
  SmallVector<bool> lanes;
  for (int64_t lane = 0; lane < b.getLanes(); ++lane)
    lanes.push_back(lane & bit);
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(VectorType::get({b.getLanes()}, b.getI1Type()),
                                lanes));
}

Values fovea::attn::skewRows(KernelBuilder &b, Value rows, Value first,
                             int64_t count, Value column) {
  Values vectors;
  for (int64_t i = 0; i < count + b.getLanes() - 1; ++i)
    vectors.push_back(b.loadVector(rows, {b.add(first, i), column}));
  for (int64_t bit = 1; bit < b.getLanes(); bit *= 2) {
    Value mask = haveBit(b, bit);
    for (auto [vector, further] :
         llvm::zip(vectors, ArrayRef(vectors).drop_front(bit)))
      vector = arith::SelectOp::create(b, mask, further, vector);
    vectors.pop_back_n(bit);
  }
  return vectors;
}

void SkewedTile::forEachVector(
    KernelBuilder &b, Value products,
    function_ref<void(Value, Value, Value, Value)> body) const {
  int64_t lanes = b.getLanes();
  auto visit = [&](Value key, int64_t numKeys) {
    b.loop(b.index(0), b.index(queries), lanes, [&](Value query) {
      auto rowOf = [&](int64_t i) {
        Value behind = b.sub(b.add(distance, query), b.add(key, i));
        return distances.getRow(b, behind);
      };
      Values sums(numKeys, b.splat(0.0));
      if (products)
        sums = skewRows(b, products, rowOf(numKeys - 1), numKeys, query);
      // Distances fall where keys rise.
      for (int64_t i = 0; i < numKeys; ++i)
        body(b.add(key, i), query, rowOf(i), sums[numKeys - 1 - i]);
    });
  };
  Value length = b.max(b.sub(high, low), b.index(0));
  Value whole = b.add(low, b.roundDown(length, lanes));
  b.loop(low, whole, lanes, [&](Value key) { visit(key, lanes); });
  b.loop(whole, high, 1, [&](Value key) { visit(key, 1); });
}
