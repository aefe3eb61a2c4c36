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
#include <optional>

namespace fovea::functions {

/// Rows of sequences that lie one after the other, and some of these sequences
/// in a batch with `most` places for each. Kernels compute where, and check it:
/// the host reads no starts. Whatever these are, no row lies outside of the
/// arrays.
class PackedRows {
public:
  /// Of the `starts` [S] of `numRows` rows, which errors call `name`.
  /// `sequences` are those of the batch, where these are not all.
  PackedRows(Checker &check, llvm::StringRef name, const Argument &starts,
             int64_t numRows, int64_t most,
             const std::optional<Argument> &sequences, Target target);

  int64_t getBatch() const {
    return sequences ? sequences->shape[0] : starts.shape[0] - 1;
  }
  /// [B] of i32, from 0 to `most`.
  TensorRef getLengths() const { return lengths.getRef(); }

  /// Rows [T,H,D] as [B,H,most,D], or numbers of rows [H,T] as [B,H,most]. What
  /// no sequence has is zero.
  llvm::Expected<OwnedTensor> pad(const Argument &rows) const;
  /// The same back, to `rows`, where those of other sequences stay. Where there
  /// are no `rows` yet they are made, with zeros for others, in the only place
  /// of `memory` if that has one.
  llvm::Error unpad(const OwnedTensor &batch, const ResultMemory &memory,
                    std::optional<OwnedTensor> &rows) const;

private:
  Argument starts;
  std::optional<Argument> sequences;
  int64_t numRows, most;
  Target target;
  /// The first row and the length of each sequence, and
  /// the place of each row in the batch, or -1.
  OwnedTensor firsts, lengths, places;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_PACKEDROWS_H
