//===- VQ.h - Attention of arrays over quantized keys -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_VQ_H
#define FOVEA_FUNCTIONS_VQ_H

#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Tokens.h"

namespace fovea {

//===----------------------------------------------------------------------===//
// Codebooks
//===----------------------------------------------------------------------===//

struct QuantizeOptions : TokenOptions {
  Target target = Target::CPU;
  ResultMemory out;
};

struct QuantizeResult {
  /// The codewords [B,G,N,D], and which they are, [B,G,N] of i32.
  OwnedTensor quantized, codes;
};

/// The nearest codeword of every key of k [B,G,N,D]; codebook is [G,S,D] or
/// [1,S,D], in the type of k or of sums. A key of an absent token has code -1
/// and a codeword of zeros.
llvm::Expected<QuantizeResult> quantize(const TensorRef &k,
                                        const TensorRef &codebook,
                                        const QuantizeOptions &options = {});

struct CodebookUpdateOptions {
  double rate = 0.99;
  /// Codewords are sums divided by max(counts, minCount).
  double minCount = 0.0;
  /// Codewords of smaller counts are dead: a key of the batch, chosen by
  /// `seed` of 0 or more, replaces each. None are where it is 0.
  double replaceBelow = 0.0;
  int64_t seed = 0;
  /// Whether the codebook is in the type of sums instead of that of k.
  bool wide = false;
  Target target = Target::CPU;
  ResultMemory out;
};

/// One step of exponentially smoothed k-means with k [B,G,N,D] and codes
/// [B,G,N] of i32 or i64, -1 for absent tokens. Updates `sums` [G,S,D] and
/// `counts` [G,S] where they lie and returns the codebook.
llvm::Expected<OwnedTensor>
codebook_update(const TensorRef &k, const TensorRef &codes,
                const TensorRef &sums, const TensorRef &counts,
                const CodebookUpdateOptions &options = {});

struct CodebookStep {
  OwnedTensor codebook, sums, counts;
};

/// The same step, which leaves `sums` and `counts` as they are and returns new
/// ones.
llvm::Expected<CodebookStep>
codebook_step(const TensorRef &k, const TensorRef &codes, const TensorRef &sums,
              const TensorRef &counts,
              const CodebookUpdateOptions &options = {});

/// The mean over all keys of tokens present of |k - k_hat|^2, 0 without any, an
/// array of rank 0 of the type of sums. k is [B,G,N,D]; k_hat are the codewords
/// that `quantize` found for it, which count as constants.
llvm::Expected<OwnedTensor> commitment_loss(const TensorRef &k,
                                            const TensorRef &kHat,
                                            Target target = Target::CPU,
                                            const TokenOptions &tokens = {},
                                            const ResultMemory &out = {});

/// The gradient of `commitment_loss` for k, zeros for absent tokens, times
/// `dLoss`.
llvm::Expected<OwnedTensor>
commitment_loss_backward(double dLoss, const TensorRef &k,
                         const TensorRef &kHat, Target target = Target::CPU,
                         const TokenOptions &tokens = {},
                         const ResultMemory &out = {});

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// What `vq` and `vq_decode` know of the tokens so far: see `attn.vq`. Empty
/// before the first one.
struct VQState {
  OwnedTensor mean, count, codes, values, position;

  bool isEmpty() const { return !position.getData(); }
  int64_t getNumBytes() const;
  /// A state of the same content, which `vq_decode` updates alone.
  llvm::Expected<VQState> fork() const;
  /// The content in a file, in the format of safetensors, which replaces one
  /// that is there.
  llvm::Error save(llvm::StringRef path) const;
  static llvm::Expected<VQState> load(llvm::StringRef path);
};

enum class VQWeighting { Softmax, SquaredReLU };
enum class VQReduction { Auto, Serial, MatMul, Associative, InputScan };

/// What attention, decoding and gradients have in common. Tokens are those of
/// keys: codes say themselves which are absent.
struct VQFormOptions : TokenOptions {
  /// Blocks before a query's own that it reads one by one.
  int64_t memory = 1;
  /// Whether codes may be -1: see `attn.vq`.
  bool padded = false;
  /// Broadcast to [B,H,N,(memory + 1) block].
  std::optional<TensorRef> bias;
  double scale = 1.0;
  VQWeighting weighting = VQWeighting::Softmax;
  Target target = Target::CPU;
};

/// Relative keys [H,R,D] or [1,R,D] and the bias [H,D] or [1,D] of queries, of
/// Transformer-XL: see `attn.vq`. R is (memory + 1) block at least.
struct VQRelative {
  TensorRef keys, bias;
};

/// With terms by distance of the scores of tokens read one by one.
struct VQDistanceOptions : VQFormOptions {
  std::optional<VQRelative> relative;
  /// [H,R] or [1,R].
  std::optional<TensorRef> distanceBias;
};

struct VQOptions : VQDistanceOptions {
  bool causal = true;
  VQReduction reduction = VQReduction::Auto;
  /// The state that an earlier call returned for the tokens before.
  const VQState *state = nullptr;
  bool returnState = false;
  bool returnLse = false;
  ResultMemory out;
};

struct VQResult {
  OwnedTensor output, lse;
  /// The state after the last token, if asked for.
  VQState state;
};

/// Dense attention over keys quantized to `codebook`, in linear time: q
/// [B,H,N,D], v [B,G,N,E], and k either [B,G,N,D] or codes [B,G,N] of i32 or
/// i64. The codebook is in the type of q or of sums.
llvm::Expected<VQResult> vq(const TensorRef &q, const TensorRef &k,
                            const TensorRef &v, const TensorRef &codebook,
                            int64_t block, const VQOptions &options = {});

struct VQDecodeOptions : VQDistanceOptions {
  ResultMemory out;
};

/// One token of `vq`. Updates `state` where it lies; an empty one becomes the
/// state after the first token. Returns the output [B,H,1,E].
llvm::Expected<OwnedTensor> vq_decode(const TensorRef &q, const TensorRef &k,
                                      const TensorRef &v,
                                      const TensorRef &codebook, VQState &state,
                                      int64_t block,
                                      const VQDecodeOptions &options = {});

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The gradient of a state: for its mean [B,G,S,E], and for the quantized keys
/// [B,G,R,D] and the values [B,G,R,E] of the R = (memory + 1) block tokens that
/// it keeps.
struct VQStateGradient {
  OwnedTensor mean, keys, values;
};

struct VQBackwardOptions : VQDistanceOptions {
  bool causal = true;
  /// What `vq` returned; none without a soft-max.
  std::optional<TensorRef> out, lse;
  /// The gradient for `lse`, zero if absent.
  std::optional<TensorRef> dLse;
  /// What `vq` was given, and the gradient for what it returned.
  const VQState *state = nullptr;
  const VQStateGradient *dNextState = nullptr;
  GradientMemory gradients;
};

struct VQGradients {
  /// Those of q, of the quantized keys [B,G,N,D], of v, of a bias, and of terms
  /// by distance.
  OwnedTensor q, k, v, bias, relativeKeys, relativeBias, distanceBias;
  /// That of the state, if there is one.
  VQStateGradient state;
};

/// The gradients of `vq` from that of its output, and of the state that it
/// returned: see `attn.vq_backward`.
llvm::Expected<VQGradients>
vq_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
            const TensorRef &v, const TensorRef &codebook, int64_t block,
            const VQBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_VQ_H
