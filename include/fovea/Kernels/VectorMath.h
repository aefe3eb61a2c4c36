//===- VectorMath.h - Functions of vectors ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_VECTORMATH_H
#define FOVEA_KERNELS_VECTORMATH_H

#include "mlir/IR/PatternMatch.h"

namespace fovea::attn {

/// Expansions of functions of vectors: MLIR's, and some of f32 that take fewer
/// instructions.
void populateVectorMathPatterns(mlir::RewritePatternSet &patterns);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_VECTORMATH_H
