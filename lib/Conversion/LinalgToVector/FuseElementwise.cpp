//===- FuseElementwise.cpp - Fuse chains of elementwise operations --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/LinalgProduct.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Complex/IR/Complex.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_FUSEELEMENTWISEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// More than these, with what they yield, are not cheap.
static constexpr size_t kMaxCheapOps = 8;

/// Whether all that `op` does is to widen numbers: its users do that at no
/// cost, and read half as much.
static bool isWidening(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && isa<arith::ExtFOp>(generic.getBody()->front()) &&
         generic.getBody()->getOperations().size() == 2;
}

/// Whether an operation reads one array of its result's size, and does little
/// with it beside what depends on rows or columns alone: users do that again
/// sooner than they read the result from memory, as the differences from means
/// of norms.
static bool isCheap(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumParallelLoops() != generic.getNumLoops() ||
      generic.getNumResults() != 1 ||
      generic.getBody()->getOperations().size() > kMaxCheapOps)
    return false;
  Value whole;
  for (OpOperand *input : generic.getDpsInputOperands())
    if (generic.getMatchingIndexingMap(input).isPermutation()) {
      if (whole)
        return false;
      whole = generic.getMatchingBlockArgument(input);
    }
  llvm::SmallDenseSet<Value> varying = {whole};
  for (Operation &inner : generic.getBody()->without_terminator()) {
    if (llvm::none_of(inner.getOperands(),
                      [&](Value operand) { return varying.contains(operand); }))
      continue;
    if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp>(inner))
      return false;
    varying.insert_range(inner.getResults());
  }
  return whole && llvm::all_of(op->getUsers(), [](Operation *user) {
           return isa<linalg::GenericOp>(user);
         });
}

/// Whether places in a table would be computed from floating-point numbers,
/// such as logarithms of distances, again for each column that is read there.
static bool repeatsPlaces(OpOperand *operand, Operation *producer,
                          linalg::LinalgOp consumer) {
  auto isFloat = [](Type type) { return isa<FloatType>(type); };
  return !consumer.getMatchingIndexingMap(operand).isPermutation() &&
         llvm::any_of(*consumer.getBlock(), llvm::IsaPred<tensor::ExtractOp>) &&
         producer->getNumRegions() == 1 &&
         llvm::any_of(producer->getRegion(0).getOps(), [&](Operation &inner) {
           return llvm::any_of(inner.getResultTypes(), isFloat);
         });
}

/// Whether angles would be turned to sines and cosines again for each head, of
/// which a table has one.
static bool repeatsSines(OpOperand *operand, Operation *producer,
                         linalg::LinalgOp consumer) {
  AffineMap map = consumer.getMatchingIndexingMap(operand);
  SmallVector<int64_t> extents = consumer.getStaticLoopRanges();
  auto isRepeated = [&](unsigned dim) {
    return extents[dim] != 1 && !map.isFunctionOfDim(dim);
  };
  return llvm::any_of(llvm::seq(map.getNumDims()), isRepeated) &&
         producer->getNumRegions() == 1 &&
         llvm::any_of(producer->getRegion(0).getOps(),
                      llvm::IsaPred<math::SinOp, math::CosOp>);
}

/// Whether `op` computes its results from what is in their place, as sums over
/// a dimension of extent 1 do. In a loop that visits a result more than once
/// each visit would add to what the one before it left.
static bool readsOutputs(linalg::LinalgOp op) {
  return llvm::any_of(op.getDpsInitsMutable(), [&](OpOperand &init) {
    return op.payloadUsesValueFromOperand(&init);
  });
}

/// A product of matrices reads every element many times: what computes it would
/// be repeated each time, and the product would not be one any more. So does
/// what copies patches that overlap.
static bool isWorthFusing(OpOperand *operand) {
  auto producer = operand->get().getDefiningOp<linalg::LinalgOp>();
  auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
  return producer &&
         (producer->hasOneUse() || isWidening(producer) || isCheap(producer)) &&
         !readsOutputs(producer) && consumer &&
         !linalg::isaContractionOpInterface(consumer) &&
         !repeatsPlaces(operand, producer, consumer) &&
         !repeatsSines(operand, producer, consumer) &&
         consumer.getMatchingIndexingMap(operand).isProjectedPermutation(
             /*allowZeroInResults=*/true);
}

/// Whether `op`, which reads `value`, is the last to do so. A view may be read
/// later, and a product's tasks read its factors while others write.
static bool isLastReader(linalg::GenericOp op, Value value) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    auto other = dyn_cast<linalg::LinalgOp>(user);
    return user == op || (other && user->getBlock() == op->getBlock() &&
                          user->isBeforeInBlock(op) &&
                          (!isSumOfProducts(other) ||
                           !llvm::is_contained(user->getUsers(), op)));
  });
}

