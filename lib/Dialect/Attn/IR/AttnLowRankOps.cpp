//===- AttnLowRankOps.cpp - Low-rank products under masks -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;
using attn::detail::shaped;

/// Checks that `operand` broadcasts to `[B, H]` of rows `[B, H, ...]`.
static LogicalResult verifyBroadcast(Operation *op, StringRef name,
                                     Value operand, Value rows,
                                     StringRef what) {
  for (int64_t dim : {0, 1})
    if (failed(verifyExtent(op, name, operand, dim,
                            shaped(rows).getDimSize(dim), what,
                            /*mayBroadcast=*/true)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// RopeOp
//===----------------------------------------------------------------------===//

/// Checks rows of an even width, called `name`, their positions and the base.
template <typename OpTy>
static LogicalResult verifyRope(OpTy op, StringRef name, Value rows) {
  if (failed(verifyWidth(op, name, rows)))
    return failure();
  int64_t width = shaped(rows).getDimSize(3);
  std::string what = ("from " + name).str();
  if (width % 2 != 0)
    return op.emitOpError()
           << "expects an even width of " << name << ", but got " << width;
  if (failed(verifyBroadcast(op, "positions", op.getPositions(), rows, what)) ||
      failed(verifyExtent(op, "positions", op.getPositions(), 2,
                          shaped(rows).getDimSize(2), what,
                          /*mayBroadcast=*/true)))
    return failure();
  double base = op.getBase().convertToDouble();
  if (!(base > 0.0) || !op.getBase().isFinite())
    return op.emitOpError()
           << "expects a finite base above 0, but got " << base;
  return success();
}

LogicalResult RopeOp::verify() {
  ShapedType input = shaped(getInput());
  if (failed(verifyRope(*this, "input", getInput())) ||
      failed(verifyElements(*this, "output", getOutput(),
                            input.getElementType())) ||
      failed(verifyWidth(*this, "output", getOutput())) ||
      failed(verifyShape(*this, "output", getOutput(), input.getShape(),
                         "from input")))
    return failure();
  return verifyDestinationStyle(*this);
}

LogicalResult RopeBackwardOp::verify() {
  if (failed(verifyRope(*this, "d_output", getDOutput())) ||
      failed(verifyWidth(*this, "d_input", getDInput())) ||
      failed(verifyShape(*this, "d_input", getDInput(),
                         shaped(getDOutput()).getShape(), "from d_output")))
    return failure();
  Type found = shaped(getDInput()).getElementType();
  Type data = shaped(getDOutput()).getElementType();
  if (getStateType(found) != getStateType(data))
    return emitOpError() << "expects d_input to hold numbers whose sums are "
                            "kept in "
                         << getStateType(data) << ", as those of d_output, "
                         << "but got " << found;
  return verifyDestinationStyle(*this);
}

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

/// Checks the attributes of `op`, its input, and `features`, called `name`.
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
  if (failed(verifyWidth(op, "input", op.getInput())) ||
      failed(verifyElements(op, name, features, input.getElementType())) ||
      failed(verifyWidth(op, name, features)) ||
      failed(verifyShape(op, name, features, input.getShape().take_front(3),
                         "from input")))
    return failure();
  std::optional<int64_t> count = countMonomials(input.getDimSize(3), degree);
  if (!count)
    return op.emitOpError()
           << "expects at most 2^31 - 1 features, but degree " << degree
           << " of " << input.getDimSize(3) << " columns has more";
  return verifyExtent(op, name, features, 3, *count,
                      "monomials of the columns up to the degree");
}

LogicalResult PolynomialFeaturesOp::verify() {
  if (failed(verifyFeatures(*this, "output", getOutput())))
    return failure();
  return verifyDestinationStyle(*this);
}

LogicalResult PolynomialFeaturesBackwardOp::verify() {
  if (failed(verifyFeatures(*this, "d_output", getDOutput())) ||
      failed(verifyGradient(*this, "input", getDInput(), getInput())))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// LowRankOp
//===----------------------------------------------------------------------===//

ArrayRef<StringRef> LowRankOp::getPartNames(RowMask mask) {
  static const StringRef change[] = {"ends", "columns"},
                         interval[] = {"first", "last"},
                         rows[] = {"group", "rows"},
                         columns[] = {"group", "columns"};
  switch (mask) {
  case RowMask::Causal:
    return {};
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

/// Checks types and shapes of the parts of the mask.
template <typename OpTy> static LogicalResult verifyMaskParts(OpTy op) {
  RowMask mask = op.getMask();
  ArrayRef<StringRef> names = LowRankOp::getPartNames(mask);
  OperandRange parts = op.getMaskParts();
  if (parts.size() != names.size())
    return op.emitOpError()
           << "expects " << names.size() << " parts of mask "
           << stringifyRowMask(mask) << ", but got " << parts.size();
  bool hasGroups =
      mask == RowMask::DistinctRows || mask == RowMask::DistinctColumns;
  int64_t rows = shaped(op.getU1()).getDimSize(2),
          columns = shaped(op.getU2()).getDimSize(2);
  for (auto [index, part] : llvm::enumerate(parts)) {
    StringRef name = names[index];
    bool hasEntries = hasGroups && index == 1;
    if (shaped(part).getRank() != (hasEntries ? 4 : 3))
      return op.emitOpError()
             << "expects " << name << " to hold "
             << (hasEntries ? "i1 and have rank 4" : "i32 and have rank 3")
             << ", but got " << part.getType();
    if (failed(verifyBroadcast(op, name, part, op.getU1(), "from u1")))
      return failure();
  }
  if (mask == RowMask::DistinctColumns)
    std::swap(rows, columns);
  if (!parts.empty() &&
      failed(verifyExtent(op, names[0], parts[0], 2, rows,
                          mask == RowMask::DistinctColumns ? "rows of u2"
                                                           : "rows of u1")))
    return failure();
  if (mask == RowMask::RowInterval)
    return verifyExtent(op, names[1], parts[1], 2, rows, "rows of u1");
  if (hasGroups)
    return verifyExtent(op, names[1], parts[1], 3, columns,
                        mask == RowMask::DistinctColumns ? "rows of u1"
                                                         : "rows of u2");
  return success();
}

/// Checks the operands of attn.low_rank, which its gradient has, too.
template <typename OpTy> static LogicalResult verifyLowRank(OpTy op) {
  Value u2Rows = op.getU2(), valueRows = op.getValue(), output = op.getOutput();
  ShapedType u1 = shaped(op.getU1()), u2 = shaped(u2Rows),
             value = shaped(valueRows);
  Type elementType = u1.getElementType();
  if (failed(verifyElements(op, "u2", u2Rows, elementType)) ||
      failed(verifyElements(op, "value", valueRows, elementType)) ||
      failed(verifyElements(op, "output", output, elementType)) ||
      failed(verifyWidth(op, "u1", op.getU1())) ||
      failed(verifyWidth(op, "u2", u2Rows)) ||
      failed(verifyWidth(op, "value", valueRows)) ||
      failed(verifyWidth(op, "output", output)) ||
      failed(
          verifyExtent(op, "u2", u2Rows, 0, u1.getDimSize(0), "batch of u1")) ||
      failed(
          verifyExtent(op, "u2", u2Rows, 3, u1.getDimSize(3), "width of u1")) ||
      failed(verifyShape(op, "value", valueRows, u2.getShape().take_front(3),
                         "from u2")) ||
      failed(verifyHeads(op, u1.getDimSize(1), u2.getDimSize(1))) ||
      failed(verifyShape(op, "output", output, u1.getShape().take_front(3),
                         "from u1")) ||
      failed(verifyExtent(op, "output", output, 3, value.getDimSize(3),
                          "width of value")))
    return failure();
  return verifyMaskParts(op);
}

LogicalResult LowRankOp::verify() {
  if (failed(verifyLowRank(*this)))
    return failure();
  return verifyDestinationStyle(*this);
}

MutableOperandRange LowRankBackwardOp::getDpsInitsMutable() {
  return MutableOperandRange(*this, getNumOperands() - 3, 3);
}

LogicalResult LowRankBackwardOp::verify() {
  if (failed(verifyLowRank(*this)) ||
      failed(verifyResultGradients(*this, getOutput(), /*lse=*/Value(),
                                   getDOutput(), /*dLse=*/Value())) ||
      failed(verifyGradient(*this, "u1", getDU1(), getU1())) ||
      failed(verifyGradient(*this, "u2", getDU2(), getU2())) ||
      failed(verifyGradient(*this, "value", getDValue(), getValue())))
    return failure();
  return verifyDestinationStyle(*this);
}

//===----------------------------------------------------------------------===//
// CheckIntervalsOp
//===----------------------------------------------------------------------===//

LogicalResult CheckIntervalsOp::verify() {
  return verifyShape(*this, "last", getLast(), shaped(getFirst()).getShape(),
                     "from first");
}

void CheckIntervalsOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  getCheckEffects(*this, {&getFirstMutable(), &getLastMutable()}, effects);
}
