//===- LowRankKernel.h - Loops of low-rank attention ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for attn.low_rank on memrefs and for what makes its operands. All masks
// apply sums of outer products
//
//   C = sum_j u2[j, :] (x) [value[j, :], 1]        [rank][columns]
//
// to rows of u1; they differ in which columns j a sum has. Vectors run along
// the columns of the values, rows are packed to zero-padded scratch memory in
// the state type, so that no loop over vectors has an end to look after.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_LOWRANKKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_LOWRANKKERNEL_H

#include "Linalg/LinalgKernels.h"
#include "RowBuilder.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// What the kernels of all masks share.
class LowRankKernel {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

protected:
  LowRankKernel(mlir::OpBuilder &builder, LowRankOp op, RegisterFile registers);

  /// The most rows of a register tile; rows of the rank are padded to a
  /// multiple.
  static constexpr int64_t kMaxTileRows = 16;

  int64_t paddedRank() const {
    return llvm::alignTo(rank, std::max(lanes, kMaxTileRows));
  }
  /// Rows of a register tile of `count` vectors: a power of two.
  int64_t tileRows(int64_t count) const;
  Value keyHead(Value head);

  /// Zeros in columns `0 .. columns - 1` of `buffer[at, :]`.
  void fillZero(KernelBuilder &k, Value buffer, ValueRange at, int64_t columns);

  /// `sums[d, :] += sum_(j < depth) left[j, d] right[j, :]` for all `d` of the
  /// rank, where the sums over `j` start from zero. With `carries`, the sums
  /// are compensated (Kahan); the buffer has what they lost.
  void addProducts(Value left, Value right, Value depth, Value sums,
                   int64_t columns, Value carries = {});
  void addCompensated(KernelBuilder &k, Value part, Value sums, Value carries,
                      ValueRange at);

  /// Stores `row[0 .. width - 1] / row[width]` to `output[at, :]`.
  void storeMeans(Value row, ValueRange at);
  /// `1 / total` for a number; anything where that is 0.
  Value invert(Value total);
  /// `value inverse`, where `inverse` is that of a number `total`: 0 where the
  /// total is, NaN where the value is infinite.
  Value divide(KernelBuilder &k, Value value, Value total, Value inverse);

  LowRankOp op;
  int64_t rank, width;
  mlir::FloatType state;
  int64_t lanes;
  /// The most vectors of columns in a register tile, and its accumulators.
  int64_t vectors, accumulators;
  RowBuilder b;
};

void emitRope(mlir::OpBuilder &builder, RopeOp op, int64_t vectorBits);
void emitRope(mlir::OpBuilder &builder, RopeBackwardOp op, int64_t vectorBits);
void emitPolynomialFeatures(mlir::OpBuilder &builder, PolynomialFeaturesOp op,
                            int64_t vectorBits);
/// Emits loops for the causal mask.
void emitCausalLowRank(mlir::OpBuilder &builder, LowRankOp op,
                       RegisterFile registers);
/// Emits loops for masks by rows or columns that are the same, and intervals.
void emitMaskedLowRank(mlir::OpBuilder &builder, LowRankOp op,
                       RegisterFile registers);
/// Emits loops for the mask by changes of rows.
void emitRowChangeLowRank(mlir::OpBuilder &builder, LowRankOp op,
                          RegisterFile registers);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_LOWRANKKERNEL_H
