//===- RowBuilder.h - Loops over rows of any width --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_ROWBUILDER_H
#define FOVEA_KERNELS_ROWBUILDER_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// A KernelBuilder for loops over rows of any width and over independent tasks.
class RowBuilder : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Runs `body` for `[begin, end)`, with the builder of vectors for as many
  /// columns as they cover and with one of single lanes for the rest: the same
  /// arithmetic for every column.
  void forColumns(Value begin, Value end,
                  llvm::function_ref<void(KernelBuilder &, Value)> body);
  void forColumns(int64_t width,
                  llvm::function_ref<void(KernelBuilder &, Value)> body) {
    forColumns(index(0), index(width), body);
  }

  /// Copies columns `first .. first + columns - 1` of `source[at, :]`, as many
  /// as there are, to `target[row, :]`, and zeros to the rest of its `columns`
  /// columns, a multiple of the lanes.
  void packRow(Value source, ValueRange at, Value first, Value target,
               Value row, int64_t columns);
  /// `sum_c a[aRow, c] b[bRow, c]` over `columns` columns of packed rows.
  Value dotPacked(Value a, Value aRow, Value b, Value bRow, int64_t columns);
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_ROWBUILDER_H
