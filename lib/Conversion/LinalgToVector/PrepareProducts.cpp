//===- PrepareProducts.cpp - Products that read factors as stored ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
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

//===----------------------------------------------------------------------===//
// Gathered factors
//===----------------------------------------------------------------------===//

/// Where `value[i, ...] = source[f(i), ...]`, the operation that reads `source`
/// in the body of the one that makes `value`.
static tensor::ExtractOp matchGather(Value value) {
  auto gather = value.getDefiningOp<linalg::GenericOp>();
  if (!gather || gather.getNumDpsInits() != 1 ||
      gather.getNumReductionLoops() != 0 ||
      !gather.getIndexingMapsArray().back().isIdentity() ||
      gather.payloadUsesValueFromOperand(gather.getDpsInitOperand(0)))
    return {};
  auto extract = gather.getBody()
                     ->getTerminator()
                     ->getOperand(0)
                     .getDefiningOp<tensor::ExtractOp>();
  auto type = cast<RankedTensorType>(value.getType());
  if (!extract || extract->getBlock() != gather.getBody() ||
      extract.getTensor().getParentBlock() == gather.getBody() ||
      extract.getTensor().getType().getRank() != type.getRank() ||
      !llvm::equal(extract.getTensor().getType().getShape().drop_front(),
                   type.getShape().drop_front()))
    return {};
  for (int64_t dim = 1; dim < type.getRank(); ++dim) {
    auto index = extract.getIndices()[dim].getDefiningOp<linalg::IndexOp>();
    if (type.isDynamicDim(dim) || !index ||
        static_cast<int64_t>(index.getDim()) != dim)
      return {};
  }
  // What finds the row depends on nothing else.
  AffineExpr row = getAffineDimExpr(0, value.getContext());
  for (OpOperand *input : gather.getDpsInputOperands())
    if (!isa<RankedTensorType>(input->get().getType()) ||
        gather.getMatchingIndexingMap(input).getResults() != ArrayRef(row))
      return {};
  for (Operation &op : gather.getBody()->without_terminator()) {
    auto index = dyn_cast<linalg::IndexOp>(op);
    bool isOfColumn = index && index.getDim() != 0;
    if (&op != extract &&
        (!isPure(&op) || op.getNumRegions() != 0 ||
         (isOfColumn && llvm::any_of(op.getUsers(), [&](Operation *user) {
            return user != extract;
          }))))
      return {};
  }
  return extract;
}

/// The row that `extract`, which matchGather() found, reads for row `at`.
static Value findRow(OpBuilder &b, tensor::ExtractOp extract, Value at) {
  auto gather = cast<linalg::GenericOp>(extract->getParentOp());
  IRMapping mapping;
  for (OpOperand *input : gather.getDpsInputOperands())
    mapping.map(gather.getMatchingBlockArgument(input),
                tensor::ExtractOp::create(b, gather.getLoc(), input->get(), at)
                    .getResult());
  for (Operation &op : gather.getBody()->without_terminator()) {
    if (isa<linalg::IndexOp>(op))
      mapping.map(op.getResult(0), at);
    else if (&op != extract)
      b.clone(op, mapping);
  }
  return mapping.lookupOrDefault(extract.getIndices().front());
}

namespace {
/// A tensor where one of its dimensions is at an index.
struct Slice {
  Slice(OpBuilder &b, Value tensor, unsigned dim, Value at)
      : tensor(tensor), loc(tensor.getLoc()),
        sizes(tensor::getMixedSizes(b, loc, tensor)),
        offsets(sizes.size(), b.getIndexAttr(0)),
        strides(sizes.size(), b.getIndexAttr(1)) {
    auto whole = cast<RankedTensorType>(tensor.getType());
    SmallVector<int64_t> shape(whole.getShape());
    shape.erase(shape.begin() + dim);
    type = RankedTensorType::get(shape, whole.getElementType());
    offsets[dim] = at;
    sizes[dim] = b.getIndexAttr(1);
  }

  Value extract(OpBuilder &b) {
    return tensor::ExtractSliceOp::create(b, loc, type, tensor, offsets, sizes,
                                          strides);
  }
  Value insert(OpBuilder &b, Value part) {
    return tensor::InsertSliceOp::create(b, loc, part, tensor, offsets, sizes,
                                         strides);
  }

  Value tensor;
  Location loc;
  SmallVector<OpFoldResult> sizes, offsets, strides;
  RankedTensorType type;
};
} // namespace

