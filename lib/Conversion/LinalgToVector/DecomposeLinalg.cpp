//===- DecomposeLinalg.cpp - Linalg without loops to linalg with loops ----===//
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
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_DECOMPOSELINALGPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// Replaces a soft-max of narrow numbers by one of f32: its sums would stop to
/// grow. Returns the operation to take apart.
static linalg::SoftmaxOp widen(RewriterBase &rewriter, linalg::SoftmaxOp op) {
  auto type = cast<ShapedType>(op.getInput().getType());
  if (type.getElementType().getIntOrFloatBitWidth() >= 32)
    return op;
  Location loc = op.getLoc();
  Type wide = type.clone(rewriter.getF32Type());
  Value input = arith::ExtFOp::create(rewriter, loc, wide, op.getInput());
  Value output = tensor::EmptyOp::create(
      rewriter, loc, tensor::getMixedSizes(rewriter, loc, op.getInput()),
      rewriter.getF32Type());
  auto softmax = linalg::SoftmaxOp::create(rewriter, loc, wide, input, output,
                                           op.getDimension());
  rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getResultTypes(),
                                               softmax.getResult());
  return softmax;
}

/// A soft-max is NaN where an operand is: its largest operand may be, too, and
/// takes fewer instructions.
static void keepNaN(RewriterBase &rewriter, Operation *first, Operation *end) {
  for (Operation *op = first; op != end; op = op->getNextNode()) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || !isa<arith::MaxNumFOp>(generic.getBody()->front()))
      continue;
    auto start = generic.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
    Operation *larger = &generic.getBody()->front();
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(start);
    auto type = cast<FloatType>(larger->getResult(0).getType());
    Value least = arith::ConstantOp::create(
        rewriter, op->getLoc(),
        FloatAttr::get(type, APFloat::getInf(type.getFloatSemantics(),
                                             /*Negative=*/true)));
    start.getInputsMutable().assign(least);
    rewriter.setInsertionPoint(larger);
    rewriter.replaceOpWithNewOp<arith::MaximumFOp>(larger,
                                                   larger->getOperands());
  }
}

static LogicalResult decompose(RewriterBase &rewriter, Operation *op) {
  rewriter.setInsertionPoint(op);
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](linalg::AggregatedOpInterface aggregate) -> LogicalResult {
        if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op)) {
          aggregate = widen(rewriter, softmax);
          rewriter.setInsertionPoint(aggregate);
        }
        Operation *before = aggregate->getPrevNode();
        FailureOr<SmallVector<Value>> results =
            aggregate.decomposeOperation(rewriter);
        if (failed(results))
          return results;
        if (isa<linalg::SoftmaxOp>(*aggregate))
          keepNaN(rewriter,
                  before ? before->getNextNode()
                         : &aggregate->getBlock()->front(),
                  aggregate);
        rewriter.replaceOp(aggregate, *results);
        return results;
      })
      .Case([&](linalg::PackOp op) { return linalg::lowerPack(rewriter, op); })
      .Case([&](linalg::UnPackOp op) {
        return linalg::lowerUnPack(rewriter, op);
      })
      .Case([&](linalg::WinogradFilterTransformOp op) {
        return linalg::decomposeWinogradFilterTransformOp(rewriter, op);
      })
      .Case([&](linalg::WinogradInputTransformOp op) {
        return linalg::decomposeWinogradInputTransformOp(rewriter, op);
      })
      .Case([&](linalg::WinogradOutputTransformOp op) {
        return linalg::decomposeWinogradOutputTransformOp(rewriter, op);
      });
}

namespace {
struct DecomposeLinalgPass
    : fovea::attn::impl::DecomposeLinalgPassBase<DecomposeLinalgPass> {
  using DecomposeLinalgPassBase::DecomposeLinalgPassBase;

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<linalg::AggregatedOpInterface, linalg::PackOp, linalg::UnPackOp,
              linalg::WinogradFilterTransformOp,
              linalg::WinogradInputTransformOp,
              linalg::WinogradOutputTransformOp>(op))
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (Operation *op : ops) {
      if (!llvm::all_of(op->getOperandTypes(),
                        [](Type type) { return !isa<BaseMemRefType>(type); })) {
        op->emitOpError("is taken apart on tensors only, but found memrefs");
        return signalPassFailure();
      }
      if (failed(decompose(rewriter, op))) {
        op->emitOpError("of these shapes cannot be taken apart into loops");
        return signalPassFailure();
      }
    }
  }
};
} // namespace
