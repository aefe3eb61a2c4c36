//===- DifferentiateTensor.cpp - Transposes of moving data ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "fovea/Differentiate/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

/// Codes have the adjoints of the keys that they stand for, which have a width.
static bool areCodes(Value value) {
  return !isa<FloatType>(getElementTypeOrSelf(value));
}

namespace {
/// Where a rule of one operation writes.
struct Transpose {
  OpBuilder &b;
  Location loc;
  Adjoints &adjoints;

  /// The adjoint of `value`, zeros where it has none yet.
  Value findOrZeros(Value value) {
    if (Value adjoint = adjoints.find(value))
      return adjoint;
    return createZerosLike(b, loc, value,
                           getStateType(getElementTypeOrSelf(value)));
  }
  RankedTensorType adjointTypeOf(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return type.clone(getStateType(type.getElementType()));
  }
  Value slice(Value from, RankedTensorType type, ArrayRef<OpFoldResult> offsets,
              ArrayRef<OpFoldResult> sizes, ArrayRef<OpFoldResult> strides) {
    return tensor::ExtractSliceOp::create(b, loc, type, from, offsets, sizes,
                                          strides);
  }
};
} // namespace

/// The adjoint of a slice is added to that part of the whole's.
static LogicalResult transpose(tensor::ExtractSliceOp op, Value d,
                               Transpose &t) {
  Value whole = op.getSource();
  if (!t.adjoints.isActive(whole))
    return success();
  SmallVector<OpFoldResult> offsets = op.getMixedOffsets();
  SmallVector<OpFoldResult> sizes = op.getMixedSizes();
  SmallVector<OpFoldResult> strides = op.getMixedStrides();
  auto type = cast<RankedTensorType>(d.getType());
  Value sum = t.adjoints.find(whole);
  Value like = whole;
  if (areCodes(op.getResult())) {
    OpFoldResult width =
        tensor::getMixedSize(t.b, t.loc, d, type.getRank() - 1);
    SmallVector<OpFoldResult> keys = tensor::getMixedSizes(t.b, t.loc, whole);
    keys.push_back(width);
    like = tensor::EmptyOp::create(t.b, t.loc, keys, type.getElementType());
    offsets.push_back(t.b.getIndexAttr(0));
    sizes.push_back(width);
    strides.push_back(t.b.getIndexAttr(1));
  }
  if (sum)
    d = arith::AddFOp::create(t.b, t.loc,
                              t.slice(sum, type, offsets, sizes, strides), d);
  else
    sum = createZerosLike(t.b, t.loc, like, type.getElementType());
  t.adjoints.set(whole, tensor::InsertSliceOp::create(t.b, t.loc, d, sum,
                                                      offsets, sizes, strides));
  return success();
}

static LogicalResult transpose(tensor::InsertSliceOp op, Value d,
                               Transpose &t) {
  SmallVector<OpFoldResult> offsets = op.getMixedOffsets();
  SmallVector<OpFoldResult> sizes = op.getMixedSizes();
  SmallVector<OpFoldResult> strides = op.getMixedStrides();
  RankedTensorType type = t.adjointTypeOf(op.getSource());
  if (t.adjoints.isActive(op.getSource()))
    t.adjoints.add(t.b, op.getSource(),
                   t.slice(d, type, offsets, sizes, strides));
  if (t.adjoints.isActive(op.getDest())) {
    Value zeros =
        createZerosLike(t.b, t.loc, op.getSource(), type.getElementType());
    t.adjoints.add(t.b, op.getDest(),
                   tensor::InsertSliceOp::create(t.b, t.loc, zeros, d, offsets,
                                                 sizes, strides));
  }
  return success();
}

static LogicalResult transpose(tensor::ExpandShapeOp op, Value d,
                               Transpose &t) {
  t.adjoints.add(
      t.b, op.getSrc(),
      tensor::CollapseShapeOp::create(t.b, t.loc, t.adjointTypeOf(op.getSrc()),
                                      d, op.getReassociationIndices()));
  return success();
}

static LogicalResult transpose(tensor::CollapseShapeOp op, Value d,
                               Transpose &t) {
  t.adjoints.add(t.b, op.getSrc(),
                 tensor::ExpandShapeOp::create(
                     t.b, t.loc, t.adjointTypeOf(op.getSrc()), d,
                     op.getReassociationIndices(),
                     tensor::getMixedSizes(t.b, t.loc, op.getSrc())));
  return success();
}

static LogicalResult transpose(tensor::CastOp op, Value d, Transpose &t) {
  if (!isa<RankedTensorType>(op.getSource().getType()))
    return op.emitOpError("has no gradient with respect to ")
           << op.getSource().getType();
  t.adjoints.add(
      t.b, op.getSource(),
      tensor::CastOp::create(t.b, t.loc, t.adjointTypeOf(op.getSource()), d));
  return success();
}

