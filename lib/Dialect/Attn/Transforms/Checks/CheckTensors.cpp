//===- CheckTensors.cpp - Checks of linalg and tensor operations ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Upstream's generate-runtime-verification writes the like of it, but ends the
// process where it fails, and knows of no extents that are equal for certain.
//
//===----------------------------------------------------------------------===//

#include "CheckTensors.h"
#include "fovea/Analysis/SymbolicExtents.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

namespace {
class TensorChecker {
public:
  TensorChecker(func::FuncOp function, RuntimeCalls &calls)
      : extents(function), calls(calls) {}

  void check(Operation *op);

private:
  void checkLoops(linalg::LinalgOp op);
  void checkReach(linalg::LinalgOp op, OpOperand &operand, unsigned dim,
                  ArrayRef<int64_t> loops);
  void checkElement(linalg::LinalgOp op, tensor::ExtractOp extract,
                    ArrayRef<int64_t> loops);
  void checkShape(tensor::CastOp op);
  void checkShape(tensor::ExpandShapeOp op);
  void checkShape(tensor::ReshapeOp op);
  void checkShape(tensor::ConcatOp op);
  void checkSlice(OffsetSizeAndStrideOpInterface op, Value whole);
  void checkPadding(tensor::PadOp op);

  /// Both are the same, or the call fails with `rule`.
  void checkSame(Operation *op, int64_t found, int64_t expected,
                 const Twine &rule);
  void checkSameProduct(Operation *op, ArrayRef<int64_t> found,
                        ArrayRef<int64_t> expected, const Twine &rule);
  void checkAtMost(Operation *op, OpFoldResult found, OpFoldResult most,
                   const Twine &rule);
  void checkNatural(Operation *op, OpFoldResult found, const Twine &rule);
  void emit(ImplicitLocOpBuilder &b, OpFoldResult found, OpFoldResult expected,
            const Twine &rule);

  SymbolicExtents extents;
  RuntimeCalls &calls;
  /// What was checked before in the block.
  DenseSet<std::tuple<Block *, int64_t, int64_t>> checked;
};
} // namespace

static std::string describe(Operation *op, const Twine &rule) {
  return (op->getName().getStringRef() + ": " + rule).str();
}

void TensorChecker::emit(ImplicitLocOpBuilder &b, OpFoldResult found,
                         OpFoldResult expected, const Twine &rule) {
  SmallVector<Value> arguments;
  for (OpFoldResult number : {found, expected})
    arguments.push_back(arith::IndexCastOp::create(
        b, b.getI64Type(),
        getValueOrCreateConstantIndexOp(b, b.getLoc(), number)));
  calls.emitCheck(b, "fovea_rt_check_extent", rule.str(), arguments);
}

void TensorChecker::checkSame(Operation *op, int64_t found, int64_t expected,
                              const Twine &rule) {
  if (found == expected ||
      !checked.insert({op->getBlock(), found, expected}).second)
    return;
  ImplicitLocOpBuilder b(op->getLoc(), op);
  emit(b, extents.materialize(b, b.getLoc(), found),
       extents.materialize(b, b.getLoc(), expected), describe(op, rule));
}

/// None where it does not fit, as that of four symbols.
static std::optional<int64_t> getProduct(ArrayRef<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors)
    if (llvm::MulOverflow(product, factor, product))
      return std::nullopt;
  return product;
}

void TensorChecker::checkSameProduct(Operation *op, ArrayRef<int64_t> found,
                                     ArrayRef<int64_t> expected,
                                     const Twine &rule) {
  std::optional<int64_t> first = getProduct(found);
  std::optional<int64_t> second = getProduct(expected);
  if (first && second)
    return checkSame(op, *first, *second, rule);
  ImplicitLocOpBuilder b(op->getLoc(), op);
  auto multiply = [&](ArrayRef<int64_t> factors) {
    AffineExpr product = b.getAffineConstantExpr(1);
    SmallVector<OpFoldResult> operands;
    for (int64_t factor : factors) {
      product = product * b.getAffineSymbolExpr(operands.size());
      operands.push_back(extents.materialize(b, b.getLoc(), factor));
    }
    return affine::makeComposedFoldedAffineApply(b, b.getLoc(), product,
                                                 operands);
  };
  emit(b, multiply(found), multiply(expected), describe(op, rule));
}

void TensorChecker::checkAtMost(Operation *op, OpFoldResult found,
                                OpFoldResult most, const Twine &rule) {
  ImplicitLocOpBuilder b(op->getLoc(), op);
  AffineExpr first = b.getAffineSymbolExpr(0),
             second = b.getAffineSymbolExpr(1);
  OpFoldResult least = affine::makeComposedFoldedAffineMin(
      b, b.getLoc(), AffineMap::get(0, 2, {first, second}, b.getContext()),
      {found, most});
  emit(b, found, least, describe(op, rule));
}

