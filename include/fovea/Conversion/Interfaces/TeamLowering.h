//===- TeamLowering.h - Lowerings of both targets ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `lowerToTeams(op, builder)` emits the kernel of an operation for teams. It
// serves --convert-attn-to-vector and --convert-attn-to-gpu.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_INTERFACES_TEAMLOWERING_H
#define FOVEA_CONVERSION_INTERFACES_TEAMLOWERING_H

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpTeamBuilder.h"

namespace fovea::attn {

/// The type that kernels of `op` compute in.
mlir::FloatType getComputeType(mlir::Operation *op);

template <typename OpTy>
llvm::LogicalResult lowerByThreads(OpTy op, mlir::OpBuilder &builder,
                                   VectorLowering &lowering) {
  ThreadTeamBuilder teams(op.getLoc(), builder, getComputeType(op),
                          lowering.cpu.vectorBits, lowering.minTasks);
  return lowerToTeams(op, teams);
}

template <typename OpTy>
llvm::LogicalResult lowerByWarps(OpTy op, mlir::OpBuilder &builder,
                                 GPULowering &) {
  if (failed(verifyGPUElementTypes(op)))
    return llvm::failure();
  WarpTeamBuilder teams(op.getLoc(), builder);
  return lowerToTeams(op, teams);
}

/// Attaches the lowerings of these operations for both targets.
template <typename... OpTys>
void attachTeamLowerings(mlir::MLIRContext &context) {
  attachLowerings<VectorModel, lowerByThreads<OpTys>...>(context);
  attachLowerings<GPUModel, lowerByWarps<OpTys>...>(context);
}

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_INTERFACES_TEAMLOWERING_H
