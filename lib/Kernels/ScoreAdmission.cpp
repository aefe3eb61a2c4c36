//===- ScoreAdmission.cpp - Tiles that a score region removes -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ScoreAdmission.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/FloorRemainder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
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

//===----------------------------------------------------------------------===//
// The body
//===----------------------------------------------------------------------===//

ScoreAdmission::ScoreAdmission(Region &score, ValueRange captures)
    : block(&score.front()), captures(captures.begin(), captures.end()) {
  findRemovals(getYieldedScore(score));
  if (!removals.empty())
    inferRanges();
}

/// Conditions any of which makes `yielded` minus infinity.
void ScoreAdmission::findRemovals(Value yielded) {
  while (auto select = yielded.getDefiningOp<arith::SelectOp>()) {
    bool removesIf = matchPattern(select.getTrueValue(), m_NegInfFloat());
    if (!removesIf && !matchPattern(select.getFalseValue(), m_NegInfFloat()))
      return;
    removals.push_back({select.getCondition(), removesIf});
    yielded = removesIf ? select.getFalseValue() : select.getTrueValue();
  }
}

llvm::DenseSet<Value>
ScoreAdmission::findDependents(ArrayRef<unsigned> arguments) const {
  llvm::DenseSet<Value> found;
  for (unsigned argument : arguments)
    found.insert(block->getArgument(argument));
  for (Operation &op : block->without_terminator())
    if (llvm::any_of(op.getOperands(),
                     [&](Value operand) { return found.contains(operand); }))
      found.insert(op.getResult(0));
  return found;
}

Value ScoreAdmission::getMemRef(tensor::ExtractOp read) const {
  auto argument = cast<BlockArgument>(read.getTensor());
  return captures[argument.getArgNumber() - score_argument::Captures];
}

void ScoreAdmission::inferRanges() {
  auto getRange = [](int64_t low, int64_t high) {
    return ConstantIntRanges::fromSigned(APInt(64, low, /*isSigned=*/true),
                                         APInt(64, high, /*isSigned=*/true));
  };
  auto set = [&](unsigned argument, int64_t low) {
    ranges.try_emplace(block->getArgument(argument),
                       getRange(low, kMaxScorePositions));
  };
  set(score_argument::Batch, 0);
  set(score_argument::Head, 0);
  set(score_argument::Query, -kMaxScorePositions);
  set(score_argument::Key, 0);
  auto find = [&](Value value) {
    auto known = ranges.find(value);
    return known != ranges.end()
               ? known->second
               : ConstantIntRanges::maxRange(
                     ConstantIntRanges::getStorageBitwidth(value.getType()));
  };
  for (Operation &op : block->without_terminator()) {
    auto inferable = dyn_cast<InferIntRangeInterface>(op);
    if (!inferable || !op.getResult(0).getType().isIntOrIndex())
      continue;
    inferable.inferResultRanges(
        llvm::map_to_vector(op.getOperands(), find),
        [&](Value result, const ConstantIntRanges &range) {
          ranges.insert_or_assign(result, range);
        });
  }
}

ScoreDerivatives
ScoreAdmission::cloneAdmitted(Region &region,
                              const ScoreDerivatives &derivatives) const {
  IRMapping mapping;
  block->getParent()->cloneInto(&region, mapping);
  ScoreDerivatives copy;
  copy.score = mapping.lookupOrNull(derivatives.score);
  for (ScoreDerivatives::OfRead each : derivatives.reads)
    copy.reads.push_back(
        {cast<tensor::ExtractOp>(mapping.lookup(each.read.getOperation())),
         mapping.lookupOrNull(each.value)});
  // What is not used in the body itself.
  SmallVector<Value *> values = {&copy.score};
  for (ScoreDerivatives::OfRead &each : copy.reads)
    values.push_back(&each.value);
  for (const Removal &removal : removals) {
    Value condition = mapping.lookup(removal.condition);
    for (Operation *user : llvm::make_early_inc_range(condition.getUsers())) {
      auto select = dyn_cast<arith::SelectOp>(user);
      if (!select || select.getCondition() != condition)
        continue;
      Value kept =
          removal.removesIf ? select.getFalseValue() : select.getTrueValue();
      for (Value *value : values)
        if (*value == select.getResult())
          *value = kept;
      select.replaceAllUsesWith(kept);
      select.erase();
    }
  }
  // What is left of the conditions is not computed.
  llvm::SmallPtrSet<Operation *, 4> kept;
  for (Value *value : values)
    if (*value)
      kept.insert(value->getDefiningOp());
  for (ScoreDerivatives::OfRead &each : copy.reads)
    kept.insert(each.read);
  SmallVector<Operation *> ops = llvm::map_to_vector(
      region.front().without_terminator(), [](Operation &op) { return &op; });
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty() && !kept.contains(op))
      op->erase();
  return copy;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// Emits bounds of values of the body.