/// The number is not negative.
void TensorChecker::checkNatural(Operation *op, OpFoldResult found,
                                 const Twine &rule) {
  std::optional<int64_t> known = getConstantIntValue(found);
  if (known && *known >= 0)
    return;
  ImplicitLocOpBuilder b(op->getLoc(), op);
  OpFoldResult least = affine::makeComposedFoldedAffineMax(
      b, b.getLoc(),
      AffineMap::get(0, 1,
                     {b.getAffineSymbolExpr(0), b.getAffineConstantExpr(0)},
                     b.getContext()),
      {found});
  emit(b, found, least, describe(op, rule));
}

//===----------------------------------------------------------------------===//
// linalg
//===----------------------------------------------------------------------===//

/// The extents of a loop are those of all dimensions that it runs along.
void TensorChecker::checkLoops(linalg::LinalgOp op) {
  SmallVector<int64_t> loops(op.getNumLoops(), -1);
  SmallVector<std::pair<unsigned, unsigned>> owners(op.getNumLoops());
  SmallVector<std::pair<OpOperand *, unsigned>> windows;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<ShapedType>(operand.get().getType()))
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      if (!loop) {
        windows.push_back({&operand, dim});
        continue;
      }
      int64_t extent = extents.get(operand.get(), dim);
      auto &[owner, ownerDim] = owners[loop.getPosition()];
      int64_t &expected = loops[loop.getPosition()];
      if (expected < 0) {
        expected = extent;
        std::tie(owner, ownerDim) = std::pair(operand.getOperandNumber(), dim);
        continue;
      }
      checkSame(op, extent, expected,
                "extent " + Twine(dim) + " of operand " +
                    Twine(operand.getOperandNumber()) + " must be extent " +
                    Twine(ownerDim) + " of operand " + Twine(owner));
    }
  }
  for (auto [operand, dim] : windows)
    checkReach(op, *operand, dim, loops);
  // Kernels of GPUs have no assertions.
  if (!isForGPU(op))
    for (auto extract : op.getBlock()->getOps<tensor::ExtractOp>())
      checkElement(op, extract, loops);
}

/// Elements that a body reads by their indices, as those of a table, exist.
void TensorChecker::checkElement(linalg::LinalgOp op, tensor::ExtractOp extract,
                                 ArrayRef<int64_t> loops) {
  for (auto [dim, index] : llvm::enumerate(extract.getIndices())) {
    int64_t extent = extents.get(extract.getTensor(), dim);
    Value number = index;
    while (auto cast = number.getDefiningOp<arith::IndexCastOp>())
      number = cast.getIn();
    // A symbol is no number to compare.
    int64_t end = -1;
    if (auto loop = number.getDefiningOp<linalg::IndexOp>())
      end = loops[loop.getDim()];
    else if (std::optional<int64_t> known = getConstantIntValue(number))
      end = *known + 1;
    if (end == extent || (end > 0 && extents.isStatic(end) &&
                          extents.isStatic(extent) && end < extent))
      continue;
    ImplicitLocOpBuilder outside(extract.getLoc(), op);
    Value most = getValueOrCreateConstantIndexOp(
        outside, extract.getLoc(),
        extents.materialize(outside, extract.getLoc(), extent));
    ImplicitLocOpBuilder b(extract.getLoc(), extract);
    Value isInside =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, most);
    cf::AssertOp::create(
        b, isInside,
        describe(extract, "index " + Twine(dim) + " is out of bounds"));
  }
}

/// Whether the expression is greatest where all loops are at their ends.
static bool isGreatestAtEnds(AffineExpr expr) {
  if (isa<AffineDimExpr>(expr))
    return true;
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue() >= 0;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  return binary && expr.getKind() != AffineExprKind::Mod &&
         isGreatestAtEnds(binary.getLHS()) && isGreatestAtEnds(binary.getRHS());
}

/// Windows lie within what they are read from.
void TensorChecker::checkReach(linalg::LinalgOp op, OpOperand &operand,
                               unsigned dim, ArrayRef<int64_t> loops) {
  AffineExpr expr = op.getMatchingIndexingMap(&operand).getResult(dim);
  int64_t extent = extents.get(operand.get(), dim);
  if (isa<AffineConstantExpr>(expr) || !isGreatestAtEnds(expr))
    return;
  bool isKnown = extents.isStatic(extent);
  for (auto [loop, loopExtent] : llvm::enumerate(loops))
    if (expr.isFunctionOfDim(loop)) {
      if (loopExtent < 0)
        return;
      isKnown &= extents.isStatic(loopExtent);
    }
  if (isKnown)
    return;
  ImplicitLocOpBuilder b(op->getLoc(), op);
  SmallVector<OpFoldResult> ends;
  SmallVector<AffineExpr> replacements;
  for (auto [loop, loopExtent] : llvm::enumerate(loops)) {
    replacements.push_back(b.getAffineSymbolExpr(ends.size()) - 1);
    ends.push_back(
        extents.materialize(b, b.getLoc(), std::max<int64_t>(loopExtent, 1)));
  }
  OpFoldResult reach = affine::makeComposedFoldedAffineApply(
      b, b.getLoc(), expr.replaceDims(replacements) + 1, ends);
  checkAtMost(op, reach, extents.materialize(b, b.getLoc(), extent),
              "reads too far along extent " + Twine(dim) + " of operand " +
                  Twine(operand.getOperandNumber()));
}

