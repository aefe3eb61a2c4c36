//===- SoftmaxAlgebra.h - Numerics of the streaming soft-max ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The only place that knows the base of the exponential, what a masked score is
// and what an empty row gives. Scores are kept in base 2: log2(e) is multiplied
// into the scale, the bias and the log weights, and comes out again in lse.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SOFTMAXALGEBRA_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SOFTMAXALGEBRA_H

#include "KernelBuilder.h"

namespace fovea::attn::softmax {

/// log2(e): multiplies natural scores.
constexpr double kLog2E = 1.44269504088896340736;

/// The score of an entry that is not admitted. Finite, so that the difference
/// of two masked scores is no NaN; exponentials of anything this far below a
/// row's maximum are exactly zero.
constexpr double kMasked = -1.0e30;

/// `2^x` for `x <= 0`, element by element: exactly 0 below the smallest normal
/// number, NaN for NaN. Relative error 2 ulp in f32, 1 ulp in f64.
mlir::Value exp2(KernelBuilder &builder, mlir::Value x);

/// What one vector of rows has after the last key: `1 / sum`, or 0 for rows
/// that admitted nothing (their maximum is still the masked score).
mlir::Value inverseSum(KernelBuilder &builder, mlir::Value maximum,
                       mlir::Value sum);

/// Natural logarithm of the sum of exponentials, -inf for empty rows.
mlir::Value logSumExp(KernelBuilder &builder, mlir::Value maximum,
                      mlir::Value sum);

} // namespace fovea::attn::softmax

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SOFTMAXALGEBRA_H