class ScoreAdmission::Evaluator {
public:
  /// Elements that keys read are those of whole runs if `byRuns`, where these
  /// are known.
  Evaluator(KernelBuilder &b, ScoreAdmission &body, State &state,
            bool byRuns = false)
      : b(b), body(body), state(state), byRuns(byRuns) {
    keyed = body.findDependents({score_argument::Key});
  }

  void set(unsigned argument, Interval interval) {
    state.try_emplace(body.block->getArgument(argument),
                      Bounds{interval.low, interval.high});
  }
  /// Bounds what `values` are computed from, as far as the key is not needed.
  void prepare(SmallVector<Value> values);
  Bounds bound(Value value);
  /// Whether an element that `read` reads is there for all entries; null where
  /// that is not known.
  Value isWithin(tensor::ExtractOp read);

private:
  Bounds compute(Value value);
  Bounds computeInteger(Operation *op);
  Bounds computeCondition(Operation *op);
  Bounds compare(arith::CmpIOp op);
  Bounds boundRemainder(Operation *op);
  bool followsKey(Value value);
  Bounds readRange(tensor::ExtractOp op);

  Value constant(bool value) {
    return arith::ConstantOp::create(b, b.getBoolAttr(value));
  }
  Value negate(Value condition) {
    return b.createOrFold<arith::XOrIOp>(condition, constant(true));
  }
  Value toIndex(Value integer) {
    return integer.getType().isIndex()
               ? integer
               : arith::IndexCastOp::create(b, b.getIndexType(), integer);
  }
  KernelBuilder &b;
  ScoreAdmission &body;
  State &state;
  bool byRuns;
  /// What depends on the key.
  llvm::DenseSet<Value> keyed;
};

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

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

ScoreAdmission::State ScoreAdmission::enterQueries(KernelBuilder &b,
                                                   Interval queries) {
  State state;
  Evaluator evaluator(b, *this, state);
  evaluator.set(score_argument::Batch, batches);
  evaluator.set(score_argument::Head, heads);
  evaluator.set(score_argument::Query, queries);
  SmallVector<Value> needed;
  for (const Removal &removal : removals)
    needed.push_back(removal.condition);
  for (auto read : block->getOps<tensor::ExtractOp>())
    llvm::append_range(needed, read.getIndices());
  evaluator.prepare(needed);
  return state;
}

ScoreAdmission::Decision ScoreAdmission::decide(KernelBuilder &b,
                                                const State &queries,
                                                Interval keys, bool byRuns) {
  auto constant = [&](bool value) -> Value {
    return arith::ConstantOp::create(b, b.getBoolAttr(value));
  };
  State state = queries;
  Evaluator evaluator(b, *this, state, byRuns);
  evaluator.set(score_argument::Key, keys);
  Value isRemoved = constant(false), admitsAll = constant(true);
  numBounded = 0;
  for (auto [condition, removesIf] : removals) {
    Bounds holds = evaluator.bound(condition);
    if (!holds.low) {
      admitsAll = constant(false);
      continue;
    }
    // What holds for some entries of every tile decides nothing.
    if (!matchPattern(holds.low, m_One()) ||
        !matchPattern(holds.high, m_Zero()))
      ++numBounded;
    auto negate = [&](Value value) {
      return b.createOrFold<arith::XOrIOp>(value, constant(true));
    };
    isRemoved = b.either(isRemoved, removesIf ? holds.high : negate(holds.low));
    admitsAll = b.both(admitsAll, removesIf ? negate(holds.low) : holds.high);
  }
  Value areWithin = constant(true);
  for (auto read : block->getOps<tensor::ExtractOp>()) {
    Value isWithin = evaluator.isWithin(read);
    areWithin = b.both(areWithin, isWithin ? isWithin : constant(false));
    if (!isWithin)
      numBounded = 0;
  }
  Value reads = b.createOrFold<arith::XOrIOp>(b.both(isRemoved, areWithin),
                                              constant(true));
  return {reads, b.both(admitsAll, areWithin)};
}

