//===- LinalgProduct.cpp - Sums of products in linalg ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/LinalgProduct.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea::attn;

/// Follows `value` through an extension to a block argument.
static BlockArgument getExtendedArgument(Value value) {
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    value = extension.getIn();
  return dyn_cast<BlockArgument>(value);
}

bool fovea::attn::isSumOfProducts(linalg::LinalgOp op) {
  Block *body = op.getBlock();
  auto yield = cast<linalg::YieldOp>(body->getTerminator());
  if (yield.getNumOperands() != 1 || body->getNumArguments() != 3)
    return false;
  auto sum = yield.getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  Value product;
  for (auto [old, added] : {std::pair(sum.getLhs(), sum.getRhs()),
                            std::pair(sum.getRhs(), sum.getLhs())})
    if (old == body->getArgument(2))
      product = added;
  auto mul = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!mul)
    return false;
  BlockArgument lhs = getExtendedArgument(mul.getLhs());
  BlockArgument rhs = getExtendedArgument(mul.getRhs());
  return lhs && rhs && lhs != rhs && lhs.getArgNumber() < 2 &&
         rhs.getArgNumber() < 2;
}

linalg::FillOp fovea::attn::findFill(linalg::LinalgOp op) {
  Value output = op.getDpsInitOperand(0)->get();
  linalg::FillOp fill;
  if (!output.getDefiningOp<memref::AllocOp>() ||
      llvm::is_contained(op.getDpsInputs(), output))
    return fill;
  for (Operation *user : output.getUsers()) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    if (!inBlock)
      return {};
    if (user == op || op->isBeforeInBlock(inBlock))
      continue;
    auto found = dyn_cast<linalg::FillOp>(user);
    if (fill || !found || inBlock != user ||
        !matchPattern(found.value(), m_Constant()))
      return {};
    fill = found;
  }
  return fill;
}
