//===- ProductBuilder.h - Small products inside a kernel --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_PRODUCTBUILDER_H
#define FOVEA_KERNELS_PRODUCTBUILDER_H

#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// Products of matrices whose columns run along vectors, a register tile of
/// rows at a time.
class ProductBuilder : public RowBuilder {
public:
  using RowBuilder::RowBuilder;

  /// Rows of a register tile.
  static constexpr int64_t kTileRows = 4;

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
    /// Called ahead of the stores of a row.
    llvm::function_ref<void(Value row)> startRow = {};
    /// Called ahead of the loop of a whole register tile of `kTileRows` rows.
    llvm::function_ref<void(Value row)> startTile = {};
    /// The first step of the rows from `row` on, where `left` is 0 before.
    llvm::function_ref<Value(KernelBuilder &, Value row)> firstStep = {};
    /// Which lanes of `left` are of entries that are not read, which are zero:
    /// what `right` holds there has no influence.
    llvm::function_ref<Value(KernelBuilder &, Value left)> hides = {};
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
    bool isLong = false; // so are the rows of `from`
  };
  void emitTransposition(const Transposition &transposition);

private:
  void emitPanel(KernelBuilder &builder, const Product &product, Value column,
                 int64_t vectors);
  void emitTile(KernelBuilder &builder, const Product &product, Value row,
                int64_t numRows, Value column, int64_t vectors);
  void emitElements(const Transposition &transposition, Value begin);
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_PRODUCTBUILDER_H
