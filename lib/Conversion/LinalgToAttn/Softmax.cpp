//===- Softmax.cpp - Products and soft-max in linalg ---------------------------
//===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn::detail;

/// Of scores, more sums are not looked at.
static constexpr unsigned kMaxTerms = 16;

std::nullopt_t Progress::end(unsigned newDepth, Operation *newOp,
                             const Twine &newReason) {
  if (!op || newDepth > depth) {
    op = newOp;
    reason = newReason.str();
    depth = newDepth;
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

namespace {
/// What the body of a reduction combines with the sum so far.
struct ReducedTerm {
  linalg::LinalgOp op;
  IndexLists loops;
  Access term;
  Access init;
  AtomSet reduced;
};
} // namespace

/// The scalar that the body combines by an `OpTy` with the result so far.
template <typename OpTy>
static Value getReducedScalar(linalg::LinalgOp op, unsigned result) {
  OpOperand *init = op.getDpsInitOperand(result);
  BlockArgument sum = op.getMatchingBlockArgument(init);
  auto combine = op.getMatchingYieldValue(init)->get().getDefiningOp<OpTy>();
  if (!combine || combine->getBlock() != op.getBlock() ||
      (combine.getLhs() == sum) == (combine.getRhs() == sum))
    return nullptr;
  return combine.getLhs() == sum ? combine.getRhs() : combine.getLhs();
}

template <typename OpTy>
static std::optional<ReducedTerm> matchReduction(AccessTrace &trace,
                                                 const Access &result) {
  auto op = result.value.getDefiningOp<linalg::LinalgOp>();
  if (!op || op.getNumReductionLoops() == 0)
    return std::nullopt;
  unsigned number = cast<OpResult>(result.value).getResultNumber();
  Value scalar = getReducedScalar<OpTy>(op, number);
  if (!scalar)
    return std::nullopt;
  auto loops = trace.getLoops(op, number, result.indices);
  if (!loops)
    return std::nullopt;
  OpOperand *init = op.getDpsInitOperand(number);
  ReducedTerm found{
      op, *loops, {scalar, *loops}, {init->get(), result.indices}, {}};
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  for (unsigned loop : reduced)
    found.reduced.insert_range((*loops)[loop]);
  return found;
}

static bool isZero(const MatchContext &context, const Access &access) {
  return context.cones.evaluateReal(context.trace, access) == 0.0;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The operands that the body multiplies, in the order of the inputs.
static bool getFactors(linalg::LinalgOp op, Value scalar,
                       OpOperand *(&factors)[2]) {
  auto product = scalar.getDefiningOp<arith::MulFOp>();
  if (!product || op.getNumDpsInputs() != 2)
    return false;
  for (auto [value, factor] :
       llvm::zip_equal(product->getOperands(), factors)) {
    Value read = value;
    while (auto extension = read.getDefiningOp<arith::ExtFOp>())
      read = extension.getIn();
    auto argument = dyn_cast<BlockArgument>(read);
    if (!argument || argument.getOwner() != op.getBlock() ||
        argument.getArgNumber() >= 2)
      return false;
    factor = op.getMatchingOpOperand(argument);
  }
  return factors[0] != factors[1];
}

bool fovea::attn::detail::isProduct(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op->getNumResults() != 1 ||
      op.getNumReductionLoops() == 0)
    return false;
  OpOperand *factors[2];
  Value scalar = getReducedScalar<arith::AddFOp>(op, 0);
  return scalar && getFactors(op, scalar, factors);
}

std::optional<Product> fovea::attn::detail::matchProduct(AccessTrace &trace,
                                                         const Access &result) {
  std::optional<ReducedTerm> sum = matchReduction<arith::AddFOp>(trace, result);
  OpOperand *operands[2];
  if (!sum || !getFactors(sum->op, sum->term.value, operands))
    return std::nullopt;
  Product product{sum->op, {}, sum->init, sum->reduced};
  for (auto [operand, factor] : llvm::zip_equal(operands, product.factors)) {
    std::optional<Access> read =
        AccessTrace::read(sum->op, operand, sum->loops);
    if (!read)
      return std::nullopt;
    factor = *read;
  }
  return product;
}

//===----------------------------------------------------------------------===//
// Soft-max
//===----------------------------------------------------------------------===//

Access fovea::attn::detail::stripCasts(AccessTrace &trace, Access access) {
  access = trace.open(access);
  while (
      isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(access.getDefiningOp()))
    access = trace.open(AccessTrace::getOperand(access, 0));
  return access;
}

std::optional<ScaledNumber>
fovea::attn::detail::matchScaled(const MatchContext &context,
                                 const Access &number) {
  Operation *op = number.getDefiningOp();
  if (isa_and_nonnull<arith::NegFOp>(op))
    return ScaledNumber{-1, AccessTrace::getOperand(number, 0)};
  if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op))
    return std::nullopt;
  bool isDivision = isa<arith::DivFOp>(op);
  for (unsigned k : {1, 0}) {
    std::optional<double> factor = context.cones.evaluateReal(
        context.trace, AccessTrace::getOperand(number, k));
    if (factor && std::isfinite(*factor) && *factor != 0)
      return ScaledNumber{isDivision ? 1 / *factor : *factor,
                          AccessTrace::getOperand(number, 1 - k)};
    if (isDivision)
      break;
  }
  return std::nullopt;
}

