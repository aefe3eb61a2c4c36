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
#include "fovea/Kernels/RowBuilder.h"

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

  int64_t paddedRank() const {
    return llvm::alignTo(rank, std::max(lanes, RegisterFile::kMaxTileRows));
  }
  Value numBatches() { return b.extent(sum.left.rows, 0); }
  Value numRows() { return b.extent(sum.left.rows, 2); }
  Value numColumns() { return b.extent(sum.right.rows, 2); }
  /// Heads of rows, and query heads, which masks have.
  Value numRowHeads() { return b.extent(sum.left.rows, 1); }
  Value numQueryHeads() { return heads.queries; }
  /// The head of columns that query head `head` reads.
  Value columnHead(Value head) { return heads.getColumnHead(b, head); }

  /// Packs a row, as RowBuilder::packRow does.
  void packRow(const PackedRows &source, ValueRange at, Value first,
               Value target, Value slot, int64_t columns);
  /// Zeros in columns `0 .. columns - 1` of `buffer[at, :]`.
  void fillZero(KernelBuilder &k, Value buffer, ValueRange at, int64_t columns);

  /// Stores what becomes of `row[0 .. width - 1]`, with the sum of weights in
  /// column `width` if there is one, to `output[at, :]`. Unless `isFirst`, it
  /// is added.
  void storeResult(Value row, ValueRange at, Value isFirst = {});
  /// `value`, or its sum with what is stored at `indices` unless `isFirst`.
  Value addToOutput(KernelBuilder &k, Value value, ValueRange indices,
                    Value isFirst);

  LowRankSum sum;
  int64_t rank, width;
  mlir::FloatType state;
  int64_t lanes;
  RegisterFile registers;
  RowBuilder b;
  SumHeads heads;
};

/// Emits loops for the causal mask.
void emitCausalSum(mlir::OpBuilder &builder, mlir::Location loc,
                   const LowRankSum &sum, RegisterFile registers);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_LOWRANK_LOWRANKKERNEL_H
