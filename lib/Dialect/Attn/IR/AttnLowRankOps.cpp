//===- AttnLowRankOps.cpp - Low-rank products under masks -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/RowMaskContract.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;
using attn::detail::shaped;

//===----------------------------------------------------------------------===//
// RopeOp
//===----------------------------------------------------------------------===//

/// What turns, or its gradient.
static Value getRows(RopeOp op) { return op.getInput(); }
static Value getRows(RopeBackwardOp op) { return op.getDOutput(); }

template <typename OpTy> static int64_t getTurnedWidth(OpTy op) {
  return op.getWidth().value_or(shaped(getRows(op)).getDimSize(3));
}

int64_t RopeOp::getTurnedWidth() { return ::getTurnedWidth(*this); }
int64_t RopeBackwardOp::getTurnedWidth() { return ::getTurnedWidth(*this); }

template <typename OpTy> static long double getFrequency(OpTy op, int64_t i) {
  if (std::optional<ArrayRef<double>> table = op.getFrequencies())
    return (*table)[i];
  return std::pow(static_cast<long double>(op.getBase().convertToDouble()),
                  -static_cast<long double>(i) / (op.getTurnedWidth() / 2));
}

long double RopeOp::getFrequency(int64_t pair) {
  return ::getFrequency(*this, pair);
}
long double RopeBackwardOp::getFrequency(int64_t pair) {
  return ::getFrequency(*this, pair);
}

template <typename OpTy> static LogicalResult verifyTable(OpTy op) {
  std::optional<ArrayRef<double>> table = op.getFrequencies();
  if (!table)
    return success();
  int64_t width = op.getTurnedWidth();
  if (int64_t(table->size()) != width / 2)
    return op.emitOpError()
           << "expects " << width / 2 << " frequencies (half of width " << width
           << "), but got " << table->size();
  for (auto [i, frequency] : llvm::enumerate(*table))
    if (!(frequency >= 0.0) || std::isinf(frequency))
      return op.emitOpError() << "expects finite frequencies of at least 0, "
                                 "but got "
                              << frequency << " at " << i;
  if (!op.getBase().isExactlyValue(10000.0))
    return op.emitOpError() << "expects no base beside frequencies, but got "
                            << op.getBase().convertToDouble();
  return success();
}

template <typename OpTy> static LogicalResult verifyTurns(OpTy op) {
  auto isPositive = [](const APFloat &number) {
    return number.isFinite() && number.convertToDouble() > 0.0;
  };
  if (!isPositive(op.getBase()))
    return op.emitOpError() << "expects a finite base above 0, but got "
                            << op.getBase().convertToDouble();
  if (!isPositive(op.getMagnitude()))
    return op.emitOpError() << "expects a finite magnitude above 0, but got "
                            << op.getMagnitude().convertToDouble();
  int64_t width = op.getTurnedWidth(),
          columns = shaped(getRows(op)).getDimSize(3);
  if (width < 2 || width > columns || width % 2 != 0)
    return op.emitOpError() << "expects an even width from 2 to " << columns
                            << ", but got " << width;
  return verifyTable(op);
}

LogicalResult RopeOp::verify() { return verifyTurns(*this); }
LogicalResult RopeBackwardOp::verify() { return verifyTurns(*this); }

//===----------------------------------------------------------------------===//
// PolynomialFeaturesOp
//===----------------------------------------------------------------------===//

/// `binomial(width + degree, degree)`, or none when that is above 2^31 - 1.
static std::optional<int64_t> countMonomials(int64_t width, int64_t degree) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t count = 1;
  // After step g this is binomial(width + g, g).
  for (int64_t g = 1; g <= degree; ++g) {
    if (width > kMost)
      return std::nullopt;
    count = count * (width + g) / g;
    if (count > kMost)
      return std::nullopt;
  }
  return count;
}

