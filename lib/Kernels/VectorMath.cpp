//===- VectorMath.cpp - Functions of vectors ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VectorMath.h"
#include "fovea/Kernels/ElementaryMath.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"

void fovea::attn::populateVectorMathPatterns(
    mlir::RewritePatternSet &patterns) {
  mlir::populateMathPolynomialApproximationPatterns(patterns);
  populateElementaryMathPatterns(patterns, /*ofVectors=*/true);
}
