//===- LowRankSum.h - Sums of low-rank attention ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The algebra that attn.low_rank and its gradient share on all targets. All
// masks apply sums of outer products
//
//   C = sum_j right[j, :] (x) [value[j, :], 1]        [rank][columns]
//
// to rows of `left`; they differ in which columns j of the mask a sum has. In
// attn.low_rank, `left` is u1 and `right` is u2; its gradients are such sums,
// too.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_LOWRANKSUM_H
#define FOVEA_KERNELS_LOWRANKSUM_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// Rows as they are packed: those of `rows`, `[B, heads, N, columns]`, times
/// `scale`, `[B, heads, N]`, and behind them one more column, `last` likewise
/// or of ones. Any of them may be missing.
struct PackedRows {
  mlir::Value rows, scale = {}, last = {};
  bool hasOnes = false;

  /// Columns of `rows`, and all of them.
  int64_t getWidth() const;
  int64_t getNumColumns() const { return getWidth() + (last || hasOnes); }
  /// Whether they are those of `rows`.
  bool isPlain() const { return rows && !scale && !last && !hasOnes; }

  /// Columns from `column` on of row `at`, and zeros behind the last. No vector
  /// has columns of `rows` and others.
  mlir::Value load(KernelBuilder &b, mlir::ValueRange at,
                   mlir::Value column) const;
};

/// `1 / total` for a sum of weights; anything where that is 0.
mlir::Value invertTotal(KernelBuilder &b, mlir::Value total);
/// The same, but 0 where the total is 0 and NaN where it is infinite.
mlir::Value invertTotalOrZero(KernelBuilder &b, mlir::Value total);
/// `value inverse`, where `inverse` is that of the number `total`: 0 where the
/// total is, NaN where the value is infinite.
mlir::Value divideByTotal(KernelBuilder &b, mlir::Value value,
                          mlir::Value total, mlir::Value inverse);
/// `sum + part`, compensated (Kahan), and what that lost, where `carry` is what
/// the sum had lost before.
std::pair<mlir::Value, mlir::Value> addCompensated(KernelBuilder &b,
                                                   mlir::Value part,
                                                   mlir::Value sum,
                                                   mlir::Value carry);

/// For every row i of the mask
///
///   sum_j W[i, j] (left[i] . right[j]) value[j]
///
/// and what becomes of it. A transposed mask is that of attn.low_rank with rows
/// and columns exchanged: heads of `right` and `value` are then those of
/// queries, and every head of `left` gets the sum over the ones that share it.
struct LowRankSum {
  using Value = mlir::Value;

  enum class Result {
    /// `output[i]` is the sum divided by that of the weights, if not 0.
    Means,
    /// `output[i]`, which has no columns, is one over the sum of weights, or 0.
    InverseTotals,
    /// `output[i]` is the sum times `scale[i]`.
    Sums
  };

  PackedRows left, right;
  /// Without extra columns.
  PackedRows value;
  RowMask mask;
  mlir::ValueRange parts;
  bool transposed = false;
  Result result;
  Value output, scale = {};

  bool hasTotals() const { return result != Result::Sums; }
  /// The values and, where sums have totals, a column of ones.
  PackedRows getCountedValue() const {
    PackedRows counted = value;
    counted.hasOnes = hasTotals();
    return counted;
  }
  /// Entry `position` of a part of the mask, of integers.
  Value loadPart(KernelBuilder &b, unsigned part, Value batch, Value head,
                 Value position) const;
  /// Whether a list of changes says what rows keep.
  bool hasChanges() const {
    return mask == (transposed ? RowMask::RowInterval : RowMask::RowChange);
  }
  /// Whether intervals do.
  bool hasIntervals() const {
    return mask == (transposed ? RowMask::RowChange : RowMask::RowInterval);
  }
  /// Whether groups of rows are the same, not groups of columns.
  bool hasRowGroups() const {
    return mask ==
           (transposed ? RowMask::DistinctColumns : RowMask::DistinctRows);
  }
};

/// The heads of a sum. Query heads are those of rows or, under a transposed
/// mask, of columns; they share the heads of the others.
struct SumHeads {
  SumHeads(KernelBuilder &b, const LowRankSum &sum);

  /// The head of columns that query head `head` reads.
  mlir::Value getColumnHead(KernelBuilder &b, mlir::Value head) const;
  /// Calls `body` with each of the query heads that head `rowHead` of rows is
  /// the sum over, and whether it is the first: null where it is the only one.
  void
  forQueryHeads(KernelBuilder &b, mlir::Value rowHead,
                llvm::function_ref<void(mlir::Value, mlir::Value)> body) const;

  bool transposed;
  mlir::Value rows, queries;
  /// How many query heads share one of the others.
  mlir::Value sharing;
};

LowRankSum getLowRankSum(LowRankOp op);
/// Fails where `op` still has masks of tokens: sums know none.
llvm::LogicalResult verifyNoTokenMasks(LowRankOp op);
llvm::LogicalResult verifyNoTokenMasks(LowRankBackwardOp op);
/// Calls `emit` with each of the sums that a gradient is made of, in order.
/// `inverses` is made by the first one; `deltas` has `-d_output . output`. Both
/// have a number for each row.
void forGradientSums(LowRankBackwardOp op, mlir::Value inverses,
                     mlir::Value deltas,
                     llvm::function_ref<void(const LowRankSum &)> emit);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_LOWRANKSUM_H
