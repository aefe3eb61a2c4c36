//===- GuardDivisions.cpp - Divisions of integers by zero -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/IR/Matchers.h"

namespace fovea::attn {
#define GEN_PASS_DEF_GUARDDIVISIONSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

static bool isRemainder(Operation *op) {
  return isa<arith::RemSIOp, arith::RemUIOp>(op);
}

static bool isSigned(Operation *op) {
  return isa<arith::DivSIOp, arith::FloorDivSIOp, arith::CeilDivSIOp,
             arith::RemSIOp>(op);
}

static bool isDivision(Operation *op) {
  return isSigned(op) || isRemainder(op) ||
         isa<arith::DivUIOp, arith::CeilDivUIOp>(op);
}

/// Whether the divisor is a number that divides all others.
static bool isSafe(Operation *op) {
  APInt divisor;
  return matchPattern(op->getOperand(1), m_ConstantInt(&divisor)) &&
         !divisor.isZero() && !(isSigned(op) && divisor.isAllOnes());
}

static void guard(Operation *op) {
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Value dividend = op->getOperand(0), divisor = op->getOperand(1);
  Type type = divisor.getType(), element = getElementTypeOrSelf(type);
  unsigned bits = element.isIndex() ? IndexType::kInternalStorageBitWidth
                                    : element.getIntOrFloatBitWidth();
  auto constant = [&](const APInt &number) -> Value {
    TypedAttr attribute = b.getIntegerAttr(element, number);
    if (auto shaped = dyn_cast<ShapedType>(type))
      attribute = DenseElementsAttr::get(shaped, Attribute(attribute));
    return arith::ConstantOp::create(b, attribute);
  };
  auto equals = [&](Value value, const APInt &number) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, value,
                                 constant(number));
  };
  Value isZero = equals(divisor, APInt::getZero(bits)), isOne = isZero;
  if (isSigned(op)) {
    Value overflows = arith::AndIOp::create(
        b, equals(dividend, APInt::getSignedMinValue(bits)),
        equals(divisor, APInt::getAllOnes(bits)));
    isOne = arith::OrIOp::create(b, isZero, overflows);
  }
  op->setOperand(
      1, arith::SelectOp::create(b, isOne, constant(APInt(bits, 1)), divisor));
  b.setInsertionPointAfter(op);
  Value result = op->getResult(0);
  Value ofZero = isRemainder(op) ? dividend : constant(APInt::getAllOnes(bits));
  auto guarded = arith::SelectOp::create(b, isZero, ofZero, result);
  result.replaceAllUsesExcept(guarded, guarded);
}

namespace {
struct GuardDivisionsPass
    : fovea::attn::impl::GuardDivisionsPassBase<GuardDivisionsPass> {
  using GuardDivisionsPassBase::GuardDivisionsPassBase;

  void runOnOperation() override {
    // Bodies of named operations are what their names say.
    SmallVector<linalg::LinalgOp> named;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!isa<linalg::GenericOp, linalg::MapOp, linalg::ReduceOp>(op) &&
          llvm::any_of(op.getBlock()->without_terminator(),
                       [](Operation &op) { return isDivision(&op); }))
        named.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : named) {
      rewriter.setInsertionPoint(op);
      (void)linalg::generalizeNamedOp(rewriter, op);
    }
    SmallVector<Operation *> divisions;
    // Those of whole tensors are in the bodies of linalg by now, or are left.
    getOperation().walk([&](Operation *op) {
      if (isDivision(op) && !isSafe(op) &&
          !isa<TensorType>(op->getResult(0).getType()))
        divisions.push_back(op);
    });
    for (Operation *op : divisions)
      guard(op);
  }
};
} // namespace
