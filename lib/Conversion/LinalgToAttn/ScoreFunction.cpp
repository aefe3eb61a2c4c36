//===- ScoreFunction.cpp - Functions of scores as score regions -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessWriter.h"
#include "Attention.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include <array>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// More steps are not looked for: a step that is used twice is two.
static constexpr unsigned kMaxSteps = 64;
static constexpr unsigned kMaxVisits = 4096;

//===----------------------------------------------------------------------===//
// Match
//===----------------------------------------------------------------------===//

namespace {
/// Writes down how a number is computed from a product.
class FunctionMatcher {
public:
  FunctionMatcher(const MatchContext &context, Attention &attention,
                  unsigned depth)
      : context(context), trace(context.trace), attention(attention),
        depth(depth) {}

  std::optional<Product> match(const Access &number);

private:
  bool add(const Access &number);
  bool addOperation(const Access &number);
  bool isFunction(const Access &number);
  std::optional<double> matchScore(const Access &number);
  bool isScoreProduct(const Product &product);
  bool fail(Operation *op, const Twine &reason) {
    context.progress.end(depth + 1, op, reason);
    return false;
  }

  const MatchContext &context;
  AccessTrace &trace;
  Attention &attention;
  unsigned depth;
  unsigned numVisits = 0;
  SmallVector<FunctionStep> steps;
  /// The product that the function is of, once there is one.
  std::optional<Product> product;
  Access productAccess;
};
} // namespace

/// Whether one factor, and only one, differs from key to key.
bool FunctionMatcher::isScoreProduct(const Product &product) {
  const AtomSet axis = trace.resolve(attention.softmax.axis);
  bool hasAxis[2];
  for (auto [factor, has] : llvm::zip_equal(product.factors, hasAxis))
    has = llvm::any_of(trace.getAtoms(factor),
                       [&](Atom atom) { return axis.contains(atom); });
  return hasAxis[0] != hasAxis[1] &&
         context.cones.evaluateReal(trace, product.init) == 0.0;
}

/// What the product is multiplied by, if the number is the product times a
/// constant.
std::optional<double> FunctionMatcher::matchScore(const Access &number) {
  double factor = 1;
  Access access = stripCasts(trace, number);
  while (std::optional<ScaledNumber> scaled = matchScaled(context, access)) {
    factor *= scaled->factor;
    access = stripCasts(trace, scaled->number);
  }
  std::optional<Product> found = matchProduct(trace, access);
  if (!found || !isScoreProduct(*found))
    return std::nullopt;
  DenseMap<Atom, Atom> bound;
  if (!product) {
    product = found;
    productAccess = access;
  } else if (!trace.isSame(productAccess, access, {}, bound)) {
    return std::nullopt;
  }
  return factor;
}

/// Whether the number is computed from the product.
bool FunctionMatcher::isFunction(const Access &number) {
  if (++numVisits > kMaxVisits)
    return false;
  Access access = stripCasts(trace, number);
  if (matchScore(access))
    return true;
  Operation *op = AccessTrace::getElementwiseOp(access);
  return op && llvm::any_of(llvm::seq(op->getNumOperands()), [&](unsigned k) {
           return isFunction(AccessTrace::getOperand(access, k));
         });
}

/// Adds the steps that compute the number, itself the last.
bool FunctionMatcher::add(const Access &number) {
  using Kind = FunctionStep::Kind;
  Access access = stripCasts(trace, number);
  if (std::optional<double> constant =
          context.cones.evaluateReal(trace, access)) {
    steps.push_back({Kind::Constant, *constant, {}, nullptr, {}});
    return true;
  }
  if (std::optional<double> factor = matchScore(access)) {
    steps.push_back({Kind::Score, *factor, {}, nullptr, {}});
    return true;
  }
  if (isFunction(access))
    return addOperation(access);
  Operation *op = access.getDefiningOp();
  if (!op)
    op = attention.op;
  if (!isa<FloatType>(getElementTypeOrSelf(access.value)))
    return fail(op, "functions of scores read floating point alone");
  if (!AccessWriter::canWrite(trace, access))
    return fail(op, "what a function of scores reads is no tensor");
  steps.push_back({Kind::Number, 1, access, nullptr, {}});
  return true;
}

/// Whether the operation is the same in a score region, where numbers of
/// floating point have one type.
static bool isOfScores(Operation *op) {
  auto isScore = [](Type type) {
    Type element = getElementTypeOrSelf(type);
    return isa<FloatType>(element) || element.isInteger(1);
  };
  return isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !isa<arith::BitcastOp>(op) && op->getNumResults() == 1 &&
         llvm::all_of(op->getOperandTypes(), isScore) &&
         isScore(op->getResult(0).getType());
}

bool FunctionMatcher::addOperation(const Access &number) {
  Operation *op = number.getDefiningOp();
  if (!isOfScores(op))
    return fail(op, "attn.dense has no such function of scores");
  FunctionStep step{FunctionStep::Kind::Operation, 1, {}, op, {}};
  for (unsigned k : llvm::seq(op->getNumOperands())) {
    if (!add(AccessTrace::getOperand(number, k)))
      return false;
    step.operands.push_back(steps.size() - 1);
  }
  if (steps.size() >= kMaxSteps)
    return fail(op, "the function of scores has too many operations");
  steps.push_back(step);
  return true;
}

