//===- QuantizeTeams.h - Loops for rows of codebooks ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOTEAMS_QUANTIZE_QUANTIZETEAMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOTEAMS_QUANTIZE_QUANTIZETEAMS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

// Each emits its code before the operation, on memrefs.

llvm::LogicalResult lowerToTeams(LogCountOp op, TeamBuilder &builder);

// On a CPU.
llvm::LogicalResult lowerToTeams(CodebookScanOp op, TeamBuilder &builder);
llvm::LogicalResult lowerToTeams(CodebookUpdateOp op, TeamBuilder &builder);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOTEAMS_QUANTIZE_QUANTIZETEAMS_H