SmallVector<Value>
ScoreAdmission::boundRuns(KernelBuilder &b, function_ref<bool(Value)> isThere) {
  SmallVector<Value> buffers;
  llvm::DenseSet<Value> inTile =
      findDependents({score_argument::Query, score_argument::Key});
  for (auto read : block->getOps<tensor::ExtractOp>()) {
    auto indices = read.getIndices();
    if (indices.empty() ||
        indices.back() != block->getArgument(score_argument::Key) ||
        llvm::any_of(indices.drop_back(),
                     [&](Value row) { return inTile.contains(row); }))
      continue;
    Value memref = getMemRef(read);
    auto type = cast<MemRefType>(memref.getType());
    if (!type.getElementType().isInteger() || !type.isLastDimUnitStride() ||
        runs.contains(memref) || !isThere(memref))
      continue;
    RunBounds bounds = RunBounds::create(b, memref);
    runs.try_emplace(memref, bounds);
    buffers.append({bounds.least, bounds.greatest});
  }
  return buffers;
}

ScoreAdmission::Part ScoreAdmission::trim(KernelBuilder &b,
                                          const State &queries, Value first,
                                          Value count, int64_t unit) {
  auto decideRows = [&](Value begin, Value end) {
    return decide(b, queries,
                  {b.add(first, begin), b.sub(b.add(first, end), b.index(1))});
  };
  Value none = b.index(0);
  Decision whole = decideRows(none, count);
  if (numBounded == 0)
    return {none, count, whole.admitsAll, none, none};
  // Units at either end that are removed, in turn; and the first run of those
  // that are admitted whole.
  SmallVector<Type> types(4, b.getIndexType());
  auto choice = scf::IfOp::create(b, types, whole.reads,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(b, ValueRange{none, none, none, none});
  b.setInsertionPointToStart(choice.thenBlock());
  auto refined = scf::IfOp::create(b, types, whole.admitsAll,
                                   /*addThenBlock=*/true,
                                   /*addElseBlock=*/true);
  scf::YieldOp::create(b, refined.getResults());
  b.setInsertionPointToStart(refined.thenBlock());
  scf::YieldOp::create(b, ValueRange{none, count, none, count});
  b.setInsertionPointToStart(refined.elseBlock());
  SmallVector<Value> ends = b.loop(
      none, count, unit, {count, none, none, none},
      [&](Value begin, ValueRange running) -> SmallVector<Value> {
        Value end = b.min(b.add(begin, unit), count);
        Decision rows = decideRows(begin, end);
        Value starts = b.equal(running[2], running[3]);
        Value extends = b.both(rows.admitsAll,
                               b.either(starts, b.equal(running[3], begin)));
        return {b.select(rows.reads, b.min(running[0], begin), running[0]),
                b.select(rows.reads, end, running[1]),
                b.select(b.both(extends, starts), begin, running[2]),
                b.select(extends, end, running[3])};
      });
  scf::YieldOp::create(b, ends);
  return {choice.getResult(0), choice.getResult(1), whole.admitsAll,
          choice.getResult(2), choice.getResult(3)};
}

std::pair<Value, Value> ScoreAdmission::enclose(KernelBuilder &b,
                                                const State &queries,
                                                Value begin, Value end) {
  constexpr int64_t kFirstStep = 4096, kLastStep = 8, kShrinks = 8;
  // Passes over what is removed, from one end on.
  auto pass = [&](bool fromEnd) {
    SmallVector<Value> start = {fromEnd ? end : begin, b.index(kFirstStep)};
    return b.loopWhile(
        start,
        [&](ValueRange state) {
          Value isLeft =
              fromEnd ? b.less(begin, state[0]) : b.less(state[0], end);
          return b.both(isLeft, b.less(b.index(kLastStep - 1), state[1]));
        },
        [&](ValueRange state) -> SmallVector<Value> {
          Value next = fromEnd ? b.max(b.sub(state[0], state[1]), begin)
                               : b.min(b.add(state[0], state[1]), end);
          Interval keys = {fromEnd ? next : state[0],
                           b.sub(fromEnd ? state[0] : next, b.index(1))};
          Value isRead = reads(b, queries, keys);
          return {b.select(isRead, state[0], next),
                  b.select(isRead, b.div(state[1], kShrinks), state[1])};
        })[0];
  };
  begin = pass(/*fromEnd=*/false);
  end = pass(/*fromEnd=*/true);
  return {begin, end};
}
