//===- CheckNodes.cpp - Checks of lists of nodes --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ListCalls.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKNODESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static void checkNodes(ModuleOp module, Operation *op, Value level, Value index,
                       Value tree, TreeAttr shape, bool mustCover) {
  ListCalls calls(module, op);
  Value zero = arith::ConstantIndexOp::create(calls.getBuilder(), 0);
  int64_t roots =
      cast<MemRefType>(tree.getType()).getDimSize(1) / shape.getNodesPerRoot();
  calls.call("fovea_rt_check_nodes",
             {calls.address(level, zero), calls.integer(calls.stride(level)),
              calls.address(index, zero), calls.integer(calls.stride(index)),
              calls.integer(calls.extent(level, 0)),
              calls.integer(calls.extent(level, 1)), calls.integer(roots),
              calls.integer(shape.getRatio()), calls.integer(shape.getLevels()),
              calls.integer(mustCover)});
}

static void checkBudget(ModuleOp module, TreeSplitOp op) {
  Value counts = op.getCounts();
  if (!counts || op.getSplit() == 0)
    return;
  ListCalls calls(module, op);
  Value zero = arith::ConstantIndexOp::create(calls.getBuilder(), 0);
  Value candidates = op.getCandidates();
  int64_t firstRow = op.getShape().getFirstRow(op.getAt(), op.getNumRoots());
  calls.call(
      "fovea_rt_check_budget",
      {calls.address(counts, zero, firstRow),
       calls.integer(calls.stride(counts)), calls.address(candidates, zero),
       candidates ? calls.integer(calls.stride(candidates)) : calls.integer(0),
       calls.integer(calls.extent(counts, 0)),
       calls.integer(op.getNumCandidates()), calls.integer(op.getAt()),
       calls.integer(op.getSplit())});
}

namespace {
struct CheckNodesPass : fovea::attn::impl::CheckNodesPassBase<CheckNodesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    WalkResult result = module.walk([&](Operation *op) {
      if (!isa<TreeFetchOp, TreeUpdateOp, TreeSplitOp>(op))
        return WalkResult::advance();
      for (Value operand : op->getOperands()) {
        auto type = dyn_cast<MemRefType>(operand.getType());
        if (type && type.isLastDimUnitStride())
          continue;
        op->emitOpError("expects memrefs with unit stride along the last "
                        "dimension, but got ")
            << operand.getType();
        return WalkResult::interrupt();
      }
      if (auto fetch = dyn_cast<TreeFetchOp>(op))
        checkNodes(module, op, fetch.getLevel(), fetch.getIndex(),
                   fetch.getTree(), fetch.getShape(), /*mustCover=*/false);
      else if (auto update = dyn_cast<TreeUpdateOp>(op))
        checkNodes(module, op, update.getLevel(), update.getIndex(),
                   update.getTree(), update.getShape(), /*mustCover=*/true);
      else
        checkBudget(module, cast<TreeSplitOp>(op));
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
