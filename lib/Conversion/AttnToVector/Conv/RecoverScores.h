//===- RecoverScores.h - Product of attn.conv_recover -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERSCORES_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERSCORES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/RegisterFile.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

/// Emits the scores of all rows with the keys where bases begin, for CPUs.
void emitRecoverScores(mlir::OpBuilder &builder, ConvRecoverOp op,
                       mlir::FloatType state, RegisterFile registers);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_RECOVERSCORES_H
