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
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

template <typename OpTy> static LogicalResult verifyTiles(OpTy op) {
  if (op.getTiles())
    return success();
  return op.emitOpError("has no tiles; run --attn-select-tiles first");
}

/// The number of queries of the whole sequence where only the call knows it;
/// null otherwise.
static Value getOpenNumQueries(StreamOp op, KernelBuilder &b) {
  Value numRows = op.getNumRows();
  if (!numRows)
    numRows = b.extent(op.getQuery(), 2);
  return matchPattern(numRows, m_Constant()) ? Value() : numRows;
}

/// Tiles of as many accumulators for queries that fill one vector.
static TilesAttr narrow(TilesAttr tiles) {
  constexpr int64_t kMaxKeys = 8;
  int64_t accumulators = tiles.getKeys() * tiles.getVectors();
  int64_t keys = std::min(accumulators, kMaxKeys);
  return TilesAttr::get(tiles.getContext(), tiles.getQuery(),
                        tiles.getKey() / keys * keys, tiles.getLanes(),
                        /*vectors=*/1, keys, /*columns=*/accumulators);
}

/// One query of each head, as many as fill one vector, or blocks of them. Where
/// only the call knows their number, it finds all three; results have the bits
/// of the kernel for a type that tells it.
static LogicalResult lowerStream(StreamOp op, OpBuilder &builder,
                                 VectorLowering &lowering) {
  if (failed(verifyTiles(op)))
    return failure();
  TilesAttr tiles = *op.getTiles();
  KernelBuilder b(op.getLoc(), builder,
                  getStateType(getElementTypeOrSelf(op.getQuery())),
                  tiles.getLanes());
  auto emitRow = [&] { StreamRowKernel(op, b).emit(); };
  auto emitBlocks = [&] {
    StreamKernel(op, b, {lowering.manageCache, lowering.cpu.bf16Pairs}).emit();
  };
  auto emitNarrow = [&] {
    op.setTilesAttr(narrow(tiles));
    emitBlocks();
    op.setTilesAttr(tiles);
  };
  if (StreamRowKernel::fits(op)) {
    emitRow();
  } else if (Value numQueries = getOpenNumQueries(op, b)) {
    b.ifThenElse(b.equal(numQueries, b.index(1)), emitRow, [&] {
      b.ifThenElse(b.less(b.index(tiles.getLanes()), numQueries), emitBlocks,
                   emitNarrow);
    });
  } else {
    emitBlocks();
  }
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
  if (op.getDSink())
    return op.emitOpError("has a gradient of a sink; run "
                          "--attn-expand-patterns first");
  // The kernel reads what the forward reads: it is described by that.
  auto forward = StreamOp::create(
      builder, op.getLoc(), /*resultTypes=*/TypeRange(), op.getQuery(),
      op.getKeys(), op.getValues(), op.getLogWeights(), op.getBiases(),
      /*codes=*/ValueRange(), /*sink=*/Value(), /*first_row=*/Value(),
      /*num_rows=*/Value(), op.getOutput(), op.getLse(), op.getSourcesAttr(),
      op.getBlockAttr(), op.getScaleAttr(),
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
