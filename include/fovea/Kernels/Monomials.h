//===- Monomials.h - Products of columns of a row ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_MONOMIALS_H
#define FOVEA_KERNELS_MONOMIALS_H

#include "fovea/Kernels/RowBuilder.h"

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
  /// one as number 1. Beside the number, loops carry `others`, which start anew
  /// with every degree.
  void emitRow(int64_t degree, ValueRange others = {});

protected:
  /// One column of the row, times the root of the scale.
  virtual Value loadColumn(Value column) = 0;
  /// The innermost loop: `product` times every column from `low` on, of which
  /// it has the first `run` times already. Takes and returns what loops carry.
  virtual Values emitLast(Value product, Value low, Value run,
                          ValueRange carried) = 0;
  /// What the loops under a column start from; `after` takes it back.
  virtual Values before(ValueRange carried) { return Values(carried); }
  virtual Values after(Value product, Value column, Value times,
                       ValueRange outer, ValueRange inner) {
    return Values(inner);
  }
  /// `product / sqrt(times)`.
  Value overRoot(Value product, Value times);
  /// The number behind those of the innermost loop.
  Value skipLast(Value position, Value low) {
    return b.add(position, b.sub(b.index(width), low));
  }

  RowBuilder &b;
  int64_t width;

private:
  Values emit(int64_t missing, Value product, Value low, Value run,
              ValueRange carried);
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_MONOMIALS_H
