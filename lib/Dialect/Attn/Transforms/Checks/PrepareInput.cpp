//===- PrepareInput.cpp - What upstream's passes expect of IR -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/Interfaces/ShapedOpInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace fovea::attn {
#define GEN_PASS_DEF_PREPAREINPUTPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// The bodies that named operations make for themselves have no location, and
/// neither would errors about what is in them.
static void locateBody(linalg::LinalgOp op) {
  for (Region &region : op->getRegions())
    region.walk([&](Operation *inner) {
      if (isa<UnknownLoc>(inner->getLoc()))
        inner->setLoc(op.getLoc());
    });
}

static LogicalResult checkDim(ShapedDimOpInterface op) {
  auto type = dyn_cast<ShapedType>(op.getShapedValue().getType());
  std::optional<int64_t> dim = getConstantIntValue(op.getDimension());
  if (!type || !type.hasRank() || !dim || (*dim >= 0 && *dim < type.getRank()))
    return success();
  return op->emitOpError("has dimension ")
         << *dim << " of a value with " << type.getRank() << " dimensions";
}

/// Whether a slice keeps some of its dimensions of extent 1 and drops others.
/// Upstream compares strides to find out which once it is a view of a buffer,
/// and fails, or takes another one, where they are alike or not known.
static bool isAmbiguous(OffsetSizeAndStrideOpInterface op, ShapedType reduced) {
  SmallVector<OpFoldResult> sizes = op.getMixedSizes();
  auto dropped = static_cast<int64_t>(sizes.size()) - reduced.getRank();
  return dropped != 0 && llvm::count_if(sizes, isOneInteger) != dropped;
}

/// Every dimension that is kept, with those before it that are not.
static SmallVector<ReassociationIndices>
groupDropped(const llvm::SmallBitVector &dropped) {
  SmallVector<ReassociationIndices> groups;
  ReassociationIndices group;
  for (unsigned dim = 0; dim < dropped.size(); ++dim) {
    group.push_back(dim);
    if (!dropped.test(dim))
      groups.push_back(std::exchange(group, {}));
  }
  if (!groups.empty())
    llvm::append_range(groups.back(), group);
  return groups;
}

/// The slice with all dimensions, and those that it drops by a reshape.
static void separateReshape(RewriterBase &rewriter, tensor::ExtractSliceOp op) {
  rewriter.setInsertionPoint(op);
  Value slice = tensor::ExtractSliceOp::create(
      rewriter, op.getLoc(), op.getSource(), op.getMixedOffsets(),
      op.getMixedSizes(), op.getMixedStrides());
  rewriter.replaceOpWithNewOp<tensor::CollapseShapeOp>(
      op, op.getType(), slice, groupDropped(op.getDroppedDims()));
}

template <typename OpTy>
static void separateReshape(RewriterBase &rewriter, OpTy op,
                            Operation *before) {
  rewriter.setInsertionPoint(before);
  SmallVector<int64_t> shape;
  for (OpFoldResult size : op.getMixedSizes())
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  Value source = tensor::ExpandShapeOp::create(
      rewriter, op.getLoc(), op.getSourceType().clone(shape), op.getSource(),
      groupDropped(op.getDroppedDims()), op.getMixedSizes());
  rewriter.setInsertionPoint(op);
  rewriter.replaceOpWithNewOp<OpTy>(op, source, op.getDest(),
                                    op.getMixedOffsets(), op.getMixedSizes(),
                                    op.getMixedStrides());
}

static void prepareSlice(RewriterBase &rewriter, Operation *op) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    if (isAmbiguous(slice, slice.getType()))
      separateReshape(rewriter, slice);
  } else if (auto slice = dyn_cast<tensor::InsertSliceOp>(op)) {
    if (isAmbiguous(slice, slice.getSourceType()))
      separateReshape(rewriter, slice, slice);
  } else if (auto slice = dyn_cast<tensor::ParallelInsertSliceOp>(op)) {
    if (isAmbiguous(slice, slice.getSourceType()))
      separateReshape(rewriter, slice, slice->getParentOp());
  }
}

