//===- AttentionCall.h - Calls with an output and an lse --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_ATTENTIONCALL_H
#define FOVEA_LIB_FUNCTIONS_ATTENTIONCALL_H

#include "Call.h"
#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Shapes.h"
#include <limits>

namespace fovea::functions {

/// The mask that `options` of a call or of a source say, whose names begin with
/// `prefix` in errors. That of a window of 0 admits nothing, which it cannot
/// say.
template <typename Options>
MaskValue checkMask(Checker &check, llvm::StringRef prefix,
                    const Options &options, int64_t numQueries,
                    int64_t numKeys) {
  MaskValue mask{options.causal, 0, 0};
  // One that reaches everything is none, unless the kernel is for longer ones.
  // Kernels add 32-bit positions, which are fewer, to the most that is kept.
  constexpr int64_t kMostWindow = int64_t(1) << 30;
  if (options.window)
    if (int64_t window =
            check.integer((prefix + "window").str(), *options.window, 0);
        window < std::max(numQueries, numKeys) ||
        getShapes() == Shapes::Dynamic)
      mask.window = std::min(window, kMostWindow);
  if (options.prefix) {
    mask.prefix = check.integer((prefix + "prefix").str(), *options.prefix, 0);
    check.check(options.causal && !options.window,
                prefix + "prefix: found it " +
                    (options.window ? "beside a window" : "alone") +
                    ", needed causal and no window");
  }
  return mask;
}

/// Adds output and, if asked for, lse to `call`, and runs it.
template <typename Options>
llvm::Expected<AttentionResult>
runAttention(Call &call, Checker &check, const Checker::Attention &arguments,
             const Options &options, bool readsNothing) {
  Shape rows = arguments.rows();
  ElementType type = arguments.q.elementType;
  call.result(check, "output", type, arguments.output());
  call.resultIf(options.returnLse, check, "lse", getStateType(type), rows);
  llvm::Expected<llvm::SmallVector<OwnedTensor>> results =
      call.runChecked(check, llvm::is_contained(rows, 0) || readsNothing,
                      {0.0, -std::numeric_limits<double>::infinity()});
  if (!results)
    return results.takeError();
  AttentionResult result;
  result.output = std::move((*results)[0]);
  if (options.returnLse)
    result.lse = std::move((*results)[1]);
  return result;
}

/// `dense` of the tokens of a cache: kernels for GPUs are for any numbers of
/// queries and keys.
llvm::Expected<AttentionResult> denseOfCache(const TensorRef &q,
                                             const TensorRef &k,
                                             const TensorRef &v,
                                             const DenseOptions &options);

/// What a gradient needs of the forward function.
struct Backward {
  const TensorRef &dOut;
  const std::optional<TensorRef> &dLse;
  /// Unless they are computed again.
  const TensorRef *out = nullptr, *lse = nullptr;
};

/// Adds them to `call`; the gradient of q is the first result.
inline void addForward(Call &call, Checker &check,
                       const Checker::Attention &arguments,
                       const Backward &backward) {
  ElementType type = arguments.q.elementType, state = getStateType(type);
  if (backward.out)
    call.operands({check.like("out", *backward.out, type, arguments.output()),
                   check.like("lse", *backward.lse, state, arguments.rows())});
  call.operand(check.like("d_out", backward.dOut, type, arguments.output()));
  // Operations that need none of it have no lse either.
  if (backward.out)
    call.operandIf(
        check.likeIf("d_lse", backward.dLse, state, arguments.rows()));
  call.result(check, "d_q", type, arguments.q.shape);
}

/// The same; those of k and v follow.
inline void addBackward(Call &call, Checker &check,
                        const Checker::Attention &arguments,
                        const Backward &backward) {
  const auto &[q, k, v] = arguments;
  ElementType type = q.elementType;
  addForward(call, check, arguments, backward);
  call.result(check, "d_k", type, k.shape);
  call.result(check, "d_v", type, v.shape);
}

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ATTENTIONCALL_H