//===----------------------------------------------------------------------===//
// tensor
//===----------------------------------------------------------------------===//

void TensorChecker::checkShape(tensor::CastOp op) {
  auto from = dyn_cast<RankedTensorType>(op.getSource().getType());
  auto to = dyn_cast<RankedTensorType>(op.getType());
  if (!from || !to)
    return;
  for (auto [dim, extent] : llvm::enumerate(to.getShape()))
    if (!ShapedType::isDynamic(extent))
      checkSame(op, extents.get(op.getSource(), dim), extent,
                "extent " + Twine(dim) + " differs from the type");
}

void TensorChecker::checkShape(tensor::ExpandShapeOp op) {
  SmallVector<int64_t> shape =
      llvm::map_to_vector(op.getMixedOutputShape(), [&](OpFoldResult extent) {
        return extents.get(extent);
      });
  for (auto [dim, group] : llvm::enumerate(op.getReassociationIndices()))
    checkSameProduct(op, ArrayRef(shape).slice(group.front(), group.size()),
                     extents.get(op.getSrc(), dim),
                     "the parts of extent " + Twine(dim) + " must make it up");
}

void TensorChecker::checkShape(tensor::ReshapeOp op) {
  auto shape = op.getShape().getDefiningOp<tensor::FromElementsOp>();
  if (!shape || !isa<RankedTensorType>(op.getSource().getType()))
    return;
  SmallVector<int64_t> to =
      llvm::map_to_vector(shape.getElements(), [&](Value extent) {
        return extents.get(OpFoldResult(extent));
      });
  checkSameProduct(op, to, extents.getShape(op.getSource()),
                   "the result must have as many elements");
}

void TensorChecker::checkShape(tensor::ConcatOp op) {
  for (auto [number, input] : llvm::enumerate(op.getInputs()))
    for (unsigned dim : llvm::seq<unsigned>(op.getRank()))
      if (dim != op.getDim())
        checkSame(op, extents.get(input, dim),
                  extents.get(op.getInputs().front(), dim),
                  "extent " + Twine(dim) + " of operand " + Twine(number) +
                      " must be that of operand 0");
}

/// Offsets, sizes and strides that are not known stay within the whole.
void TensorChecker::checkSlice(OffsetSizeAndStrideOpInterface op, Value whole) {
  for (auto [dim, offset, size, stride] : llvm::enumerate(
           op.getMixedOffsets(), op.getMixedSizes(), op.getMixedStrides())) {
    int64_t extent = extents.get(whole, dim);
    if (isConstantIntValue(offset, 0) && isConstantIntValue(stride, 1) &&
        extents.get(size) == extent)
      continue;
    if (extents.isStatic(extent) && getConstantIntValue(offset) &&
        getConstantIntValue(size) && getConstantIntValue(stride))
      continue;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    AffineExpr first, second, third;
    bindSymbols(b.getContext(), first, second, third);
    for (auto [number, name] :
         {std::pair(offset, "offset"), std::pair(size, "size")})
      checkNatural(op, number, Twine(name) + " " + Twine(dim) + " is negative");
    OpFoldResult end = affine::makeComposedFoldedAffineApply(
        b, b.getLoc(), first + (second - 1) * third + 1,
        {offset, size, stride});
    checkAtMost(op, end, extents.materialize(b, b.getLoc(), extent),
                "reaches beyond extent " + Twine(dim));
  }
}

/// What lies behind negative padding would be read and written.
void TensorChecker::checkPadding(tensor::PadOp op) {
  for (auto [dim, low, high] :
       llvm::enumerate(op.getMixedLowPad(), op.getMixedHighPad()))
    for (auto [number, name] : {std::pair(low, "low"), std::pair(high, "high")})
      checkNatural(op, number,
                   Twine(name) + " padding " + Twine(dim) + " is negative");
}

void TensorChecker::check(Operation *op) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](linalg::LinalgOp op) { checkLoops(op); })
      .Case<tensor::CastOp, tensor::ExpandShapeOp, tensor::ReshapeOp,
            tensor::ConcatOp>([&](auto op) { checkShape(op); })
      .Case([&](tensor::ExtractSliceOp op) { checkSlice(op, op.getSource()); })
      .Case([&](tensor::InsertSliceOp op) { checkSlice(op, op.getDest()); })
      .Case([&](tensor::PadOp op) { checkPadding(op); });
}

void fovea::attn::emitTensorChecks(func::FuncOp function, RuntimeCalls &calls) {
  // Loops become kernels of a GPU, which call nothing.
  bool hasLoops = !isForGPU(function);
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) {
    // Bodies of linalg stay what they are.
    Operation *parent = op->getParentOp();
    if (hasLoops ? !isa<linalg::LinalgOp>(parent) : parent == function)
      ops.push_back(op);
  });
  TensorChecker checker(function, calls);
  for (Operation *op : ops)
    checker.check(op);
}
