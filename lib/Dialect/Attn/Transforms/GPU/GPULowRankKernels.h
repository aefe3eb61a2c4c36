//===- GPULowRankKernels.h - GPU code of low-rank attention -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPULOWRANKKERNELS_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPULOWRANKKERNELS_H

#include "GPUTileProduct.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

// Each emits its code before the operation, on memrefs.

/// `frequencies` has the turns that a pair of columns makes for a position, in
/// units of 2^-64 and without whole turns, as i64.
void emitRopeLoops(mlir::OpBuilder &builder, RopeOp op,
                   mlir::Value frequencies);
/// What `frequencies` holds for pair `pair` of `pairs`.
uint64_t getFrequencyFraction(double base, int64_t pair, int64_t pairs);
void emitPolynomialLoops(mlir::OpBuilder &builder, PolynomialFeaturesOp op);

/// What the masks of attn.low_rank share: sums of outer products
///
///   C = sum_j u2[j, :] (x) [value[j, :], 1]        [rank][columns]
///
/// are products of matrices, and rows of `u1 C` are divided by their last
/// column, the sum of weights, at the end.
class LowRankLoops {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  LowRankLoops(mlir::OpBuilder &builder, LowRankOp op, F32Math math);
  virtual ~LowRankLoops() = default;

  void emit();

protected:
  /// Stores the undivided rows of the output.
  virtual void emitRows() = 0;

  /// A buffer that ends with the operation.
  Value allocate(llvm::ArrayRef<Value> leading,
                 llvm::ArrayRef<int64_t> trailing, mlir::Type type);
  Value keyHead(KernelBuilder &k, Value head) {
    return k.div(head, headsOfKey);
  }
  /// An entry of a row, or of the last column.
  Value loadValue(KernelBuilder &k, Value batch, Value keyHead, Value key,
                  Value column);
  /// Entries of a part of the mask for a head.
  Value loadPart(RowBuilder &k, unsigned part, Value batch, Value head,
                 Value position);

  LowRankOp op;
  RowBuilder b;
  F32Math math;
  int64_t rank, width, columns;
  Value batches, heads, keyHeads, headsOfKey, numRows, numKeys;
  /// The undivided rows `[B, H, N, columns]`.
  Value rows;

private:
  void divideRows();

  Values buffers;
};

void emitLowRankLoops(mlir::OpBuilder &builder, LowRankOp op, F32Math math);
void emitCausalLowRankLoops(mlir::OpBuilder &builder, LowRankOp op,
                            F32Math math);
void emitMaskedLowRankLoops(mlir::OpBuilder &builder, LowRankOp op,
                            F32Math math);
void emitRowChangeLowRankLoops(mlir::OpBuilder &builder, LowRankOp op,
                               F32Math math);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_GPU_GPULOWRANKKERNELS_H
