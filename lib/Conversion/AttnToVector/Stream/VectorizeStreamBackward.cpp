//===- VectorizeStreamBackward.cpp - Vector code of stream_backward --- -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamBackwardKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZESTREAMBACKWARDPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static LogicalResult verifyOperands(StreamBackwardOp op) {
  if (failed(fovea::attn::detail::verifyVectorOperands(op)))
    return failure();
  if (!op.getTiles())
    return op.emitOpError("has no tiles; run --attn-select-tiles first");
  for (Value destination : op.getDpsInits()) {
    Type type = getElementTypeOrSelf(destination);
    if (type != getStateType(type))
      return op.emitOpError("expects destinations that hold ")
             << getStateType(type) << ", but got " << type
             << "; run --attn-expand-patterns first";
  }
  return success();
}

namespace {
struct VectorizeStreamBackwardPass
    : fovea::attn::impl::VectorizeStreamBackwardPassBase<
          VectorizeStreamBackwardPass> {
  using VectorizeStreamBackwardPassBase::VectorizeStreamBackwardPassBase;
  void runOnOperation() override {
    SmallVector<StreamBackwardOp> ops;
    WalkResult result = getOperation().walk([&](StreamBackwardOp op) {
      ops.push_back(op);
      return WalkResult(verifyOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (StreamBackwardOp op : ops) {
      OpBuilder builder(op);
      // The kernel reads what the forward reads: it is described by that.
      auto forward = StreamOp::create(
          builder, op.getLoc(), /*resultTypes=*/TypeRange(), op.getQuery(),
          op.getKeys(), op.getValues(), op.getLogWeights(), op.getBiases(),
          /*codes=*/ValueRange(), /*first_row=*/Value(), /*num_rows=*/Value(),
          op.getOutput(), op.getLse(), op.getSourcesAttr(), op.getBlockAttr(),
          op.getScaleAttr(),
          WeightingAttr::get(&getContext(), Weighting::Softmax),
          op.getTilesAttr());
      builder.setInsertionPoint(op);
      StreamBackwardKernel(op, forward, builder, getOperation(),
                           {manageCache, /*bf16Pairs=*/false})
          .emit();
      forward.erase();
      op.erase();
    }
  }
};
} // namespace
