//===- LowRankToVector.cpp - Vector code of low-rank attention ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"

using namespace mlir;
using namespace fovea::attn;

static LogicalResult lowerFeatures(PolynomialFeaturesOp op, OpBuilder &builder,
                                   VectorLowering &lowering) {
  emitPolynomialFeatures(builder, op, lowering.cpu.vectorBits);
  return success();
}

static LogicalResult lowerFeaturesBackward(PolynomialFeaturesBackwardOp op,
                                           OpBuilder &builder,
                                           VectorLowering &lowering) {
  emitPolynomialFeaturesBackward(builder, op, lowering.cpu.vectorBits);
  return success();
}

static LogicalResult lowerLowRank(LowRankOp op, OpBuilder &builder,
                                  VectorLowering &lowering) {
  emitLowRankSum(builder, op.getLoc(), getLowRankSum(op),
                 lowering.cpu.getRegisters());
  return success();
}

static LogicalResult lowerLowRankBackward(LowRankBackwardOp op,
                                          OpBuilder &builder,
                                          VectorLowering &lowering) {
  emitLowRankBackward(builder, op, lowering.cpu.getRegisters());
  return success();
}

void fovea::attn::attachLowRankToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerFeatures, lowerFeaturesBackward,
                  lowerLowRank, lowerLowRankBackward>(context);
}
