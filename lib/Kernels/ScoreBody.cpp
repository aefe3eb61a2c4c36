//===- ScoreBody.cpp - Score regions on vectors of entries ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreEvaluator.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

void ScoreBody::Evaluator::run(
    const llvm::SmallPtrSetImpl<Operation *> *needed) {
  for (Operation &op : body.block->without_terminator()) {
    if (needed && !needed->contains(&op))
      continue;
    bool isKnown = llvm::all_of(op.getOperands(), [&](Value operand) {
      return state.lanes.contains(operand) ||
             isa<RankedTensorType>(operand.getType());
    });
    if (isKnown && !state.lanes.contains(op.getResult(0)))
      set(op.getResult(0), evaluate(op));
  }
}

Value ScoreBody::Evaluator::finish(Value value) {
  Value score = toVector(state.lanes.at(value), /*bits=*/64);
  unsigned bits = getElementTypeOrSelf(score).getIntOrFloatBitWidth(),
           needed = b.getStateType().getWidth();
  Type type = b.getVectorType();
  if (bits > needed)
    score = arith::TruncFOp::create(b, type, score);
  else if (bits < needed)
    score = arith::ExtFOp::create(b, type, score);
  if (!state.isOutside)
    return score;
  double nan = std::numeric_limits<double>::quiet_NaN();
  return arith::SelectOp::create(
      b, state.isOutside, b.getLanes() ? b.splat(nan) : b.scalar(nan), score);
}

ScoreBody::Lanes ScoreBody::Evaluator::evaluate(Operation &op) {
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return read(extract);
  SmallVector<Lanes> operands;
  for (Value operand : op.getOperands())
    operands.push_back(state.lanes.at(operand));
  ConstantIntRanges range = inferRange(op, operands);
  if (!llvm::all_of(operands, isUniform)) {
    if (std::optional<Lanes> ramp = addRamps(op, operands, range))
      return *ramp;
    if (std::optional<Lanes> found = takeRemainder(op))
      return *found;
    if (std::optional<Lanes> found = compareRemainder(op, range))
      return *found;
    if (std::optional<Lanes> found = compareRamps(op, operands, range))
      return *found;
    return vectorize(op, operands, range);
  }
  IRMapping mapping;
  SmallVector<Value> values;
  for (auto [operand, lanes] : llvm::zip(op.getOperands(), operands)) {
    mapping.map(operand, lanes.value);
    values.push_back(lanes.value);
  }
  // Entries without lanes round as vectors do; what is of a head is divided
  // once.
  bool isOfEntry = !b.getLanes() && &state != &body.ofHead;
  Value result = isOfEntry ? divideByKnown(op, values) : Value();
  if (isOfEntry && !result)
    result = addProduct(op, values);
  if (!result)
    result = b.clone(op, mapping)->getResult(0);
  return {result, isWide(result.getType()), range};
}

/// A product in place of a quotient by a number that entries have in common.
Value ScoreBody::Evaluator::divideByKnown(Operation &op,
                                          ArrayRef<Value> operands) {
  Value divisor = isa<arith::DivFOp>(op) ? op.getOperand(1) : Value();
  if (!divisor || !body.ofHead.lanes.contains(divisor))
    return Value();
  Value one =
      arith::ConstantOp::create(b, b.getFloatAttr(divisor.getType(), 1.0));
  Value inverse = b.createOrFold<arith::DivFOp>(one, operands[1]);
  return arith::MulFOp::create(b, operands[0], inverse);
}

ConstantIntRanges ScoreBody::Evaluator::inferRange(Operation &op,
                                                   ArrayRef<Lanes> operands) {
  Type type = op.getResult(0).getType();
  ConstantIntRanges range = getUnknown(type);
  auto inferable = dyn_cast<InferIntRangeInterface>(op);
  if (!inferable || !type.isIntOrIndex())
    return range;
  SmallVector<ConstantIntRanges> ranges;
  for (const Lanes &operand : operands)
    ranges.push_back(operand.range);
  inferable.inferResultRanges(
      ranges,
      [&](Value, const ConstantIntRanges &inferred) { range = inferred; });
  return range;
}

/// The sum or difference that `op` is, with a product that nothing else uses,
/// in one instruction: null where it has none.
Value ScoreBody::Evaluator::addProduct(Operation &op,
                                       ArrayRef<Value> operands) {
  if (!isa<arith::AddFOp, arith::SubFOp>(op))
    return Value();
  for (unsigned number : {1, 0}) {
    auto product = op.getOperand(number).getDefiningOp<arith::MulFOp>();
    if (!product || !product->hasOneUse())
      continue;
    if (b.getLanes() ? state.lanes.at(product).kind != Lanes::Vector
                     : body.ofHead.lanes.contains(product))
      continue;
    Value lhs = toVector(state.lanes.at(product.getLhs()), /*bits=*/64),
          rhs = toVector(state.lanes.at(product.getRhs()), /*bits=*/64);
    Value other = operands[1 - number];
    if (isa<arith::SubFOp>(op)) {
      Value &negative = number == 1 ? lhs : other;
      negative = arith::NegFOp::create(b, negative);
    }
    return math::FmaOp::create(b, lhs, rhs, other);
  }
  return Value();
}

