//===- ConvolutionToProduct.h - Convolutions to products --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_CONVOLUTIONTOPRODUCT_H
#define FOVEA_CONVERSION_CONVOLUTIONTOPRODUCT_H

#include "mlir/Pass/Pass.h"

namespace fovea::attn {

/// Replaces convolutions of floating-point tensors, in any layout, by a copy of
/// the patches that the filter meets and a product of matrices. Where every
/// channel has a filter of its own they stay.
std::unique_ptr<mlir::Pass> createConvolutionToProductPass();

void registerConvolutionToProductPass();

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_CONVOLUTIONTOPRODUCT_H
