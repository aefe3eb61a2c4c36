//===- SourceScores.cpp - Functions of scores by source -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fovea::attn;

static const StreamSource &getForward(const StreamSource &source) {
  return source;
}
static const StreamSource &getForward(const StreamSourceGradient &source) {
  return source.forward;
}

/// Copies the body of a region, which is given `score` and the other arguments
/// of `block`. Returns what it yields.
static Value copyBody(OpBuilder &builder, Region &region, Block &block,
                      Value score) {
  IRMapping mapping;
  mapping.map(region.getArguments(), block.getArguments());
  mapping.map(region.getArgument(score_argument::Score), score);
  for (Operation &op : region.front().without_terminator())
    builder.clone(op, mapping);
  return mapping.lookup(getYieldedScore(region));
}

/// What `common` makes of `score`, which a region of a source yields: what that
/// removes stays removed. Its conditions stay the last ones, where kernels look
/// for them.
static Value copyBehind(OpBuilder &builder, Region &common, Block &block,
                        Value score) {
  SmallVector<arith::SelectOp> removals;
  auto isNone = [](Value value) {
    return matchPattern(value, m_NegInfFloat());
  };
  while (auto select = score.getDefiningOp<arith::SelectOp>()) {
    bool removesIf = isNone(select.getTrueValue());
    if (!removesIf && !isNone(select.getFalseValue()))
      break;
    removals.push_back(select);
    score = removesIf ? select.getFalseValue() : select.getTrueValue();
  }
  Location loc = common.getLoc();
  auto type = cast<FloatType>(score.getType());
  Value none = arith::ConstantOp::create(
      builder, loc,
      builder.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics(),
                                                 /*Negative=*/true)));
  Value isRemoved = arith::CmpFOp::create(
      builder, loc, arith::CmpFPredicate::OEQ, score, none);
  Value result = copyBody(builder, common, block, score);
  result = arith::SelectOp::create(builder, loc, isRemoved, score, result);
  for (arith::SelectOp removal : llvm::reverse(removals)) {
    bool removesIf = isNone(removal.getTrueValue());
    result = arith::SelectOp::create(
        builder, removal.getLoc(), removal.getCondition(),
        removesIf ? none : result, removesIf ? result : none);
  }
  return result;
}

/// Fills `region`, with arguments as those of `like`, with the bodies of the
/// regions of a source and of all entries, either of which may be null.
static void chainScores(OpBuilder &builder, Block &like, Region *own,
                        Region *common, Region &region) {
  Block &block = region.emplaceBlock();
  for (BlockArgument argument : like.getArguments())
    block.addArgument(argument.getType(), argument.getLoc());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&block);
  Value score = block.getArgument(score_argument::Score);
  if (own)
    score = copyBody(builder, *own, block, score);
  if (common)
    score = own ? copyBehind(builder, *common, block, score)
                : copyBody(builder, *common, block, score);
  YieldOp::create(builder, like.getTerminator()->getLoc(), score);
}

template <typename OpTy> static void giveSourcesScores(OpTy op) {
  Region *common = op.getCommonScore();
  ScoreRegions scores = op.getScores();
  auto sources = op.getSourceList();
  size_t numOwn = scores.size() - (common ? 1 : 0);
  if (numOwn == 0 || (numOwn == sources.size() && !common))
    return;
  OpBuilder builder(op);
  OperationState state(op.getLoc(), op->getName(), op->getOperands(),
                       op->getResultTypes(), op->getAttrs());
  SmallVector<Attribute> attrs;
  for (const auto &each : sources) {
    const StreamSource &source = getForward(each);
    attrs.push_back(source.attr.withScore(true));
    chainScores(builder, scores.front().front(), source.score, common,
                *state.addRegion());
  }
  auto result = cast<OpTy>(builder.create(state));
  result.setSourcesAttr(builder.getArrayAttr(attrs));
  op->replaceAllUsesWith(result);
  op->erase();
}

void fovea::attn::giveSourcesScores(Operation *root) {
  root->walk([](Operation *op) {
    if (auto stream = dyn_cast<StreamOp>(op))
      ::giveSourcesScores(stream);
    else if (auto backward = dyn_cast<StreamBackwardOp>(op))
      ::giveSourcesScores(backward);
  });
}
