//===- VarlenBatch.h - Packed sequences on GPUs -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels of GPUs take batches: sequences of about the same length are one, or
// all are, whose longest length the caller tells.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_VARLENBATCH_H
#define FOVEA_LIB_FUNCTIONS_VARLENBATCH_H

#include "AttentionCall.h"
#include "Memory.h"
#include "fovea/Functions/Varlen.h"

namespace fovea::functions {

/// The arguments of both functions, checked but for the starts themselves.
struct VarlenArguments {
  VarlenArguments(Checker &check, const TensorRef &q, const TensorRef &k,
                  const TensorRef &v, const TensorRef &queryStarts,
                  const TensorRef &keyStarts, const VarlenFormOptions &options);

  /// Behind checks of the starts, where the host reads these.
  void checkSequences(Checker &check) const;
  Shape getOutputShape() const { return {q.shape[0], q.shape[1], v.shape[2]}; }
  Shape getLseShape() const { return {q.shape[1], q.shape[0]}; }

  Argument q, k, v, queryStarts, keyStarts;
};

/// Where sequences begin, and the number of rows, checked; wherever they lie.
llvm::SmallVector<int64_t> readStarts(Checker &check, const Argument &starts,
                                      int64_t numRows, Target target);

/// Dense attention with the form of packed sequences.
template <typename Options>
Options makeDenseOptions(const VarlenFormOptions &form) {
  Options options;
  options.scale = form.scale;
  options.causal = form.causal;
  options.window = form.window;
  options.prefix = form.prefix;
  options.sink = form.sink;
  options.target = form.target;
  return options;
}

llvm::Expected<AttentionResult> varlenInBatch(const VarlenArguments &arguments,
                                              const VarlenOptions &options);

llvm::Expected<VarlenGradients>
varlenBackwardInBatch(const VarlenArguments &arguments,
                      const Backward &backward,
                      const VarlenBackwardOptions &options);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_VARLENBATCH_H
