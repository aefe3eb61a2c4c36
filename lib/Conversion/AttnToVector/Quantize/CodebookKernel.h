//===- CodebookKernel.h - Loops of codebook summaries -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Summaries, updates and log weights of codebooks, vectorised along the width.
// A token touches one row of means, which its code names, so rows are updated
// in memory, token after token.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_CODEBOOKKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_CODEBOOKKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/RowBuilder.h"

namespace fovea::attn {

void emitAccumulate(mlir::OpBuilder &builder, CodebookAccumulateOp op,
                    int64_t vectorBits);
void emitScan(mlir::OpBuilder &builder, CodebookScanOp op, int64_t vectorBits);
void emitUpdate(mlir::OpBuilder &builder, CodebookUpdateOp op,
                int64_t vectorBits);
void emitLogCount(mlir::OpBuilder &builder, LogCountOp op, int64_t vectorBits);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_CODEBOOKKERNEL_H
