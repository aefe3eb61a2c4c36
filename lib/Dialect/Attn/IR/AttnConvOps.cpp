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
using attn::detail::shaped;
using attn::detail::verifyDestinationStyle;
using attn::detail::verifyElements;
using attn::detail::verifyExtent;
using attn::detail::verifyGradient;
using attn::detail::verifyResultGradients;
using attn::detail::verifyShape;
using attn::detail::verifyWidth;

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

/// Checks bases, sizes and values, and the algorithm for them.
template <typename OpTy> static LogicalResult verifyBases(OpTy op) {
  ArrayRef<int64_t> basis = shaped(op.getBasis()).getShape();
  ArrayRef<int64_t> value = shaped(op.getValue()).getShape();
  Type elementType = shaped(op.getValue()).getElementType();
  Type basisType = shaped(op.getBasis()).getElementType();
  if (getStateType(basisType) != getStateType(elementType))
    return op.emitOpError()
           << "expects basis to hold numbers whose sums are kept in "
           << getStateType(elementType) << ", as those of value, but got "
           << basisType;
  if (basis[2] == 0)
    return op.emitOpError("expects at least one basis");
  if (failed(verifyShape(op, "sizes", op.getSizes(), basis.take_front(3),
                         "from basis")) ||
      failed(verifyExtent(op, "value", op.getValue(), 0, basis[0],
                          "from basis")) ||
      failed(verifyExtent(op, "value", op.getValue(), 2, basis[3],
                          "from basis")) ||
      failed(verifyWidth(op, "value", op.getValue())) ||
      failed(verifyElements(op, "output", op.getOutput(), elementType)) ||
      failed(verifyShape(op, "output", op.getOutput(),
                         {basis[0], basis[1], basis[3], value[3]},
                         "from basis and value")))
    return failure();
  if (!ShapedType::isDynamic(basis[1]) && !ShapedType::isDynamic(value[1]) &&
      (value[1] == 0 ? basis[1] != 0 : basis[1] % value[1] != 0))
    return op.emitOpError() << "expects the number of heads of basis to be a "
                               "multiple of those of value, but got "
                            << basis[1] << " and " << value[1];
  return verifyAlgorithm(op, basis[2]);
}

LogicalResult ConvApplyOp::verify() {
  if (failed(verifyBases(*this)) ||
      failed(verifyShape(*this, "recomputed", getRecomputed(),
                         shaped(getBasis()).getShape().take_front(2),
                         "from basis")))
    return failure();
  return verifyDestinationStyle(*this);
}

MutableOperandRange ConvApplyBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 5, 2);
}

LogicalResult ConvApplyBackwardOp::verify() {
  if (failed(verifyBases(*this)) ||
      failed(verifyResultGradients(*this, getOutput(), /*lse=*/Value(),
                                   getDOutput(), /*dLse=*/Value())) ||
      failed(verifyGradient(*this, "basis", getDBasis(), getBasis())) ||
      failed(verifyGradient(*this, "value", getDValue(), getValue())))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// ConvRecoverOp and ConvOp
//===----------------------------------------------------------------------===//

/// Checks query `[B, H, N, D]`, key `[B, G, N, D]` and the scale.
template <typename OpTy> static LogicalResult verifyScores(OpTy op) {
  ArrayRef<int64_t> query = shaped(op.getQuery()).getShape();
  ArrayRef<int64_t> key = shaped(op.getKey()).getShape();
  if (failed(verifyElements(op, "key", op.getKey(),
                            shaped(op.getQuery()).getElementType())) ||
      failed(verifyWidth(op, "query", op.getQuery())) ||
      failed(verifyWidth(op, "key", op.getKey())) ||
      failed(verifyShape(op, "key", op.getKey(),
                         {query[0], key[1], query[2], query[3]},
                         "from query")) ||
      failed(attn::detail::verifyHeads(op, query[1], key[1])))
    return failure();
  if (op.getScale() && !op.getScale()->isFinite())
    return op.emitOpError("expects a finite scale");
  return success();
}

/// Checks queries and keys, and what the search for bases is told.
template <typename OpTy>
static LogicalResult verifySearch(OpTy op, int64_t numBases) {
  if (failed(verifyScores(op)))
    return failure();
  int64_t numTokens = shaped(op.getQuery()).getDimSize(2),
          window = op.getWindow();
  if (ShapedType::isDynamic(numTokens))
    return op.emitOpError("expects a static number of tokens");
  if (numBases < 1)
    return op.emitOpError()
           << "expects at least one basis, but got " << numBases;
  if (window < 1 || window > numTokens)
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

/// Checks counts `[B, H]`.
static LogicalResult verifyCounts(Operation *op, StringRef name, Value counts,
                                  Value query) {
  return verifyShape(op, name, counts, shaped(query).getShape().take_front(2),
                     "from query");
}

MutableOperandRange ConvRecoverOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 2, 3);
}

double ConvRecoverOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

double ConvRecoverOp::getThreshold() {
  return getDelta().convertToDouble() -
         2.0 * getWindow() * getEpsilon().convertToDouble();
}

LogicalResult ConvRecoverOp::verify() {
  ArrayRef<int64_t> query = shaped(getQuery()).getShape();
  int64_t numBases = shaped(getBasis()).getDimSize(2);
  if (ShapedType::isDynamic(numBases))
    return emitOpError("expects a static number of bases");
  if (failed(verifySearch(*this, numBases)) ||
      failed(
          verifyElements(*this, "basis", getBasis(),
                         getStateType(shaped(getQuery()).getElementType()))) ||
      failed(verifyShape(*this, "basis", getBasis(),
                         {query[0], query[1], numBases, query[2]},
                         "from query")) ||
      failed(verifyShape(*this, "sizes", getSizes(),
                         {query[0], query[1], numBases}, "from basis")) ||
      failed(verifyCounts(*this, "found", getFound(), getQuery())))
    return failure();
  return verifyDestinationStyle(*this);
}

MutableOperandRange ConvOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 3, 3);
}

/// Checks what attn.conv and its gradient share.
template <typename OpTy> static LogicalResult verifyConv(OpTy op) {
  ArrayRef<int64_t> query = shaped(op.getQuery()).getShape();
  Type elementType = shaped(op.getQuery()).getElementType();
  if (failed(verifySearch(op, op.getNumBasis())) ||
      failed(verifyElements(op, "value", op.getValue(), elementType)) ||
      failed(verifyWidth(op, "value", op.getValue())) ||
      failed(verifyShape(op, "value", op.getValue(),
                         shaped(op.getKey()).getShape().take_front(3),
                         "from key")) ||
      failed(verifyElements(op, "output", op.getOutput(), elementType)) ||
      failed(verifyWidth(op, "output", op.getOutput())) ||
      failed(verifyShape(
          op, "output", op.getOutput(),
          {query[0], query[1], query[2], shaped(op.getValue()).getDimSize(3)},
          "from query and value")))
    return failure();
  if (op.getAlgorithm() == ConvAlgorithm::Single && op.getNumBasis() != 1)
    return op.emitOpError() << "expects one basis for the algorithm single, "
                               "but got "
                            << op.getNumBasis();
  if (std::optional<int64_t> group = op.getGroup()) {
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

LogicalResult ConvOp::verify() {
  if (failed(verifyConv(*this)) ||
      failed(verifyCounts(*this, "found", getFound(), getQuery())) ||
      failed(verifyCounts(*this, "recomputed", getRecomputed(), getQuery())))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// ConvRecoverBackwardOp and ConvBackwardOp
//===----------------------------------------------------------------------===//

/// Checks gradients of queries and keys.
template <typename OpTy> static LogicalResult verifyScoreGradients(OpTy op) {
  return success(
      succeeded(verifyGradient(op, "query", op.getDQuery(), op.getQuery())) &&
      succeeded(verifyGradient(op, "key", op.getDKey(), op.getKey())) &&
      succeeded(verifyDestinationStyle(op)));
}

MutableOperandRange ConvRecoverBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 4, 2);
}

double ConvRecoverBackwardOp::getScaleOrDefault() {
  return attn::detail::getScaleOrDefault(getScale(), getQuery());
}

LogicalResult ConvRecoverBackwardOp::verify() {
  ArrayRef<int64_t> query = shaped(getQuery()).getShape();
  Type elementType = shaped(getQuery()).getElementType();
  Type basisType = shaped(getDBasis()).getElementType();
  int64_t numBases = shaped(getDBasis()).getDimSize(2);
  if (getStateType(basisType) != getStateType(elementType))
    return emitOpError() << "expects d_basis to hold numbers whose sums are "
                            "kept in "
                         << getStateType(elementType)
                         << ", as those of query, but got " << basisType;
  if (failed(verifyScores(*this)) ||
      failed(verifyShape(*this, "d_basis", getDBasis(),
                         {query[0], query[1], numBases, query[2]},
                         "from query")) ||
      failed(verifyShape(*this, "sizes", getSizes(),
                         {query[0], query[1], numBases}, "from d_basis")))
    return failure();
  return verifyScoreGradients(*this);
}

MutableOperandRange ConvBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 5, 3);
}

LogicalResult ConvBackwardOp::verify() {
  if (failed(verifyConv(*this)) ||
      failed(verifyResultGradients(*this, getOutput(), /*lse=*/Value(),
                                   getDOutput(), /*dLse=*/Value())) ||
      failed(verifyGradient(*this, "value", getDValue(), getValue())))
    return failure();
  return verifyScoreGradients(*this);
}
