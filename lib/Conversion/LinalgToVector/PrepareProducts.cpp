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

/// The map by which the loops of a product find their way in the input of a
/// transposition, instead of in its result.
static AffineMap composeWith(AffineMap map, linalg::TransposeOp transpose) {
  SmallVector<AffineExpr> exprs(map.getNumResults());
  for (auto [dim, source] : llvm::enumerate(transpose.getPermutation()))
    exprs[source] = map.getResult(dim);
  return AffineMap::get(map.getNumDims(), map.getNumSymbols(), exprs,
                        map.getContext());
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

/// `op`, a product, without transpositions of its factors; no value when there
/// are none.
static Value foldTranspositions(OpBuilder &builder, linalg::LinalgOp op) {
  if (!isProduct(op))
    return Value();
  SmallVector<Value> inputs = op.getDpsInputs();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  bool isFolded = false;
  for (auto [input, map] : llvm::zip(inputs, maps))
    while (auto transpose = input.getDefiningOp<linalg::TransposeOp>()) {
      map = composeWith(map, transpose);
      input = transpose.getInput();
      isFolded = true;
    }
  if (!isFolded)
    return Value();
  auto product = linalg::GenericOp::create(
      builder, op.getLoc(), op->getResultTypes(), inputs, op.getDpsInits(),
      maps, op.getIteratorTypesArray());
  product.getRegion().takeBody(op->getRegion(0));
  return product.getResult(0);
}

namespace {
struct PrepareProductsPass
    : fovea::attn::impl::PrepareProductsPassBase<PrepareProductsPass> {
  using PrepareProductsPassBase::PrepareProductsPassBase;

  void runOnOperation() override {
    replaceAll(emitConvolutionAsProduct);
    replaceAll(foldTranspositions);
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
