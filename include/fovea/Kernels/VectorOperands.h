//===- VectorOperands.h - What vector code asks of operands -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_VECTOROPERANDS_H
#define FOVEA_KERNELS_VECTOROPERANDS_H

#include "mlir/IR/Operation.h"

namespace fovea::attn {

/// Whether there may be other memory between rows, the last dimension but one,
/// of a memref or of what a tensor will become.
bool hasRowGaps(mlir::Value rows);

} // namespace fovea::attn

namespace fovea::attn::detail {

/// Checks that the operands of `op` are memrefs whose last dimension, which
/// vectors are read along, is contiguous.
mlir::LogicalResult verifyVectorOperands(mlir::Operation *op);

} // namespace fovea::attn::detail

#endif // FOVEA_KERNELS_VECTOROPERANDS_H
