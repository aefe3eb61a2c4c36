//===- PoolState.h - Pooled summaries of the tokens so far ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Summaries of tokens that are decoded one after the other:
//
//   llvm::Expected<fovea::PoolState> state =
//       fovea::PoolState::create(batch, heads, width, /*interval=*/128);
//   state->append(x, gate);           // one token or many
//   state->getSummaries();            // what `hca` and sources read
//
// Functions that do not change a state may be called from several threads at
// once. One that fails leaves it as it was.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_POOLSTATE_H
#define FOVEA_FUNCTIONS_POOLSTATE_H

#include "fovea/Functions/Pool.h"

namespace fovea {

struct PoolStateOptions {
  /// As for `pool`. The bias is copied.
  int64_t overlap = 0;
  std::optional<TensorRef> positionBias;
  ElementType elementType = ElementType::F32;
};

/// `pool` token by token, on the CPU: summaries with the bits that it gives for
/// all tokens at once. Sequences of a batch have one length. Kept are the
/// summaries, in memory that doubles when it is full, and the tokens of the
/// open interval, of the one before it, and of those that `overlap` reaches
/// from there.
class PoolState {
public:
  static llvm::Expected<PoolState> create(int64_t batch, int64_t heads,
                                          int64_t width, int64_t interval,
                                          const PoolStateOptions &options = {});

  /// Adds tokens, x and gate [B,G,N,E].
  llvm::Error append(const TensorRef &x, const TensorRef &gate);
  /// Forgets what comes after the first `length` tokens, which may be those
  /// since the interval before the open one.
  llvm::Error truncate(int64_t length);
  /// A state of the same content. Neither sees what the other appends from then
  /// on.
  llvm::Expected<PoolState> fork() const;

  /// [B,G,getLength() / interval,E]: a view, valid until tokens are appended.
  OwnedTensor getSummaries() const;
  /// How many tokens were appended.
  int64_t getLength() const { return length; }
  int64_t getInterval() const { return interval; }
  int64_t getOverlap() const { return overlap; }
  /// Of the tokens that are kept, and of summaries, whether used or not.
  int64_t getNumBytes() const {
    return x.getNumBytes() + gate.getNumBytes() + rows.getNumBytes();
  }

private:
  PoolState() = default;
  /// The tokens of whole intervals that the overlap touches.
  int64_t getReach() const {
    return (overlap + interval - 1) / interval * interval;
  }

  int64_t interval = 1, overlap = 0, length = 0;
  /// The first of the tokens that are kept, which begins an interval.
  int64_t begin = 0;
  /// Tokens from `begin` on; after a truncation more than there are.
  OwnedTensor x, gate;
  OwnedTensor rows, positionBias;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_POOLSTATE_H
