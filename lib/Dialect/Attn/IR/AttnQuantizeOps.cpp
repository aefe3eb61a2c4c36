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

/// Codes have 32 bits.
static LogicalResult verifyNumCodes(Operation *op, Value codebook) {
  int64_t numCodes = extent(codebook, 1);
  if (numCodes <= std::numeric_limits<int32_t>::max())
    return success();
  return op->emitOpError() << "expects from 1 to 2^31 - 1 codewords, but got "
                           << numCodes;
}

//===----------------------------------------------------------------------===//
// QuantizeOp
//===----------------------------------------------------------------------===//

MutableOperandRange QuantizeOp::getDpsInitsMutable() {
  unsigned numInits = getQuantized() ? 2 : 1;
  return MutableOperandRange(*this, getNumOperands() - numInits, numInits);
}

LogicalResult QuantizeOp::verify() {
  return verifyNumCodes(*this, getCodebook());
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
        op.getCodebook(), op.getMask(), op.getCodes(), /*quantized=*/Value());
    codes->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.replaceOp(op, {codes.getResult(0), op.getQuantized()});
    return success();
  }
};
} // namespace

void QuantizeOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                             MLIRContext *context) {
  patterns.add<DropFullMasks<QuantizeOp>, DropUnusedQuantized>(context);
}

//===----------------------------------------------------------------------===//
// CodebookAccumulateOp and CodebookScanOp
//===----------------------------------------------------------------------===//

MutableOperandRange CodebookAccumulateOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 2, 2);
}

MutableOperandRange CodebookScanOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 4, 2);
}

LogicalResult CodebookScanOp::verify() {
  int64_t block = getBlock();
  if (block < 1)
    return emitOpError() << "expects a block of at least 1 token, but got "
                         << block;
  if (getReduction() == Reduction::InputScan)
    return emitOpError("expects a reduction that stores an entry for every "
                       "block, but got input_scan");
  int64_t numEntries = extent(getMean(), 2), numTokens = extent(getCodes(), 2);
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
  return success();
}

//===----------------------------------------------------------------------===//
// LogCountOp
//===----------------------------------------------------------------------===//

MutableOperandRange LogCountOp::getDpsInitsMutable() {
  return getLogWeightMutable();
}

//===----------------------------------------------------------------------===//
// CodebookUpdateOp
//===----------------------------------------------------------------------===//

MutableOperandRange CodebookUpdateOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

LogicalResult CodebookUpdateOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate <= 1.0))
    return emitOpError() << "expects a rate from 0 to 1, but got " << rate;
  double minCount = getMinCount().convertToDouble();
  if (minCount < 0.0)
    return emitOpError() << "expects a min_count of at least 0, but got "
                         << minCount;
  double limit = getReplaceBelow().convertToDouble();
  if (limit < 0.0)
    return emitOpError() << "expects a replace_below of at least 0, but got "
                         << limit;
  if (getSeed() ? limit == 0.0 : limit > 0.0)
    return emitOpError() << "expects a seed "
                         << (getSeed() ? "only with" : "beside")
                         << " a replace_below above 0";
  return verifyNumCodes(*this, getCodebook());
}

//===----------------------------------------------------------------------===//
// CheckCodesOp
//===----------------------------------------------------------------------===//

void CheckCodesOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  getCheckEffects(*this, {&getCodesMutable()}, effects);
}
