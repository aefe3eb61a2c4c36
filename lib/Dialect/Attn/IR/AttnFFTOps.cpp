//===- AttnFFTOps.cpp - Fourier transforms over columns -------------------===//
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
using attn::detail::shaped;
using attn::detail::verifyDestinationStyle;
using attn::detail::verifyElements;
using attn::detail::verifyExtent;
using attn::detail::verifyShape;
using attn::detail::verifyWidth;

//===----------------------------------------------------------------------===//
// SpectrumAttr
//===----------------------------------------------------------------------===//

LogicalResult SpectrumAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t lanes, ArrayRef<int64_t> radices) {
  if (lanes < 1 || lanes > 64 || !llvm::isPowerOf2_64(lanes))
    return emitError() << "expected lanes to be a power of two of at most 64, "
                          "but got "
                       << lanes;
  if (radices.empty())
    return emitError() << "expected at least one radix";
  int64_t length = 1;
  for (int64_t radix : radices) {
    if (radix != 2 && radix != 4 && radix != 8)
      return emitError() << "expected radices of 2, 4 or 8, but got " << radix;
    length *= radix;
    if (length > (1 << 26))
      return emitError() << "expected a transform of at most 2^26 rows";
  }
  return success();
}

int64_t SpectrumAttr::getLength() const {
  int64_t length = 1;
  for (int64_t radix : getRadices())
    length *= radix;
  return length;
}

int64_t SpectrumAttr::getWidth(int64_t width) const {
  return llvm::alignTo(width, getGroup());
}

//===----------------------------------------------------------------------===//
// FFTForwardOp and FFTInverseOp
//===----------------------------------------------------------------------===//

/// Checks `spectrum [B, L, F]` against the columns `[B, N, E]` it is of, called
/// `name`, of which rows `first` on are meant.
static LogicalResult verifyTransform(Operation *op, SpectrumAttr form,
                                     Value spectrum, StringRef name,
                                     Value columns, int64_t first) {
  ArrayRef<int64_t> shape = shaped(columns).getShape();
  int64_t length = form.getLength();
  if (failed(verifyWidth(op, name, columns)) ||
      failed(verifyElements(op, "spectrum", spectrum,
                            getStateType(shaped(columns).getElementType()))) ||
      failed(verifyExtent(op, "spectrum", spectrum, 0, shape[0],
                          ("batch of " + name).str())) ||
      failed(verifyExtent(op, "spectrum", spectrum, 1, length,
                          "product of the radices")) ||
      failed(verifyExtent(op, "spectrum", spectrum, 2, form.getWidth(shape[2]),
                          ("whole groups of the columns of " + name).str())))
    return failure();
  if (ShapedType::isDynamic(shape[1]))
    return op->emitOpError() << "expects a static number of rows of " << name;
  if (first < 0 || first > length || shape[1] > length - first)
    return op->emitOpError()
           << "expects " << name << " to be rows of a transform of " << length
           << ", but got rows " << first << " to " << first + shape[1];
  if (ShapedType::isDynamic(shaped(spectrum).getDimSize(1)) ||
      ShapedType::isDynamic(shaped(spectrum).getDimSize(2)))
    return op->emitOpError("expects a static shape of a spectrum");
  return verifyDestinationStyle(op);
}

MutableOperandRange FFTForwardOp::getDpsInitsMutable() {
  return getSpectrumMutable();
}

LogicalResult FFTForwardOp::verify() {
  return verifyTransform(*this, getForm(), getSpectrum(), "input", getInput(),
                         /*first=*/0);
}

MutableOperandRange FFTInverseOp::getDpsInitsMutable() {
  return getOutputMutable();
}

LogicalResult FFTInverseOp::verify() {
  return verifyTransform(*this, getForm(), getSpectrum(), "output", getOutput(),
                         getFirst());
}

//===----------------------------------------------------------------------===//
// FFTMultiplyOp and FFTAccumulateOp
//===----------------------------------------------------------------------===//

template <typename OpTy> static LogicalResult verifyProduct(OpTy op) {
  ShapedType spectrum = shaped(op.getSpectrum()),
             factor = shaped(op.getFactor());
  SpectrumAttr form = op.getForm();
  int64_t width = spectrum.getDimSize(2), group = form.getGroup();
  if (ShapedType::isDynamic(width) ||
      ShapedType::isDynamic(factor.getDimSize(2)))
    return op.emitOpError("expects a static shape of a spectrum");
  if (failed(verifyExtent(op, "spectrum", op.getSpectrum(), 1, form.getLength(),
                          "product of the radices")) ||
      failed(verifyElements(op, "factor", op.getFactor(),
                            spectrum.getElementType())) ||
      failed(verifyExtent(op, "factor", op.getFactor(), 0,
                          spectrum.getDimSize(0), "batch of spectrum",
                          /*mayBroadcast=*/true)) ||
      failed(verifyExtent(op, "factor", op.getFactor(), 1, form.getLength(),
                          "product of the radices")) ||
      failed(verifyElements(op, "output", op.getOutput(),
                            spectrum.getElementType())) ||
      failed(verifyShape(op, "output", op.getOutput(), spectrum.getShape(),
                         "from spectrum")))
    return failure();
  for (int64_t columns : {width, factor.getDimSize(2)})
    if (columns % group != 0 || columns == 0)
      return op.emitOpError() << "expects spectra of whole groups of " << group
                              << " columns, but got " << columns;
  return verifyDestinationStyle(op);
}

MutableOperandRange FFTMultiplyOp::getDpsInitsMutable() {
  return getOutputMutable();
}

LogicalResult FFTMultiplyOp::verify() { return verifyProduct(*this); }

MutableOperandRange FFTAccumulateOp::getDpsInitsMutable() {
  return getOutputMutable();
}

LogicalResult FFTAccumulateOp::verify() { return verifyProduct(*this); }
