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
#include <functional>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Plans the loops of an operation for about `tokens` tokens, and says how.
template <typename OpTy>
static ConvPlan plan(OpTy op, const CPUFacts &cpu, int64_t tokens) {
  ConvPlan plan = planConv(op, cpu, tokens);
  remark::passed(op.getLoc(), remark::RemarkOpts::name("ConvPlanned")
                                  .category(OpTy::getOperationName()))
      << remark::metric("Algorithm", stringifyConvAlgorithm(plan.algorithm))
      << remark::metric("Lanes", plan.lanes)
      << remark::metric("Block", plan.block)
      << remark::metric("PiecesAbreast", plan.abreast);
  return plan;
}

/// Emits the loops of an operation. One transform is as long as suits all
/// lengths of some thousand tokens. For shorter ones, whose number is known at
/// run time, there are others, unless they are asked for by name.
template <typename OpTy>
static void emitForLengths(OpTy op, OpBuilder &builder, const CPUFacts &cpu,
                           function_ref<void(const ConvPlan &)> emit) {
  constexpr int64_t kMostTokens[] = {512, 2048};
  int64_t tokens = cast<MemRefType>(op.getBasis().getType()).getDimSize(3);
  SmallVector<std::pair<int64_t, ConvPlan>> shorter;
  if (ShapedType::isDynamic(tokens) && !op.getBlock() &&
      op.getAlgorithm() == ConvAlgorithm::Auto)
    for (int64_t most : kMostTokens) {
      ConvPlan loops = planConv(op, cpu, most);
      if (loops.algorithm != ConvAlgorithm::Single)
        shorter.push_back({most, plan(op, cpu, most)});
    }
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  std::function<void(size_t)> emitFrom = [&](size_t index) {
    OpBuilder::InsertionGuard guard(builder);
    builder.restoreInsertionPoint(b.saveInsertionPoint());
    if (index == shorter.size())
      return emit(plan(op, cpu, tokens));
    const auto &[most, loops] = shorter[index];
    b.ifThenElse(
        b.less(b.extent(op.getBasis(), 3), b.index(most + 1)),
        [&, &loops = loops] {
          OpBuilder::InsertionGuard guard(builder);
          builder.restoreInsertionPoint(b.saveInsertionPoint());
          emit(loops);
        },
        [&] { emitFrom(index + 1); });
  };
  emitFrom(0);
}

static LogicalResult lowerApply(ConvApplyOp op, OpBuilder &builder,
                                VectorLowering &lowering) {
  emitForLengths(op, builder, lowering.cpu, [&](const ConvPlan &loops) {
    if (loops.algorithm == ConvAlgorithm::Toeplitz)
      emitConvToeplitz(builder, op, loops);
    else
      emitConvPartitioned(builder, op, loops);
  });
  return success();
}

static LogicalResult lowerApplyBackward(ConvApplyBackwardOp op,
                                        OpBuilder &builder,
                                        VectorLowering &lowering) {
  emitForLengths(op, builder, lowering.cpu, [&](const ConvPlan &loops) {
    if (loops.algorithm == ConvAlgorithm::Toeplitz)
      emitConvGradientToeplitz(builder, op, loops);
    else
      emitConvGradientPartitioned(builder, op, loops);
  });
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
