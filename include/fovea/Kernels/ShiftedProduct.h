//===- ShiftedProduct.h - Products of queries and relative keys -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scores by distance of a row of keys and vectors of consecutive queries,
//
//   T[row][q] = sum_k query[q][k] r[distance of query 0 + q - row][k]
//
// take consecutive rows of `r`. It is transposed once: then each k needs one
// vector of queries and one of `r`, whose first element moves by one from row
// to row, and no product is computed that the shift would throw away. Rows that
// are a vector apart and vectors of queries that lie next to each other need
// the same vectors of `r`: a register tile of 4 rows and 4 vectors loads 7 of
// them for 16 products.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SHIFTEDPRODUCT_H
#define FOVEA_KERNELS_SHIFTEDPRODUCT_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// How terms by distance lie in memory: as columns, with `padding` of them
/// before distance 0 and as many behind the last one. Queries of a block are
/// that far from the rows that only others of them read, at most.
struct DistanceColumns {
  int64_t numTerms, padding;

  DistanceColumns(int64_t numTerms, int64_t blockQueries)
      : numTerms(numTerms), padding(blockQueries) {}
  /// Of all columns, in whole vectors.
  int64_t getCount(int64_t lanes) const;
};

/// Sets `to`, [D][columns], to the transposed rows of `keys`, [R][D], with
/// zeros in the padding.
void transposeByDistance(KernelBuilder &b, mlir::Value keys, mlir::Value to,
                         DistanceColumns columns);
/// Sets `to`, [columns], to the numbers in `terms`, [R], times `factor`.
void copyByDistance(KernelBuilder &b, mlir::Value terms, mlir::Value to,
                    double factor, DistanceColumns columns);

/// Rows `low .. high - 1` of keys and `vectors` vectors of queries.
struct ShiftedTile {
  mlir::Value low, high;
  /// Of query 0 from row 0.
  mlir::Value distance;
  int64_t vectors;
  /// Rows of a register tile.
  int64_t keys;
  DistanceColumns columns;

  /// Calls `body` with the first one of up to `keys` rows that are a vector
  /// apart, and how many they are.
  void forEachGroup(
      KernelBuilder &b,
      llvm::function_ref<void(mlir::Value row, int64_t count)> body) const;
  /// The column of the terms for row `row` and the vector of queries `apart`.
  mlir::Value getColumn(KernelBuilder &b, mlir::Value row, int64_t apart) const;
};

/// `store(row, vector, column of its terms, T)` for all rows and vectors of a
/// tile; `keys` and `queries`, [D][queries], are transposed. T is 0 where
/// `keys` is null.
void emitShiftedProduct(
    KernelBuilder &b, const ShiftedTile &tile, mlir::Value keys,
    mlir::Value queries, int64_t width,
    llvm::function_ref<void(mlir::Value row, int64_t vector, mlir::Value column,
                            mlir::Value sum)>
        store);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SHIFTEDPRODUCT_H
