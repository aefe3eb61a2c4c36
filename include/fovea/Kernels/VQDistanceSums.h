//===- VQDistanceSums.h - Gradients of terms by distance --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With dS[d] the sum of the gradients of all scores at distance d, and Q[d]
// that of the same times the queries and their bias u, the gradients of attn.vq
// are
//
//   d_relative_keys[d] = scale Q[d]        d_distance_bias[d] = dS[d]
//   d_relative_bias    = scale sum_d dS[d] r[d]
//
// summed over batch entries, and over heads that share a term. Parts of the
// queries of a head sum on their own, and their sums are added in one order.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_VQDISTANCESUMS_H
#define FOVEA_KERNELS_VQDISTANCESUMS_H

#include "fovea/Kernels/VQWindow.h"

namespace fovea::attn {

class VQDistanceSums {
public:
  using Value = mlir::Value;

  VQDistanceSums(TeamBuilder &builder, VQWindowLoops &loops, VQBackwardOp op)
      : b(builder), loops(loops), op(op) {}

  /// Makes the sums for the parts of a head.
  void allocate(Value numParts);
  /// Stores the gradients of all terms. `keyFactor` is missing in `keys`.
  void store(double keyFactor);

  /// Q, [B, H, parts, R, D], or null without relative keys; dS, [B, H, parts,
  /// R].
  Value keys, distances;

private:
  void storeSums(Value sums, Value gradient, double factor);

  TeamBuilder &b;
  VQWindowLoops &loops;
  VQBackwardOp op;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_VQDISTANCESUMS_H
