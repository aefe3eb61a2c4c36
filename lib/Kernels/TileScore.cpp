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

/// `value` times log2(e), which goes into a factor of it that is constant.
static Value toBase2(OpBuilder &b, Value value) {
  Location loc = value.getLoc();
  auto type = cast<FloatType>(value.getType());
  auto constant = [&](double number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, number));
  };
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    auto isRemoved = [](Value value) {
      return matchPattern(value, m_NegInfFloat());
    };
    Value yes = select.getTrueValue(), no = select.getFalseValue();
    if (isRemoved(yes) || isRemoved(no))
      return arith::SelectOp::create(b, loc, select.getCondition(),
                                     isRemoved(yes) ? yes : toBase2(b, yes),
                                     isRemoved(no) ? no : toBase2(b, no));
  }
  if (auto product = value.getDefiningOp<arith::MulFOp>()) {
    Value lhs = product.getLhs(), rhs = product.getRhs();
    APFloat factor(0.0);
    if (matchPattern(lhs, m_ConstantFloat(&factor)))
      std::swap(lhs, rhs);
    constexpr double kMost = 0x1p64; // far from overflow
    if (matchPattern(rhs, m_ConstantFloat(&factor)) &&
        std::abs(factor.convertToDouble()) < kMost)
      return arith::MulFOp::create(
          b, loc, lhs, constant(factor.convertToDouble() * softmax::kLog2E));
  }
  return arith::MulFOp::create(b, loc, value, constant(softmax::kLog2E));
}

/// What becomes unused may be a derivative, and stays.
static Region &bringToBase2(Region &score) {
  Operation *yield = score.front().getTerminator();
  OpBuilder b(yield);
  yield->setOperand(0, toBase2(b, getYieldedScore(score)));
  return score;
}

TileScore::TileScore(Region &score, ValueRange captures, bool isBase2)
    : body(isBase2 ? bringToBase2(score) : score, captures),
      admission(score, captures),
      admittedBody(static_cast<Block *>(nullptr), captures) {
  setDerivatives({});
}

void TileScore::setDerivatives(const ScoreDerivatives &derivatives) {
  body.setDerivatives(derivatives);
  if (!admission)
    return;
  admittedRegion.dropAllReferences();
  admittedRegion.getBlocks().clear();
  ScoreDerivatives copy = admission.cloneAdmitted(admittedRegion, derivatives);
  admittedBody.setBlock(admittedRegion.front());
  admittedBody.setDerivatives(copy);
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
