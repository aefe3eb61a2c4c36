//===- RunBounds.h - Bounds of elements of integers -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The least and the greatest element of a part of a row of integers: of all of
// its elements, or, for rows that many look through, of runs of them whose
// bounds are kept.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_RUNBOUNDS_H
#define FOVEA_KERNELS_RUNBOUNDS_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// What has the least elements and what has the greatest: the integers
/// themselves, or bounds of runs of `kLength` elements of each row, of which
/// the last may be shorter.
struct RunBounds {
  static constexpr int64_t kLength = 64;

  mlir::Value least, greatest; // memrefs

  /// Allocates the bounds of all runs of `memref` and computes them; the caller
  /// frees them.
  static RunBounds create(KernelBuilder &b, mlir::Value memref);

  /// The least and the greatest element `at` these indices, of which that of
  /// the last dimension or of another, `dim`, goes from `low` to `high`,
  /// without it. Of none both are as far as the type goes, in the other order.
  std::pair<mlir::Value, mlir::Value> reduce(KernelBuilder &b,
                                             KernelBuilder::Values at,
                                             unsigned dim, mlir::Value low,
                                             mlir::Value high) const;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_RUNBOUNDS_H
