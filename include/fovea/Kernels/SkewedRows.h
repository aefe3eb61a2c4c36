//===- SkewedRows.h - Rows by distance and rows by key ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Terms by distance of consecutive keys and vectors of consecutive queries,
//
//   T[key][q] = P[distance of query 0 from the key + q][q]
//
// where P[d][q], such as `query[q] . r[d]`, is a product like any other. Lane l
// of a row of T is lane l of the row of P that lies l further on: no element
// leaves its lane. So a row is made in log2(lanes) steps, the one for a bit of
// the lane's number taking lanes that have it from a row so much further on,
// and each step is one selection. Rows of P are rows of T in the same way,
// since a key and a distance add up to the same for a query.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SKEWEDROWS_H
#define FOVEA_KERNELS_SKEWEDROWS_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// Rows of a buffer by distance, with `padding` of them before distance 0 and
/// as many behind the last one. Queries of a block are that far from keys that
/// only others of them read, at most.
struct DistanceRows {
  int64_t numTerms, padding;

  DistanceRows(int64_t numTerms, int64_t blockQueries)
      : numTerms(numTerms), padding(blockQueries) {}
  int64_t getCount() const { return padding + numTerms + padding; }
  mlir::Value getRow(KernelBuilder &b, mlir::Value distance) const {
    return b.add(distance, padding);
  }
};

/// Sets rows `low .. high - 1` of `rows` to `value`.
void fillRows(KernelBuilder &b, mlir::Value rows, mlir::Value low,
              mlir::Value high, double value);

/// Sets `to`, a number for each row by distance, to those in `terms`, [R],
/// times `factor`, and to 0 in the padding.
void copyByDistance(KernelBuilder &b, mlir::Value terms, mlir::Value to,
                    double factor, DistanceRows distances);

/// `count` vectors at `column`: lane l of the i-th one is that of row
/// `first + i + l`.
KernelBuilder::Values skewRows(KernelBuilder &b, mlir::Value rows,
                               mlir::Value first, int64_t count,
                               mlir::Value column);

/// Keys `low .. high - 1` and `queries` queries, in whole vectors.
struct SkewedTile {
  mlir::Value low, high;
  /// Of query 0 from key 0.
  mlir::Value distance;
  int64_t queries;
  DistanceRows distances;

  /// Calls `body(key, query, row, T)` for all vectors of queries that begin
  /// with `query`. `row` is that by distance of its first lane. T is that of
  /// `products`, or 0 where these are null.
  void forEachVector(KernelBuilder &b, mlir::Value products,
                     llvm::function_ref<void(mlir::Value key, mlir::Value query,
                                             mlir::Value row, mlir::Value sum)>
                         body) const;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SKEWEDROWS_H
