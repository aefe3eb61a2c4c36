//===- Patterns.h - Patterns of models as lists of sources ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each is a call of `stream`, and its gradients are those of `stream`: of the
// sources in the order in which they are named here, as keys and as values. The
// gradient of an array that is both is the sum.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_PATTERNS_H
#define FOVEA_FUNCTIONS_PATTERNS_H

#include "fovea/Functions/Stream.h"

namespace fovea {

struct HCAForm {
  int64_t window = 128, interval = 128;
  /// [B] of i32 or i64: the tokens of each batch entry.
  std::optional<TensorRef> lengths;
};

/// DeepSeek-V4's heavily compressed attention of q [B,H,N,D]: the last `window`
/// of the tokens kv [B,G,M,D], and summaries [B,G,M / interval,D] of complete
/// intervals, in one soft-max. Keys are their own values. The last query stands
/// at the last token. Of `options`, those for a sink, a scale, query lengths
/// and results count.
llvm::Expected<AttentionResult> hca(const TensorRef &q, const TensorRef &kv,
                                    const TensorRef &summaries,
                                    const HCAForm &form = {},
                                    const StreamOptions &options = {});
/// Gradients for the sources kv and summaries.
llvm::Expected<StreamGradients>
hca_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &kv,
             const TensorRef &summaries, const TensorRef &out,
             const TensorRef &lse, const HCAForm &form = {},
             const StreamBackwardOptions &options = {});

struct SelectedForm {
  /// Rows that an entry of a list names.
  int64_t unit = 1;
  /// Tokens that a row stands for, if rows are summaries.
  int64_t stride = 1;
  bool causal = true;
  /// Keys and values of tokens, of which a query reads the last `window`, too.
  std::optional<std::pair<TensorRef, TensorRef>> local;
  std::optional<int64_t> window;
  /// [B] of i32 or i64: the tokens of each batch entry.
  std::optional<TensorRef> lengths;
};

/// Attention of q [B,H,N,D] to the keys k [B,G,M,D] and values v [B,G,M,E] that
/// lists name, and to the last tokens beside them, in one soft-max. `rows` are
/// lists as in Source, one for each `options.block` queries, by default for
/// each.
llvm::Expected<AttentionResult> selected(const TensorRef &q, const TensorRef &k,
                                         const TensorRef &v,
                                         const TensorRef &rows,
                                         const SelectedForm &form = {},
                                         const StreamOptions &options = {});
/// Gradients for k and v, and for `local`.
llvm::Expected<StreamGradients>
selected_backward(const TensorRef &dOut, const TensorRef &q, const TensorRef &k,
                  const TensorRef &v, const TensorRef &rows,
                  const TensorRef &out, const TensorRef &lse,
                  const SelectedForm &form = {},
                  const StreamBackwardOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_PATTERNS_H
