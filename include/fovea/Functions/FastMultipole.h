//===- FastMultipole.h - Hierarchical attention of arrays -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_FASTMULTIPOLE_H
#define FOVEA_FUNCTIONS_FASTMULTIPOLE_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Tokens.h"

namespace fovea {

/// The weights of the summaries of one tensor, [W,p,m_l,D] for each level,
/// level 1 first, or [W,p,m_l,D,D] to mix columns, and their biases [W,p,D], if
/// they have any; or these summaries ready-made, [B,G,ceil(N/m_l),p,D].
struct SummaryWeights {
  llvm::ArrayRef<TensorRef> weights;
  std::optional<llvm::ArrayRef<TensorRef>> biases, summaries;

  SummaryWeights(llvm::ArrayRef<TensorRef> weights) : weights(weights) {}
  SummaryWeights(llvm::ArrayRef<TensorRef> weights,
                 llvm::ArrayRef<TensorRef> biases)
      : weights(weights), biases(biases) {}
  static SummaryWeights ready(llvm::ArrayRef<TensorRef> summaries) {
    SummaryWeights found{llvm::ArrayRef<TensorRef>()};
    found.summaries = summaries;
    return found;
  }
};

/// How many levels of summaries a sequence has: the least L with
/// length <= group 2^(L+1).
int64_t getNumLevels(int64_t length, int64_t group);

struct FastMultipoleOptions : TokenOptions {
  bool causal = false;
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  /// Whether a summary counts as often as it stands for tokens.
  bool multiplicity = true;
  bool returnLse = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// Near keys one by one, far ones by summaries: see `attn.fast_multipole`.
/// Groups are of `group` tokens.
llvm::Expected<AttentionResult>
fast_multipole(const TensorRef &q, const TensorRef &k, const TensorRef &v,
               const SummaryWeights &keyWeights,
               const SummaryWeights &valueWeights, int64_t group,
               const FastMultipoleOptions &options = {});

struct FastMultipoleLinearOptions : TokenOptions {
  /// Not strictly causal, since a summary of queries mixes later queries into
  /// earlier rows: needs `allowQueryLookahead`.
  bool causal = false;
  bool allowQueryLookahead = false;
  std::optional<double> scale;
  Target target = Target::CPU;
  ResultMemory out;
};

/// The same with summaries of queries and a soft-max per level: see
/// `attn.fast_multipole_linear`.
llvm::Expected<OwnedTensor>
fast_multipole_linear(const TensorRef &q, const TensorRef &k,
                      const TensorRef &v, const SummaryWeights &queryWeights,
                      const SummaryWeights &keyWeights,
                      const SummaryWeights &valueWeights, int64_t group,
                      const FastMultipoleLinearOptions &options = {});

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Gradients of the weights of one tensor, and of its biases, if it has any, or
/// of its ready-made summaries; level 1 first.
struct SummaryGradients {
  llvm::SmallVector<OwnedTensor> weights, biases, summaries;
};

struct FastMultipoleGradients {
  OwnedTensor q, k, v;
  /// Those of queries are for `fast_multipole_linear` only.
  SummaryGradients query, key, value;
};

struct FastMultipoleBackwardOptions : TokenOptions {
  /// As for `fast_multipole`.
  bool causal = false;
  std::optional<double> scale;
  bool multiplicity = true;
  /// The gradient for `lse`, zero if absent.
  std::optional<TensorRef> dLse;
  Target target = Target::CPU;
  GradientMemory gradients;
};

/// The gradients of `fast_multipole` from that of its output; `out` and `lse`
/// are what it returned.
llvm::Expected<FastMultipoleGradients> fast_multipole_backward(
    const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
    const TensorRef &v, const SummaryWeights &keyWeights,
    const SummaryWeights &valueWeights, const TensorRef &out,
    const TensorRef &lse, int64_t group,
    const FastMultipoleBackwardOptions &options = {});

struct FastMultipoleLinearBackwardOptions : TokenOptions {
  /// As for `fast_multipole_linear`.
  bool causal = false;
  bool allowQueryLookahead = false;
  std::optional<double> scale;
  Target target = Target::CPU;
  GradientMemory gradients;
};

/// The gradients of `fast_multipole_linear` from that of its output, whose
/// parts, one for each level, are computed again.
llvm::Expected<FastMultipoleGradients> fast_multipole_linear_backward(
    const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
    const TensorRef &v, const SummaryWeights &queryWeights,
    const SummaryWeights &keyWeights, const SummaryWeights &valueWeights,
    int64_t group, const FastMultipoleLinearBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_FASTMULTIPOLE_H