/// A branch for each case. Upstream's bufferization may write over the results
/// of a switch before they are read.
static void separateCases(RewriterBase &rewriter, scf::IndexSwitchOp op) {
  if (llvm::none_of(op.getResultTypes(), llvm::IsaPred<TensorType>))
    return;
  Location loc = op.getLoc();
  rewriter.setInsertionPoint(op);
  scf::IfOp first, last;
  for (auto [number, region] :
       llvm::zip_equal(op.getCases(), op.getCaseRegions())) {
    Value expected = arith::ConstantIndexOp::create(rewriter, loc, number);
    Value holds = arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::eq,
                                        op.getArg(), expected);
    auto branch = scf::IfOp::create(rewriter, loc, op.getResultTypes(), holds,
                                    /*addThenBlock=*/false,
                                    /*addElseBlock=*/false);
    branch.getThenRegion().takeBody(region);
    if (last)
      scf::YieldOp::create(rewriter, loc, branch.getResults());
    else
      first = branch;
    last = branch;
    // The next case, unless the default takes its place.
    rewriter.setInsertionPointToEnd(&branch.getElseRegion().emplaceBlock());
  }
  if (!last) {
    rewriter.inlineBlockBefore(&op.getDefaultBlock(), op);
    Operation *yield = op->getPrevNode();
    rewriter.replaceOp(op, yield->getOperands());
    rewriter.eraseOp(yield);
    return;
  }
  last.getElseRegion().takeBody(op.getDefaultRegion());
  rewriter.replaceOp(op, first.getResults());
}

static LogicalResult checkSlice(memref::SubViewOp op) {
  if (!isAmbiguous(op, op.getType()) ||
      llvm::all_of(op.getMixedStrides(), isOneInteger))
    return success();
  return op.emitOpError("has strides that are not 1 and drops some of its "
                        "dimensions of extent 1, but keeps others");
}

static LogicalResult checkType(Operation *op, Type type) {
  auto vector = dyn_cast<VectorType>(type);
  if (!vector || !vector.isScalable())
    return success();
  return op->emitOpError("has a scalable vector of type ")
         << type << ", which no target of the pipelines has";
}

static LogicalResult checkConstant(arith::ConstantOp op) {
  auto resource = dyn_cast<DenseResourceElementsAttr>(op.getValue());
  if (!resource || resource.getRawHandle().getBlob())
    return success();
  return op.emitOpError("has elements in the resource '")
         << resource.getRawHandle().getKey()
         << "', which the module does not hold";
}

static LogicalResult check(Operation *op) {
  for (Type type : op->getResultTypes())
    if (failed(checkType(op, type)))
      return failure();
  for (Region &region : op->getRegions())
    for (Type type : region.getArgumentTypes())
      if (failed(checkType(op, type)))
        return failure();
  if (auto dim = dyn_cast<ShapedDimOpInterface>(op))
    return checkDim(dim);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return checkConstant(constant);
  if (auto slice = dyn_cast<memref::SubViewOp>(op))
    return checkSlice(slice);
  return success();
}

namespace {
struct PrepareInputPass
    : fovea::attn::impl::PrepareInputPassBase<PrepareInputPass> {
  using PrepareInputPassBase::PrepareInputPassBase;

  void runOnOperation() override {
    SmallVector<Operation *> slices;
    SmallVector<scf::IndexSwitchOp> switches;
    WalkResult walk = getOperation().walk<WalkOrder::PreOrder>(
        [&](Operation *op) -> WalkResult {
          // Bodies get their locations before anything in them is looked at.
          if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
            locateBody(linalgOp);
          if (isa<tensor::ExtractSliceOp, tensor::InsertSliceOp,
                  tensor::ParallelInsertSliceOp>(op))
            slices.push_back(op);
          if (auto branches = dyn_cast<scf::IndexSwitchOp>(op))
            switches.push_back(branches);
          return check(op);
        });
    if (walk.wasInterrupted())
      return signalPassFailure();
    IRRewriter rewriter(&getContext());
    for (Operation *slice : slices)
      prepareSlice(rewriter, slice);
    for (scf::IndexSwitchOp op : switches)
      separateCases(rewriter, op);
  }
};
} // namespace
