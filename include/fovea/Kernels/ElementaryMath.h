//===- ElementaryMath.h - Functions made of instructions --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_ELEMENTARYMATH_H
#define FOVEA_KERNELS_ELEMENTARYMATH_H

#include "mlir/IR/PatternMatch.h"

namespace fovea::attn {

/// Functions of f32 of which MLIR's expansions are wrong far from zero, at
/// zero or at infinity. On vectors, and on the scalars of GPUs:
void populateElementaryMathPatterns(mlir::RewritePatternSet &patterns,
                                    bool ofVectors);
/// Those of GPUs only: CPUs call those of the C library for scalars.
void populateScalarMathPatterns(mlir::RewritePatternSet &patterns);

/// Powers to integers as products, or as those of numbers that are none.
void populateIntegerPowerPatterns(mlir::RewritePatternSet &patterns);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_ELEMENTARYMATH_H
