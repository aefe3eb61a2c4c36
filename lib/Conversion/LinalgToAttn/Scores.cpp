//===- Scores.cpp - From a soft-max down to the product of queries and keys
//----- ===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn::detail;

namespace {
/// Walks from scores down to the product, and keeps what it passes.
class ScoreWalk {
public:
  /// A function of scores may take up where the walk ends, or not.
  ScoreWalk(const MatchContext &context, Attention &attention,
            bool takesFunctions)
      : context(context), trace(context.trace), attention(attention),
        takesFunctions(takesFunctions) {}

  std::optional<Product> walk(const Access &start);

private:
  std::optional<Product> walkProduct(const Access &access);
  std::optional<Product> walkFunction(const Access &access,
                                      const Twine &reason);
  std::optional<Product> walkScaled(const Access &access);
  std::optional<Product> walkSum(const Access &access);
  std::optional<Product> walkSelect(const Access &access);
  std::nullopt_t fail(Operation *op, const Twine &reason) {
    return context.progress.end(depth, op, reason);
  }
  std::optional<double> getReal(const Access &access, unsigned operand) {
    return context.cones.evaluateReal(trace,
                                      AccessTrace::getOperand(access, operand));
  }

  const MatchContext &context;
  AccessTrace &trace;
  Attention &attention;
  bool takesFunctions;
  /// Operations passed; the first two belong to the soft-max.
  unsigned depth = 2;
};
} // namespace

std::optional<Product> ScoreWalk::walk(const Access &start) {
  Access access = stripCasts(trace, start);
  ++depth;
  Operation *op = access.getDefiningOp();
  if (!op)
    return fail(attention.op, "the scores are an argument");
  if (access.isTensor() && !AccessTrace::getElementwiseOp(access))
    return walkProduct(access);
  return TypeSwitch<Operation *, std::optional<Product>>(op)
      .Case<arith::MulFOp, arith::DivFOp, arith::NegFOp>(
          [&](Operation *) { return walkScaled(access); })
      .Case<arith::AddFOp, arith::SubFOp>(
          [&](Operation *) { return walkSum(access); })
      .Case([&](arith::SelectOp) { return walkSelect(access); })
      .Default([&](Operation *) {
        return walkFunction(access, "the scores are no product");
      });
}

std::optional<Product> ScoreWalk::walkFunction(const Access &access,
                                               const Twine &reason) {
  if (!takesFunctions)
    return fail(access.getDefiningOp(), reason);
  return matchScoreFunction(context, attention, access, depth);
}

std::optional<Product> ScoreWalk::walkProduct(const Access &access) {
  std::optional<Product> product = matchProduct(trace, access);
  if (!product)
    return fail(access.getDefiningOp(),
                "the scores are no product of queries and keys");
  if (context.cones.evaluateReal(trace, product->init) != 0.0)
    attention.terms.push_back(
        {product->init, product->op, attention.scale, std::nullopt, true});
  return product;
}

std::optional<Product> ScoreWalk::walkScaled(const Access &access) {
  std::optional<ScaledNumber> scaled = matchScaled(context, access);
  if (!scaled)
    return walkFunction(
        access, "the scores are multiplied by numbers that are no constant");
  attention.scale *= scaled->factor;
  return walk(scaled->number);
}

std::optional<Product> ScoreWalk::walkSum(const Access &access) {
  Operation *op = access.getDefiningOp();
  // A soft-max does not see what is subtracted from a whole row; a guard of it
  // does, and a sink, from which nothing is subtracted.
  if (isa<arith::SubFOp>(op) && !attention.softmax.isGuarded &&
      !attention.softmax.sink &&
      !dependsOn(trace, AccessTrace::getOperand(access, 1),
                 attention.softmax.axis))
    return walk(AccessTrace::getOperand(access, 0));
  double scale = attention.scale;
  size_t numTerms = attention.terms.size();
  unsigned at = depth;
  for (unsigned k : {0, 1}) {
    bool isNegated = k == 1 && isa<arith::SubFOp>(op);
    attention.scale = isNegated ? -scale : scale;
    double factor = k == 0 && isa<arith::SubFOp>(op) ? -scale : scale;
    attention.terms.push_back({AccessTrace::getOperand(access, 1 - k), op,
                               factor, std::nullopt, true});
    if (std::optional<Product> product =
            walk(AccessTrace::getOperand(access, k)))
      return product;
    attention.scale = scale;
    attention.terms.truncate(numTerms);
    depth = at;
  }
  return std::nullopt;
}

std::optional<Product> ScoreWalk::walkSelect(const Access &access) {
  Operation *op = access.getDefiningOp();
  auto type = cast<FloatType>(getElementTypeOrSelf(op->getResult(0)));
  for (unsigned k : {2, 1}) {
    std::optional<double> hidden = getReal(access, k);
    if (!hidden)
      continue;
    if (!isHidden(*hidden, attention.scale, type))
      return walkFunction(access, "scores are replaced by " +
                                      std::to_string(*hidden) +
                                      ", which does not hide them");
    attention.terms.push_back({AccessTrace::getOperand(access, 0), op, 1,
                               *hidden * attention.scale, k == 2, true});
    return walk(AccessTrace::getOperand(access, 3 - k));
  }
  return walkFunction(access,
                      "scores are replaced by numbers that are no constant");
}

bool fovea::attn::detail::isHidden(double number, double scale,
                                   FloatType type) {
  double lowest =
      -llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
  return number <= std::max(-1e9, lowest) && number * scale <= -1e4;
}

std::optional<Product>
fovea::attn::detail::matchScores(const MatchContext &context,
                                 Attention &attention) {
  // What is no function of scores is a mask or a term, which cost less.
  for (bool takesFunctions : {false, true}) {
    attention.scale = attention.softmax.factor;
    attention.terms.clear();
    ScoreWalk walk(context, attention, takesFunctions);
    if (std::optional<Product> product = walk.walk(attention.softmax.scores))
      return product;
  }
  return std::nullopt;
}
