//===- ScoreBody.cpp - Score regions on vectors of entries ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ScoreBody.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/FloorRemainder.h"
#include "fovea/Kernels/VectorMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "mlir/Interfaces/Utils/InferIntRangeCommon.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static ConstantIntRanges getRange(int64_t low, int64_t high) {
  return ConstantIntRanges::fromSigned(APInt(64, low, /*isSigned=*/true),
                                       APInt(64, high, /*isSigned=*/true));
}

static bool fits32(const ConstantIntRanges &range) {
  return range.smin().isSignedIntN(32) && range.smax().isSignedIntN(32);
}

static bool isWide(Type type) { return type.isIndex() || type.isInteger(64); }

static ConstantIntRanges getUnknown(Type type) {
  return ConstantIntRanges::maxRange(
      ConstantIntRanges::getStorageBitwidth(type));
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// Emits the operations of a body whose operands are known.
class ScoreBody::Evaluator {
public:
  Evaluator(KernelBuilder &b, ScoreBody &body, State &state)
      : b(b), body(body), state(state) {}

  void set(Value value, const Lanes &lanes) {
    state.lanes.try_emplace(value, lanes);
  }
  /// Evaluates what depends on nothing else than what is set; of `needed`
  /// alone, unless that is null.
  void run(const llvm::SmallPtrSetImpl<Operation *> *needed = nullptr);
  /// The value in every lane; a wide integer with `bits` bits.
  Value toVector(const Lanes &lanes, unsigned bits);
  /// A value in every lane, in the type of sums; NaN where the body read out of
  /// bounds.
  Value finish(Value value);

private:
  Lanes evaluate(Operation &op);
  ConstantIntRanges inferRange(Operation &op, ArrayRef<Lanes> operands);
  std::optional<Lanes> addRamps(Operation &op, ArrayRef<Lanes> operands,
                                const ConstantIntRanges &range);
  std::optional<Lanes> compareRamps(Operation &op, ArrayRef<Lanes> operands,
                                    const ConstantIntRanges &range);
  Value splitRamp(const Lanes &ramp, int64_t divisor, bool negates,
                  int64_t rest, Value &lanes);
  std::optional<Lanes> takeRemainder(Operation &op);
  std::optional<Lanes> compareRemainder(Operation &op,
                                        const ConstantIntRanges &range);
  Value addProduct(Operation &op, ArrayRef<Value> operands);
  Lanes vectorize(Operation &op, ArrayRef<Lanes> operands,
                  const ConstantIntRanges &range);

  /// Elements of a memref, and in which lanes there is one: null where others
  /// are NaN.
  struct Read {
    Value value, isInside;
  };
  Lanes read(tensor::ExtractOp op);
  Value readScalar(Value memref, ArrayRef<Lanes> at, bool poisons);
  Read readRun(Value memref, ArrayRef<Lanes> at, bool poisons);
  Read gather(Value memref, ArrayRef<Lanes> at, bool poisons);
  Value areInside(Value memref, ArrayRef<Lanes> at);
  void addOutside(Value isInside);
  static bool isUniform(const Lanes &lanes) {
    return lanes.kind == Lanes::Uniform;
  }

  VectorType vectorOf(Type element) {
    return VectorType::get({b.getLanes()}, element);
  }
  Value toWidth(Value vector, unsigned bits, bool isSigned = true);

  KernelBuilder &b;
  ScoreBody &body;
  State &state;
};

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
  for (auto [operand, lanes] : llvm::zip(op.getOperands(), operands))
    mapping.map(operand, lanes.value);
  Value result = b.clone(op, mapping)->getResult(0);
  return {result, isWide(result.getType()), range};
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

/// The sum or difference that `op` is, with a product that nothing else uses,
/// in one instruction: null where it has none.
Value ScoreBody::Evaluator::addProduct(Operation &op,
                                       ArrayRef<Value> operands) {
  if (!isa<arith::AddFOp, arith::SubFOp>(op))
    return Value();
  for (unsigned number : {1, 0}) {
    auto product = op.getOperand(number).getDefiningOp<arith::MulFOp>();
    if (!product || !product->hasOneUse() ||
        state.lanes.at(product).kind != Lanes::Vector)
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
// Captured tensors
//===----------------------------------------------------------------------===//

/// Whether all that an index may be is within a dimension of a memref.
static bool isWithin(Value memref, int64_t dim,
                     const ConstantIntRanges &range) {
  int64_t extent = cast<MemRefType>(memref.getType()).getDimSize(dim);
  return !ShapedType::isDynamic(extent) && range.smin().isNonNegative() &&
         range.smax().slt(extent);
}

/// Whether the score is NaN where `number` is.
static bool makesScoreNaN(Value number) {
  return llvm::any_of(number.getUsers(), [](Operation *user) {
    if (isa<YieldOp>(user))
      return true;
    return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
               arith::NegFOp, arith::ExtFOp, arith::TruncFOp, math::ExpOp,
               math::Exp2Op, math::TanhOp>(user) &&
           makesScoreNaN(user->getResult(0));
  });
}

ScoreBody::Lanes ScoreBody::Evaluator::read(tensor::ExtractOp op) {
  Value memref = body.getMemRef(op);
  SmallVector<Lanes> at;
  for (Value index : op.getIndices())
    at.push_back(state.lanes.at(index));
  Type type = op.getType();
  Lanes result = {Value(), isWide(type), getUnknown(type)};
  // A NaN in place of what is not there takes no instruction behind it.
  bool poisons = b.getLanes() && makesScoreNaN(op);
  if (llvm::all_of(at, isUniform)) {
    result.value = readScalar(memref, at, poisons);
    return result;
  }
  result.kind = Lanes::Vector;
  // The other indices are those of a row.
  bool isRun = at.back().kind == Lanes::Ramp && std::abs(at.back().step) == 1 &&
               llvm::all_of(ArrayRef(at).drop_back(), isUniform) &&
               cast<MemRefType>(memref.getType()).isLastDimUnitStride();
  auto [value, isInside] =
      isRun ? readRun(memref, at, poisons) : gather(memref, at, poisons);
  result.value = value;
  if (isInside)
    addOutside(isInside);
  if (type.isIndex())
    result.value = arith::IndexCastOp::create(b, vectorOf(b.getIntegerType(64)),
                                              result.value);
  return result;
}

/// Whether scalar indices of leading dimensions are within; null where they
/// are known to be.
Value ScoreBody::Evaluator::areInside(Value memref, ArrayRef<Lanes> at) {
  Value all;
  for (auto [dim, index] : llvm::enumerate(at)) {
    if (index.kind != Lanes::Uniform || isWithin(memref, dim, index.range))
      continue;
    // What is negative is large without its sign.
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                         index.value, b.extent(memref, dim));
    all = all ? b.both(all, inside) : inside;
  }
  return all;
}

/// What stands for an element that is not there.
static TypedAttr getMissing(Builder &b, Type type, bool poisons) {
  if (!poisons)
    return b.getZeroAttr(type);
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  TypedAttr nan =
      b.getFloatAttr(element, APFloat::getQNaN(element.getFloatSemantics()));
  auto vector = dyn_cast<VectorType>(type);
  return vector ? DenseElementsAttr::get(vector, Attribute(nan)) : nan;
}

Value ScoreBody::Evaluator::readScalar(Value memref, ArrayRef<Lanes> at,
                                       bool poisons) {
  SmallVector<Value> indices;
  for (const Lanes &index : at)
    indices.push_back(index.value);
  Value isInside = areInside(memref, at);
  if (!isInside)
    return memref::LoadOp::create(b, memref, indices);
  if (!poisons)
    addOutside(isInside);
  Type type = getElementTypeOrSelf(memref);
  return b.select(
      isInside, type,
      [&]() -> Value { return memref::LoadOp::create(b, memref, indices); },
      [&]() -> Value {
        return arith::ConstantOp::create(b, getMissing(b, type, poisons));
      });
}

/// Elements next to each other, one after the other or in the opposite order:
/// as a whole where all of them are there.
ScoreBody::Evaluator::Read
ScoreBody::Evaluator::readRun(Value memref, ArrayRef<Lanes> at, bool poisons) {
  int64_t lanes = b.getLanes(), dim = at.size() - 1;
  bool isReversed = at.back().step < 0;
  Value first =
      isReversed ? b.sub(at.back().value, b.index(lanes - 1)) : at.back().value;
  Value end = b.add(first, lanes);
  auto compare = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    return arith::CmpIOp::create(b, predicate, lhs, rhs);
  };
  Value isWhole =
      b.both(compare(arith::CmpIPredicate::sge, first, b.index(0)),
             compare(arith::CmpIPredicate::sle, end, b.extent(memref, dim)));
  if (Value isInside = areInside(memref, at))
    isWhole = b.both(isWhole, isInside);
  VectorType type = vectorOf(getElementTypeOrSelf(memref));
  VectorType maskType = vectorOf(b.getI1Type());
  SmallVector<Type> types = {type};
  if (!poisons)
    types.push_back(maskType);
  auto choice = scf::IfOp::create(b, types, isWhole,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  SmallVector<Value> indices;
  for (const Lanes &index : at.drop_back())
    indices.push_back(index.value);
  indices.push_back(first);
  Value run = vector::LoadOp::create(b, type, memref, indices);
  if (isReversed) {
    SmallVector<int64_t> order;
    for (int64_t lane = lanes; lane-- > 0;)
      order.push_back(lane);
    run = vector::ShuffleOp::create(b, run, run, order);
  }
  auto yield = [&](Value found, Value isInside) {
    SmallVector<Value> results = {found};
    if (!poisons)
      results.push_back(isInside);
    scf::YieldOp::create(b, results);
  };
  yield(run,
        arith::ConstantOp::create(b, DenseElementsAttr::get(maskType, true)));
  b.setInsertionPointToStart(choice.elseBlock());
  Read read = gather(memref, at, poisons);
  yield(read.value, read.isInside);
  return {choice.getResult(0), poisons ? Value() : choice.getResult(1)};
}

/// Elements anywhere, and which lanes have one; others have zero or NaN.
ScoreBody::Evaluator::Read
ScoreBody::Evaluator::gather(Value memref, ArrayRef<Lanes> at, bool poisons) {
  auto type = cast<MemRefType>(memref.getType());
  // Offsets of several dimensions may be too large for 32 bits.
  bool isNarrow = type.getRank() == 1;
  for (const Lanes &index : at)
    isNarrow &= index.kind == Lanes::Uniform || fits32(index.range);
  unsigned bits = isNarrow ? 32 : 64;
  Type integer = b.getIntegerType(bits);
  VectorType indexType = vectorOf(integer), maskType = vectorOf(b.getI1Type());
  auto broadcast = [&](Value number) -> Value {
    number = arith::IndexCastOp::create(b, integer, number);
    return vector::BroadcastOp::create(b, indexType, number);
  };
  Value mask =
      arith::ConstantOp::create(b, DenseElementsAttr::get(maskType, true));
  if (Value isInside = areInside(memref, at))
    mask = vector::BroadcastOp::create(b, maskType, isInside);
  SmallVector<Value> begin;
  Value offsets;
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  for (auto [dim, index] : llvm::enumerate(at)) {
    bool isScalar = index.kind == Lanes::Uniform;
    begin.push_back(isScalar ? index.value : b.index(0));
    if (isScalar)
      continue;
    Value vector = toVector(index, bits);
    Value extent = b.extent(memref, dim);
    if (isNarrow)
      extent = b.min(extent, std::numeric_limits<int32_t>::max());
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, vector,
                                         broadcast(extent));
    mask = arith::AndIOp::create(b, mask, inside);
    Value stride = getValueOrCreateConstantIndexOp(
        b, b.getLoc(), metadata.getConstifiedMixedStrides()[dim]);
    vector = arith::MulIOp::create(b, vector, broadcast(stride));
    offsets = offsets ? arith::AddIOp::create(b, offsets, vector) : vector;
  }
  VectorType resultType = vectorOf(type.getElementType());
  Value missing =
      arith::ConstantOp::create(b, getMissing(b, resultType, poisons));
  Value gathered = vector::GatherOp::create(b, resultType, memref, begin,
                                            offsets, mask, missing);
  return {gathered, poisons ? Value() : mask};
}

/// Remembers the lanes, or all of them, that are not inside.
void ScoreBody::Evaluator::addOutside(Value isInside) {
  auto constantLike = [&](Value value) -> Value {
    return arith::ConstantOp::create(b, b.getOneAttr(value.getType()));
  };
  Value isOutside = arith::XOrIOp::create(b, isInside, constantLike(isInside));
  Value &all = state.isOutside;
  if (!all) {
    all = isOutside;
    return;
  }
  for (Value *flags : {&all, &isOutside})
    if (!isa<VectorType>(flags->getType()) &&
        (isa<VectorType>(all.getType()) ||
         isa<VectorType>(isOutside.getType())))
      *flags = vector::BroadcastOp::create(b, vectorOf(b.getI1Type()), *flags);
  all = arith::OrIOp::create(b, all, isOutside);
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
  ConstantIntRanges number = getRange(0, kMaxScorePositions);
  auto set = [&](unsigned argument, Value value) {
    evaluator.set(block->getArgument(argument),
                  {value, isWide(value.getType()), number});
  };
  set(score_argument::Batch, batch);
  set(score_argument::Head, head);
  for (auto [argument, capture] :
       llvm::zip(block->getArguments().drop_front(score_argument::Captures),
                 captures))
    if (Type type = capture.getType(); !isa<ShapedType>(type))
      evaluator.set(argument, {capture, isWide(type), getUnknown(type)});
  evaluator.run();
}

void ScoreBody::setPlaces(KernelBuilder &b, Evaluator &evaluator, Place query,
                          Place key) {
  auto setPlace = [&](unsigned argument, Place place, int64_t lowest) {
    evaluator.set(block->getArgument(argument),
                  {place.getFirst(b), /*isWide=*/true,
                   getRange(lowest, kMaxScorePositions),
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
                {product, /*isWide=*/false, getUnknown(product.getType()),
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
  config.setStrictness(GreedyRewriteStrictness::ExistingOps);
  SmallVector<Operation *> ops = std::exchange(mathOps, {});
  return applyOpPatternsGreedily(ops, std::move(patterns), config);
}
