//===- ScoreBounds.cpp - Bounds of what score regions compute -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreBounds.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/FloorRemainder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Whether a value is an integer that positions are computed from, rather than
/// a condition.
static bool isInteger(Value value) {
  return value.getType().isIntOrIndex() && !value.getType().isInteger(1);
}

void ScoreAdmission::Evaluator::prepare(SmallVector<Value> values) {
  llvm::DenseSet<Value> seen;
  while (!values.empty()) {
    Value value = values.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (!keyed.contains(value)) {
      if (value.getType().isIntOrIndex())
        bound(value);
    } else if (Operation *op = value.getDefiningOp()) {
      llvm::append_range(values, op->getOperands());
    }
  }
}

ScoreAdmission::Bounds ScoreAdmission::Evaluator::bound(Value value) {
  if (auto known = state.find(value); known != state.end())
    return known->second;
  Bounds bounds = compute(value);
  auto range = body.ranges.find(value);
  if (!bounds.low && isInteger(value) && range != body.ranges.end()) {
    // What types do not tell, constants may: a minimum or a remainder.
    const ConstantIntRanges &known = range->second;
    if (!known.smin().isMinSignedValue() && !known.smax().isMaxSignedValue())
      bounds = {b.index(known.smin().getSExtValue()),
                b.index(known.smax().getSExtValue())};
  }
  state.try_emplace(value, bounds);
  return bounds;
}

ScoreAdmission::Bounds ScoreAdmission::Evaluator::compute(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op) {
    // A captured number.
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    if (number < score_argument::Captures || !isInteger(value))
      return {};
    Value index = toIndex(body.captures[number - score_argument::Captures]);
    return {index, index};
  }
  if (value.getType().isInteger(1))
    return computeCondition(op);
  return isInteger(value) ? computeInteger(op) : Bounds();
}

/// All operations here grow with each operand, or fall, as long as nothing
/// wraps around.
ScoreAdmission::Bounds
ScoreAdmission::Evaluator::computeInteger(Operation *op) {
  if (APInt number; matchPattern(op, m_ConstantInt(&number))) {
    Value index = b.index(number.getSExtValue());
    return {index, index};
  }
  if (auto read = dyn_cast<tensor::ExtractOp>(op))
    return readRange(read);
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Bounds yes = bound(select.getTrueValue()),
           no = bound(select.getFalseValue());
    if (!yes.low || !no.low)
      return {};
    return {b.min(yes.low, no.low), b.max(yes.high, no.high)};
  }
  SmallVector<Bounds, 2> operands;
  for (Value operand : op->getOperands()) {
    Bounds bounds = bound(operand);
    if (!bounds.low)
      return {};
    operands.push_back(bounds);
  }
  // What is exact may wrap around.
  auto isExact = [](const Bounds &bounds) { return bounds.low == bounds.high; };
  auto isIndex = [](Type type) { return type.isIndex(); };
  if (llvm::all_of(operands, isExact) &&
      llvm::all_of(op->getOperandTypes(), isIndex) &&
      op->getResult(0).getType().isIndex()) {
    IRMapping mapping;
    for (auto [operand, bounds] : llvm::zip(op->getOperands(), operands))
      mapping.map(operand, bounds.low);
    Value result = b.clone(*op, mapping)->getResult(0);
    return {result, result};
  }
  if (Bounds rest = boundRemainder(op); rest.low)
    return rest;
  // Wider integers hold the same number.
  Type type = op->getResult(0).getType();
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(op) &&
      (type.isIndex() || isa<arith::ExtSIOp>(op)))
    return operands[0];
  auto range = body.ranges.find(op->getResult(0));
  if (range == body.ranges.end() || range->second.smin().isMinSignedValue() ||
      range->second.smax().isMaxSignedValue())
    return {};
  auto constantOf = [&](unsigned operand) -> std::optional<int64_t> {
    APInt number;
    if (!matchPattern(op->getOperand(operand), m_ConstantInt(&number)))
      return std::nullopt;
    return number.getSExtValue();
  };
  auto scaled = [&](Bounds by, int64_t factor,
                    function_ref<Value(Value)> scale) -> Bounds {
    Value low = scale(by.low), high = scale(by.high);
    return factor < 0 ? Bounds{high, low} : Bounds{low, high};
  };
  auto divided = [&](auto divide) -> Bounds {
    std::optional<int64_t> divisor = constantOf(1);
    if (!divisor || *divisor == 0)
      return {};
    return scaled(operands[0], *divisor, [&](Value number) {
      return divide(b.index(*divisor), number);
    });
  };
  return TypeSwitch<Operation *, Bounds>(op)
      .Case<arith::AddIOp>([&](auto) -> Bounds {
        return {b.add(operands[0].low, operands[1].low),
                b.add(operands[0].high, operands[1].high)};
      })
      .Case<arith::SubIOp>([&](auto) -> Bounds {
        return {b.sub(operands[0].low, operands[1].high),
                b.sub(operands[0].high, operands[1].low)};
      })
      .Case<arith::MulIOp>([&](auto) -> Bounds {
        for (unsigned factor : {0, 1})
          if (std::optional<int64_t> by = constantOf(factor))
            return scaled(operands[1 - factor], *by,
                          [&](Value number) { return b.mul(number, *by); });
        return {};
      })
      .Case<arith::FloorDivSIOp, arith::CeilDivSIOp, arith::DivSIOp>(
          [&](auto quotient) -> Bounds {
            return divided([&](Value divisor, Value number) -> Value {
              return b.createOrFold<decltype(quotient)>(number, divisor);
            });
          })
      .Case<arith::MinSIOp>([&](auto) -> Bounds {
        return {b.min(operands[0].low, operands[1].low),
                b.min(operands[0].high, operands[1].high)};
      })
      .Case<arith::MaxSIOp>([&](auto) -> Bounds {
        return {b.max(operands[0].low, operands[1].low),
                b.max(operands[0].high, operands[1].high)};
      })
      .Default([](Operation *) { return Bounds(); });
}

