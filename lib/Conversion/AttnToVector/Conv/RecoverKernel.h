//===- RecoverKernel.h - Loops of attn.conv_recover -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/RegisterFile.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// Emits the loops that compute `op` at the insertion point of `builder`.
void emitConvRecover(mlir::OpBuilder &builder, ConvRecoverOp op,
                     RegisterFile registers);
void emitConvRecoverBackward(mlir::OpBuilder &builder, ConvRecoverBackwardOp op,
                             int64_t vectorBits);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERKERNEL_H