bool fovea::attn::detail::dependsOn(AccessTrace &trace, const Access &access,
                                    const AtomSet &set) {
  AtomSet found = trace.getDependencies(access);
  return llvm::any_of(trace.resolve(set),
                      [&](Atom atom) { return found.contains(atom); });
}

namespace {
/// Numerator and denominator of a quotient.
struct Quotient {
  Access numerator, denominator;
  Operation *op;
};
} // namespace

/// `a / b`, or `a * (1 / b)`.
static std::optional<Quotient> matchQuotient(const MatchContext &context,
                                             const Access &access) {
  Operation *op = access.getDefiningOp();
  if (isa_and_nonnull<arith::DivFOp>(op))
    return Quotient{AccessTrace::getOperand(access, 0),
                    AccessTrace::getOperand(access, 1), op};
  if (!isa_and_nonnull<arith::MulFOp>(op))
    return std::nullopt;
  for (unsigned k : {0, 1}) {
    Access inverse =
        stripCasts(context.trace, AccessTrace::getOperand(access, k));
    if (!isa_and_nonnull<arith::DivFOp>(inverse.getDefiningOp()))
      continue;
    if (context.cones.evaluateReal(context.trace,
                                   AccessTrace::getOperand(inverse, 0)) == 1.0)
      return Quotient{AccessTrace::getOperand(access, 1 - k),
                      AccessTrace::getOperand(inverse, 1), op};
  }
  return std::nullopt;
}

/// The atoms of `whole` that `reduction` runs over when its terms are `whole`;
/// none if they are not.
static std::optional<AtomSet> matchTerms(const MatchContext &context,
                                         const Access &whole,
                                         const Access &result,
                                         const ReducedTerm &reduction) {
  DenseMap<Atom, Atom> bound;
  AccessTrace &trace = context.trace;
  if (!trace.isSame(whole, stripCasts(trace, reduction.term), reduction.reduced,
                    bound))
    return std::nullopt;
  AtomSet axis;
  AtomSet outside = trace.getAtoms(result);
  for (Atom atom : reduction.reduced) {
    for (Atom digit : trace.resolve({atom})) {
      auto found = bound.find(digit);
      if (found == bound.end())
        return std::nullopt;
      for (Atom target : trace.resolve({found->second}))
        if (outside.contains(target) || !axis.insert(target))
          return std::nullopt;
    }
  }
  return axis;
}

/// The number that the condition compares with -inf.
static std::optional<Access> matchIsHidden(const MatchContext &context,
                                           const Access &condition) {
  auto comparison = dyn_cast_or_null<arith::CmpFOp>(condition.getDefiningOp());
  if (!comparison || comparison.getPredicate() != arith::CmpFPredicate::OEQ)
    return std::nullopt;
  for (unsigned k : {0, 1})
    if (context.cones.evaluateReal(context.trace,
                                   AccessTrace::getOperand(condition, 1 - k)) ==
        -std::numeric_limits<double>::infinity())
      return AccessTrace::getOperand(condition, k);
  return std::nullopt;
}

