//===- TileStream.cpp - Tile attn.stream -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {
#define GEN_PASS_DEF_TILESTREAMPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

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
      scf::SCFTilingOptions options;
      options.setLoopType(scf::SCFTilingOptions::LoopType::ForallOp);
      int64_t query = op.getTiles()->getQuery();
      options.setTileSizes({rewriter.getIndexAttr(1), rewriter.getIndexAttr(1),
                            rewriter.getIndexAttr(query)});
      FailureOr<scf::SCFTilingResult> tiled = scf::tileUsingSCF(
          rewriter, cast<TilingInterface>(op.getOperation()), options);
      if (failed(tiled)) {
        op.emitOpError("could not be tiled by one batch entry, one head and ")
            << query << " queries";
        return signalPassFailure();
      }
      rewriter.replaceOp(op, tiled->replacements);
    }
  }
};
} // namespace
