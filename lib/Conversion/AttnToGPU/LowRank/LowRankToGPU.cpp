//===- LowRankToGPU.cpp - GPU kernels of low-rank attention ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpTeamBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferUtils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

static void emitSum(WarpTeamBuilder &teams, const LowRankSum &sum,
                    F32Math math) {
  if (sum.mask == RowMask::Causal)
    return emitCausalLoops(teams, teams.getLoc(), sum, math);
  if (sum.hasChanges()) {
    WarpTeamBuilder wide(teams.getLoc(), teams, teams.getF64Type());
    return emitRowChangeSum(wide, sum);
  }
  emitMaskedSum(teams, sum, [&](const TileProduct &product) {
    emitTileProduct(teams, math, product);
  });
}

static LogicalResult lowerLowRank(LowRankOp op, OpBuilder &builder,
                                  GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)) || failed(verifyNoTokenMasks(op)))
    return failure();
  WarpTeamBuilder teams(op.getLoc(), builder);
  emitSum(teams, getLowRankSum(op), lowering.f32);
  return success();
}

static LogicalResult lowerLowRankBackward(LowRankBackwardOp op,
                                          OpBuilder &builder,
                                          GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)) || failed(verifyNoTokenMasks(op)))
    return failure();
  WarpTeamBuilder teams(op.getLoc(), builder);
  emitLowRankGradient(teams, op, [&](const LowRankSum &sum) {
    emitSum(teams, sum, lowering.f32);
  });
  return success();
}

void fovea::attn::attachLowRankToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerLowRank, lowerLowRankBackward>(context);
}
