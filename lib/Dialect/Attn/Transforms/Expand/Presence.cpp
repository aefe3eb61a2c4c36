//===- Presence.cpp - Rows of tokens that are present ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Presence.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

Value fovea::attn::detail::keepRows(OpBuilder &builder, Location loc,
                                    Value rows, Value mask) {
  auto type = cast<RankedTensorType>(rows.getType());
  int64_t rank = type.getRank();
  Value init = tensor::EmptyOp::create(
      builder, loc, tensor::getMixedSizes(builder, loc, rows),
      type.getElementType());
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(type.getElementType()));
  AffineMap all = builder.getMultiDimIdentityMap(rank);
  AffineMap token = all.getSubMap({0, 2});
  SmallVector<utils::IteratorType> parallel(rank,
                                            utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             builder, loc, init.getType(), ValueRange{rows, mask}, init,
             {all, token, all}, parallel,
             [&](OpBuilder &b, Location loc, ValueRange in) {
               Value kept = arith::SelectOp::create(b, loc, in[1], in[0], zero);
               linalg::YieldOp::create(b, loc, kept);
             })
      .getResult(0);
}
