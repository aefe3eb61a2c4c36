//===- AttnHierarchicalOps.cpp - Fast multipole operations ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::extent;

LogicalResult attn::detail::verifyWeights(Operation *op, const Twine &name,
                                          Value weights, Value bias,
                                          int64_t heads, int64_t width,
                                          Type elementType) {
  auto type = cast<ShapedType>(weights.getType());
  if (type.getElementType() != elementType)
    return op->emitOpError() << "expects " << name << " to hold " << elementType
                             << ", but got " << type.getElementType();
  int64_t sets = type.getDimSize(0), rank = type.getDimSize(1),
          interval = type.getDimSize(2);
  if (!type.hasStaticShape())
    return op->emitOpError()
           << "expects static extents in " << name << ", but got " << type;
  if (sets < 1)
    return op->emitOpError() << "expects at least one set in " << name;
  if (!ShapedType::isDynamic(heads) && heads % sets != 0)
    return op->emitOpError()
           << "expects the number of sets in " << name << " to divide the "
           << heads << " heads, but got " << sets;
  if (rank < 1 || interval < 1 || interval % rank != 0)
    return op->emitOpError()
           << "expects the interval in " << name
           << " to be a positive multiple of its rank, but got interval "
           << interval << " and rank " << rank;
  if (!attn::detail::extentsMatch(type.getDimSize(3), width))
    return op->emitOpError() << "expects " << name << " to have width " << width
                             << ", but got " << type.getDimSize(3);
  if (!bias)
    return success();
  auto biasType = cast<ShapedType>(bias.getType());
  if (biasType.getElementType() != elementType)
    return op->emitOpError()
           << "expects the bias of " << name << " to hold " << elementType
           << ", but got " << biasType.getElementType();
  if (!biasType.hasStaticShape())
    return op->emitOpError() << "expects static extents in the bias of " << name
                             << ", but got " << biasType;
  int64_t expected[3] = {sets, rank, type.getDimSize(3)};
  for (int64_t dim = 0; dim < 3; ++dim)
    if (!attn::detail::extentsMatch(biasType.getDimSize(dim), expected[dim]))
      return op->emitOpError() << "expects extent " << dim << " of the bias of "
                               << name << " to be " << expected[dim]
                               << ", but got " << biasType.getDimSize(dim);
  return success();
}

//===----------------------------------------------------------------------===//
// SummarizeOp
//===----------------------------------------------------------------------===//

MutableOperandRange SummarizeOp::getDpsInitsMutable() {
  return getOutputMutable();
}

int64_t SummarizeOp::getInterval() { return extent(getWeights(), 2); }
int64_t SummarizeOp::getRank() { return extent(getWeights(), 1); }

LogicalResult attn::detail::verifySummaries(Operation *op, Value inputOperand,
                                            Value weights, Value bias,
                                            StringRef name, Value summaries) {
  auto input = cast<ShapedType>(inputOperand.getType());
  auto output = cast<ShapedType>(summaries.getType());
  int64_t rank = extent(weights, 1), interval = extent(weights, 2);
  if (input.isDynamicDim(3) || output.isDynamicDim(3))
    return op->emitOpError("expects a static width of input and ") << name;
  if (input.getDimSize(3) == 0)
    return op->emitOpError("expects a width of at least 1");
  if (failed(
          verifyElementsOrSums(op, name, summaries, input.getElementType())) ||
      failed(verifyWeights(op, "weights", weights, bias, input.getDimSize(1),
                           input.getDimSize(3), input.getElementType())))
    return failure();
  int64_t rows = input.getDimSize(2), count = ShapedType::kDynamic;
  if (!ShapedType::isDynamic(rows) &&
      llvm::MulOverflow<int64_t>(llvm::divideCeil(rows, interval), rank, count))
    return op->emitOpError()
           << "expects a number of summaries below 2^63, but got " << rank
           << " for each " << interval << " of " << rows << " rows";
  int64_t expected[4] = {input.getDimSize(0), input.getDimSize(1), count,
                         input.getDimSize(3)};
  for (int64_t dim = 0; dim < 4; ++dim)
    if (!extentsMatch(output.getDimSize(dim), expected[dim]))
      return op->emitOpError()
             << "expects extent " << dim << " of " << name << " to be "
             << expected[dim] << ", but got " << output.getDimSize(dim);
  return verifyDestinationStyle(op);
}

LogicalResult SummarizeOp::verify() {
  return attn::detail::verifySummaries(*this, getInput(), getWeights(),
                                       getBias(), "output", getOutput());
}

//===----------------------------------------------------------------------===//
// Both forms of fast multipole attention
//===----------------------------------------------------------------------===//