/// Checks the attributes of `op`, and how many columns `features` have.
template <typename OpTy>
static LogicalResult verifyFeatures(OpTy op, StringRef name, Value features) {
  ShapedType input = shaped(op.getInput());
  int64_t degree = op.getDegree();
  if (degree < 0 || degree > 16)
    return op.emitOpError()
           << "expects a degree from 0 to 16, but got " << degree;
  double scale = op.getScale().convertToDouble();
  if (!(scale >= 0.0) || !op.getScale().isFinite())
    return op.emitOpError()
           << "expects a finite scale of at least 0, but got " << scale;
  std::optional<int64_t> count = countMonomials(input.getDimSize(3), degree);
  if (!count)
    return op.emitOpError()
           << "expects at most 2^31 - 1 features, but degree " << degree
           << " of " << input.getDimSize(3) << " columns has more";
  return verifyExtent(op, name, features, 3, *count,
                      "monomials of the columns up to the degree");
}

LogicalResult PolynomialFeaturesOp::verify() {
  return verifyFeatures(*this, "output", getOutput());
}

LogicalResult PolynomialFeaturesBackwardOp::verify() {
  return verifyFeatures(*this, "d_output", getDOutput());
}

//===----------------------------------------------------------------------===//
// LowRankOp
//===----------------------------------------------------------------------===//

const Contract &attn::getRowMaskContract(RowMask mask) {
  static const Contract causal("attn.low_rank", ""),
      change("attn.low_rank", "ends: [B~, H~, N]\ncolumns: [B~, H~, _]"),
      interval("attn.low_rank", "first: [B~, H~, N]\nlast: [B~, H~, N]"),
      rows("attn.low_rank", "group: [B~, H~, N]\nrows: [B~, H~, _, M]"),
      columns("attn.low_rank", "group: [B~, H~, M]\ncolumns: [B~, H~, _, N]");
  switch (mask) {
  case RowMask::Causal:
    return causal;
  case RowMask::RowChange:
    return change;
  case RowMask::RowInterval:
    return interval;
  case RowMask::DistinctRows:
    return rows;
  case RowMask::DistinctColumns:
    return columns;
  }
  llvm_unreachable("unknown mask");
}

SmallVector<StringRef> LowRankOp::getPartNames(RowMask mask) {
  return llvm::map_to_vector(
      getRowMaskContract(mask).getOperands(),
      [](const OperandSpec &part) -> StringRef { return part.name; });
}

template <typename OpTy>
static void addMaskParts(OpTy op, ContractOperands &operands) {
  // Too many or too few are the verifier's business.
  for (auto [part, operand] : llvm::zip(
           getRowMaskContract(op.getMask()).getOperands(), op.getMaskParts()))
    operands.add(part, part.name, operand);
}

template <typename OpTy> static LogicalResult verifyNumParts(OpTy op) {
  size_t found = op.getMaskParts().size(),
         needed = LowRankOp::getPartNames(op.getMask()).size();
  if (found == needed)
    return success();
  return op.emitOpError() << "expects " << needed << " parts of mask "
                          << stringifyRowMask(op.getMask()) << ", but got "
                          << found;
}

void LowRankOp::addOpenOperands(ContractOperands &operands) {
  addMaskParts(*this, operands);
}

LogicalResult LowRankOp::verify() { return verifyNumParts(*this); }

void LowRankOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                            MLIRContext *context) {
  patterns.add<DropFullMasks<LowRankOp>>(context);
}

MutableOperandRange LowRankBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

void LowRankBackwardOp::addOpenOperands(ContractOperands &operands) {
  addMaskParts(*this, operands);
}

LogicalResult LowRankBackwardOp::verify() { return verifyNumParts(*this); }

void LowRankBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                    MLIRContext *context) {
  patterns.add<DropFullMasks<LowRankBackwardOp>>(context);
}

//===----------------------------------------------------------------------===//
// CheckIntervalsOp
//===----------------------------------------------------------------------===//

void CheckIntervalsOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  getCheckEffects(*this, {&getFirstMutable(), &getLastMutable()}, effects);
}