/// `map` without loop `loop`, which has one value.
static AffineMap dropLoop(AffineMap map, unsigned loop) {
  SmallVector<AffineExpr> results;
  for (AffineExpr expr : map.getResults()) {
    unsigned dim = cast<AffineDimExpr>(expr).getPosition();
    if (dim != loop)
      results.push_back(
          getAffineDimExpr(dim < loop ? dim : dim - 1, map.getContext()));
  }
  return AffineMap::get(map.getNumDims() - 1, 0, results, map.getContext());
}

/// `op`, a batch of products, as a loop of products, where a factor of each is
/// one of some that an index chooses, as of a mixture of experts: they are read
/// where they are. No value where there is none.
static Value readGathered(OpBuilder &builder, linalg::LinalgOp op) {
  if (!isProduct(op) || isForGPU(op))
    return Value();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!llvm::all_of(maps,
                    [](AffineMap map) { return map.isProjectedPermutation(); }))
    return Value();
  Value gathered;
  tensor::ExtractOp extract;
  unsigned factor = 0;
  for (; factor < 2 && !extract; ++factor) {
    gathered = op.getDpsInputs()[factor];
    extract = matchGather(gathered);
  }
  if (!extract || maps[--factor].getNumResults() == 0)
    return Value();
  unsigned loop = maps[factor].getDimPosition(0);
  if (!maps[2].isFunctionOfDim(loop))
    return Value();
  separateInit(builder, op);
  auto emit = [&](OpBuilder &b, Location loc, Value at, ValueRange carried) {
    SmallVector<Value> inputs = op.getDpsInputs();
    for (unsigned i : {0, 1})
      if (i == factor)
        inputs[i] = Slice(b, extract.getTensor(), 0, findRow(b, extract, at))
                        .extract(b);
      else if (std::optional<unsigned> dim = maps[i].getResultPosition(
                   getAffineDimExpr(loop, b.getContext())))
        inputs[i] = Slice(b, inputs[i], *dim, at).extract(b);
    unsigned dim =
        *maps[2].getResultPosition(getAffineDimExpr(loop, b.getContext()));
    Slice output(b, carried.front(), dim, at);
    Value sums = output.extract(b);
    SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
    iterators.erase(iterators.begin() + loop);
    auto product = linalg::GenericOp::create(
        b, loc, sums.getType(), inputs, sums,
        llvm::map_to_vector(maps,
                            [&](AffineMap map) { return dropLoop(map, loop); }),
        iterators);
    IRMapping mapping;
    op->getRegion(0).cloneInto(&product.getRegion(), mapping);
    scf::YieldOp::create(b, loc, output.insert(b, product.getResult(0)));
  };
  Location loc = op.getLoc();
  Value low = arith::ConstantIndexOp::create(builder, loc, 0);
  Value step = arith::ConstantIndexOp::create(builder, loc, 1);
  Value high = builder.createOrFold<tensor::DimOp>(loc, gathered, 0);
  return scf::ForOp::create(builder, loc, low, high, step, op.getDpsInits(),
                            emit)
      .getResult(0);
}

namespace {
struct PrepareProductsPass
    : fovea::attn::impl::PrepareProductsPassBase<PrepareProductsPass> {
  using PrepareProductsPassBase::PrepareProductsPassBase;

  void runOnOperation() override {
    replaceAll(emitConvolutionAsProduct);
    replaceAll(foldMoves);
    replaceAll(readGathered);
    if (!isForGPU(getOperation()))
      applyOnce(populateStackPatterns);
    moveReshapes();
    getOperation().walk([](linalg::LinalgOp op) {
      OpBuilder builder(op);
      if (isProduct(op))
        separateInit(builder, op);
    });
    if (isForGPU(getOperation()))
      return;
    FailureOr<CPUFacts> cpu = CPUFacts::of(getOperation());
    if (failed(cpu))
      return signalPassFailure();
    packConstants(getOperation(), cpu->getRegisters());
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
    // Upstream forgets what a pad adds to one element without dimensions.
    linalg::populateFoldReshapeOpsByCollapsingPatterns(
        moving, [](OpOperand *reshape) {
          auto expand = reshape->get().getDefiningOp<tensor::ExpandShapeOp>();
          return !(isa<tensor::PadOp>(reshape->getOwner()) && expand &&
                   expand.getSrcType().getRank() == 0);
        });
    tensor::ExpandShapeOp::getCanonicalizationPatterns(moving, &getContext());
    tensor::CollapseShapeOp::getCanonicalizationPatterns(moving, &getContext());
    (void)applyPatternsGreedily(getOperation(), std::move(moving));
  }

  void applyOnce(void (*populate)(RewritePatternSet &)) {
    RewritePatternSet patterns(&getContext());
    populate(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
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
