//===- ScoreAdmission.cpp - Tiles that a score region removes -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreBounds.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

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
