//===- ChangeList.h - Where transposed masks change -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_CHANGELIST_H
#define FOVEA_KERNELS_CHANGELIST_H

#include "fovea/Kernels/LowRankSum.h"

namespace fovea::attn {

/// For every row of a transposed mask, which is a column of attn.low_rank, a
/// list of columns: of those that change at the row, or of those at which the
/// row changes. Lists are in memory of the kernel, one behind the other.
class ChangeList {
public:
  using Value = mlir::Value;

  /// Of row intervals: the columns that enter or leave at every row.
  static ChangeList fromIntervals(KernelBuilder &b, const LowRankSum &sum);
  /// Of row changes: the columns at which every row enters or leaves, in order.
  static ChangeList fromChanges(KernelBuilder &b, const LowRankSum &sum);

  /// Where the list of `row` begins and ends.
  std::pair<Value, Value> getRange(KernelBuilder &b, Value batch, Value head,
                                   Value row) const;
  Value load(KernelBuilder &b, Value batch, Value head, Value position) const {
    return b.loadIndex(entries, {batch, head, position});
  }
  /// Frees the lists, if there are any.
  void free(KernelBuilder &b);

private:
  using AddEntry = llvm::function_ref<void(Value row, Value column)>;
  /// Calls a function with every entry, in order.
  using ForEachEntry =
      llvm::function_ref<void(Value batch, Value head, AddEntry)>;

  static ChangeList sort(KernelBuilder &b, const LowRankSum &sum,
                         Value numEntries, ForEachEntry forEach);

  /// Ends of lists, `[B, H, rows]`, and columns.
  Value ends, entries;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_CHANGELIST_H
