//===- Lowerings.h - Lowerings of the families ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_INTERFACES_LOWERINGS_H
#define FOVEA_CONVERSION_INTERFACES_LOWERINGS_H

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace fovea::attn {

/// Register the lowerings of all operations that --convert-attn-to-vector,
/// --convert-attn-to-gpu and --attn-lower-to-reference know.
void registerLowerToVectorExternalModels(mlir::DialectRegistry &registry);
void registerLowerToGPUExternalModels(mlir::DialectRegistry &registry);
/// Of operations whose kernels are the same for the first two.
void registerLowerToTeamsExternalModels(mlir::DialectRegistry &registry);
void registerLowerToReferenceExternalModels(mlir::DialectRegistry &registry);

/// Attach those of a folder of AttnToVector.
void attachConvToVector(mlir::MLIRContext &context);
void attachLowRankToVector(mlir::MLIRContext &context);
void attachQuantizeToVector(mlir::MLIRContext &context);
void attachStreamToVector(mlir::MLIRContext &context);
void attachSummarizeToVector(mlir::MLIRContext &context);

void attachConvToTeams(mlir::MLIRContext &context);
void attachLowRankToTeams(mlir::MLIRContext &context);
void attachPoolToTeams(mlir::MLIRContext &context);
void attachQuantizeToTeams(mlir::MLIRContext &context);
void attachTokensToTeams(mlir::MLIRContext &context);
void attachTreeToTeams(mlir::MLIRContext &context);
void attachTreeSplitToTeams(mlir::MLIRContext &context);

/// Attach those of some operations, in AttnToGPU.
void attachConvToGPU(mlir::MLIRContext &context);
void attachLowRankToGPU(mlir::MLIRContext &context);
void attachCodebookToGPU(mlir::MLIRContext &context);
void attachQuantizeToGPU(mlir::MLIRContext &context);
void attachStreamToGPU(mlir::MLIRContext &context);
void attachStreamBackwardToGPU(mlir::MLIRContext &context);
void attachSummarizeToGPU(mlir::MLIRContext &context);
void attachSummarizeBackwardToGPU(mlir::MLIRContext &context);
void attachVQBackwardToGPU(mlir::MLIRContext &context);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_INTERFACES_LOWERINGS_H
