//===- WidenSums.cpp - Sums of narrow numbers in f32 ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fovea::attn {
#define GEN_PASS_DEF_WIDENSUMSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

static bool isNarrow(Type type) {
  auto number = dyn_cast<FloatType>(type);
  return number && number.getWidth() < 32;
}

/// Products of matrices and vectors and convolutions, whose kernels keep sums
/// in f32 themselves.
static bool isProduct(linalg::LinalgOp op) {
  if (isa<linalg::ConvolutionOpInterface>(op.getOperation()))
    return !op.getBlock()->getOps<arith::MulFOp>().empty();
  if (!linalg::isaContractionOpInterface(op))
    return false;
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  return succeeded(dims) && (!dims->m.empty() || !dims->n.empty());
}

/// What adds elements to result `number` or multiplies it by them, if the type
/// of the result is narrow.
static Operation *findCombiner(linalg::LinalgOp op, unsigned number) {
  SmallVector<Operation *> combiners;
  if (!isNarrow(op.getRegionOutputArgs()[number].getType()) ||
      !matchReduction(op.getRegionOutputArgs(), number, combiners) ||
      combiners.size() != 1 ||
      !isa<arith::AddFOp, arith::MulFOp>(combiners.front()))
    return nullptr;
  return combiners.front();
}

static Value extend(OpBuilder &builder, Location loc, Value value) {
  Type type = builder.getF32Type();
  if (auto shaped = dyn_cast<ShapedType>(value.getType()))
    type = shaped.clone(type);
  return arith::ExtFOp::create(builder, loc, type, value);
}

/// Where a sum starts: mostly with a number, which is no tensor to convert.
static Value extendInit(OpBuilder &builder, Value init) {
  auto fill = init.getDefiningOp<linalg::FillOp>();
  if (!fill)
    return extend(builder, init.getLoc(), init);
  Location loc = fill.getLoc();
  Value empty = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, init),
      builder.getF32Type());
  Value start = extend(builder, loc, fill.value());
  return linalg::FillOp::create(builder, loc, start, empty).getResult(0);
}

/// An element to add, in f32: a product of two is not rounded.
static Value extendElement(OpBuilder &builder, Location loc, Value element) {
  auto product = element.getDefiningOp<arith::MulFOp>();
  if (!product || !product->hasOneUse())
    return extend(builder, loc, element);
  return arith::MulFOp::create(builder, loc,
                               extend(builder, loc, product.getLhs()),
                               extend(builder, loc, product.getRhs()));
}

/// Has `combiner` work on a result, argument `sum` of its block, of f32.
static void widenCombiner(RewriterBase &rewriter, Operation *combiner,
                          BlockArgument sum) {
  sum.setType(rewriter.getF32Type());
  rewriter.setInsertionPoint(combiner);
  for (OpOperand &operand : combiner->getOpOperands())
    if (operand.get() != sum)
      operand.set(extendElement(rewriter, combiner->getLoc(), operand.get()));
  combiner->getResult(0).setType(rewriter.getF32Type());
}

static void widen(RewriterBase &rewriter, linalg::LinalgOp op) {
  SmallVector<unsigned> numbers;
  for (unsigned i = 0; i < op.getNumDpsInits(); ++i)
    if (findCombiner(op, i))
      numbers.push_back(i);
  if (numbers.empty())
    return;
  rewriter.setInsertionPoint(op);
  auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
  if (!generic)
    generic = *linalg::generalizeNamedOp(rewriter, op);
  for (unsigned number : numbers) {
    rewriter.setInsertionPoint(generic);
    OpOperand *init = generic.getDpsInitOperand(number);
    Operation *combiner = findCombiner(generic, number);
    init->set(extendInit(rewriter, init->get()));
    OpResult result = generic.getTiedOpResult(init);
    Type narrow = result.getType();
    result.setType(init->get().getType());
    widenCombiner(rewriter, combiner, generic.getRegionOutputArgs()[number]);
    rewriter.setInsertionPointAfter(generic);
    auto rounded =
        arith::TruncFOp::create(rewriter, generic.getLoc(), narrow, result);
    rewriter.replaceAllUsesExcept(result, rounded, rounded);
  }
  // Products that were rounded.
  generic.getBody()->walk([&](arith::MulFOp product) {
    if (product->use_empty())
      rewriter.eraseOp(product);
  });
}

namespace {
struct WidenSumsPass : fovea::attn::impl::WidenSumsPassBase<WidenSumsPass> {
  using WidenSumsPassBase::WidenSumsPassBase;

  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (op.hasPureTensorSemantics() && op.getNumReductionLoops() > 0 &&
          !isProduct(op))
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops)
      widen(rewriter, op);
  }
};
} // namespace