/// Whether the largest along the axis of scores, or of what is added to them,
/// is -inf: so are all scores.
static bool matchLargestGuard(const MatchContext &context,
                              const Access &condition, const Access &scores,
                              const AtomSet &axis) {
  AccessTrace &trace = context.trace;
  std::optional<Access> largest = matchIsHidden(context, condition);
  if (!largest)
    return false;
  largest = stripCasts(trace, *largest);
  std::optional<ReducedTerm> reduction =
      matchReduction<arith::MaximumFOp>(trace, *largest);
  if (!reduction || context.cones.evaluateReal(trace, reduction->init) !=
                        -std::numeric_limits<double>::infinity())
    return false;
  SmallVector<Access> terms = {scores};
  for (unsigned k = 0; k < terms.size() && terms.size() < kMaxTerms; ++k) {
    Access term = stripCasts(trace, terms[k]);
    std::optional<AtomSet> found =
        matchTerms(context, term, *largest, *reduction);
    if (found && *found == axis)
      return true;
    if (isa_and_nonnull<arith::AddFOp>(term.getDefiningOp()))
      for (unsigned operand : {0, 1})
        terms.push_back(AccessTrace::getOperand(term, operand));
  }
  return false;
}

/// Whether `condition` says that all scores along the axis are -inf.
static bool matchGuard(const MatchContext &context, const Access &condition,
                       const Access &scores, const AtomSet &axis) {
  AccessTrace &trace = context.trace;
  Access all = trace.open(condition);
  std::optional<ReducedTerm> reduction =
      matchReduction<arith::AndIOp>(trace, all);
  if (!reduction)
    return matchLargestGuard(context, all, scores, axis);
  std::optional<ConstantTensor> init =
      context.cones.evaluate(trace, reduction->init);
  if (!init || init->elements.front().integer != 1)
    return false;
  std::optional<Access> hidden =
      matchIsHidden(context, trace.open(reduction->term));
  if (!hidden)
    return false;
  reduction->term = *hidden;
  std::optional<AtomSet> found = matchTerms(context, scores, all, *reduction);
  return found && *found == axis;
}

/// Scores without what is subtracted from a whole row: a soft-max is the same.
static Access stripShifts(AccessTrace &trace, Access scores,
                          const AtomSet &axis) {
  while (true) {
    scores = stripCasts(trace, scores);
    if (!isa_and_nonnull<arith::SubFOp>(scores.getDefiningOp()))
      return scores;
    if (dependsOn(trace, AccessTrace::getOperand(scores, 1), axis))
      return scores;
    scores = AccessTrace::getOperand(scores, 0);
  }
}

/// linalg.softmax, which is all of it in one operation.
static std::optional<Softmax> matchSoftmaxOp(AccessTrace &trace,
                                             const Access &weights) {
  auto op = weights.value.getDefiningOp<linalg::SoftmaxOp>();
  if (!op || !weights.isTensor())
    return std::nullopt;
  Softmax softmax{{op.getInput(), weights.indices}, {}, op};
  softmax.axis.insert_range(trace.resolve(weights.indices[op.getDimension()]));
  return softmax;
}

/// The dimension along which a slice leaves out elements, if it is one.
static std::optional<unsigned> getSlicedDim(const AccessTrace &trace,
                                            tensor::ExtractSliceOp slice) {
  SmallVector<int64_t> from = trace.getShape(slice.getSource());
  SmallVector<int64_t> to = trace.getShape(slice.getResult());
  if (from.size() != to.size() ||
      llvm::any_of(slice.getStaticStrides(),
                   [](int64_t stride) { return stride != 1; }))
    return std::nullopt;
  std::optional<unsigned> sliced;
  for (auto [dim, extent] : llvm::enumerate(from)) {
    if (extent == to[dim])
      continue;
    if (sliced)
      return std::nullopt;
    sliced = dim;
  }
  return sliced;
}

/// Where the slice begins, as extents are written.
static int64_t getOffset(const AccessTrace &trace, tensor::ExtractSliceOp slice,
                         unsigned dim) {
  if (SymbolicExtents *symbols = trace.getSymbols())
    return symbols->get(slice.getMixedOffsets()[dim]);
  return slice.getStaticOffsets()[dim];
}

