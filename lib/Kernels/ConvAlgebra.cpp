//===- ConvAlgebra.cpp - Numerics of sums of convolutions -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Rows that a sequence has at most, for bounds of sums.
static constexpr int kLogMaxRows = 20;

static Value constantLike(KernelBuilder &b, Value like, double value) {
  TypedAttr number = b.getFloatAttr(getElementTypeOrSelf(like), value);
  if (auto vector = dyn_cast<VectorType>(like.getType()))
    number = DenseElementsAttr::get(cast<ShapedType>(Type(vector)), number);
  return arith::ConstantOp::create(b, number);
}

static Value compare(KernelBuilder &b, arith::CmpFPredicate predicate, Value x,
                     double y) {
  return arith::CmpFOp::create(b, predicate, x, constantLike(b, x, y));
}

Value conv::maxNumber(KernelBuilder &b, Value sum, Value top) {
  Value isGreater =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sum, top);
  Value isFinite = compare(b, arith::CmpFPredicate::OLT, sum, kInfinity);
  isGreater = arith::AndIOp::create(b, isGreater, isFinite);
  return arith::SelectOp::create(b, isGreater, sum, top);
}

Value conv::zeroIfNone(KernelBuilder &b, Value top) {
  Value isNone = compare(b, arith::CmpFPredicate::OEQ, top, -kInfinity);
  return arith::SelectOp::create(b, isNone, constantLike(b, top, 0.0), top);
}

Value conv::getShift(KernelBuilder &b, Value top) {
  return b.fmul(top, constantLike(b, top, -softmax::kLog2E));
}

Value conv::getScore(KernelBuilder &b, Value sum, Value shift) {
  Value factor = constantLike(b, sum, softmax::kLog2E);
  if (isa<VectorType>(sum.getType()))
    shift = vector::BroadcastOp::create(b, sum.getType(), shift);
  return b.fma(sum, factor, shift);
}

Value conv::getLimitedScore(KernelBuilder &b, Value sum, Value shift) {
  bool isDouble = b.getStateType().isF64();
  double lowest = isDouble ? std::numeric_limits<double>::lowest()
                           : std::numeric_limits<float>::lowest();
  Value score = getScore(b, sum, shift), least = constantLike(b, sum, lowest);
  Value isRead = compare(b, arith::CmpFPredicate::OGT, sum, -kInfinity);
  Value isOut = arith::AndIOp::create(
      b, isRead, compare(b, arith::CmpFPredicate::OLT, score, lowest));
  return arith::SelectOp::create(b, isOut, least, score);
}

Value conv::getWeight(KernelBuilder &b, Value score, Value top) {
  if (top)
    score = b.fsub(score, top);
  // Minus infinity has no power; NaN stays.
  score = b.fmax(constantLike(b, score, softmax::kMasked), score);
  if (isa<VectorType>(score.getType()))
    return softmax::exp2(b, score);
  return math::Exp2Op::create(b, score);
}

conv::Lags conv::getLags(KernelBuilder &b, Value row, Value first, Value end) {
  Value next = b.add(row, 1);
  return {b.sub(next, b.min(end, next)), b.sub(next, first)};
}

static Value isZero(KernelBuilder &b, Value normaliser) {
  return compare(b, arith::CmpFPredicate::OEQ, normaliser, 0.0);
}

Value conv::getDivisor(KernelBuilder &b, Value normaliser) {
  return b.select(isZero(b, normaliser), b.scalar(1.0), normaliser);
}

Value conv::getFactor(KernelBuilder &b, Value normaliser) {
  Value reciprocal = arith::DivFOp::create(b, b.scalar(1.0), normaliser);
  return b.select(isZero(b, normaliser), b.scalar(0.0), reciprocal);
}

double conv::getMostReciprocal(FloatType stateType) {
  const llvm::fltSemantics &type = stateType.getFloatSemantics();
  int logLeast = llvm::APFloat::semanticsMinExponent(type),
      precision = llvm::APFloat::semanticsPrecision(type);
  return std::ldexp(1.0, -logLeast - (precision + 1) - kLogMaxRows);
}

double conv::getNoiseFactor(int64_t length) {
  // c u log2(L) for an error of 2^9 u, with c = 1/2: whatever the type.
  return std::ldexp(llvm::Log2_64(length), -10);
}
