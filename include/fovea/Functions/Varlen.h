//===- Varlen.h - Attention of packed sequences -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sequences of any lengths that lie one after the other: sequence i has the
// rows `starts[i]` to `starts[i + 1]`. None is padded, and none reads another.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_VARLEN_H
#define FOVEA_FUNCTIONS_VARLEN_H

#include "fovea/Functions/Dense.h"

namespace fovea {

/// As for `dense`, of each sequence. The last query lines up with the last key.
struct VarlenFormOptions {
  std::optional<double> scale;
  bool causal = false;
  std::optional<int64_t> window, prefix;
  /// [H], or a number for all heads.
  std::optional<TensorRef> sink;
  /// What the longest sequences have at most, both or none. On a GPU they are
  /// one batch then, whose kernels read and check `starts`, and a CUDA graph
  /// holds the call; without them the host reads the starts, and those of about
  /// the same length are a batch. CPUs do not need them.
  std::optional<int64_t> maxQueries, maxKeys;
  Target target = Target::CPU;
};

struct VarlenOptions : VarlenFormOptions {
  bool returnLse = false;
  ResultMemory out;
};

/// `dense` of every sequence: q is [T,H,D], k [S,G,D] and v [S,G,E]. `starts`
/// are the rows at which sequences begin, and the number of rows, of i32 or
/// i64. Returns the output [T,H,E] and lse [H,T].
llvm::Expected<AttentionResult> varlen(const TensorRef &q, const TensorRef &k,
                                       const TensorRef &v,
                                       const TensorRef &queryStarts,
                                       const TensorRef &keyStarts,
                                       const VarlenOptions &options = {});

struct VarlenBackwardOptions : VarlenFormOptions {
  /// The gradient for `lse`, zero if absent.
  std::optional<TensorRef> dLse;
  GradientMemory gradients;
};

struct VarlenGradients {
  /// That of the sink has its shape.
  OwnedTensor q, k, v, sink;
};

/// The gradients of `varlen` from that of its output; `out` and `lse` are what
/// it returned.
llvm::Expected<VarlenGradients>
varlen_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
                const TensorRef &v, const TensorRef &queryStarts,
                const TensorRef &keyStarts, const TensorRef &out,
                const TensorRef &lse,
                const VarlenBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_VARLEN_H
