//===- VQArguments.h - Arguments of quantized attention ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_VQARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_VQARGUMENTS_H

#include "Call.h"
#include "Codes.h"
#include "TokenMask.h"
#include "fovea/Functions/VQ.h"

namespace fovea::functions {

/// The arguments that all functions of the family have. Owns copies of some:
/// lives as long as the call.
struct VQArguments {
  Codes codes;
  Argument q, k, v, codebook;
  TokenMask mask;
  std::optional<Argument> bias;
  int64_t block, memory;

  bool keysAreCodes() const { return k.elementType != q.elementType; }
  Shape output() const {
    return {q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
  }
  /// Those that are too many are found by the operation. A block of no tokens
  /// has been refused.
  int64_t keptTokens() const {
    constexpr int64_t most = int64_t(1) << 40;
    int64_t rows = std::clamp<int64_t>(block, 1, most);
    return std::min(most / rows, memory) * rows + rows;
  }
};

/// Fails unless a new state of these blocks may be made.
void checkNewVQState(Checker &check, const VQArguments &arguments);

VQArguments checkVQArguments(Checker &check, const TensorRef &q,
                             const TensorRef &k, const TensorRef &v,
                             const TensorRef &codebook, int64_t block,
                             const VQFormOptions &options);

/// The arguments of terms by distance.
struct VQDistanceArguments {
  std::optional<Argument> relativeKeys, relativeBias, distanceBias;

  bool any() const { return relativeKeys || distanceBias; }
};

VQDistanceArguments checkVQDistances(Checker &check,
                                     const VQArguments &arguments,
                                     const VQDistanceOptions &options);

/// Adds the operands, turning keys into codes where they are none yet.
void addVQInputs(Call &call, const VQArguments &arguments);
void addVQDistances(Call &call, const VQDistanceArguments &arguments);
void addVQAttributes(Call &call, Checker &check, const VQArguments &arguments,
                     const VQFormOptions &options);

/// What a part of a state must be.
struct VQStatePart {
  const char *name;
  ElementType elementType;
  Shape shape;
  OwnedTensor VQState::*member;

  /// Without data.
  Argument getArgument() const {
    return Argument(name, {nullptr, elementType, shape});
  }
};

/// Mean, count, codes, values, position.
llvm::SmallVector<VQStatePart, 5> getVQState(const VQArguments &arguments);
/// The parts of `state` as arguments.
llvm::SmallVector<Argument> checkVQState(Checker &check,
                                         llvm::ArrayRef<VQStatePart> parts,
                                         const VQState &state, Target target);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_VQARGUMENTS_H
