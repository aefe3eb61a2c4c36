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
#include <limits>

namespace fovea::functions {

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

/// What a gradient needs of the forward function.
struct Backward {
  const TensorRef &dOut;
  const std::optional<TensorRef> &dLse;
  /// Unless they are computed again.
  const TensorRef *out = nullptr, *lse = nullptr;
};

/// Adds them to `call`; the gradients of q, k and v are the first results.
inline void addBackward(Call &call, Checker &check,
                        const Checker::Attention &arguments,
                        const Backward &backward) {
  const auto &[q, k, v] = arguments;
  ElementType type = q.elementType, state = getStateType(type);
  if (backward.out)
    call.operands({check.like("out", *backward.out, type, arguments.output()),
                   check.like("lse", *backward.lse, state, arguments.rows())});
  call.operand(check.like("d_out", backward.dOut, type, arguments.output()));
  // Operations that need none of it have no lse either.
  if (backward.out)
    call.operandIf(
        check.likeIf("d_lse", backward.dLse, state, arguments.rows()));
  call.result(check, "d_q", type, q.shape);
  call.result(check, "d_k", type, k.shape);
  call.result(check, "d_v", type, v.shape);
}

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ATTENTIONCALL_H
