//===- PackedRows.h - Packed sequences as a batch ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_PACKEDROWS_H
#define FOVEA_LIB_FUNCTIONS_PACKEDROWS_H

#include "Memory.h"

namespace fovea::functions {

/// Rows of sequences that lie one after the other, and in a batch with `most`
/// places for each. Kernels compute where, and check it: the host reads no
/// starts. Whatever these are, no row lies outside of the arrays.
class PackedRows {
public:
  /// Of the `starts` [B + 1] of `numRows` rows; errors call them `name`.
  PackedRows(Checker &check, llvm::StringRef name, const Argument &starts,
             int64_t numRows, int64_t most, Target target);

  int64_t getBatch() const { return starts.shape[0] - 1; }
  /// [B] of i32, from 0 to `most`.
  TensorRef getLengths() const { return lengths.getRef(); }

  /// Rows [T,H,D] as [B,H,most,D], or numbers of rows [H,T] as [B,H,most]. What
  /// no sequence has is zero.
  llvm::Expected<OwnedTensor> pad(const Argument &rows) const;
  /// The same back, into the only place of `memory` if that has one.
  llvm::Expected<OwnedTensor> unpad(const OwnedTensor &batch,
                                    const ResultMemory &memory) const;

private:
  Argument starts;
  int64_t numRows, most;
  Target target;
  /// The length of each sequence, and the place of each row in the batch.
  OwnedTensor lengths, places;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_PACKEDROWS_H
