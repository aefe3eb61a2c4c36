//===- LowRankKernel.h - Loops of low-rank attention ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for attn.low_rank and its gradient on memrefs, and for what makes their
// operands. Vectors run along the columns of the values, rows are packed to
// zero-padded scratch memory in the state type, so that no loop over vectors
// has an end to look after.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_LOWRANKKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_LOWRANKKERNEL_H

#include "fovea/Kernels/LowRankSum.h"
#include "fovea/Kernels/RegisterFile.h"

namespace fovea::attn {

/// What the kernels of all masks share.
class LowRankKernel {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

protected:
  LowRankKernel(mlir::OpBuilder &builder, mlir::Location loc,
                const LowRankSum &sum, RegisterFile registers);

  /// The most rows of a register tile; rows of the rank are padded to a
  /// multiple.
  static constexpr int64_t kMaxTileRows = 16;

  /// The values and, where sums have totals, a column of ones.
  PackedRows countedValue() const {
    PackedRows counted = sum.value;
    counted.hasOnes = sum.hasTotals();
    return counted;
  }
  int64_t paddedRank() const {
    return llvm::alignTo(rank, std::max(lanes, kMaxTileRows));
  }
  /// Rows of a register tile of `count` vectors: a power of two.
  int64_t tileRows(int64_t count) const;

  Value numBatches() { return b.extent(sum.left.rows, 0); }
  Value numRows() { return b.extent(sum.left.rows, 2); }
  Value numColumns() { return b.extent(sum.right.rows, 2); }
  /// Heads of rows, and query heads, which masks have.
  Value numRowHeads() { return b.extent(sum.left.rows, 1); }
  Value numQueryHeads();
  /// The head of columns that query head `head` reads.
  Value columnHead(Value head);
  /// Calls `body` with each of the query heads that head `rowHead` of rows is
  /// the sum over, and whether it is the first: null where it is the only one.
  void forQueryHeads(Value rowHead,
                     llvm::function_ref<void(Value, Value)> body);

  /// Packs a row, as RowBuilder::packRow does.
  void packRow(const PackedRows &source, ValueRange at, Value first,
               Value target, Value slot, int64_t columns);
  /// Zeros in columns `0 .. columns - 1` of `buffer[at, :]`.
  void fillZero(KernelBuilder &k, Value buffer, ValueRange at, int64_t columns);

  /// `sums[d, :] = before[d, :] + sum_(j < depth) left[j, d] right[j, :]` for
  /// all `d` of the rank, where the sums over `j` start from zero.
  void addProducts(Value left, Value right, Value depth, Value before,
                   Value sums, int64_t columns);
  /// `sums[at] += part`, compensated (Kahan): `carries` has what the sums lost.
  void addCompensated(KernelBuilder &k, Value part, Value sums, Value carries,
                      ValueRange at);

  /// Stores what becomes of `row[0 .. width - 1]`, with the sum of weights in
  /// column `width` if there is one, to `output[at, :]`. Unless `isFirst`, it
  /// is added.
  void storeResult(Value row, ValueRange at, Value isFirst = {});
  /// `value`, or its sum with what is stored at `indices` unless `isFirst`.
  Value addToOutput(KernelBuilder &k, Value value, ValueRange indices,
                    Value isFirst);
  /// `1 / total` for a number; anything where that is 0.
  Value invert(Value total);
  /// The same, but 0 where the total is 0 and NaN where it is infinite.
  Value invertOrZero(Value total);
  /// `value inverse`, where `inverse` is that of a number `total`: 0 where the
  /// total is, NaN where the value is infinite.
  Value divide(KernelBuilder &k, Value value, Value total, Value inverse);

  LowRankSum sum;
  int64_t rank, width;
  mlir::FloatType state;
  int64_t lanes;
  /// The most vectors of columns in a register tile, and its accumulators.
  int64_t vectors, accumulators;
  RowBuilder b;
};

void emitPolynomialFeatures(mlir::OpBuilder &builder, PolynomialFeaturesOp op,
                            int64_t vectorBits);
void emitPolynomialFeaturesBackward(mlir::OpBuilder &builder,
                                    PolynomialFeaturesBackwardOp op,
                                    int64_t vectorBits);
void emitLowRankBackward(mlir::OpBuilder &builder, LowRankBackwardOp op,
                         RegisterFile registers);
/// Emits loops for any mask, by the kernels below.
void emitLowRankSum(mlir::OpBuilder &builder, mlir::Location loc,
                    const LowRankSum &sum, RegisterFile registers);
/// Emits loops for the causal mask.
void emitCausalSum(mlir::OpBuilder &builder, mlir::Location loc,
                   const LowRankSum &sum, RegisterFile registers);
/// Emits loops for masks by rows or columns that are the same, and intervals.
void emitMaskedSum(mlir::OpBuilder &builder, mlir::Location loc,
                   const LowRankSum &sum, RegisterFile registers);
/// Emits loops for masks by changes of rows.
void emitRowChangeSum(mlir::OpBuilder &builder, mlir::Location loc,
                      const LowRankSum &sum, RegisterFile registers);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_LOWRANKKERNEL_H
