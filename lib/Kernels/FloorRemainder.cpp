//===- FloorRemainder.cpp - Remainders of positions -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/FloorRemainder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea::attn;

/// A positive constant of 30 bits: two of them have a sum of 31.
static std::optional<int64_t> getDivisor(Value value) {
  APInt number;
  if (!matchPattern(value, m_ConstantInt(&number)) ||
      !number.isStrictlyPositive() || number.getActiveBits() > 30)
    return std::nullopt;
  return number.getSExtValue();
}

std::optional<FloorRemainder> fovea::attn::matchFloorRemainder(Value value) {
  auto difference = value.getDefiningOp<arith::SubIOp>();
  if (!difference || !value.getType().isIndex())
    return std::nullopt;
  auto product = difference.getRhs().getDefiningOp<arith::MulIOp>();
  if (!product)
    return std::nullopt;
  Value number = difference.getLhs(), lhs = product.getLhs(),
        rhs = product.getRhs();
  if (!lhs.getDefiningOp<arith::FloorDivSIOp>())
    std::swap(lhs, rhs);
  auto quotient = lhs.getDefiningOp<arith::FloorDivSIOp>();
  if (!quotient || quotient.getLhs() != number)
    return std::nullopt;
  std::optional<int64_t> divisor = getDivisor(rhs);
  if (!divisor || divisor != getDivisor(quotient.getRhs()))
    return std::nullopt;
  return FloorRemainder{number, *divisor};
}

std::optional<RemainderEquality>
fovea::attn::matchRemainderEquality(Value lhs, Value rhs) {
  for (auto [value, other] : {std::pair(lhs, rhs), std::pair(rhs, lhs)}) {
    std::optional<FloorRemainder> remainder = matchFloorRemainder(value);
    APInt rest;
    if (remainder && matchPattern(other, m_ConstantInt(&rest)) &&
        !rest.isNegative() && rest.ult(remainder->divisor))
      return RemainderEquality{*remainder, rest.getSExtValue()};
  }
  return std::nullopt;
}

int64_t fovea::attn::floorRemainder(int64_t number, int64_t divisor) {
  int64_t rest = number % divisor;
  return rest < 0 ? rest + divisor : rest;
}
