//===- StreamToVector.cpp - Vector code of attn.stream --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FewQueries.h"
#include "StreamBackwardKernel.h"
#include "StreamKernel.h"
#include "StreamRowsKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Differentiate/ScoreDerivative.h"
#include "fovea/Kernels/ReadLines.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

template <typename OpTy> static LogicalResult verifyTiles(OpTy op) {
  if (op.getTiles())
    return success();
  return op.emitOpError("has no tiles; run --attn-select-tiles first");
}

/// Few queries with all heads of a key head, or blocks of the queries of one
/// head.
static LogicalResult lowerStream(StreamOp op, OpBuilder &builder,
                                 VectorLowering &lowering) {
  if (failed(verifyTiles(op)))
    return failure();
  KernelBuilder b(op.getLoc(), builder,
                  getStateType(getElementTypeOrSelf(op.getQuery())),
                  op.getTiles()->getLanes());
  if (!hasFewQueries(op))
    return StreamKernel(
               op, b,
               {lowering.manageCache, lowering.cpu.bf16Pairs, lowering.cpu.amx})
        .emit();
  return StreamRowsKernel(op, b,
                          {lowering.manageCache, lowering.cpu.numRegisters,
                           lowering.cpu.splitVectors, lowering.cpu.bf16Pairs,
                           lowering.cpu.amx})
      .emit();
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
  if (op.getDSink())
    return op.emitOpError("has a gradient of a sink; run "
                          "--attn-expand-patterns first");
  // The kernel reads what the forward reads: it is described by that.
  auto forward = StreamOp::create(
      builder, op.getLoc(), /*resultTypes=*/TypeRange(), op.getQuery(),
      op.getKeys(), op.getValues(), op.getLogWeights(), op.getBiases(),
      /*codes=*/ValueRange(), op.getLengths(), op.getRowLists(),
      /*relative_keys=*/ValueRange(),
      /*relative_biases=*/ValueRange(), /*distance_biases=*/ValueRange(),
      /*sink=*/Value(), op.getQueryLengths(), op.getCaptures(),
      /*first_row=*/Value(), /*num_rows=*/Value(), op.getOutput(), op.getLse(),
      op.getSourcesAttr(), op.getBlockAttr(), op.getScaleAttr(),
      WeightingAttr::get(op.getContext(), Weighting::Softmax),
      op.getTilesAttr(), op.getScores().size());
  cloneScoreRegions(op.getScores(), forward.getScores());
  FailureOr<SmallVector<ScoreDerivatives>> derivatives = appendScoreDerivatives(
      forward.getScores(), /*ofReads=*/!op.getDCaptures().empty());
  builder.setInsertionPoint(op);
  LogicalResult result = failure();
  if (succeeded(derivatives) && succeeded(checkReads(op, *derivatives)))
    result = StreamBackwardKernel(
                 op, forward, *derivatives, builder, lowering.module,
                 {lowering.manageCache, /*bf16Pairs=*/false, lowering.cpu.amx})
                 .emit();
  forward.erase();
  return result;
}

void fovea::attn::attachStreamToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerStream, lowerStreamBackward>(context);
}
