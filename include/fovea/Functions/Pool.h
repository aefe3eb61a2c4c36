//===- Pool.h - Pooled summaries of arrays, and their choice ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_POOL_H
#define FOVEA_FUNCTIONS_POOL_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Functions/ResultMemory.h"

namespace fovea {

/// What `pool` and its gradient have in common.
struct PoolFormOptions {
  /// Tokens before an interval that belong to its summary, too.
  int64_t overlap = 0;
  /// [interval,E], of the type of x or of sums.
  std::optional<TensorRef> positionBias;
  Target target = Target::CPU;
};

struct PoolOptions : PoolFormOptions {
  ResultMemory out;
};

/// Summaries of every `interval` tokens of x [B,G,N,E], means with the soft-max
/// of gate [B,G,N,E], plus the bias, as weights: [B,G,N / interval,E]. Tokens
/// that make no whole interval have none yet. See `attn.pool`.
llvm::Expected<OwnedTensor> pool(const TensorRef &x, const TensorRef &gate,
                                 int64_t interval,
                                 const PoolOptions &options = {});

struct PoolBackwardOptions : PoolFormOptions {
  GradientMemory gradients;
};

struct PoolGradients {
  OwnedTensor x, gate;
  /// If there is a bias.
  OwnedTensor positionBias;
};

/// The gradients of `pool` from that of its result.
llvm::Expected<PoolGradients>
pool_backward(const TensorRef &dOut, const TensorRef &x, const TensorRef &gate,
              int64_t interval, const PoolBackwardOptions &options = {});

struct TopKOptions {
  /// A query takes only keys that are summaries of so many tokens and complete
  /// where it stands: see `Source::stride`.
  std::optional<int64_t> causalUnit;
  Target target = Target::CPU;
  ResultMemory out;
};

/// The keys of the `k` largest of scores [B,H,N,M] of every query, from the
/// largest down, as i32 [B,H,N,k]. Of equal ones the first is taken first; -1
/// stands where there are no more. See `attn.top_k`.
llvm::Expected<OwnedTensor> top_k(const TensorRef &scores, int64_t k,
                                  const TopKOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_POOL_H