/// Whether `value` goes up or down by one from key to key.
bool ScoreAdmission::Evaluator::followsKey(Value value) {
  if (value == body.block->getArgument(score_argument::Key))
    return true;
  Operation *op = value.getDefiningOp();
  if (!isa_and_present<arith::AddIOp, arith::SubIOp>(op))
    return false;
  Value lhs = op->getOperand(0), rhs = op->getOperand(1);
  return (followsKey(lhs) && !keyed.contains(rhs)) ||
         (followsKey(rhs) && !keyed.contains(lhs));
}

/// Keys of a tile have every remainder by a small number: nothing is to be
/// computed for each.
ScoreAdmission::Bounds
ScoreAdmission::Evaluator::boundRemainder(Operation *op) {
  constexpr int64_t kMost = 16; // as few keys as are looked at together
  std::optional<FloorRemainder> rest = matchFloorRemainder(op->getResult(0));
  if (!rest || rest->divisor > kMost || !followsKey(rest->number))
    return {};
  return {b.index(0), b.index(rest->divisor - 1)};
}

ScoreAdmission::Bounds
ScoreAdmission::Evaluator::computeCondition(Operation *op) {
  if (APInt number; matchPattern(op, m_ConstantInt(&number))) {
    Value condition = constant(!number.isZero());
    return {condition, condition};
  }
  if (auto comparison = dyn_cast<arith::CmpIOp>(op))
    return compare(comparison);
  if (!isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op))
    return {};
  Bounds lhs = bound(op->getOperand(0)), rhs = bound(op->getOperand(1));
  if (isa<arith::XOrIOp>(op)) {
    if (!lhs.low || !matchPattern(op->getOperand(1), m_One()))
      return {};
    return {negate(lhs.high), negate(lhs.low)};
  }
  // One of two that is known may be enough.
  bool isKnown = lhs.low || rhs.low;
  if (!isKnown)
    return {};
  for (Bounds *side : {&lhs, &rhs})
    if (!side->low)
      *side = {constant(true), constant(false)};
  if (isa<arith::AndIOp>(op))
    return {b.both(lhs.low, rhs.low), b.both(lhs.high, rhs.high)};
  return {b.either(lhs.low, rhs.low), b.either(lhs.high, rhs.high)};
}

