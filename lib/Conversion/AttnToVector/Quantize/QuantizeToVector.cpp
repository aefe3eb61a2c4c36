//===- QuantizeToVector.cpp - Vector code of quantized attention ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizeKernel.h"
#include "VQBackwardKernel.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Interfaces/TeamLowering.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace fovea::attn;

static LogicalResult lowerQuantize(QuantizeOp op, OpBuilder &builder,
                                   VectorLowering &lowering) {
  QuantizePlan plan = planQuantize(op, lowering.cpu.getRegisters());
  remark::passed(op.getLoc(), remark::RemarkOpts::name("QuantizePlanned")
                                  .category(op.getOperationName()))
      << remark::metric("Lanes", plan.lanes)
      << remark::metric("Vectors", plan.vectors)
      << remark::metric("Codes", plan.codes) << remark::metric("Run", plan.run);
  if (plan.fewKeys)
    emitQuantizeFewKeys(builder, op, plan);
  else
    emitQuantize(builder, op, plan, lowering.manageCache);
  return success();
}

static LogicalResult lowerVQBackward(VQBackwardOp op, OpBuilder &builder,
                                     VectorLowering &lowering) {
  ThreadTeamBuilder teams(op.getLoc(), builder, getComputeType(op),
                          lowering.cpu.vectorBits, lowering.minTasks);
  VQBackwardKernel(teams, op).emit();
  return success();
}

void fovea::attn::attachQuantizeToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerQuantize, lowerVQBackward>(context);
}
