//===- Monomials.h - Products of columns of a row ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_MONOMIALS_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_MONOMIALS_H

#include "RowBuilder.h"

namespace fovea::attn {

/// The monomials of a degree are nested loops over columns that do not
/// decrease. The innermost one multiplies the product of the outer columns with
/// all columns from the last one on: results that lie one after the other.
class Monomials {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  Monomials(RowBuilder &builder, int64_t width) : b(builder), width(width) {}
  virtual ~Monomials() = default;

  /// The monomials of degrees 1 to `degree` of a row, in this order, the first
  /// one as number 1.
  void emitRow(int64_t degree);

protected:
  /// One column of the row, times the root of the scale.
  virtual Value loadColumn(Value column) = 0;
  /// The innermost loop: stores `product` times every column from `low` on, of
  /// which it has the first `run` times already, from `position` on.
  virtual void storeLast(Value product, Value low, Value run, Value position) {}

  /// What else the loops under a column carry, at their start; the innermost
  /// loop, which takes and returns it; and what the loop over `column`, which
  /// carries `outer`, makes of it: `product` has become
  /// `overRoot(product * column, times)`.
  virtual Values getCarried() { return {}; }
  virtual Values emitLast(Value product, Value low, Value run, Value position,
                          ValueRange carried) {
    storeLast(product, low, run, position);
    return {};
  }
  virtual Values leaveColumn(Value product, Value column, Value times,
                             ValueRange outer, ValueRange inner) {
    return {};
  }
  /// `product / sqrt(times)`.
  Value overRoot(Value product, Value times);

  RowBuilder &b;
  int64_t width;

private:
  Values emit(int64_t missing, Value product, Value low, Value run,
              Value position, ValueRange carried);
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_LOWRANK_MONOMIALS_H
