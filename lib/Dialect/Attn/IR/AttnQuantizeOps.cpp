//===- AttnQuantizeOps.cpp - Codebooks and their summaries ----------------===//
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
using namespace fovea::attn::detail;

/// Checks sets of codewords `[W, S, D]`, where `W` is 1 or the heads of `key`.
static LogicalResult verifySets(Operation *op, Value key, Value codebook) {
  if (failed(verifyExtent(op, "codebook", codebook, 0, extent(key, 1),
                          "heads of key", /*mayBroadcast=*/true)) ||
      failed(verifyExtent(op, "codebook", codebook, 2, extent(key, 3),
                          "width of key")))
    return failure();
  int64_t numCodes = extent(codebook, 1);
  if (ShapedType::isDynamic(numCodes))
    return op->emitOpError("expects a static number of codewords");
  if (numCodes < 1 || numCodes > std::numeric_limits<int32_t>::max())
    return op->emitOpError()
           << "expects from 1 to 2^31 - 1 codewords, but got " << numCodes;
  return success();
}

//===----------------------------------------------------------------------===//
// QuantizeOp
//===----------------------------------------------------------------------===//

MutableOperandRange QuantizeOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 2, getNumOperands() - 2);
}

LogicalResult QuantizeOp::verify() {
  ArrayRef<int64_t> shape = shaped(getKey()).getShape();
  Type elementType = shaped(getKey()).getElementType();
  if (failed(verifyElements(*this, "codebook", getCodebook(), elementType)) ||
      failed(verifyWidth(*this, "key", getKey())) ||
      failed(verifyWidth(*this, "codebook", getCodebook())) ||
      failed(verifySets(*this, getKey(), getCodebook())) ||
      failed(verifyShape(*this, "codes", getCodes(), shape.take_front(3),
                         "from key")))
    return failure();
  if (Value quantized = getQuantized())
    if (failed(verifyElements(*this, "quantized", quantized, elementType)) ||
        failed(verifyWidth(*this, "quantized", quantized)) ||
        failed(verifyShape(*this, "quantized", quantized, shape, "from key")))
      return failure();
  return verifyDestinationStyle(*this);
}

namespace {
/// Copies of codewords that nobody reads are not made.
struct DropUnusedQuantized : OpRewritePattern<QuantizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(QuantizeOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getNumResults() != 2 || !op.getResult(1).use_empty())
      return failure();
    auto codes = QuantizeOp::create(
        rewriter, op.getLoc(), op.getResult(0).getType(), op.getKey(),
        op.getCodebook(), op.getCodes(), /*quantized=*/Value());
    codes->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.replaceOp(op, {codes.getResult(0), op.getQuantized()});
    return success();
  }
};
} // namespace

void QuantizeOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                             MLIRContext *context) {
  patterns.add<DropUnusedQuantized>(context);
}

//===----------------------------------------------------------------------===//
// CodebookAccumulateOp and CodebookScanOp
//===----------------------------------------------------------------------===//

/// Checks tokens `codes [B, G, N]`, `values [B, G, N, E]` and a state of means
/// `[B, G, S, E]` and counts `[B, G, S]`.
static LogicalResult verifyTokensAndState(Operation *op, Value codes,
                                          Value values, StringRef meanName,
                                          Value mean, StringRef countName,
                                          Value count) {
  ArrayRef<int64_t> shape = shaped(values).getShape();
  if (failed(verifyWidth(op, "values", values)) ||
      failed(verifyShape(op, "codes", codes, shape.take_front(3),
                         "from values")) ||
      failed(verifyElements(op, meanName, mean,
                            getStateType(shaped(values).getElementType()))) ||
      failed(verifyWidth(op, meanName, mean)) ||
      failed(verifyShape(op, meanName, mean, shape.take_front(2),
                         "from values")) ||
      failed(
          verifyExtent(op, meanName, mean, 3, shape.back(), "width of values")))
    return failure();
  return verifyShape(op, countName, count,
                     shaped(mean).getShape().take_front(3),
                     ("from " + meanName).str());
}

MutableOperandRange CodebookAccumulateOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 2, 2);
}

