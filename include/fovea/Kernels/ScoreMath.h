//===- ScoreMath.h - Functions of vectors of scores -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SCOREMATH_H
#define FOVEA_KERNELS_SCOREMATH_H

#include "mlir/IR/PatternMatch.h"

namespace fovea::attn {

/// Expansions of functions that take fewer instructions than MLIR's.
void populateScoreMathPatterns(mlir::RewritePatternSet &patterns);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SCOREMATH_H
