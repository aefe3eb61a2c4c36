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
using attn::detail::verifyDestinationStyle;
using attn::detail::verifyElements;
using attn::detail::verifyExtent;
using attn::detail::verifyShape;
using attn::detail::verifyWidth;

static ShapedType shaped(Value value) {
  return cast<ShapedType>(value.getType());
}

//===----------------------------------------------------------------------===//
// ConvApplyOp
//===----------------------------------------------------------------------===//

MutableOperandRange ConvApplyOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, 3, 2);
}

/// Checks the options against the number of bases, where that is known.
static LogicalResult verifyAlgorithm(ConvApplyOp op, int64_t numBases) {
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

LogicalResult ConvApplyOp::verify() {
  ArrayRef<int64_t> basis = shaped(getBasis()).getShape();
  ArrayRef<int64_t> value = shaped(getValue()).getShape();
  Type elementType = shaped(getValue()).getElementType();
  Type basisType = shaped(getBasis()).getElementType();
  if (getStateType(basisType) != getStateType(elementType))
    return emitOpError() << "expects basis to hold numbers whose sums are kept "
                            "in "
                         << getStateType(elementType)
                         << ", as those of value, but got " << basisType;
  if (basis[2] == 0)
    return emitOpError("expects at least one basis");
  if (failed(verifyShape(*this, "sizes", getSizes(), basis.take_front(3),
                         "from basis")) ||
      failed(verifyExtent(*this, "value", getValue(), 0, basis[0],
                          "from basis")) ||
      failed(verifyExtent(*this, "value", getValue(), 2, basis[3],
                          "from basis")) ||
      failed(verifyWidth(*this, "value", getValue())) ||
      failed(verifyElements(*this, "output", getOutput(), elementType)) ||
      failed(verifyShape(*this, "output", getOutput(),
                         {basis[0], basis[1], basis[3], value[3]},
                         "from basis and value")) ||
      failed(verifyShape(*this, "recomputed", getRecomputed(),
                         basis.take_front(2), "from basis")))
    return failure();
  if (!ShapedType::isDynamic(basis[1]) && !ShapedType::isDynamic(value[1]) &&
      (value[1] == 0 ? basis[1] != 0 : basis[1] % value[1] != 0))
    return emitOpError() << "expects the number of heads of basis to be a "
                            "multiple of those of value, but got "
                         << basis[1] << " and " << value[1];
  if (failed(verifyAlgorithm(*this, basis[2])))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// ConvRecoverOp and ConvOp
//===----------------------------------------------------------------------===//

/// Checks query `[B, H, N, D]` and key `[B, G, N, D]`, and what the search for
/// bases is told.
template <typename OpTy>
static LogicalResult verifySearch(OpTy op, int64_t numBases) {
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
  int64_t numTokens = query[2], window = op.getWindow();
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
  if (op.getScale() && !op.getScale()->isFinite())
    return op.emitOpError("expects a finite scale");
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
  return getScale() ? getScale()->convertToDouble()
                    : 1.0 / std::sqrt(shaped(getQuery()).getDimSize(3));
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

LogicalResult ConvOp::verify() {
  ArrayRef<int64_t> query = shaped(getQuery()).getShape();
  Type elementType = shaped(getQuery()).getElementType();
  if (failed(verifySearch(*this, getNumBasis())) ||
      failed(verifyElements(*this, "value", getValue(), elementType)) ||
      failed(verifyWidth(*this, "value", getValue())) ||
      failed(verifyShape(*this, "value", getValue(),
                         shaped(getKey()).getShape().take_front(3),
                         "from key")) ||
      failed(verifyElements(*this, "output", getOutput(), elementType)) ||
      failed(verifyWidth(*this, "output", getOutput())) ||
      failed(verifyShape(
          *this, "output", getOutput(),
          {query[0], query[1], query[2], shaped(getValue()).getDimSize(3)},
          "from query and value")) ||
      failed(verifyCounts(*this, "found", getFound(), getQuery())) ||
      failed(verifyCounts(*this, "recomputed", getRecomputed(), getQuery())))
    return failure();
  if (getAlgorithm() == ConvAlgorithm::Single && getNumBasis() != 1)
    return emitOpError() << "expects one basis for the algorithm single, but "
                            "got "
                         << getNumBasis();
  if (std::optional<int64_t> group = getGroup()) {
    if (*group < 1)
      return emitOpError() << "expects a group of at least 1 token, but got "
                           << *group;
    if (static_cast<int64_t>(getWindow()) > *group)
      return emitOpError() << "expects a window of at most the group of "
                           << *group << " tokens, but got " << getWindow();
  }
  return verifyDestinationStyle(*this);
}
