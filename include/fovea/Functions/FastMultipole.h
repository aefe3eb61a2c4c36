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

namespace fovea {

/// The weights of the summaries of one tensor, [W,p,m_l,D] for each level,
/// level 1 first, and their biases [W,p,D], if they have any.
struct SummaryWeights {
  llvm::ArrayRef<TensorRef> weights;
  std::optional<llvm::ArrayRef<TensorRef>> biases;

  SummaryWeights(llvm::ArrayRef<TensorRef> weights) : weights(weights) {}
  SummaryWeights(llvm::ArrayRef<TensorRef> weights,
                 llvm::ArrayRef<TensorRef> biases)
      : weights(weights), biases(biases) {}
};

struct FastMultipoleOptions {
  bool causal = false;
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  /// Whether a summary counts as often as it stands for tokens.
  bool multiplicity = true;
  bool returnLse = false;
  Target target = Target::CPU;
  /// Where results go, instead of new memory.
  std::optional<TensorRef> output, lse;
};

/// Near keys one by one, far ones by summaries: see `attn.fast_multipole`.
/// Groups are of `group` tokens.
llvm::Expected<AttentionResult>
fast_multipole(const TensorRef &q, const TensorRef &k, const TensorRef &v,
               const SummaryWeights &keyWeights,
               const SummaryWeights &valueWeights, int64_t group,
               const FastMultipoleOptions &options = {});

struct FastMultipoleLinearOptions {
  /// Not strictly causal, since a summary of queries mixes later queries into
  /// earlier rows: needs `allowQueryLookahead`.
  bool causal = false;
  bool allowQueryLookahead = false;
  std::optional<double> scale;
  Target target = Target::CPU;
  std::optional<TensorRef> output;
};

/// The same with summaries of queries and a soft-max per level: see
/// `attn.fast_multipole_linear`.
llvm::Expected<OwnedTensor>
fast_multipole_linear(const TensorRef &q, const TensorRef &k,
                      const TensorRef &v, const SummaryWeights &queryWeights,
                      const SummaryWeights &keyWeights,
                      const SummaryWeights &valueWeights, int64_t group,
                      const FastMultipoleLinearOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_FASTMULTIPOLE_H