/// Whether an operation computes other numbers of the integers that its
/// operands are with fewer bits.
static bool needsAllBits(Operation &op) {
  return isa<arith::BitcastOp, arith::CeilDivUIOp, arith::DivUIOp,
             arith::RemUIOp, arith::ShLIOp, arith::ShRUIOp, arith::UIToFPOp>(
      op);
}

/// The operation on vectors: all of them are elementwise.
ScoreBody::Lanes
ScoreBody::Evaluator::vectorize(Operation &op, ArrayRef<Lanes> operands,
                                const ConstantIntRanges &range) {
  Type type = op.getResult(0).getType();
  // A product is cheaper than a quotient, and one rounding worse.
  if (isa<arith::DivFOp>(op) && isUniform(operands[1])) {
    Value one = arith::ConstantOp::create(b, b.getFloatAttr(type, 1.0));
    Value inverse = b.createOrFold<arith::DivFOp>(one, operands[1].value);
    Value product = arith::MulFOp::create(
        b, operands[0].value,
        vector::BroadcastOp::create(b, vectorOf(type), inverse));
    return {product, /*isWide=*/false, range, Lanes::Vector};
  }
  // One width for all wide integers of an operation.
  bool isNarrow = !needsAllBits(op) && (!isWide(type) || fits32(range));
  for (const Lanes &operand : operands)
    isNarrow &= !operand.isWide || fits32(operand.range);
  unsigned bits = isNarrow ? 32 : 64;
  Type element = isWide(type) ? b.getIntegerType(bits) : type;
  SmallVector<Value> vectors;
  for (const Lanes &operand : operands)
    vectors.push_back(toVector(operand, bits));
  Lanes result = {Value(), isWide(type), range, Lanes::Vector};
  if (isa<arith::ExtSIOp, arith::IndexCastOp, arith::TruncIOp>(op)) {
    result.value = toWidth(vectors[0], element.getIntOrFloatBitWidth());
  } else if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op)) {
    result.value = toWidth(vectors[0], element.getIntOrFloatBitWidth(),
                           /*isSigned=*/false);
  } else if (APInt divisor;
             isa<arith::FloorDivSIOp>(op) &&
             matchPattern(operands[1].value, m_ConstantInt(&divisor)) &&
             divisor.isStrictlyPositive() && divisor.isPowerOf2()) {
    // CPUs divide no vectors of integers.
    Value shift = arith::ConstantOp::create(
        b, DenseElementsAttr::get(
               vectorOf(element),
               APInt(element.getIntOrFloatBitWidth(), divisor.logBase2())));
    result.value = arith::ShRSIOp::create(b, vectors[0], shift);
  } else if (Value sum = addProduct(op, vectors)) {
    result.value = sum;
  } else {
    OperationState emitted(b.getLoc(), op.getName(), vectors, vectorOf(element),
                           op.getAttrs());
    result.value = b.create(emitted)->getResult(0);
    if (isa<math::MathDialect>(op.getDialect()))
      body.mathOps.push_back(result.value.getDefiningOp());
  }
  return result;
}

Value ScoreBody::Evaluator::toWidth(Value vector, unsigned bits,
                                    bool isSigned) {
  unsigned own = getElementTypeOrSelf(vector).getIntOrFloatBitWidth();
  Type type = vectorOf(b.getIntegerType(bits));
  if (own < bits && !isSigned)
    return arith::ExtUIOp::create(b, type, vector);
  if (own < bits)
    return arith::ExtSIOp::create(b, type, vector);
  if (own > bits)
    return arith::TruncIOp::create(b, type, vector);
  return vector;
}

Value ScoreBody::Evaluator::toVector(const Lanes &lanes, unsigned bits) {
  if (!b.getLanes())
    return lanes.value;
  if (lanes.kind == Lanes::Vector)
    return lanes.isWide ? toWidth(lanes.value, bits) : lanes.value;
  // Neighbouring entries have the first part of a ramp in common.
  bool isRamp = lanes.kind == Lanes::Ramp;
  Value value = isRamp ? lanes.getBase() : lanes.value;
  if (value.getType().isIndex())
    value = arith::IndexCastOp::create(b, b.getIntegerType(bits), value);
  else if (lanes.isWide && bits < 64)
    value = arith::TruncIOp::create(b, b.getIntegerType(bits), value);
  VectorType type = vectorOf(value.getType());
  value = vector::BroadcastOp::create(b, type, value);
  if (!isRamp)
    return value;
  SmallVector<APInt> steps;
  for (int64_t lane = 0; lane < b.getLanes(); ++lane)
    steps.emplace_back(bits, lanes.offset + lane * lanes.step,
                       /*isSigned=*/true);
  return arith::AddIOp::create(
      b, value,
      arith::ConstantOp::create(b, DenseElementsAttr::get(type, steps)));
}

//===----------------------------------------------------------------------===//
// Heads and entries
//===----------------------------------------------------------------------===//