std::optional<Product> FunctionMatcher::match(const Access &number) {
  Operation *op = number.getDefiningOp();
  auto end = [&](const Twine &reason) {
    fail(op, reason);
    return std::nullopt;
  };
  if (!isFunction(number))
    return end("the scores are no product of queries and keys");
  auto getKnownExtent = [&](const AtomSet &atoms) {
    return trace.getExtent(llvm::filter_to_vector<2>(
        atoms, [&](Atom atom) { return trace.isStatic(atom); }));
  };
  if (std::max(getKnownExtent(attention.softmax.axis),
               getKnownExtent(trace.getAtoms(number))) >= kMaxScorePositions)
    return end("functions of scores are of fewer positions");
  if (!add(number))
    return std::nullopt;
  // The scale of the attention is that of the score that comes first.
  double scale = 1;
  for (const FunctionStep &step : llvm::reverse(steps))
    if (step.kind == FunctionStep::Kind::Score)
      scale = step.constant;
  for (FunctionStep &step : steps)
    if (step.kind == FunctionStep::Kind::Score)
      step.constant /= scale;
  attention.function = {steps, attention.scale};
  attention.scale = scale;
  return product;
}

std::optional<Product>
fovea::attn::detail::matchScoreFunction(const MatchContext &context,
                                        Attention &attention,
                                        const Access &number, unsigned depth) {
  return FunctionMatcher(context, attention, depth).match(number);
}

bool fovea::attn::detail::mayHideScores(const ScoreFunction &function) {
  return function && !isa_and_nonnull<math::TanhOp>(function.steps.back().op);
}

//===----------------------------------------------------------------------===//
// Write
//===----------------------------------------------------------------------===//

SmallVector<Value>
fovea::attn::detail::writeCaptures(OpBuilder &builder, AccessWriter &writer,
                                   const Attention &attention, FloatType type) {
  SmallVector<Value> captures;
  auto write = [&](const Access &number) {
    return writer.writeSmallest(number, {attention.batch, attention.heads(),
                                         attention.rows, attention.columns});
  };
  for (const FunctionStep &step : attention.function.steps)
    if (step.kind == FunctionStep::Kind::Number)
      captures.push_back(writer.convert(write(step.number), type));
  for (const EntryCondition &condition : attention.conditions) {
    captures.push_back(write(condition.query));
    captures.push_back(write(condition.key));
  }
  return captures;
}

/// Reads a captured tensor at the place of the entry.
static Value readCapture(OpBuilder &b, Location loc, Block &block,
                         Value capture, int64_t offset) {
  auto constant = [&](int64_t number) -> Value {
    return arith::ConstantIndexOp::create(b, loc, number);
  };
  // Of its own, since a loop keeps no list of initializers alive.
  const std::array positions = {score_argument::Batch, score_argument::Head,
                                score_argument::Query, score_argument::Key};
  SmallVector<Value> at;
  for (auto [number, extent] : llvm::zip_equal(
           positions, cast<RankedTensorType>(capture.getType()).getShape())) {
    Value index = extent == 1 ? constant(0) : block.getArgument(number);
    if (number == score_argument::Query && extent != 1 && offset != 0)
      index = arith::SubIOp::create(b, loc, index, constant(offset));
    at.push_back(index);
  }
  return tensor::ExtractOp::create(b, loc, capture, at);
}

void fovea::attn::detail::writeScoreRegion(const Attention &attention,
                                           Region &region, FloatType type,
                                           ValueRange captures,
                                           int64_t offset) {
  Location loc = attention.op->getLoc();
  OpBuilder b(region.getContext());
  SmallVector<Type> types = {type};
  types.append(4, b.getIndexType());
  llvm::append_range(types, captures.getTypes());
  Block *block = b.createBlock(&region, {}, types,
                               SmallVector<Location>(types.size(), loc));
  Value score = block->getArgument(score_argument::Score);
  ArrayRef<BlockArgument> captured =
      block->getArguments().drop_front(score_argument::Captures);
  auto scaled = [&](Value number, double factor) -> Value {
    if (factor == 1)
      return number;
    Value constant =
        arith::ConstantOp::create(b, loc, b.getFloatAttr(type, factor));
    return arith::MulFOp::create(b, loc, number, constant);
  };
  SmallVector<Value> values;
  for (const FunctionStep &step : attention.function.steps) {
    switch (step.kind) {
    case FunctionStep::Kind::Score:
      values.push_back(scaled(score, step.constant));
      break;
    case FunctionStep::Kind::Constant:
      values.push_back(arith::ConstantOp::create(
          b, loc, b.getFloatAttr(type, step.constant)));
      break;
    case FunctionStep::Kind::Number:
      values.push_back(
          readCapture(b, loc, *block, captured.consume_front(), offset));
      break;
    case FunctionStep::Kind::Operation:
      Type result = getElementTypeOrSelf(step.op->getResult(0));
      SmallVector<Value> operands = llvm::map_to_vector(
          step.operands, [&](unsigned number) { return values[number]; });
      values.push_back(b.create(loc, step.op->getName().getIdentifier(),
                                operands,
                                {isa<FloatType>(result) ? Type(type) : result},
                                step.op->getAttrs())
                           ->getResult(0));
      break;
    }
  }
  if (attention.function)
    score = scaled(values.back(), attention.function.factor);
  for (const EntryCondition &condition : attention.conditions) {
    Value query = readCapture(b, loc, *block, captured.consume_front(), offset);
    Value key = readCapture(b, loc, *block, captured.consume_front(), offset);
    Value admits =
        arith::CmpIOp::create(b, loc, condition.predicate, query, key);
    Value hidden = arith::ConstantOp::create(
        b, loc, b.getFloatAttr(type, -std::numeric_limits<double>::infinity()));
    score = arith::SelectOp::create(b, loc, admits, score, hidden);
  }
  YieldOp::create(b, loc, score);
}