ScoreAdmission::Bounds ScoreAdmission::Evaluator::compare(arith::CmpIOp op) {
  using Predicate = arith::CmpIPredicate;
  if (!isInteger(op.getLhs()))
    return {};
  Bounds lhs = bound(op.getLhs()), rhs = bound(op.getRhs());
  if (!lhs.low || !rhs.low)
    return {};
  auto isLess = [&](Value a, Value b) { return this->b.less(a, b); };
  auto isAtMost = [&](Value a, Value b) { return negate(isLess(b, a)); };
  auto areEqual = [&]() -> Bounds {
    return {b.both(isAtMost(lhs.low, rhs.high), isAtMost(rhs.low, lhs.high)),
            b.both(b.equal(lhs.low, rhs.high), b.equal(lhs.high, rhs.low))};
  };
  switch (op.getPredicate()) {
  case Predicate::slt:
    return {isLess(lhs.low, rhs.high), isLess(lhs.high, rhs.low)};
  case Predicate::sle:
    return {isAtMost(lhs.low, rhs.high), isAtMost(lhs.high, rhs.low)};
  case Predicate::sgt:
    return {isLess(rhs.low, lhs.high), isLess(rhs.high, lhs.low)};
  case Predicate::sge:
    return {isAtMost(rhs.low, lhs.high), isAtMost(rhs.high, lhs.low)};
  case Predicate::eq:
    return areEqual();
  case Predicate::ne: {
    Bounds equal = areEqual();
    return {negate(equal.high), negate(equal.low)};
  }
  default:
    return {};
  }
}

//===----------------------------------------------------------------------===//
// Captured tensors
//===----------------------------------------------------------------------===//

Value ScoreAdmission::Evaluator::isWithin(tensor::ExtractOp read) {
  Value memref = body.getMemRef(read), all = constant(true);
  for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
    Bounds bounds = bound(index);
    if (!bounds.low)
      return Value();
    Value begins = negate(b.less(bounds.low, b.index(0)));
    all =
        b.both(all, b.both(begins, b.less(bounds.high, b.extent(memref, dim))));
  }
  return all;
}

/// The least and the largest element that entries of the tile read. Where some
/// of them is not there nobody asks.
ScoreAdmission::Bounds
ScoreAdmission::Evaluator::readRange(tensor::ExtractOp op) {
  Value memref = body.getMemRef(op);
  if (!getElementTypeOrSelf(memref).isIntOrIndex())
    return {};
  SmallVector<Value> at;
  std::optional<unsigned> varying;
  Interval range;
  Value isThere = constant(true);
  for (auto [dim, index] : llvm::enumerate(op.getIndices())) {
    Bounds bounds = bound(index);
    if (!bounds.low)
      return {};
    at.push_back(bounds.low);
    if (bounds.low == bounds.high) {
      isThere =
          b.both(isThere, b.both(negate(b.less(bounds.low, b.index(0))),
                                 b.less(bounds.low, b.extent(memref, dim))));
      continue;
    }
    if (varying)
      return {};
    varying = dim;
    range = {b.max(bounds.low, b.index(0)),
             b.min(b.add(bounds.high, 1), b.extent(memref, dim))};
  }
  if (varying) {
    range.high = b.select(isThere, range.high, range.low);
    RunBounds elements = {memref, memref};
    auto known = body.runs.find(memref);
    if (byRuns && known != body.runs.end() && *varying + 1 == at.size()) {
      elements = known->second;
      range = {b.div(range.low, RunBounds::kLength),
               b.ceilDiv(b.max(range.high, b.index(0)), RunBounds::kLength)};
    }
    auto [least, greatest] =
        elements.reduce(b, at, *varying, range.low, range.high);
    return {toIndex(least), toIndex(greatest)};
  }
  Value element = b.select(
      isThere, b.getIndexType(),
      [&] { return toIndex(memref::LoadOp::create(b, memref, at)); },
      [&] { return b.index(0); });
  return {element, element};
}