/// What the absolute value of a number of a body is at most, unless it is NaN.
static double getBound(Value value, int depth = 0) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr int kDeepest = 16;
  Operation *op = value.getDefiningOp();
  if (!op || depth == kDeepest)
    return kInfinity;
  if (APFloat number(0.0); matchPattern(op, m_ConstantFloat(&number)))
    return std::abs(number.convertToDouble());
  if (isa<math::TanhOp, math::SinOp, math::CosOp>(op))
    return 1.0;
  auto of = [&](unsigned operand) {
    return getBound(op->getOperand(operand), depth + 1);
  };
  if (isa<arith::NegFOp, math::AbsFOp>(op))
    return of(0);
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return of(0) + of(1);
  if (isa<arith::MulFOp>(op)) {
    double lhs = of(0), rhs = of(1);
    return std::isfinite(lhs) && std::isfinite(rhs) ? lhs * rhs : kInfinity;
  }
  if (isa<arith::SelectOp>(op))
    return std::max(of(1), of(2));
  return kInfinity;
}

bool ScoreBody::mayRemove() const {
  // Far from what counts as removed (SoftmaxAlgebra.h), in base 2.
  constexpr double kMost = 0x1p30;
  return !(getBound(cast<YieldOp>(block->getTerminator()).getScores()) < kMost);
}

void ScoreBody::enterHead(KernelBuilder &b, Value batch, Value head) {
  ofHead = State();
  Evaluator evaluator(b, *this, ofHead);
  ConstantIntRanges number = Evaluator::getRange(0, kMaxScorePositions);
  auto set = [&](unsigned argument, Value value) {
    evaluator.set(block->getArgument(argument),
                  {value, Evaluator::isWide(value.getType()), number});
  };
  set(score_argument::Batch, batch);
  set(score_argument::Head, head);
  for (auto [argument, capture] :
       llvm::zip(block->getArguments().drop_front(score_argument::Captures),
                 captures))
    if (Type type = capture.getType(); !isa<ShapedType>(type))
      evaluator.set(argument, {capture, Evaluator::isWide(type),
                               Evaluator::getUnknown(type)});
  evaluator.run();
}

void ScoreBody::setPlaces(KernelBuilder &b, Evaluator &evaluator, Place query,
                          Place key) {
  auto setPlace = [&](unsigned argument, Place place, int64_t lowest) {
    evaluator.set(block->getArgument(argument),
                  {place.getFirst(b), /*isWide=*/true,
                   Evaluator::getRange(lowest, kMaxScorePositions),
                   place.step ? Lanes::Ramp : Lanes::Uniform, place.step,
                   place.base, place.offset});
  };
  // A query stands before the first key where there are more queries.
  setPlace(score_argument::Query, query, -kMaxScorePositions);
  setPlace(score_argument::Key, key, 0);
}

Value ScoreBody::getMemRef(tensor::ExtractOp read) const {
  auto argument = cast<BlockArgument>(read.getTensor());
  return captures[argument.getArgNumber() - score_argument::Captures];
}

SmallVector<ScoreBody::Lanes> ScoreBody::locate(KernelBuilder &b,
                                                tensor::ExtractOp read,
                                                Place query, Place key) {
  llvm::SmallPtrSet<Operation *, 8> needed;
  SmallVector<Value> open(read.getIndices());
  while (!open.empty())
    if (Operation *op = open.pop_back_val().getDefiningOp())
      if (needed.insert(op).second)
        llvm::append_range(open, op->getOperands());
  State state = ofHead;
  Evaluator evaluator(b, *this, state);
  setPlaces(b, evaluator, query, key);
  evaluator.run(&needed);
  return llvm::map_to_vector(
      read.getIndices(), [&](Value index) { return state.lanes.at(index); });
}

Value ScoreBody::toVector(KernelBuilder &b, const Lanes &lanes, unsigned bits) {
  State none;
  return Evaluator(b, *this, none).toVector(lanes, bits);
}

ScoreBody::Result ScoreBody::evaluate(KernelBuilder &b, Value product,
                                      Place query, Place key) {
  State state = ofHead;
  Evaluator evaluator(b, *this, state);
  setPlaces(b, evaluator, query, key);
  evaluator.set(block->getArgument(score_argument::Score),
                {product, /*isWide=*/false,
                 Evaluator::getUnknown(product.getType()),
                 b.getLanes() ? Lanes::Vector : Lanes::Uniform});
  evaluator.run();
  Value yielded = cast<YieldOp>(block->getTerminator()).getScores();
  Result result = {evaluator.finish(yielded), Value(), {}};
  if (derivatives.score)
    result.derivative = evaluator.finish(derivatives.score);
  for (const ScoreDerivatives::OfRead &each : derivatives.reads) {
    result.readDerivatives.push_back(each.value ? evaluator.finish(each.value)
                                                : b.splat(0.0));
  }
  return result;
}

LogicalResult ScoreBody::expandMath() {
  if (mathOps.empty())
    return success();
  RewritePatternSet patterns(mathOps.front()->getContext());
  populateVectorMathPatterns(patterns);
  GreedyRewriteConfig config;
  config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
  SmallVector<Operation *> ops = std::exchange(mathOps, {});
  return applyOpPatternsGreedily(ops, std::move(patterns), config);
}
