//===- PrepareProducts.cpp - Products that read factors as stored ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_PREPAREPRODUCTSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// The map by which the loops of a product find their way in the input of what
/// only moves or repeats that, instead of in its result `value`; null where
/// that is something else.
static AffineMap composeWithMove(AffineMap map, Value value) {
  auto move = value.getDefiningOp<linalg::LinalgOp>();
  if (!move || move.getNumDpsInputs() != 1 || move.getNumDpsInits() != 1 ||
      move.getNumReductionLoops() != 0 ||
      !isa<RankedTensorType>(move.getDpsInputs()[0].getType()) ||
      move.getBlock()->getTerminator()->getOperand(0) !=
          move.getBlock()->getArgument(0))
    return AffineMap();
  AffineMap in = move.getIndexingMapsArray()[0];
  AffineMap out = move.getIndexingMapsArray()[1];
  if (!in.isProjectedPermutation() || !out.isPermutation())
    return AffineMap();
  return in.compose(inversePermutation(out)).compose(map);
}

static bool isProduct(linalg::LinalgOp op) {
  return op.hasPureTensorSemantics() && op.getNumDpsInputs() == 2 &&
         op.getNumDpsInits() == 1 && isSumOfProducts(op);
}

/// Gives a product the zeros that it starts from for its own: where several
/// shared them, all but one would copy them.
static void separateInit(OpBuilder &builder, linalg::LinalgOp op) {
  OpOperand *init = op.getDpsInitOperand(0);
  auto fill = init->get().getDefiningOp<linalg::FillOp>();
  auto empty = fill ? fill.output().getDefiningOp<tensor::EmptyOp>() : nullptr;
  if (!empty || (fill->hasOneUse() && empty->hasOneUse()))
    return;
  Operation *buffer = builder.clone(*empty);
  Operation *zeros = builder.clone(*fill);
  zeros->setOperand(fill.getDpsInitOperand(0)->getOperandNumber(),
                    buffer->getResult(0));
  init->set(zeros->getResult(0));
}

/// Whether a factor of the loops `before` may be read by `after`: the other
/// factor and the result must have what it is the same for, as they have the
/// batch that shares the weights of a layer.
static bool canShare(AffineMap before, AffineMap after, AffineMap other,
                     AffineMap result) {
  return llvm::all_of(llvm::seq(before.getNumDims()), [&](unsigned loop) {
    return !before.isFunctionOfDim(loop) || after.isFunctionOfDim(loop) ||
           (other.isFunctionOfDim(loop) && result.isFunctionOfDim(loop));
  });
}

/// `op`, a product, with batches that share a factor as rows of one product;
/// as it is where that is not one array.
static Value collapseBatches(OpBuilder &builder, linalg::GenericOp op) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!llvm::all_of(
          maps, [](AffineMap map) { return map.isProjectedPermutation(); }) ||
      llvm::any_of(op.getStaticLoopRanges(), ShapedType::isDynamic))
    return op.getResult(0);
  auto isRow = [&](unsigned loop, unsigned factor) {
    return !maps[1 - factor].isFunctionOfDim(loop) &&
           maps[factor].isFunctionOfDim(loop) && maps[2].isFunctionOfDim(loop);
  };
  SmallVector<ReassociationIndices> groups = {{0}};
  for (int64_t loop = 1; loop < op.getNumLoops(); ++loop) {
    bool together =
        llvm::any_of(ArrayRef<unsigned>{0, 1}, [&](unsigned factor) {
          return isRow(loop - 1, factor) && isRow(loop, factor);
        });
    ReassociationIndices pair = {loop - 1, loop};
    if (together && linalg::areDimSequencesPreserved(maps, pair))
      groups.back().push_back(loop);
    else
      groups.push_back({loop});
  }
  IRRewriter rewriter(builder);
  FailureOr<linalg::CollapseResult> collapsed = failure();
  if (groups.size() < op.getNumLoops())
    collapsed = linalg::collapseOpIterationDims(op, groups, rewriter);
  if (failed(collapsed))
    return op.getResult(0);
  op.erase();
  return collapsed->results.front();
}

