//===- Adjoints.cpp - Reverse mode over a list of operations --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "fovea/Differentiate/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace fovea::attn;

#include "fovea/Differentiate/DifferentiableOpInterface.cpp.inc"

/// `type`, a tensor or not, with elements of type `elementType`.
static Type withElements(Type type, Type elementType) {
  if (auto shaped = dyn_cast<ShapedType>(type))
    return shaped.clone(elementType);
  return elementType;
}

Value fovea::attn::convertFloat(OpBuilder &builder, Location loc, Value value,
                                Type type) {
  unsigned from = getElementTypeOrSelf(value).getIntOrFloatBitWidth();
  unsigned to = type.getIntOrFloatBitWidth();
  Type converted = withElements(value.getType(), type);
  if (from < to)
    return arith::ExtFOp::create(builder, loc, converted, value);
  // Widening loses nothing that narrowing would have to round.
  if (auto widened = value.getDefiningOp<arith::ExtFOp>();
      widened && widened.getIn().getType() == converted)
    return widened.getIn();
  if (from > to)
    return arith::TruncFOp::create(builder, loc, converted, value);
  return value;
}

Value fovea::attn::createEmptyLike(OpBuilder &builder, Location loc, Value like,
                                   Type elementType) {
  SmallVector<OpFoldResult> sizes;
  if (isa<RankedTensorType>(like.getType()))
    sizes = tensor::getMixedSizes(builder, loc, like);
  return tensor::EmptyOp::create(builder, loc, sizes, elementType);
}

Value fovea::attn::createZerosLike(OpBuilder &builder, Location loc, Value like,
                                   Type elementType) {
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(elementType));
  if (!isa<RankedTensorType>(like.getType()))
    return zero;
  Value empty = createEmptyLike(builder, loc, like, elementType);
  return linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
}

void Adjoints::activateResults(Operation *op) {
  if (op->hasAttr(kStopGradientAttrName))
    return;
  bool isActiveOp = llvm::any_of(op->getOperands(),
                                 [&](Value value) { return isActive(value); });
  visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *operand) {
    isActiveOp |= isActive(operand->get());
  });
  if (!isActiveOp)
    return;
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  for (OpResult result : op->getResults())
    if (differentiable ? differentiable.hasAdjoint(result)
                       : isa<FloatType>(getElementTypeOrSelf(result)))
      activate(result);
}

Value Adjoints::getRounded(OpBuilder &builder, Location loc,
                           Value value) const {
  Type type = getElementTypeOrSelf(value);
  if (Value adjoint = find(value))
    return convertFloat(builder, loc, adjoint, type);
  return createZerosLike(builder, loc, value, type);
}

void Adjoints::add(OpBuilder &builder, Value value, Value contribution) {
  if (!isActive(value))
    return;
  Location loc = contribution.getLoc();
  if (Type type = getElementTypeOrSelf(value); isa<FloatType>(type))
    contribution = convertFloat(builder, loc, contribution, getStateType(type));
  Value &adjoint = adjoints[value];
  adjoint = adjoint ? arith::AddFOp::create(builder, loc, adjoint, contribution)
                    : contribution;
}

LogicalResult Adjoints::emitVJPs(OpBuilder &builder,
                                 ArrayRef<Operation *> ops) {
  for (Operation *op : llvm::reverse(ops)) {
    if (llvm::none_of(op->getResults(),
                      [&](Value result) { return find(result); }))
      continue;
    auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
    if (!differentiable)
      return op->emitOpError("has no gradient");
    if (failed(differentiable.emitVJP(builder, *this)))
      return failure();
  }
  return success();
}

void fovea::attn::registerDifferentiableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registerArithRules(registry);
  registerAttnRules(registry);
  registerBranchRules(registry);
  registerLinalgRules(registry);
  registerLoopRules(registry);
  registerSecondRules(registry);
  registerTensorRules(registry);
  registerTreeRules(registry);
}
