//===- TokenMask.h - Masks of tokens that are present -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_TOKENMASK_H
#define FOVEA_LIB_FUNCTIONS_TOKENMASK_H

#include "Memory.h"
#include "fovea/Functions/Tokens.h"

namespace fovea::functions {

/// While it lives, the host reads no lengths that lie on a device: the caller
/// of this thread has told the longest, and kernels alone check them.
class BoundedLengthsScope {
public:
  BoundedLengthsScope();
  ~BoundedLengthsScope();
  BoundedLengthsScope(const BoundedLengthsScope &) = delete;
  BoundedLengthsScope &operator=(const BoundedLengthsScope &) = delete;

private:
  bool outer;
};

/// The mask [B,N] of i1 that a caller gave, or that lengths stand for. Owns the
/// latter: lives as long as the call. Kernels make one of lengths that lie on a
/// device, and alone check these while a graph is captured.
class TokenMask {
public:
  /// Checks what `options` say of `length` tokens in `batch` entries. `name` is
  /// what errors call the mask.
  TokenMask(Checker &check, const TokenOptions &options, int64_t batch,
            int64_t length, Target target, llvm::StringRef name = "mask");

  /// None where all tokens are present.
  const std::optional<Argument> &get() const { return argument; }

private:
  void check(Checker &check, const TensorRef &mask, int64_t batch,
             int64_t length);
  void makeOfLengths(Checker &check, const Argument &lengths, int64_t batch,
                     int64_t length, Target target);
  void makeByKernel(Checker &check, const Argument &lengths, int64_t batch,
                    int64_t length, Target target);

  std::string name;
  OwnedTensor memory;
  std::optional<Argument> argument;
};

/// Numbers of rows of the entries of a batch, as i32 [B], or i64 where the
/// kernel narrows them. Owns those that it had to make: lives as long as the
/// call. While a graph is captured, or in a BoundedLengthsScope, numbers on a
/// device stay there, and kernels alone check them.
class SequenceLengths {
public:
  /// Checks lengths that a caller gave, if any: they are at most `most`. With
  /// `isRead` the host reads them wherever they lie, which it cannot while a
  /// graph is captured.
  SequenceLengths(Checker &check, llvm::StringRef name,
                  const std::optional<TensorRef> &given, int64_t batch,
                  int64_t most, Target target, bool isRead = true);
  /// No rows at all.
  static SequenceLengths makeZeros(Checker &check, llvm::StringRef name,
                                   int64_t batch);

  /// None where every entry has all rows.
  const std::optional<Argument> &get() const { return argument; }

private:
  SequenceLengths() = default;
  /// The numbers to be written.
  llvm::MutableArrayRef<int32_t> allocate(Checker &check, llvm::StringRef name,
                                          int64_t batch);

  OwnedTensor memory;
  std::optional<Argument> argument;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_TOKENMASK_H
