//===- Stream.h - Attention to a list of sources ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pattern of attention is a list of sources: arrays of keys and values, and
// which of their rows a query reads. The result is one soft-max over all of
// them; see `attn.stream`.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_STREAM_H
#define FOVEA_FUNCTIONS_STREAM_H

#include "fovea/Functions/Dense.h"

namespace fovea {

/// Keys and values, and what a query reads of them.
struct Source {
  /// [B,G,M,D] and [B,G,M,E], where M is this source's own. Those of `stream`,
  /// not of its gradient, may have 1 for the B and G of keys, and for the B of
  /// rows that stand as they are listed.
  TensorRef k, v;
  /// As for `dense`: the last query stands at the last of these keys.
  bool causal = false;
  std::optional<int64_t> window = {}, prefix = {};
  /// Tokens that a row stands for, which ends with the last of them: `window`
  /// and `prefix` count tokens, as `lengths` do. See #attn.mask.
  int64_t stride = 1;
  /// Broadcast to [B,G,M] and [B,H,N,M]; of the type of q or of `lse`.
  std::optional<TensorRef> logWeight = {}, bias = {};
  /// [B] of i32 or i64: the keys that each batch entry has of this source.
  std::optional<TensorRef> lengths = {};
  /// The rows that block `b` of queries reads, as affine maps: `(b)[rows, n] ->
  /// (b * 16 - 16, b * 16 + 16)`, of this source's `rows` and `n` queries; see
  /// #attn.source. All rows without any.
  llvm::SmallVector<std::string, 1> ranges = {};
  /// For entries of this source, before those of the call, which get what these
  /// leave.
  std::optional<ScoreFunction> score = {};
  std::optional<AdmitFunction> admit = {};
  std::optional<Segments> segments = {};
  /// [B,x,T,R] of i32 or i64, where extents of 1 broadcast and x is also one of
  /// G and H: block `t` of queries reads what list `t` names, each entry `unit`
  /// rows from row `unit` times the entry on, and -1 none.
  std::optional<TensorRef> rows = {};
  int64_t unit = 1;
  /// Whether rows stand where they are listed, as pages do, instead of where
  /// they are stored.
  bool hasListedPositions = false;
};

/// What `stream` and its gradient have in common.
struct StreamFormOptions {
  /// How many queries are a block, if ranges depend on it.
  int64_t block = 0;
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  /// Broadcasts to [B,H]: exp(sink) is added to every denominator of a head.
  std::optional<TensorRef> sink;
  /// [B] of i32 or i64: the queries of each batch entry.
  std::optional<TensorRef> queryLengths;
  /// For entries of all sources. Positions are those of the source that a key
  /// is of.
  std::optional<ScoreFunction> score;
  std::optional<AdmitFunction> admit;
};

struct StreamOptions : StreamFormOptions {
  bool returnLse = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// The soft-max of q [B,H,N,D] over the keys of all sources, times their
/// values: [B,H,N,E].
llvm::Expected<AttentionResult> stream(const TensorRef &q,
                                       llvm::ArrayRef<Source> sources,
                                       const StreamOptions &options = {});

struct StreamBackwardOptions : StreamFormOptions {
  /// Whether to compute the gradients of log weights, and of biases, which may
  /// have N x M numbers.
  bool returnDLogWeight = true, returnDBias = true;
  /// Whether to compute those of the floating-point arrays that `score` of the
  /// call and of sources capture.
  bool returnDCaptures = false;
  /// The gradient for `lse`, zero if absent.
  std::optional<TensorRef> dLse;
  Target target = Target::CPU;
  /// For q, for the keys of all sources, their values, log weights and biases,
  /// those that are computed, for the sink, and for captured arrays, those of
  /// sources first.
  GradientMemory gradients;
};

struct SourceGradients {
  OwnedTensor k, v;
  /// Of the shape that was given, if one was and is asked for.
  OwnedTensor logWeight, bias;
  /// Of floating-point arrays that its functions capture, if asked for.
  std::vector<OwnedTensor> captures = {};
};

struct StreamGradients {
  OwnedTensor q;
  llvm::SmallVector<SourceGradients, 2> sources;
  OwnedTensor sink;
  /// Of floating-point arrays that functions of the call capture, in their
  /// order, if asked for.
  std::vector<OwnedTensor> captures;
};

/// The gradients of `stream` from that of its output; `out` and `lse` are what
/// `stream` returned. They have the same bits on any number of threads.
llvm::Expected<StreamGradients>
stream_backward(const TensorRef &dOut, const TensorRef &q,
                llvm::ArrayRef<Source> sources, const TensorRef &out,
                const TensorRef &lse,
                const StreamBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_STREAM_H
