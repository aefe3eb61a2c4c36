//===- Presence.cpp - Rows of tokens that are present --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Presence.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn::detail;

static Value createNumber(OpBuilder &builder, Location loc, Type type,
                          double number) {
  TypedAttr attribute = isa<FloatType>(type)
                            ? TypedAttr(builder.getFloatAttr(type, number))
                            : builder.getIntegerAttr(type, int64_t(number));
  return arith::ConstantOp::create(builder, loc, attribute);
}

/// Writes `init`: for each of its elements what `choose` makes of the mask's
/// and of those of `inputs`, which have its shape.
static Value
createByMask(OpBuilder &builder, Location loc, ValueRange inputs, Value mask,
             Value init,
             function_ref<Value(OpBuilder &, Location, ValueRange)> choose) {
  int64_t rank = cast<RankedTensorType>(init.getType()).getRank();
  MLIRContext *context = builder.getContext();
  auto identity = AffineMap::getMultiDimIdentityMap(rank, context);
  SmallVector<AffineMap> maps(inputs.size(), identity);
  maps.push_back(identity.getSubMap({0, 2}));
  maps.push_back(identity);
  SmallVector<Value> operands(inputs);
  operands.push_back(mask);
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, init.getType(), operands, init, maps, iterators,
             [&](OpBuilder &nested, Location loc, ValueRange args) {
               linalg::YieldOp::create(nested, loc, choose(nested, loc, args));
             })
      .getResult(0);
}

Value fovea::attn::detail::keepRows(OpBuilder &builder, Location loc,
                                    Value rows, Value mask, double absent) {
  if (!mask)
    return rows;
  Type type = getElementTypeOrSelf(rows);
  Value init = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, rows), type);
  return createByMask(
      builder, loc, rows, mask, init,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        return arith::SelectOp::create(nested, loc, args[1], args[0],
                                       createNumber(nested, loc, type, absent));
      });
}

Value fovea::attn::detail::keepInPlace(OpBuilder &builder, Location loc,
                                       Value rows, Value mask, double absent) {
  if (!mask)
    return rows;
  Type type = getElementTypeOrSelf(rows);
  return createByMask(
      builder, loc, {}, mask, rows,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        return arith::SelectOp::create(nested, loc, args[0], args[1],
                                       createNumber(nested, loc, type, absent));
      });
}

Value fovea::attn::detail::createRows(OpBuilder &builder, Location loc,
                                      Value mask, int64_t rank,
                                      Type elementType, double present,
                                      double absent) {
  if (!mask)
    return Value();
  SmallVector<OpFoldResult> sizes(rank, builder.getIndexAttr(1));
  sizes[0] = tensor::getMixedSize(builder, loc, mask, 0);
  sizes[2] = tensor::getMixedSize(builder, loc, mask, 1);
  Value init = tensor::EmptyOp::create(builder, loc, sizes, elementType);
  return createByMask(
      builder, loc, {}, mask, init,
      [&](OpBuilder &nested, Location loc, ValueRange args) -> Value {
        return arith::SelectOp::create(
            nested, loc, args[0],
            createNumber(nested, loc, elementType, present),
            createNumber(nested, loc, elementType, absent));
      });
}

Value fovea::attn::detail::createTokenLogWeights(OpBuilder &builder,
                                                 Location loc, Value mask,
                                                 Type elementType) {
  return createRows(builder, loc, mask, /*rank=*/3, elementType, 0.0,
                    -std::numeric_limits<double>::infinity());
}
