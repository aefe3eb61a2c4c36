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