static LogicalResult transpose(tensor::PadOp op, Value d, Transpose &t) {
  if (!op.getConstantPaddingValue())
    return op.emitOpError("has no gradient: its padding is not a constant");
  SmallVector<OpFoldResult> sizes =
      tensor::getMixedSizes(t.b, t.loc, op.getSource());
  SmallVector<OpFoldResult> strides(sizes.size(), t.b.getIndexAttr(1));
  t.adjoints.add(t.b, op.getSource(),
                 t.slice(d, t.adjointTypeOf(op.getSource()),
                         op.getMixedLowPad(), sizes, strides));
  return success();
}

static LogicalResult transpose(tensor::ConcatOp op, Value d, Transpose &t) {
  unsigned dim = op.getDim();
  auto type = cast<RankedTensorType>(op.getType());
  SmallVector<OpFoldResult> offsets(type.getRank(), t.b.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(type.getRank(), t.b.getIndexAttr(1));
  AffineExpr sum = t.b.getAffineDimExpr(0) + t.b.getAffineDimExpr(1);
  for (Value input : op.getInputs()) {
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(t.b, t.loc, input);
    if (t.adjoints.isActive(input))
      t.adjoints.add(
          t.b, input,
          t.slice(d, t.adjointTypeOf(input), offsets, sizes, strides));
    offsets[dim] = affine::makeComposedFoldedAffineApply(
        t.b, t.loc, sum, {offsets[dim], sizes[dim]});
  }
  return success();
}

/// Numbers are elements of tensors.
static LogicalResult transpose(tensor::ExtractOp op, Value d, Transpose &t) {
  Value whole = op.getTensor();
  if (!t.adjoints.isActive(whole))
    return success();
  Value sum = t.findOrZeros(whole);
  Value old = tensor::ExtractOp::create(t.b, t.loc, sum, op.getIndices());
  Value added = arith::AddFOp::create(t.b, t.loc, old, d);
  t.adjoints.set(
      whole, tensor::InsertOp::create(t.b, t.loc, added, sum, op.getIndices()));
  return success();
}

static LogicalResult transpose(tensor::InsertOp op, Value d, Transpose &t) {
  ValueRange indices = op.getIndices();
  t.adjoints.add(t.b, op.getScalar(),
                 tensor::ExtractOp::create(t.b, t.loc, d, indices));
  if (!t.adjoints.isActive(op.getDest()))
    return success();
  Value zero = arith::ConstantOp::create(
      t.b, t.loc, t.b.getZeroAttr(getElementTypeOrSelf(d)));
  t.adjoints.add(t.b, op.getDest(),
                 tensor::InsertOp::create(t.b, t.loc, zero, d, indices));
  return success();
}

static LogicalResult transpose(tensor::FromElementsOp op, Value d,
                               Transpose &t) {
  auto type = cast<RankedTensorType>(op.getType());
  for (auto [number, element] : llvm::enumerate(op.getElements())) {
    SmallVector<Value> indices;
    int64_t rest = number;
    for (int64_t extent : llvm::reverse(type.getShape())) {
      indices.push_back(
          arith::ConstantIndexOp::create(t.b, t.loc, rest % extent));
      rest /= extent;
    }
    std::reverse(indices.begin(), indices.end());
    t.adjoints.add(t.b, element,
                   tensor::ExtractOp::create(t.b, t.loc, d, indices));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
template <typename OpTy>
struct TensorModel
    : DifferentiableOpInterface::ExternalModel<TensorModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    if (areCodes(op->getResult(0)) && !isa<tensor::ExtractSliceOp>(op))
      return op->emitOpError("has no gradient for the keys of its codes");
    Transpose rule{builder, op->getLoc(), adjoints};
    return transpose(cast<OpTy>(op), adjoints.find(op->getResult(0)), rule);
  }
  /// Integers that depend on what is differentiated are codes.
  bool hasAdjoint(Operation *, OpResult) const { return true; }
};
} // namespace

template <typename... OpTys> static void attach(MLIRContext *context) {
  (OpTys::template attachInterface<TensorModel<OpTys>>(*context), ...);
}

void fovea::attn::registerTensorRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, tensor::TensorDialect *) {
    attach<tensor::CastOp, tensor::CollapseShapeOp, tensor::ConcatOp,
           tensor::ExpandShapeOp, tensor::ExtractOp, tensor::ExtractSliceOp,
           tensor::FromElementsOp, tensor::InsertOp, tensor::InsertSliceOp,
           tensor::PadOp>(context);
  });
}
