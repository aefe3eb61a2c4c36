//===- FuseElementwise.cpp - Fuse chains of elementwise operations --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_FUSEELEMENTWISEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// Whether all that `op` does is to widen numbers: its users do that at no
/// cost, and read half as much.
static bool isWidening(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && isa<arith::ExtFOp>(generic.getBody()->front()) &&
         generic.getBody()->getOperations().size() == 2;
}

/// A product of matrices reads every element many times: what computes it would
/// be repeated each time, and the product would not be one any more. So does
/// what copies patches that overlap.
static bool isWorthFusing(OpOperand *operand) {
  Operation *producer = operand->get().getDefiningOp();
  auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
  return producer && (producer->hasOneUse() || isWidening(producer)) &&
         consumer && !linalg::isaContractionOpInterface(consumer) &&
         consumer.getMatchingIndexingMap(operand).isProjectedPermutation(
             /*allowZeroInResults=*/true);
}

namespace {
struct FuseElementwisePass
    : fovea::attn::impl::FuseElementwisePassBase<FuseElementwisePass> {
  using FuseElementwisePassBase::FuseElementwisePassBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    linalg::populateElementwiseOpsFusionPatterns(patterns, isWorthFusing);
    (void)applyPatternsGreedily(getOperation(), std::move(patterns));
  }
};
} // namespace
