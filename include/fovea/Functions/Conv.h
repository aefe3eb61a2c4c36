//===- Conv.h - Attention of arrays by convolutions ----------- -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_CONV_H
#define FOVEA_FUNCTIONS_CONV_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Tokens.h"

namespace fovea {

/// What a search for convolutions takes for one.
struct ConvSearch {
  /// At most so many bases, R.
  int64_t numBasis = 0;
  /// A column whose first `window` entries differ from those of the bases so
  /// far by at least delta - 2 window epsilon, in sum, begins a new basis.
  int64_t window = 0;
  double delta = 0, epsilon = 0;
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
};

struct ConvRecoverOptions {
  Target target = Target::CPU;
  ResultMemory out;
};

struct ConvBases {
  /// [B,H,R,N] of f32 (f64), and [B,H,R] of i32: basis r gives the score
  /// b[r, i - j] to query i and key j >= N - sizes[r]. Scores of bases add up.
  OwnedTensor b, sizes;
  /// [B,H] of i32: how many there are. Sizes of others are 0.
  OwnedTensor found;
};

/// The convolutions that scale q k^T below the diagonal is made of, for q
/// [B,H,N,D] and k [B,G,N,D]: see `attn.conv_recover`.
llvm::Expected<ConvBases> conv_recover(const TensorRef &q, const TensorRef &k,
                                       const ConvSearch &search,
                                       const ConvRecoverOptions &options = {});

/// How a sum of convolutions is evaluated; `Single` is for one basis.
enum class ConvAlgorithm { Auto, Toeplitz, Partitioned, Single };

struct ConvApplyOptions {
  ConvAlgorithm algorithm = ConvAlgorithm::Auto;
  /// Tokens of a block of `Partitioned`: a power of two from 8 to 2^20.
  std::optional<int64_t> block;
  Target target = Target::CPU;
  ResultMemory out;
};

struct ConvApplyResult {
  /// [B,H,N,E].
  OwnedTensor output;
  /// [B,H] of i32: how many rows were small against the rounding errors of a
  /// transform and were therefore computed again without one.
  OwnedTensor recomputed;
};

/// Causal attention whose scores are the convolutions b [B,H,R,N] of `sizes`
/// [B,H,R], for v [B,G,N,E]: see `attn.conv_apply`.
llvm::Expected<ConvApplyResult>
conv_apply(const TensorRef &b, const TensorRef &sizes, const TensorRef &v,
           const ConvApplyOptions &options = {});

/// Attention of a batch with absent tokens is that of each sequence without
/// them; their rows of the output are zeros.
struct ConvOptions : TokenOptions {
  /// Every query reads its own group of so many tokens and the one before,
  /// instead of all tokens up to itself.
  std::optional<int64_t> slidingGroup;
  ConvAlgorithm algorithm = ConvAlgorithm::Auto;
  Target target = Target::CPU;
  ResultMemory out;
};

struct ConvResult {
  OwnedTensor output;
  /// Those of `conv_recover` and `conv_apply`, summed over the groups.
  OwnedTensor found, recomputed;
};

/// Attention by the convolutions that are found in its scores: `conv_apply` of
/// `conv_recover`, for q [B,H,N,D], k [B,G,N,D] and v [B,G,N,E].
llvm::Expected<ConvResult> conv(const TensorRef &q, const TensorRef &k,
                                const TensorRef &v, const ConvSearch &search,
                                const ConvOptions &options = {});

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

struct ConvApplyBackwardOptions {
  /// As for `conv_apply`, and not necessarily the same.
  ConvAlgorithm algorithm = ConvAlgorithm::Auto;
  std::optional<int64_t> block;
  Target target = Target::CPU;
  GradientMemory gradients;
};

struct ConvApplyGradients {
  /// Like b, 0 where it is not read, and like v.
  OwnedTensor b, v;
};

/// The gradients of `conv_apply` from that of its output; `out` is what it
/// returned.
llvm::Expected<ConvApplyGradients>
conv_apply_backward(const TensorRef &dOut, const TensorRef &b,
                    const TensorRef &sizes, const TensorRef &v,
                    const TensorRef &out,
                    const ConvApplyBackwardOptions &options = {});

struct ConvRecoverBackwardOptions {
  /// 1/sqrt(D) by default.
  std::optional<double> scale;
  Target target = Target::CPU;
  GradientMemory gradients;
};

struct ConvGradients {
  OwnedTensor q, k;
  /// For `conv_backward` only.
  OwnedTensor v = {};
};

/// The gradients of the bases of `conv_recover` from theirs, dB [B,H,R,N];
/// `sizes` are what it returned, and constants.
llvm::Expected<ConvGradients>
conv_recover_backward(const TensorRef &dB, const TensorRef &q,
                      const TensorRef &k, const TensorRef &sizes,
                      const ConvRecoverBackwardOptions &options = {});

struct ConvBackwardOptions : TokenOptions {
  /// As for `conv`.
  std::optional<int64_t> slidingGroup;
  ConvAlgorithm algorithm = ConvAlgorithm::Auto;
  Target target = Target::CPU;
  GradientMemory gradients;
};

/// The gradients of `conv` from that of its output; `out` is what it returned.
/// Bases are searched once more; where they begin is a constant.
llvm::Expected<ConvGradients>
conv_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
              const TensorRef &v, const TensorRef &out,
              const ConvSearch &search,
              const ConvBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_CONV_H
