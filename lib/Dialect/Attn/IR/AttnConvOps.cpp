//===- AttnConvOps.cpp - Attention by sums of convolutions ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using attn::detail::DropFullMasks;
using attn::detail::shaped;

//===----------------------------------------------------------------------===//
// ConvApplyOp
//===----------------------------------------------------------------------===//

MutableOperandRange ConvApplyOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 3, 2);
}

/// Checks the options against the number of bases, where that is known.
template <typename OpTy>
static LogicalResult verifyAlgorithm(OpTy op, int64_t numBases) {
  if (op.getAlgorithm() == ConvAlgorithm::Single && numBases != 1 &&
      !ShapedType::isDynamic(numBases))
    return op.emitOpError()
           << "expects one basis for the algorithm single, but got "
           << numBases;
  if (op.getAlgorithm() == ConvAlgorithm::Single &&
      ShapedType::isDynamic(shaped(op.getBasis()).getDimSize(3)))
    return op.emitOpError("expects a static number of tokens for the "
                          "algorithm single");
  std::optional<int64_t> block = op.getBlock();
  if (!block)
    return success();
  if (*block < 8 || *block > (1 << 20) || !llvm::isPowerOf2_64(*block))
    return op.emitOpError() << "expects a block of a power of two from 8 to "
                               "2^20 tokens, but got "
                            << *block;
  if (op.getAlgorithm() != ConvAlgorithm::Partitioned)
    return op.emitOpError()
           << "expects a block with the algorithm partitioned only, but got "
           << stringifyConvAlgorithm(op.getAlgorithm());
  return success();
}

/// Checks bases and the algorithm for them.
template <typename OpTy> static LogicalResult verifyBases(OpTy op) {
  int64_t numBases = shaped(op.getBasis()).getDimSize(2);
  if (numBases == 0)
    return op.emitOpError("expects at least one basis");
  return verifyAlgorithm(op, numBases);
}

LogicalResult ConvApplyOp::verify() { return verifyBases(*this); }

MutableOperandRange ConvApplyBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 5, 2);
}

LogicalResult ConvApplyBackwardOp::verify() { return verifyBases(*this); }

//===----------------------------------------------------------------------===//
// ConvRecoverOp and ConvOp
//===----------------------------------------------------------------------===//

/// Checks what the search for bases is told.
template <typename OpTy>
static LogicalResult verifySearch(OpTy op, int64_t numBases) {
  int64_t numTokens = shaped(op.getQuery()).getDimSize(2),
          window = op.getWindow();
  if (numBases < 1)
    return op.emitOpError()
           << "expects at least one basis, but got " << numBases;
  // Where run time finds fewer tokens, no column is searched.
  bool isKnown = !ShapedType::isDynamic(numTokens);
  if (!isKnown && window < 1)
    return op.emitOpError()
           << "expects a window of at least 1 token, but got " << window;
  if (isKnown && (window < 1 || window > numTokens))
    return op.emitOpError() << "expects a window from 1 to the " << numTokens
                            << " tokens, but got " << window;
  std::pair<StringRef, APFloat> tolerances[] = {{"delta", op.getDelta()},
                                                {"epsilon", op.getEpsilon()}};
  for (auto [name, value] : tolerances)
    if (!value.isFinite() || value.convertToDouble() < 0)
      return op.emitOpError()
             << "expects " << name << " to be finite and not negative, but got "
             << value.convertToDouble();
  return success();
}

MutableOperandRange ConvRecoverOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

double ConvRecoverOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

double ConvRecoverOp::getThreshold() {
  return getDelta().convertToDouble() -
         2.0 * getWindow() * getEpsilon().convertToDouble();
}

LogicalResult ConvRecoverOp::verify() {
  return verifySearch(*this, shaped(getBasis()).getDimSize(2));
}

MutableOperandRange ConvOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

/// Checks what attn.conv and its gradient share.
template <typename OpTy> static LogicalResult verifyConv(OpTy op) {
  if (failed(verifySearch(op, op.getNumBasis())))
    return failure();
  if (op.getAlgorithm() == ConvAlgorithm::Single && op.getNumBasis() != 1)
    return op.emitOpError() << "expects one basis for the algorithm single, "
                               "but got "
                            << op.getNumBasis();
  bool isDynamic = ShapedType::isDynamic(shaped(op.getQuery()).getDimSize(2));
  if (op.getAlgorithm() == ConvAlgorithm::Single && isDynamic)
    return op.emitOpError("expects a static number of tokens for the "
                          "algorithm single");
  if (std::optional<int64_t> group = op.getGroup()) {
    if (isDynamic)
      return op.emitOpError("expects a static number of tokens for a group");
    if (*group < 1)
      return op.emitOpError()
             << "expects a group of at least 1 token, but got " << *group;
    if (static_cast<int64_t>(op.getWindow()) > *group)
      return op.emitOpError()
             << "expects a window of at most the group of " << *group
             << " tokens, but got " << op.getWindow();
  }
  return success();
}

LogicalResult ConvOp::verify() { return verifyConv(*this); }

void ConvOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                         MLIRContext *context) {
  patterns.add<DropFullMasks<ConvOp>>(context);
}

//===----------------------------------------------------------------------===//
// ConvRecoverBackwardOp and ConvBackwardOp
//===----------------------------------------------------------------------===//

MutableOperandRange ConvRecoverBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 4, 2);
}

double ConvRecoverBackwardOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

MutableOperandRange ConvBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

LogicalResult ConvBackwardOp::verify() { return verifyConv(*this); }

void ConvBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                 MLIRContext *context) {
  patterns.add<DropFullMasks<ConvBackwardOp>>(context);
}
