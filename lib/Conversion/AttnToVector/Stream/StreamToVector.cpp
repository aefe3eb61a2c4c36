//===- StreamToVector.cpp - Vector code of attn.stream --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "StreamKernel.h"
#include "StreamRowKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

template <typename OpTy> static LogicalResult verifyTiles(OpTy op) {
  if (op.getTiles())
    return success();
  return op.emitOpError("has no tiles; run --attn-select-tiles first");
}

static LogicalResult lowerStream(StreamOp op, OpBuilder &builder,
                                 VectorLowering &lowering) {
  if (failed(verifyTiles(op)))
    return failure();
  if (StreamRowKernel::fits(op))
    StreamRowKernel(op, builder).emit();
  else
    StreamKernel(op, builder, {lowering.manageCache, lowering.cpu.bf16Pairs})
        .emit();
  return success();
}

static LogicalResult lowerStreamBackward(StreamBackwardOp op,
                                         OpBuilder &builder,
                                         VectorLowering &lowering) {
  if (failed(verifyTiles(op)))
    return failure();
  for (Value destination : op.getDpsInits()) {
    Type type = getElementTypeOrSelf(destination);
    if (type != getStateType(type))
      return op.emitOpError("expects destinations that hold ")
             << getStateType(type) << ", but got " << type
             << "; run --attn-expand-patterns first";
  }
  // The kernel reads what the forward reads: it is described by that.
  auto forward = StreamOp::create(
      builder, op.getLoc(), /*resultTypes=*/TypeRange(), op.getQuery(),
      op.getKeys(), op.getValues(), op.getLogWeights(), op.getBiases(),
      /*codes=*/ValueRange(), /*first_row=*/Value(), /*num_rows=*/Value(),
      op.getOutput(), op.getLse(), op.getSourcesAttr(), op.getBlockAttr(),
      op.getScaleAttr(),
      WeightingAttr::get(op.getContext(), Weighting::Softmax),
      op.getTilesAttr());
  builder.setInsertionPoint(op);
  StreamBackwardKernel(op, forward, builder, lowering.module,
                       {lowering.manageCache, /*bf16Pairs=*/false})
      .emit();
  forward.erase();
  return success();
}

void fovea::attn::attachStreamToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerStream, lowerStreamBackward>(context);
}