/// Has an elementwise operation write to what it is the last to read, element
/// by element: one array less passes through the caches.
static void writeWhereReadLast(linalg::GenericOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumResults() != 1 ||
      op.getNumParallelLoops() != op.getNumLoops() || readsOutputs(op))
    return;
  OpOperand *init = op.getDpsInitOperand(0);
  if (!init->get().getDefiningOp<tensor::EmptyOp>() ||
      !op.getMatchingIndexingMap(init).isIdentity())
    return;
  for (OpOperand *input : op.getDpsInputOperands()) {
    // A product hands its rows to what alone reads them.
    auto producer = input->get().getDefiningOp<linalg::GenericOp>();
    if (producer && !isSumOfProducts(producer) &&
        input->get().getType() == init->get().getType() &&
        op.getMatchingIndexingMap(input).isIdentity() &&
        isLastReader(op, input->get())) {
      init->set(input->get());
      return;
    }
  }
}

/// A check of one number, which has no operands once nothing reads its result,
/// is part of the function.
static LogicalResult inlineWithoutOperands(linalg::GenericOp op,
                                           PatternRewriter &rewriter) {
  if (op->getNumOperands() != 0)
    return failure();
  rewriter.eraseOp(op.getBody()->getTerminator());
  rewriter.inlineBlockBefore(op.getBody(), op);
  rewriter.eraseOp(op);
  return success();
}

namespace {
struct FuseElementwisePass
    : fovea::attn::impl::FuseElementwisePassBase<FuseElementwisePass> {
  using FuseElementwisePassBase::FuseElementwisePassBase;

  void runOnOperation() override {
    // What checks something stays where it was, and again in what it became
    // part of; a loop that does nothing else is then done.
    bool hadChecks = !findChecks().empty();
    if (!isForGPU(getOperation()))
      generalizeElementwise();
    RewritePatternSet patterns(&getContext());
    linalg::populateElementwiseOpsFusionPatterns(patterns, isWorthFusing);
    patterns.add(inlineWithoutOperands);
    populateHostNumberPatterns(patterns, isForGPU(getOperation()));
    // What reads stacks as rows becomes part of them, pair by pair.
    if (!isForGPU(getOperation()))
      linalg::populateFoldReshapeOpsByExpansionPatterns(
          patterns, [](OpOperand *operand) { return isOfPairs(*operand); });
    FrozenRewritePatternSet fusions(std::move(patterns));
    (void)applyPatternsGreedily(getOperation(), fusions);
    if (!isForGPU(getOperation())) {
      pairComplexOperands(getOperation());
      RewritePatternSet splits(&getContext());
      populateSplitConcatPatterns(splits);
      tensor::CollapseShapeOp::getCanonicalizationPatterns(splits,
                                                           &getContext());
      (void)applyPatternsGreedily(getOperation(), std::move(splits));
      // What made the parts may be done with them now, and parts of arrays that
      // are left may be made in place.
      (void)applyPatternsGreedily(getOperation(), fusions);
      RewritePatternSet pairs(&getContext());
      populateReadPairsPatterns(pairs);
      walkAndApplyPatterns(getOperation(), std::move(pairs));
      RewritePatternSet parts(&getContext());
      populateInsertPairsPatterns(parts);
      tensor::populateDecomposeTensorConcatPatterns(parts);
      // Extents of parts are known before the parts are.
      memref::populateResolveRankedShapedTypeResultDimsPatterns(parts);
      (void)applyPatternsGreedily(getOperation(), std::move(parts));
    }
    SmallVector<Operation *> done;
    while (!hadChecks && !(done = findChecks()).empty())
      for (Operation *op : done)
        op->erase();
    if (!isForGPU(getOperation()))
      getOperation().walk(writeWhereReadLast);
  }

private:
  /// Makes `linalg.negf` and the like the form that fuses.
  void generalizeElementwise() {
    SmallVector<linalg::LinalgOp> named;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isa<linalg::GenericOp>(op) && op.hasPureTensorSemantics() &&
          linalg::isElementwise(op) &&
          !op.getBlock()->without_terminator().empty())
        named.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : named) {
      rewriter.setInsertionPoint(op);
      (void)linalg::generalizeNamedOp(rewriter, op);
    }
  }

  /// Operations on tensors whose results nothing reads.
  SmallVector<Operation *> findChecks() {
    SmallVector<Operation *> found;
    getOperation().walk([&](linalg::GenericOp op) {
      if (op.hasPureTensorSemantics() && op->use_empty())
        found.push_back(op);
    });
    return found;
  }
};
} // namespace
