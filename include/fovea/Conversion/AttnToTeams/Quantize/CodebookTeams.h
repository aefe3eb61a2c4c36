//===- CodebookTeams.h - Loops of codebooks for teams -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the lowerings of codebook summaries share on all targets. Each emits its
// code before the operation, on memrefs.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_ATTNTOTEAMS_QUANTIZE_CODEBOOKTEAMS_H
#define FOVEA_CONVERSION_ATTNTOTEAMS_QUANTIZE_CODEBOOKTEAMS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

llvm::LogicalResult lowerToTeams(CodebookAccumulateOp op, TeamBuilder &builder);

/// Whether means of a scan are not in the type of sums, in which its entries go
/// on from each other.
bool hasRoundedEntries(CodebookScanOp op);

/// Entry 0 of `mean` and of a scan's counts becomes the initial state, entry
/// `t` the summary of block `t - 1` alone, in which means of no token are
/// undefined.
void emitBlockSummaries(CodebookScanOp op, mlir::Value mean,
                        TeamBuilder &builder);

/// `emitSums` emits the sums `[W, S, D]` and counts `[W, S]` of the keys of
/// each code.
void emitCodebookUpdate(
    CodebookUpdateOp op, TeamBuilder &builder,
    llvm::function_ref<void(mlir::Value sums, mlir::Value counts)> emitSums);

/// The first head of the keys of a set of codewords, and the one behind.
std::pair<mlir::Value, mlir::Value>
getHeadsOfSet(KernelBuilder &builder, CodebookUpdateOp op, mlir::Value set);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_ATTNTOTEAMS_QUANTIZE_CODEBOOKTEAMS_H
