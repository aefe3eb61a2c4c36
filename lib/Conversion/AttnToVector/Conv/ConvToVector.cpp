//===- ConvToVector.cpp - Vector code of sums of convolutions -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvGradient.h"
#include "ConvKernel.h"
#include "RecoverScores.h"
#include "fovea/Conversion/AttnToTeams/Conv/Recover.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Plans the loops of an operation, and says how.
template <typename OpTy> static ConvPlan plan(OpTy op, const CPUFacts &cpu) {
  ConvPlan plan = planConv(op, cpu);
  remark::passed(op.getLoc(), remark::RemarkOpts::name("ConvPlanned")
                                  .category(OpTy::getOperationName()))
      << remark::metric("Algorithm", stringifyConvAlgorithm(plan.algorithm))
      << remark::metric("Lanes", plan.lanes)
      << remark::metric("Block", plan.block)
      << remark::metric("PiecesAbreast", plan.abreast);
  return plan;
}

static LogicalResult lowerApply(ConvApplyOp op, OpBuilder &builder,
                                VectorLowering &lowering) {
  ConvPlan loops = plan(op, lowering.cpu);
  if (loops.algorithm == ConvAlgorithm::Toeplitz)
    emitConvToeplitz(builder, op, loops);
  else
    emitConvPartitioned(builder, op, loops);
  return success();
}

static LogicalResult lowerApplyBackward(ConvApplyBackwardOp op,
                                        OpBuilder &builder,
                                        VectorLowering &lowering) {
  ConvPlan loops = plan(op, lowering.cpu);
  if (loops.algorithm == ConvAlgorithm::Toeplitz)
    emitConvGradientToeplitz(builder, op, loops);
  else
    emitConvGradientPartitioned(builder, op, loops);
  return success();
}

static LogicalResult lowerRecover(ConvRecoverOp op, OpBuilder &builder,
                                  VectorLowering &lowering) {
  FloatType state = getComputeType(op);
  ThreadTeamBuilder teams(op.getLoc(), builder, state, lowering.cpu.vectorBits,
                          lowering.minTasks);
  emitConvRecover(teams, op, [&] {
    emitRecoverScores(builder, op, state, lowering.cpu.getRegisters());
  });
  return success();
}

void fovea::attn::attachConvToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerApply, lowerApplyBackward, lowerRecover>(
      context);
}