/// `op`, a product, without transpositions and repetitions of its factors; no
/// value when there are none.
static Value foldMoves(OpBuilder &builder, linalg::LinalgOp op) {
  if (!isProduct(op))
    return Value();
  SmallVector<Value> inputs = op.getDpsInputs();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  bool isFolded = false;
  for (unsigned factor : {0, 1})
    while (AffineMap map = composeWithMove(maps[factor], inputs[factor])) {
      if (!canShare(maps[factor], map, maps[1 - factor], maps[2]))
        break;
      maps[factor] = map;
      inputs[factor] =
          inputs[factor].getDefiningOp<linalg::LinalgOp>().getDpsInputs()[0];
      isFolded = true;
    }
  if (!isFolded)
    return Value();
  auto product = linalg::GenericOp::create(
      builder, op.getLoc(), op->getResultTypes(), inputs, op.getDpsInits(),
      maps, op.getIteratorTypesArray());
  product.getRegion().takeBody(op->getRegion(0));
  return collapseBatches(builder, product);
}

namespace {
struct PrepareProductsPass
    : fovea::attn::impl::PrepareProductsPassBase<PrepareProductsPass> {
  using PrepareProductsPassBase::PrepareProductsPassBase;

  void runOnOperation() override {
    replaceAll(emitConvolutionAsProduct);
    replaceAll(foldMoves);
    moveReshapes();
    getOperation().walk([](linalg::LinalgOp op) {
      OpBuilder builder(op);
      if (isProduct(op))
        separateInit(builder, op);
    });
  }

private:
  /// Gives elementwise operations the dimensions of the products beside them.
  /// Frontends give the rows of products dimensions of a batch back at once,
  /// and keep those of extent 1 that they reduce.
  void moveReshapes() {
    linalg::ControlDropUnitDims options;
    options.controlFn = [](Operation *op) {
      auto generic = dyn_cast<linalg::GenericOp>(op);
      // Patches may leave a part of the image out: without the sums of loops
      // in their maps the extents would not fit.
      if (!generic || isSumOfProducts(generic) ||
          !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) {
            return map.isProjectedPermutation(/*allowZeroInResults=*/true);
          }))
        return SmallVector<unsigned>();
      return llvm::to_vector(llvm::seq<unsigned>(0, generic.getNumLoops()));
    };
    RewritePatternSet dropping(&getContext());
    linalg::populateFoldUnitExtentDimsPatterns(dropping, options);
    walkAndApplyPatterns(getOperation(), std::move(dropping));
    RewritePatternSet moving(&getContext());
    // Not those that take dimensions of extent 1 from slices, too: one column
    // of rows keeps the stride of 1 that operands of attention need.
    linalg::FillOp::getCanonicalizationPatterns(moving, &getContext());
    tensor::EmptyOp::getCanonicalizationPatterns(moving, &getContext());
    tensor::populateFoldTensorEmptyPatterns(moving);
    memref::populateResolveRankedShapedTypeResultDimsPatterns(moving);
    memref::populateResolveShapedTypeResultDimsPatterns(moving);
    linalg::populateFoldReshapeOpsByCollapsingPatterns(
        moving, [](OpOperand *) { return true; });
    tensor::ExpandShapeOp::getCanonicalizationPatterns(moving, &getContext());
    tensor::CollapseShapeOp::getCanonicalizationPatterns(moving, &getContext());
    (void)applyPatternsGreedily(getOperation(), std::move(moving));
  }

  void replaceAll(function_ref<Value(OpBuilder &, linalg::LinalgOp)> emit) {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    for (linalg::LinalgOp op : ops) {
      OpBuilder builder(op);
      if (Value replacement = emit(builder, op)) {
        op->getResult(0).replaceAllUsesWith(replacement);
        op.erase();
      }
    }
  }
};
} // namespace
