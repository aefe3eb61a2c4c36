//===- TileScore.cpp - Score regions, tile by tile ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/TileScore.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

static bool isRemoved(Value value) {
  return matchPattern(value, m_NegInfFloat());
}

/// Whether `value` depends on positions or on the score.
static bool differsInHead(Value value) {
  SmallVector<Value> open = {value};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!open.empty()) {
    Value next = open.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      unsigned number = argument.getArgNumber();
      if (number == score_argument::Score || number == score_argument::Query ||
          number == score_argument::Key)
        return true;
    } else if (seen.insert(next.getDefiningOp()).second) {
      llvm::append_range(open, next.getDefiningOp()->getOperands());
    }
  }
  return false;
}

/// Whether `value` is the score of a region, with what is added and removed,
/// and nothing else uses any of these.
static bool isSumWithScore(Value value) {
  if (!value.hasOneUse())
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getArgNumber() == score_argument::Score;
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    Value yes = select.getTrueValue(), no = select.getFalseValue();
    return isRemoved(yes) ? isSumWithScore(no)
                          : isRemoved(no) && isSumWithScore(yes);
  }
  if (auto sum = value.getDefiningOp<arith::AddFOp>())
    return isSumWithScore(sum.getLhs()) || isSumWithScore(sum.getRhs());
  auto difference = value.getDefiningOp<arith::SubFOp>();
  return difference && isSumWithScore(difference.getLhs());
}

bool fovea::attn::addsToScore(Region &score) {
  return isSumWithScore(getYieldedScore(score));
}

namespace {
/// Brings what a region yields to base 2.
struct Rebase {
  OpBuilder b;
  /// Whether its score is an exponent of 2 already.
  bool isInBase2;

  Value constant(Value like, double number) {
    auto type = cast<FloatType>(like.getType());
    return arith::ConstantOp::create(b, like.getLoc(),
                                     b.getFloatAttr(type, number));
  }
  Value run(Value value);
  Value multiply(Value value);
};
} // namespace

Value Rebase::run(Value value) {
  Location loc = value.getLoc();
  if (isInBase2 && isa<BlockArgument>(value))
    return value;
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    Value yes = select.getTrueValue(), no = select.getFalseValue();
    if (isRemoved(yes) || isRemoved(no))
      return arith::SelectOp::create(b, loc, select.getCondition(),
                                     isRemoved(yes) ? yes : run(yes),
                                     isRemoved(no) ? no : run(no));
  }
  if (!isInBase2)
    return multiply(value);
  Operation *sum = value.getDefiningOp();
  Value lhs = sum->getOperand(0), rhs = sum->getOperand(1);
  bool isLeft = isSumWithScore(lhs);
  lhs = isLeft ? run(lhs) : multiply(lhs);
  rhs = isLeft ? multiply(rhs) : run(rhs);
  if (isa<arith::SubFOp>(sum))
    return arith::SubFOp::create(b, loc, lhs, rhs);
  return arith::AddFOp::create(b, loc, lhs, rhs);
}

/// `value` times log2(e), which goes into a factor of it that is constant, or
/// else into one that is the same for all entries of a head.
Value Rebase::multiply(Value value) {
  auto scale = [&](Value factor) -> Value {
    return arith::MulFOp::create(b, value.getLoc(), factor,
                                 constant(factor, softmax::kLog2E));
  };
  auto product = value.getDefiningOp<arith::MulFOp>();
  if (!product)
    return scale(value);
  Value lhs = product.getLhs(), rhs = product.getRhs();
  APFloat factor(0.0);
  if (matchPattern(lhs, m_ConstantFloat(&factor)))
    std::swap(lhs, rhs);
  if (matchPattern(rhs, m_ConstantFloat(&factor))) {
    constexpr double kMost = 0x1p64; // far from overflow
    if (std::abs(factor.convertToDouble()) >= kMost)
      return scale(value);
    rhs = constant(rhs, factor.convertToDouble() * softmax::kLog2E);
    return arith::MulFOp::create(b, value.getLoc(), lhs, rhs);
  }
  if (differsInHead(rhs))
    std::swap(lhs, rhs);
  if (differsInHead(rhs))
    return scale(value);
  return arith::MulFOp::create(b, value.getLoc(), lhs, scale(rhs));
}

/// What becomes unused may be a derivative, and stays.
static Region &rebase(Region &score, ScoreBase base) {
  if (base == ScoreBase::Natural)
    return score;
  Operation *yield = score.front().getTerminator();
  Rebase rebase = {OpBuilder(yield), base == ScoreBase::InBase2};
  yield->setOperand(0, rebase.run(getYieldedScore(score)));
  return score;
}

TileScore::TileScore(Region &score, ValueRange captures, ScoreBase base)
    : body(rebase(score, base), captures), admission(score, captures),
      admittedBody(static_cast<Block *>(nullptr), captures) {
  setDerivatives({});
}

static bool isOne(Value number) {
  return number && matchPattern(number, m_OneFloat());
}

void TileScore::setDerivatives(const ScoreDerivatives &derivatives) {
  body.setDerivatives(derivatives);
  hasUnitDerivative = isOne(derivatives.score);
  if (!admission)
    return;
  admittedRegion.dropAllReferences();
  admittedRegion.getBlocks().clear();
  ScoreDerivatives copy = admission.cloneAdmitted(admittedRegion, derivatives);
  admittedBody.setBlock(admittedRegion.front());
  admittedBody.setDerivatives(copy);
  hasUnitDerivative = isOne(copy.score);
}

void TileScore::enterHead(KernelBuilder &b, Value batch, Value head) {
  body.enterHead(b, batch, head);
  if (!admission)
    return;
  admittedBody.enterHead(b, batch, head);
  admission.enterHead(batch, head);
}

LogicalResult TileScore::expandMath() {
  return success(succeeded(body.expandMath()) &&
                 succeeded(admittedBody.expandMath()));
}

void fovea::attn::remarkOnAdmission(
    Operation *op, ArrayRef<const ScoreAdmission *> admissions) {
  auto options = remark::RemarkOpts::name("ScoreTilesSkipped")
                     .category(op->getName().getStringRef());
  for (auto [index, admission] : llvm::enumerate(admissions)) {
    if (!*admission)
      continue;
    unsigned bounded = admission->getNumBounded();
    auto remark = bounded ? remark::passed(op->getLoc(), options)
                          : remark::missed(op->getLoc(), options);
    if (admissions.size() > 1)
      remark << remark::metric("Source", index);
    remark << remark::metric("Conditions", admission->getNumConditions())
           << remark::metric("Bounded", bounded);
  }
}