/// A soft-max over scores and one more, whose weight is dropped: a sink.
static std::optional<Softmax> matchSunkSoftmax(const MatchContext &context,
                                               const Access &kept,
                                               tensor::ExtractSliceOp slice) {
  AccessTrace &trace = context.trace;
  std::optional<unsigned> dim = getSlicedDim(trace, slice);
  if (!dim)
    return std::nullopt;
  Access whole{slice.getSource(), kept.indices};
  auto getExtent = [&](Value tensor, unsigned dim) {
    return trace.getShape(tensor)[dim];
  };
  whole.indices[*dim] = trace.addIndex(getExtent(slice.getSource(), *dim));
  std::optional<Softmax> softmax = matchSoftmax(context, whole);
  if (!softmax)
    return std::nullopt;
  auto fail = [&] {
    return context.progress.end(
        2, slice, "the weights that are dropped are not of one sink");
  };
  const IndexList index = trace.resolve(whole.indices[*dim]);
  AtomSet axis;
  axis.insert_range(index);
  while (std::optional<ScaledNumber> scaled =
             matchScaled(context, softmax->scores)) {
    softmax->factor *= scaled->factor;
    // A guard sees what is subtracted.
    softmax->scores = softmax->isGuarded
                          ? stripCasts(trace, scaled->number)
                          : stripShifts(trace, scaled->number, softmax->axis);
  }
  auto concat = softmax->scores.value.getDefiningOp<tensor::ConcatOp>();
  if (softmax->axis.getArrayRef() != axis.getArrayRef() || softmax->sink ||
      !concat || concat.getInputs().size() != 2 ||
      trace.resolve(softmax->scores.indices[concat.getDim()]) != index)
    return fail();
  // Scores are where weights are kept, and one sink is before or behind.
  int64_t begin = 0;
  std::optional<unsigned> scores;
  const int64_t offset = getOffset(trace, slice, *dim);
  for (auto [number, input] : llvm::enumerate(concat.getInputs())) {
    int64_t size = getExtent(input, concat.getDim());
    if (begin == offset && size == getExtent(slice.getResult(), *dim))
      scores = number;
    else if (size != 1)
      return fail();
    begin += size;
  }
  if (!scores)
    return fail();
  IndexLists indices = softmax->scores.indices;
  indices[concat.getDim()].clear();
  softmax->sink = Access{concat.getInputs()[1 - *scores], indices};
  indices[concat.getDim()] = kept.indices[*dim];
  softmax->scores = Access{concat.getInputs()[*scores], indices};
  softmax->axis.clear();
  softmax->axis.insert_range(trace.resolve(kept.indices[*dim]));
  return softmax;
}

static constexpr StringLiteral kNoGuard =
    "weights are set to zero, but not where all scores are -inf";

std::optional<Softmax>
fovea::attn::detail::matchSoftmax(const MatchContext &context,
                                  const Access &start) {
  AccessTrace &trace = context.trace;
  Progress &progress = context.progress;
  Access weights = stripCasts(trace, start);
  if (auto slice = weights.value.getDefiningOp<tensor::ExtractSliceOp>())
    return matchSunkSoftmax(context, weights, slice);
  if (std::optional<Softmax> softmax = matchSoftmaxOp(trace, weights)) {
    progress.softmax = softmax->quotient;
    return softmax;
  }
  std::optional<Access> condition;
  if (isa_and_nonnull<arith::SelectOp>(weights.getDefiningOp()) &&
      isZero(context, AccessTrace::getOperand(weights, 1))) {
    condition = AccessTrace::getOperand(weights, 0);
    weights = stripCasts(trace, AccessTrace::getOperand(weights, 2));
    if (std::optional<Softmax> softmax = matchSoftmaxOp(trace, weights)) {
      progress.softmax = softmax->quotient;
      if (!matchGuard(context, *condition, softmax->scores, softmax->axis))
        return progress.end(1, softmax->quotient, kNoGuard);
      softmax->isGuarded = true;
      return softmax;
    }
  }
  std::optional<Quotient> quotient = matchQuotient(context, weights);
  if (!quotient)
    return std::nullopt;
  Access numerator = stripCasts(trace, quotient->numerator);
  Operation *exp = numerator.getDefiningOp();
  if (!isa_and_nonnull<math::ExpOp, math::Exp2Op>(exp))
    return std::nullopt;
  progress.softmax = quotient->op;

  Access denominator = stripCasts(trace, quotient->denominator);
  std::optional<ReducedTerm> sum =
      matchReduction<arith::AddFOp>(trace, denominator);
  if (!sum || !isZero(context, sum->init))
    return progress.end(1, quotient->op,
                        "what it divides by is not a sum of exponentials");
  std::optional<AtomSet> axis =
      matchTerms(context, numerator, denominator, *sum);
  if (!axis)
    return progress.end(1, sum->op,
                        "the sum is not one of the exponentials divided");
  Softmax softmax{
      stripShifts(trace, AccessTrace::getOperand(numerator, 0), *axis), *axis,
      quotient->op};
  if (isa<math::Exp2Op>(exp))
    softmax.factor = llvm::numbers::ln2;
  if (condition) {
    if (!matchGuard(context, *condition, softmax.scores, *axis))
      return progress.end(1, weights.getDefiningOp(), kNoGuard);
    softmax.isGuarded = true;
  }
  return softmax;
}
