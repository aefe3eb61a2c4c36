//===- Dense.h - Dense attention of arrays ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions of this folder compute on arrays in the host's memory: names
// and meanings are those of the Python package, which docs/Embedding.md lists.
//
//   llvm::Expected<fovea::AttentionResult> result = fovea::dense(q, k, v);
//
// The first call with some shapes, types and options compiles a kernel, later
// ones find it in the cache of the process. An error names the argument, what
// was found and what is needed. All functions may be called from several
// threads at once.
//
// Arrays may have strides; those whose last axis is contiguous are read in
// place, others are copied. Results are new arrays, or go to the memory
// that the options name, see ResultMemory.h.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_DENSE_H
#define FOVEA_FUNCTIONS_DENSE_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Functions/ResultMemory.h"
#include "fovea/Functions/ScoreFunction.h"
#include <vector>

namespace fovea {

/// The results of attention.
struct AttentionResult {
  OwnedTensor output;
  /// The natural log-sum-exp of each row, if asked for.
  OwnedTensor lse;
};

struct DenseOptions {
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  bool causal = false;
  std::optional<int64_t> window;
  /// Keys that all queries read although `causal` says otherwise.
  std::optional<int64_t> prefix;
  /// Broadcast to [B,G,M] and [B,H,N,M]; of the type of q or of `lse`.
  std::optional<TensorRef> logWeight, bias;
  /// [B] of i32 or i64: the keys and queries of each batch entry, which the
  /// host reads. Rows behind are not read, and give zeros.
  std::optional<TensorRef> lengths, queryLengths;
  /// Broadcasts to [B,H]: exp(sink) is added to every denominator of a head.
  std::optional<TensorRef> sink;
  std::optional<ScoreFunction> score;
  std::optional<AdmitFunction> admit;
  std::optional<Segments> segments;
  bool returnLse = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// softmax(scale q k^T + log_weight[key] + bias[query,key] + mask) v for q
/// [B,H,N,D], k [B,G,M,D] and v [B,G,M,E].
llvm::Expected<AttentionResult> dense(const TensorRef &q, const TensorRef &k,
                                      const TensorRef &v,
                                      const DenseOptions &options = {});

struct DenseBackwardOptions {
  /// As for `dense`.
  std::optional<double> scale;
  bool causal = false;
  std::optional<int64_t> window, prefix;
  std::optional<TensorRef> logWeight, bias, sink, lengths, queryLengths;
  std::optional<ScoreFunction> score;
  std::optional<AdmitFunction> admit;
  std::optional<Segments> segments;
  /// Whether to compute the gradients of the first two; that of a bias may
  /// have N x M numbers.
  bool returnDLogWeight = true, returnDBias = true;
  /// Whether to compute the gradients of the floating-point arrays that `score`
  /// captures.
  bool returnDCaptures = false;
  /// The gradient for `lse`, zero if absent.
  std::optional<TensorRef> dLse;
  Target target = Target::CPU;
  GradientMemory gradients;
};

struct DenseGradients {
  OwnedTensor q, k, v;
  /// Of the shape that was given, if one was and is asked for.
  OwnedTensor logWeight, bias, sink;
  /// Of captured floating-point arrays, in their order, if asked for.
  std::vector<OwnedTensor> captures;
};

/// The gradients of `dense` from that of its output; `out` and `lse` are what
/// `dense` returned. They have the same bits on any number of threads.
llvm::Expected<DenseGradients>
dense_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
               const TensorRef &v, const TensorRef &out, const TensorRef &lse,
               const DenseBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_DENSE_H
