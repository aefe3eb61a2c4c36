//===- VQBackwardKernel.h - Loops of the gradient of attn.vq ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One task for each batch entry and key head goes through the blocks of queries
// in reverse, a tile of queries at a time, queries along vectors:
//
//   F[s]    = exp(scale C_s . q - lse)                     once for each
//   codeword local tokens j:  dS_j = F[code_j] (v_j . dO - delta),  dS[code_j]
//   += dS_j
//                    dK_j += scale dS_j q
//   cache:           dS[s] += F[s] count_s (mean_s . dO - delta)
//   dQ      = scale dS^T C
//   U[s]   += F[s] dO
//
// U is all that goes from block to block: it is the gradient of the value of
// any token with that code that is older than the tiles seen so far. Without a
// bias all later queries weigh the tokens of a code alike, so that a token
// takes its gradient from U, and only its own tile is added. With a bias that
// holds for cached tokens, and local ones are added one by one.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_VQBACKWARDKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_VQBACKWARDKERNEL_H

#include "CodebookKernel.h"

namespace fovea::attn {

/// Products of matrices whose columns run along vectors, a register tile of
/// rows at a time.
class ProductBuilder : public RowBuilder {
public:
  using RowBuilder::RowBuilder;

  /// `store(row, column, sum_k left(row, k) right(k, column))` for all of
  /// `rows` and `columns`; builders of single lanes finish what vectors leave.
  struct Product {
    Value rows, depth;
    int64_t columns;
    llvm::function_ref<Value(KernelBuilder &, Value row, Value k)> left;
    llvm::function_ref<Value(KernelBuilder &, Value k, Value column)> right;
    llvm::function_ref<void(KernelBuilder &, Value row, Value column,
                            Value sum)>
        store;
  };
  void emitProduct(const Product &product);

  /// `to[c][t] = factor * from[leading, firstRow + t, firstColumn + c]` for all
  /// `numColumns` and `numRows`, and 0 for `t` from there on. Extents of 1 of
  /// `from` broadcast.
  struct Transposition {
    Value from, to;
    llvm::SmallVector<Value> leading;
    Value firstRow, numRows, firstColumn, numColumns;
    double factor = 1.0;
  };
  void emitTransposition(const Transposition &transposition);

private:
  void emitPanel(KernelBuilder &builder, const Product &product, Value column,
                 int64_t vectors);
  void emitTile(KernelBuilder &builder, const Product &product, Value row,
                int64_t numRows, Value column, int64_t vectors);
  void emitElements(const Transposition &transposition, Value begin);
};

void emitBackward(mlir::OpBuilder &builder, VQBackwardOp op,
                  int64_t vectorBits);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_VQBACKWARDKERNEL_H
