//===- LinalgProduct.h - Sums of products in linalg -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_LINALGPRODUCT_H
#define FOVEA_KERNELS_LINALGPRODUCT_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fovea::attn {

/// Whether the body is `output + left * right` of floating-point numbers.
bool isSumOfProducts(mlir::linalg::LinalgOp op);

/// The operation that fills the output of `op`, a buffer, with a constant, when
/// `op` is all that meets it.
mlir::linalg::FillOp findFill(mlir::linalg::LinalgOp op);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_LINALGPRODUCT_H
