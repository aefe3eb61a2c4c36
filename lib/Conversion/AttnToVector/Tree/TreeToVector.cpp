//===- TreeToVector.cpp - Choosing nodes of trees by the runtime ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/ListCalls.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;

static LogicalResult lowerSplit(TreeSplitOp op, OpBuilder &,
                                VectorLowering &lowering) {
  ListCalls calls(lowering.module, op);
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
  return success();
}

void fovea::attn::attachTreeToVector(MLIRContext &context) {
  attachLowerings<VectorModel, lowerSplit>(context);
}
