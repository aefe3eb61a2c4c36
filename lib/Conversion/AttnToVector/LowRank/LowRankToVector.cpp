//===- LowRankToVector.cpp - Vector code of low-rank attention ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"

using namespace mlir;
using namespace fovea::attn;

/// A thread with vectors, and products of vectors.
static ThreadTeamBuilder getTeams(Operation *op, OpBuilder &builder,
                                  VectorLowering &lowering) {
  return {op->getLoc(), builder, getComputeType(op), lowering.cpu.vectorBits,
          lowering.minTasks};
}

static void emitSum(ThreadTeamBuilder &teams, const LowRankSum &sum,
                    RegisterFile registers) {
  if (sum.mask == RowMask::Causal)
    return emitCausalSum(teams, teams.getLoc(), sum, registers);
  if (sum.hasChanges()) {
    ThreadTeamBuilder wide(teams.getLoc(), teams, teams.getF64Type(),
                           registers.vectorBits, teams.getMinTeams());
    return emitRowChangeSum(wide, sum);
  }
  emitMaskedSum(teams, sum, [&](const TileProduct &product) {
    emitTileProduct(teams, registers, product);
  });
}

static LogicalResult lowerLowRank(LowRankOp op, OpBuilder &builder,
                                  VectorLowering &lowering) {
  if (failed(verifyNoTokenMasks(op)))
    return failure();
  ThreadTeamBuilder teams = getTeams(op, builder, lowering);
  emitSum(teams, getLowRankSum(op), lowering.cpu.getRegisters());
  return success();
}

/// Without query heads there are no sums to store.
static void clearWithoutHeads(TeamBuilder &b, Value heads, Value gradient) {
  b.ifThen(b.equal(heads, b.index(0)), [&] {
    int64_t width = cast<MemRefType>(gradient.getType()).getDimSize(3);
    Value grid[] = {b.extent(gradient, 0), b.extent(gradient, 1),
                    b.extent(gradient, 2)};
    b.forTeams(grid, [&](ValueRange at) {
      b.forColumns(width, [&](KernelBuilder &k, Value column) {
        k.storeVector(k.splat(0.0), gradient, {at[0], at[1], at[2], column});
      });
    });
  });
}

static LogicalResult lowerLowRankBackward(LowRankBackwardOp op,
                                          OpBuilder &builder,
                                          VectorLowering &lowering) {
  if (failed(verifyNoTokenMasks(op)))
    return failure();
  ThreadTeamBuilder teams = getTeams(op, builder, lowering);
  emitLowRankGradient(teams, op, [&](const LowRankSum &sum) {
    emitSum(teams, sum, lowering.cpu.getRegisters());
  });
  Value heads = teams.extent(op.getU1(), 1);
  clearWithoutHeads(teams, heads, op.getDU2());
  clearWithoutHeads(teams, heads, op.getDValue());
  return success();
}

void fovea::attn::attachLowRankToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerLowRank, lowerLowRankBackward>(context);
}