LogicalResult CodebookAccumulateOp::verify() {
  if (failed(verifyTokensAndState(*this, getCodes(), getValues(), "mean",
                                  getMean(), "count", getCount())))
    return failure();
  return verifyDestinationStyle(*this);
}

MutableOperandRange CodebookScanOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 4, 2);
}

LogicalResult CodebookScanOp::verify() {
  if (failed(verifyTokensAndState(*this, getCodes(), getValues(),
                                  "initial_mean", getInitialMean(),
                                  "initial_count", getInitialCount())))
    return failure();
  int64_t block = getBlock();
  if (block < 1)
    return emitOpError() << "expects a block of at least 1 token, but got "
                         << block;
  if (getReduction() == Reduction::InputScan)
    return emitOpError("expects a reduction that stores an entry for every "
                       "block, but got input_scan");
  ArrayRef<int64_t> state = shaped(getInitialMean()).getShape();
  int64_t numEntries = extent(getMean(), 2), numTokens = extent(getCodes(), 2);
  if (failed(verifyElements(*this, "mean", getMean(),
                            shaped(getInitialMean()).getElementType())) ||
      failed(verifyWidth(*this, "mean", getMean())) ||
      failed(verifyShape(*this, "mean", getMean(),
                         {state[0], state[1], numEntries, state[2], state[3]},
                         "from initial_mean")) ||
      failed(verifyShape(*this, "count", getCount(),
                         shaped(getMean()).getShape().take_front(4),
                         "from mean")))
    return failure();
  if (numEntries == 0)
    return emitOpError("expects at least one entry of mean");
  int64_t maxEntries = numEntries;
  if (!ShapedType::isDynamic(numEntries) && !ShapedType::isDynamic(numTokens))
    maxEntries = llvm::divideCeil(numTokens, block) + 1;
  if (numEntries > maxEntries)
    return emitOpError() << "expects at most " << maxEntries
                         << " entries of mean for " << numTokens
                         << " tokens in blocks of " << block << ", but got "
                         << numEntries;
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// LogCountOp
//===----------------------------------------------------------------------===//

MutableOperandRange LogCountOp::getDpsInitsMutable() {
  return getLogWeightMutable();
}

LogicalResult LogCountOp::verify() {
  ShapedType count = shaped(getCount()), weight = shaped(getLogWeight());
  if (count.getRank() != weight.getRank())
    return emitOpError() << "expects log_weight to have rank "
                         << count.getRank() << ", as count, but got "
                         << weight.getRank();
  if (failed(verifyShape(*this, "log_weight", getLogWeight(), count.getShape(),
                         "from count")))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// CodebookUpdateOp
//===----------------------------------------------------------------------===//

MutableOperandRange CodebookUpdateOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 2, 3);
}

LogicalResult CodebookUpdateOp::verify() {
  ArrayRef<int64_t> shape = shaped(getKey()).getShape();
  ArrayRef<int64_t> sets = shaped(getCodebook()).getShape();
  Type elementType = shaped(getKey()).getElementType();
  Type stateType = getStateType(elementType);
  if (failed(verifyElements(*this, "codebook", getCodebook(), elementType)) ||
      failed(verifyElements(*this, "sums", getSums(), stateType)) ||
      failed(verifyElements(*this, "counts", getCounts(), stateType)) ||
      failed(verifyWidth(*this, "key", getKey())) ||
      failed(verifyWidth(*this, "codebook", getCodebook())) ||
      failed(verifyWidth(*this, "sums", getSums())) ||
      failed(verifySets(*this, getKey(), getCodebook())) ||
      failed(verifyShape(*this, "codes", getCodes(), shape.take_front(3),
                         "from key")) ||
      failed(verifyShape(*this, "sums", getSums(), sets, "from codebook")) ||
      failed(verifyShape(*this, "counts", getCounts(), sets.take_front(2),
                         "from codebook")))
    return failure();
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate <= 1.0))
    return emitOpError() << "expects a rate from 0 to 1, but got " << rate;
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// CheckCodesOp
//===----------------------------------------------------------------------===//

void CheckCodesOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  getCheckEffects(*this, {&getCodesMutable()}, effects);
}
