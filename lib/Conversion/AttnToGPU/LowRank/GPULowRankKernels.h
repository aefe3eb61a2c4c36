//===- GPULowRankKernels.h - GPU code of low-rank attention -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_LOWRANK_GPULOWRANKKERNELS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_LOWRANK_GPULOWRANKKERNELS_H

#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "fovea/Kernels/LowRankSum.h"

namespace fovea::attn {

/// What the masks of sums share: the sums of outer products
///
///   C = sum_j right[j, :] (x) [value[j, :], 1]        [rank][columns]
///
/// are products of matrices. Rows of `left C` are made for every query head,
/// and become what the sum wants of them at the end: heads that share a row are
/// added, or rows divided by their last column, the sum of weights.
class LowRankLoops {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  LowRankLoops(mlir::OpBuilder &builder, mlir::Location loc,
               const LowRankSum &sum, F32Math math);
  virtual ~LowRankLoops() = default;

  void emit();

protected:
  /// Stores `left C`.
  virtual void emitRows() = 0;

  /// A buffer that ends with the sum.
  Value allocate(llvm::ArrayRef<Value> leading,
                 llvm::ArrayRef<int64_t> trailing, mlir::Type type);
  // The heads of rows and of columns that belong to a query head.
  Value rowHead(KernelBuilder &k, Value head) {
    return sum.transposed ? k.div(head, sumHeads.sharing) : head;
  }
  Value columnHead(KernelBuilder &k, Value head) {
    return sumHeads.getColumnHead(k, head);
  }
  /// Column `d` of row `row`, for a query head.
  Value loadLeft(KernelBuilder &k, Value batch, Value head, Value row, Value d);
  // Of column `column` of the mask, for one of its heads.
  Value loadRight(KernelBuilder &k, Value batch, Value columnHead, Value column,
                  Value d);
  Value loadValue(KernelBuilder &k, Value batch, Value columnHead, Value column,
                  Value e);

  LowRankSum sum;
  RowBuilder b;
  F32Math math;
  int64_t rank, width, columns;
  SumHeads sumHeads;
  /// Query heads, and those of columns.
  Value batches, heads, columnHeads, numRows, numColumns;
  /// `left C`, [B, query heads, N, columns].
  Value rows;

private:
  void storeResults();

  Values buffers;
};

/// Emits loops for the causal mask.
void emitCausalLoops(mlir::OpBuilder &builder, mlir::Location loc,
                     const LowRankSum &sum, F32Math math);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_LOWRANK_GPULOWRANKKERNELS_H