/// The least `L` with `group 2^(L+1) >= rows`. Shifts the number of rows down
/// instead of the group up, which could overflow.
static int64_t countLevels(int64_t rows, int64_t group) {
  int64_t levels = 0;
  while ((rows - 1) >> (levels + 1) >= group)
    ++levels;
  return levels;
}

LogicalResult attn::detail::verifyLevels(Operation *op, Value query, Value key,
                                         int64_t group,
                                         ArrayRef<LevelWeights> operands) {
  int64_t rows = extent(query, 2);
  if (failed(
          attn::detail::verifyExtent(op, "key", key, 2, rows, "rows of query")))
    return failure();
  if (group < 1)
    return op->emitOpError()
           << "expects a group of at least 1 token, but got " << group;
  if (ShapedType::isDynamic(rows))
    return op->emitOpError("expects a static number of tokens, which fixes the "
                           "number of levels");
  int64_t levels = countLevels(rows, group);
  Type elementType = cast<ShapedType>(query.getType()).getElementType();
  int64_t rank = 0;
  for (const LevelWeights &operand : operands) {
    int64_t numWeights = operand.weights.size();
    int64_t numBiases = operand.biases.size();
    if (numWeights != levels)
      return op->emitOpError()
             << "expects " << operand.name << " for " << levels << " levels ("
             << rows << " tokens in groups of " << group << "), but got "
             << numWeights;
    if (numBiases != 0 && numBiases != numWeights)
      return op->emitOpError()
             << "expects no biases or one for each of the " << levels
             << " levels beside " << operand.name << ", but got " << numBiases;
    for (int64_t level = 0; level < levels; ++level) {
      Value weights = operand.weights[level];
      Value bias = numBiases ? operand.biases[level] : Value();
      std::string name = (operand.name + " of level " + Twine(level + 1)).str();
      if (failed(attn::detail::verifyWeights(op, name, weights, bias,
                                             operand.heads, operand.width,
                                             elementType)))
        return failure();
      if (extent(weights, 2) != group << level)
        return op->emitOpError()
               << "expects " << name << " to cover intervals of "
               << (group << level) << " tokens, but got " << extent(weights, 2);
      rank = rank ? rank : extent(weights, 1);
      if (extent(weights, 1) != rank)
        return op->emitOpError()
               << "expects rank " << rank << " in " << name
               << ", as in the other weights, but got " << extent(weights, 1);
    }
  }
  return success();
}

namespace {
/// Without levels every group neighbours every other: dense attention.
template <typename OpTy> struct NoLevelsIsDense : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    if (op.getNumLevels() != 0)
      return failure();
    Value lse;
    if constexpr (std::is_same_v<OpTy, FastMultipoleOp>)
      lse = op.getLse();
    MaskAttr mask;
    if (op.getCausal())
      mask = MaskAttr::get(op.getContext(), /*causal=*/true, /*window=*/0);
    rewriter.replaceOpWithNewOp<DenseOp>(
        op, op.getResultTypes(), op.getQuery(), op.getKey(), op.getValue(),
        /*log_weight=*/Value(), /*bias=*/Value(), op.getOutput(), lse,
        op.getScaleAttr(), mask);
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// FastMultipoleOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleOp::getDpsInitsMutable() {
  unsigned numInits = getLse() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

double FastMultipoleOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleOp::getRank() {
  return getKeyWeights().empty() ? 0 : extent(getKeyWeights()[0], 1);
}

LogicalResult FastMultipoleOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 7})) ||
      failed(attn::detail::verifyAttention(*this, getQuery(), getKey(),
                                           getValue(), getOutput(), getLse(),
                                           getScale())))
    return failure();
  return attn::detail::verifyMultipoleLevels(*this);
}

void FastMultipoleOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                  MLIRContext *context) {
  patterns.add<NoLevelsIsDense<FastMultipoleOp>>(context);
}

//===----------------------------------------------------------------------===//
// FastMultipoleLinearOp
//===----------------------------------------------------------------------===//

MutableOperandRange FastMultipoleLinearOp::getDpsInitsMutable() {
  return getOutputMutable();
}

double FastMultipoleLinearOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

int64_t FastMultipoleLinearOp::getRank() {
  return getKeyWeights().empty() ? 0 : extent(getKeyWeights()[0], 1);
}

LogicalResult FastMultipoleLinearOp::verify() {
  if (failed(attn::detail::verifySingleOperands(*this, {0, 1, 2, 9})) ||
      failed(attn::detail::verifyAttention(*this, getQuery(), getKey(),
                                           getValue(), getOutput(),
                                           /*lse=*/Value(), getScale())))
    return failure();
  return attn::detail::verifyLinearLevels(*this);
}

void FastMultipoleLinearOp::getCanonicalizationPatterns(
    RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<NoLevelsIsDense<FastMultipoleLinearOp>>(context);
}
