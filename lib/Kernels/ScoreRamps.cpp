//===- ScoreRamps.cpp - Positions and remainders of score regions ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreEvaluator.h"
#include "fovea/Kernels/FloorRemainder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/Utils/InferIntRangeCommon.h"

using namespace mlir;
using namespace fovea::attn;

/// The sum or difference of positions, if `op` is one.
std::optional<ScoreBody::Lanes>
ScoreBody::Evaluator::addRamps(Operation &op, ArrayRef<Lanes> operands,
                               const ConstantIntRanges &range) {
  if (!isa<arith::AddIOp, arith::SubIOp>(op) ||
      !op.getResult(0).getType().isIndex() ||
      llvm::any_of(operands, [](const Lanes &operand) {
        return operand.kind == Lanes::Vector;
      }))
    return std::nullopt;
  bool isSum = isa<arith::AddIOp>(op);
  const Lanes &lhs = operands[0], &rhs = operands[1];
  int64_t sign = isSum ? 1 : -1, step = lhs.step + sign * rhs.step;
  Lanes result = {Value(), /*isWide=*/true, range,
                  step ? Lanes::Ramp : Lanes::Uniform, step};
  result.base = isSum ? b.add(lhs.getBase(), rhs.getBase())
                      : b.sub(lhs.getBase(), rhs.getBase());
  result.offset = lhs.offset + sign * rhs.offset;
  result.value =
      result.offset ? b.add(result.base, result.offset) : result.base;
  return result;
}

/// Whether the order is that of unsigned numbers, which differences do not
/// keep.
static bool isUnsigned(arith::CmpIPredicate predicate) {
  using Predicate = arith::CmpIPredicate;
  return predicate == Predicate::ult || predicate == Predicate::ule ||
         predicate == Predicate::ugt || predicate == Predicate::uge;
}

/// The comparison of two positions, if `op` is one: of constants with how far
/// apart they are, which is the same for neighbouring entries.
std::optional<ScoreBody::Lanes>
ScoreBody::Evaluator::compareRamps(Operation &op, ArrayRef<Lanes> operands,
                                   const ConstantIntRanges &range) {
  auto comparison = dyn_cast<arith::CmpIOp>(op);
  if (!comparison || !comparison.getLhs().getType().isIndex() ||
      isUnsigned(comparison.getPredicate()) ||
      llvm::any_of(operands, [](const Lanes &operand) {
        return operand.kind == Lanes::Vector || !fits32(operand.range);
      }))
    return std::nullopt;
  const Lanes &lhs = operands[0], &rhs = operands[1];
  if (!fits32(intrange::inferSub({rhs.range, lhs.range})))
    return std::nullopt;
  VectorType type = vectorOf(b.getI32Type());
  Value distance = arith::IndexCastOp::create(
      b, b.getI32Type(), b.sub(rhs.getBase(), lhs.getBase()));
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < b.getLanes(); ++lane)
    numbers.push_back(lhs.offset - rhs.offset + lane * (lhs.step - rhs.step));
  Value result = arith::CmpIOp::create(
      b, comparison.getPredicate(),
      arith::ConstantOp::create(b, b.getI32VectorAttr(numbers)),
      vector::BroadcastOp::create(b, type, distance));
  return Lanes{result, /*isWide=*/false, range, Lanes::Vector};
}

/// The remainder of the base of a ramp, in every lane, which neighbouring
/// entries share. `lanes` are what each is further on, or with `negates` what
/// that is less than `rest`, both modulo `divisor`.
Value ScoreBody::Evaluator::splitRamp(const Lanes &ramp, int64_t divisor,
                                      bool negates, int64_t rest,
                                      Value &lanes) {
  Value base = ramp.getBase(), own;
  if (llvm::isPowerOf2_64(divisor))
    own = arith::AndIOp::create(b, base, b.index(divisor - 1));
  else
    own = b.sub(base, b.mul(b.floorDiv(base, b.index(divisor)), divisor));
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < b.getLanes(); ++lane) {
    int64_t further = ramp.offset + lane * ramp.step;
    numbers.push_back(
        floorRemainder(negates ? rest - further : further, divisor));
  }
  lanes = arith::ConstantOp::create(b, b.getI32VectorAttr(numbers));
  return vector::BroadcastOp::create(
      b, vectorOf(b.getI32Type()),
      arith::IndexCastOp::create(b, b.getI32Type(), own));
}

/// What is left of a position behind a multiple, if `op` is that.
std::optional<ScoreBody::Lanes>
ScoreBody::Evaluator::takeRemainder(Operation &op) {
  std::optional<FloorRemainder> remainder =
      matchFloorRemainder(op.getResult(0));
  if (!remainder)
    return std::nullopt;
  const Lanes &number = state.lanes.at(remainder->number);
  if (number.kind != Lanes::Ramp)
    return std::nullopt;
  auto splat = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(
        b, b.getI32VectorAttr(SmallVector<int32_t>(b.getLanes(), value)));
  };
  int64_t divisor = remainder->divisor;
  Value lanes, base = splitRamp(number, divisor, /*negates=*/false, 0, lanes);
  Value sum = arith::AddIOp::create(b, base, lanes);
  // The sum is less than two divisors: below zero it is large without a sign.
  if (llvm::isPowerOf2_64(divisor))
    sum = arith::AndIOp::create(b, sum, splat(divisor - 1));
  else
    sum = arith::MinUIOp::create(b, sum,
                                 arith::SubIOp::create(b, sum, splat(divisor)));
  return Lanes{sum, /*isWide=*/true, getRange(0, divisor - 1), Lanes::Vector};
}

/// Whether a remainder is some constant, if `op` asks that: one comparison of
/// constants with what neighbouring entries share.
std::optional<ScoreBody::Lanes>
ScoreBody::Evaluator::compareRemainder(Operation &op,
                                       const ConstantIntRanges &range) {
  auto comparison = dyn_cast<arith::CmpIOp>(op);
  if (!comparison ||
      !llvm::is_contained({arith::CmpIPredicate::eq, arith::CmpIPredicate::ne},
                          comparison.getPredicate()))
    return std::nullopt;
  std::optional<RemainderEquality> equality =
      matchRemainderEquality(comparison.getLhs(), comparison.getRhs());
  if (!equality)
    return std::nullopt;
  auto [number, divisor] = equality->remainder;
  const Lanes &ramp = state.lanes.at(number);
  if (ramp.kind != Lanes::Ramp)
    return std::nullopt;
  Value lanes,
      base = splitRamp(ramp, divisor, /*negates=*/true, equality->rest, lanes);
  Value result =
      arith::CmpIOp::create(b, comparison.getPredicate(), base, lanes);
  return Lanes{result, /*isWide=*/false, range, Lanes::Vector};
}
