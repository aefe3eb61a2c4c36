//===- VectorizeTree.cpp - Vector code of trees of averages ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/ListCalls.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZETREEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Rows are read along the width, and lists along their entries.
static LogicalResult verifyOperands(Operation *op) {
  if (op->getNumResults() != 0)
    return op->emitOpError("expects operands to be memrefs, but got tensors");
  for (Value operand : op->getOperands()) {
    auto type = cast<MemRefType>(operand.getType());
    if (!type.isLastDimUnitStride())
      return op->emitOpError("expects unit stride along the last dimension, "
                             "but got ")
             << type;
  }
  return success();
}

/// One choice is O(r) steps of one thread, in the runtime.
static void emitSplit(TreeSplitOp op, ModuleOp module) {
  ListCalls calls(module, op);
  ImplicitLocOpBuilder &b = calls.getBuilder();
  Value counts = op.getCounts();
  TreeAttr shape = op.getShape();
  int64_t firstRow =
      counts ? shape.getFirstRow(op.getAt(), op.getNumRoots()) : 0;
  scf::ForallOp::create(
      b, getAsOpFoldResult(calls.extent(op.getNewLevel(), 0)),
      /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        Value batch = ivs[0];
        bool isDouble =
            op.getScores() &&
            cast<MemRefType>(op.getScores().getType()).getElementType().isF64();
        calls.call(
            "fovea_rt_tree_split",
            {calls.address(op.getScores(), batch), calls.integer(isDouble),
             calls.address(op.getCandidates(), batch),
             calls.integer(op.getNumCandidates()),
             calls.address(op.getLevel(), batch),
             calls.address(op.getIndex(), batch),
             calls.integer(op.getNumFrontier()),
             calls.address(counts, batch, firstRow),
             calls.address(op.getNewLevel(), batch),
             calls.address(op.getNewIndex(), batch),
             calls.address(op.getChildren(), batch), calls.integer(op.getAt()),
             calls.integer(op.getSplit()), calls.integer(shape.getRatio())});
        scf::InParallelOp::create(b);
      });
}

namespace {
struct VectorizeTreePass
    : fovea::attn::impl::VectorizeTreePassBase<VectorizeTreePass> {
  using VectorizeTreePassBase::VectorizeTreePassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    SmallVector<Operation *> ops;
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (!isa<TreeBuildOp, TreeFetchOp, TreeUpdateOp, TreeMaterializeOp,
               TreeSplitOp>(op))
        return WalkResult::advance();
      ops.push_back(op);
      return WalkResult(verifyOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (Operation *op : ops) {
      OpBuilder builder(op);
      TreeTarget target = {vectorBits, minTasks};
      llvm::TypeSwitch<Operation *>(op)
          .Case([&](TreeSplitOp split) { emitSplit(split, getOperation()); })
          .Case<TreeBuildOp, TreeFetchOp, TreeUpdateOp, TreeMaterializeOp>(
              [&](auto tree) { emitTreeKernel(builder, tree, target); });
      op->erase();
    }
  }
};
} // namespace
