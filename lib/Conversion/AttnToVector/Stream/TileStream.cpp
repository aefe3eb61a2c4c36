//===- TileStream.cpp - Tile attn.stream -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyingTasks.h"
#include "FewQueries.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/HeadRows.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {
#define GEN_PASS_DEF_TILESTREAMPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// The queries of a task: what the tiles say, but fewer of those that copy keys
/// and values where only the call knows how many there are.
static OpFoldResult getTaskQueries(OpBuilder &builder, StreamOp op) {
  TilesAttr tiles = *op.getTiles();
  if (op.getBlock() != 0 || tiles.getQuery() <= tiles.getQueryLanes())
    return builder.getIndexAttr(tiles.getQuery());
  AffineExpr share =
      getCopyingShare(builder.getAffineSymbolExpr(0), tiles.getQueryLanes());
  auto map = AffineMap::get(
      0, 1, {share, builder.getAffineConstantExpr(tiles.getQuery())},
      builder.getContext());
  return affine::makeComposedFoldedAffineMin(
      builder, op.getLoc(), map,
      {tensor::getMixedSize(builder, op.getLoc(), op.getQuery(), 2)});
}

namespace {
struct TileStreamPass : fovea::attn::impl::TileStreamPassBase<TileStreamPass> {
  void runOnOperation() override {
    SmallVector<StreamOp> ops;
    getOperation().walk([&](StreamOp op) {
      // What is in a parallel loop is a tile.
      if (op.getTiles() && !op->getParentOfType<scf::ForallOp>() &&
          op->getNumResults() != 0)
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (StreamOp op : ops) {
      rewriter.setInsertionPoint(op);
      if (isForGPU(op) ? failed(tileForGPU(op, rewriter))
                       : failed(tileUnlessFew(op, rewriter)))
        return signalPassFailure();
    }
  }

private:
  static LogicalResult tileForGPU(StreamOp op, IRRewriter &rewriter) {
    return hasHeadRows(op) ? success() : tile(op, rewriter);
  }

  static LogicalResult tile(StreamOp op, IRRewriter &rewriter) {
    scf::SCFTilingOptions options;
    options.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp);
    options.setTileSizes({rewriter.getIndexAttr(1), rewriter.getIndexAttr(1),
                          getTaskQueries(rewriter, op)});
    FailureOr<scf::SCFTilingResult> tiled = scf::tileUsingSCF(
        rewriter, cast<TilingInterface>(op.getOperation()), options);
    if (failed(tiled))
      return op.emitOpError("could not be tiled by one batch entry, one head "
                            "and ")
             << op.getTiles()->getQuery() << " queries";
    rewriter.replaceOp(op, tiled->replacements);
    return success();
  }

  /// What has few queries is one tile for all heads that share their keys.
  static LogicalResult tileUnlessFew(StreamOp op, IRRewriter &rewriter) {
    if (!cast<ShapedType>(op.getQuery().getType()).isDynamicDim(2) ||
        needsBlocks(op) || hasShortLists(op))
      return hasFewQueries(op) ? success() : tile(op, rewriter);
    Location loc = op.getLoc();
    Value queries = tensor::DimOp::create(rewriter, loc, op.getQuery(), 2);
    Value most =
        arith::ConstantIndexOp::create(rewriter, loc, getMaxFewQueries(op));
    Value areFew = arith::CmpIOp::create(
        rewriter, loc, arith::CmpIPredicate::sle, queries, most);
    StreamOp many;
    auto choice = scf::IfOp::create(
        rewriter, loc, areFew,
        [&](OpBuilder &builder, Location loc) {
          scf::YieldOp::create(builder, loc, builder.clone(*op)->getResults());
        },
        [&](OpBuilder &builder, Location loc) {
          many = cast<StreamOp>(builder.clone(*op));
          scf::YieldOp::create(builder, loc, many->getResults());
        });
    rewriter.replaceOp(op, choice);
    rewriter.setInsertionPoint(many);
    return tile(many, rewriter);
  }
};
} // namespace
