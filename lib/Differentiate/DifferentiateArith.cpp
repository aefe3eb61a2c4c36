//===- DifferentiateArith.cpp - Derivatives of numbers --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Writes the derivative of one operation: `d` is the adjoint of its result,
/// and everything is computed in that type.
class Rule {
public:
  Rule(Operation *op, OpBuilder &builder, Adjoints &adjoints)
      : builder(builder), loc(op->getLoc()), adjoints(adjoints),
        adjoint(adjoints.find(op->getResult(0))) {}

  /// A number, with operators that write arithmetic.
  struct Number {
    Rule &rule;
    Value value;

    template <typename OpTy> Number combine(Number other) const {
      return {rule, OpTy::create(rule.builder, rule.loc, value, other.value)};
    }
    Number operator+(Number other) const {
      return combine<arith::AddFOp>(other);
    }
    Number operator-(Number other) const {
      return combine<arith::SubFOp>(other);
    }
    Number operator*(Number other) const {
      return combine<arith::MulFOp>(other);
    }
    Number operator/(Number other) const {
      return combine<arith::DivFOp>(other);
    }
    Number operator-() const { return apply<arith::NegFOp>(); }
    Number operator+(double other) const { return *this + rule(other); }
    Number operator*(double other) const { return *this * rule(other); }

    template <typename OpTy> Number apply() const {
      return {rule, OpTy::create(rule.builder, rule.loc, value)};
    }
  };

  Number d() { return {*this, adjoint}; }
  /// A value of the operation.
  Number operator()(Value value) {
    return {*this, convertFloat(builder, loc, value, adjoint.getType())};
  }
  Number operator()(double value) {
    return {*this,
            arith::ConstantOp::create(
                builder, loc, builder.getFloatAttr(adjoint.getType(), value))};
  }
  Value compare(arith::CmpFPredicate predicate, Number lhs, Number rhs) {
    return arith::CmpFOp::create(builder, loc, predicate, lhs.value, rhs.value);
  }
  Number select(Value condition, Number yes, Number no) {
    return {*this, arith::SelectOp::create(builder, loc, condition, yes.value,
                                           no.value)};
  }

  bool isActive(Value value) { return adjoints.isActive(value); }
  void add(Value value, Number contribution) {
    adjoints.add(builder, value, contribution.value);
  }
  /// For a function of one operand.
  void addTo(Operation *op, Number contribution) {
    add(op->getOperand(0), contribution);
  }

  OpBuilder &builder;
  Location loc;

private:
  Adjoints &adjoints;
  Value adjoint;
};

using Number = Rule::Number;
} // namespace

//===----------------------------------------------------------------------===//
// arith
//===----------------------------------------------------------------------===//

static void differentiate(arith::AddFOp op, Rule &r) {
  r.add(op.getLhs(), r.d());
  r.add(op.getRhs(), r.d());
}

static void differentiate(arith::SubFOp op, Rule &r) {
  r.add(op.getLhs(), r.d());
  if (r.isActive(op.getRhs()))
    r.add(op.getRhs(), -r.d());
}

static void differentiate(arith::MulFOp op, Rule &r) {
  if (r.isActive(op.getLhs()))
    r.add(op.getLhs(), r.d() * r(op.getRhs()));
  if (r.isActive(op.getRhs()))
    r.add(op.getRhs(), r.d() * r(op.getLhs()));
}

static void differentiate(arith::DivFOp op, Rule &r) {
  Number share = r.d() / r(op.getRhs());
  r.add(op.getLhs(), share);
  if (r.isActive(op.getRhs()))
    r.add(op.getRhs(), -(share * r(op.getResult())));
}

static void differentiate(arith::NegFOp op, Rule &r) { r.addTo(op, -r.d()); }
static void differentiate(arith::ExtFOp op, Rule &r) { r.addTo(op, r.d()); }
static void differentiate(arith::TruncFOp op, Rule &r) { r.addTo(op, r.d()); }

static void differentiate(arith::SelectOp op, Rule &r) {
  Number zero = r(0.0);
  if (r.isActive(op.getTrueValue()))
    r.add(op.getTrueValue(), r.select(op.getCondition(), r.d(), zero));
  if (r.isActive(op.getFalseValue()))
    r.add(op.getFalseValue(), r.select(op.getCondition(), zero, r.d()));
}

/// The greater (smaller) of two operands gets everything, equal ones half each.
static void addToExtreme(Operation *op, arith::CmpFPredicate wins, Rule &r) {
  Number lhs = r(op->getOperand(0)), rhs = r(op->getOperand(1));
  Number tie = r.select(r.compare(arith::CmpFPredicate::OEQ, lhs, rhs),
                        r.d() * 0.5, r(0.0));
  if (r.isActive(op->getOperand(0)))
    r.add(op->getOperand(0), r.select(r.compare(wins, lhs, rhs), r.d(), tie));
  if (r.isActive(op->getOperand(1)))
    r.add(op->getOperand(1), r.select(r.compare(wins, rhs, lhs), r.d(), tie));
}

static void differentiate(arith::MaximumFOp op, Rule &r) {
  addToExtreme(op, arith::CmpFPredicate::OGT, r);
}
static void differentiate(arith::MaxNumFOp op, Rule &r) {
  addToExtreme(op, arith::CmpFPredicate::OGT, r);
}
static void differentiate(arith::MinimumFOp op, Rule &r) {
  addToExtreme(op, arith::CmpFPredicate::OLT, r);
}
static void differentiate(arith::MinNumFOp op, Rule &r) {
  addToExtreme(op, arith::CmpFPredicate::OLT, r);
}

//===----------------------------------------------------------------------===//
// math: one operand
//===----------------------------------------------------------------------===//

static void differentiate(math::ExpOp op, Rule &r) {
  r.addTo(op, r.d() * r(op.getResult()));
}
static void differentiate(math::Exp2Op op, Rule &r) {
  r.addTo(op, r.d() * r(op.getResult()) * llvm::numbers::ln2);
}
static void differentiate(math::ExpM1Op op, Rule &r) {
  r.addTo(op, r.d() * (r(op.getResult()) + 1.0));
}
static void differentiate(math::LogOp op, Rule &r) {
  r.addTo(op, r.d() / r(op.getOperand()));
}
static void differentiate(math::Log2Op op, Rule &r) {
  r.addTo(op, r.d() / (r(op.getOperand()) * llvm::numbers::ln2));
}
static void differentiate(math::Log10Op op, Rule &r) {
  r.addTo(op, r.d() / (r(op.getOperand()) * llvm::numbers::ln10));
}
static void differentiate(math::Log1pOp op, Rule &r) {
  r.addTo(op, r.d() / (r(op.getOperand()) + 1.0));
}
static void differentiate(math::SqrtOp op, Rule &r) {
  r.addTo(op, r.d() * 0.5 / r(op.getResult()));
}
static void differentiate(math::RsqrtOp op, Rule &r) {
  Number y = r(op.getResult());
  r.addTo(op, r.d() * -0.5 * (y * y * y));
}
static void differentiate(math::CbrtOp op, Rule &r) {
  Number y = r(op.getResult());
  r.addTo(op, r.d() / (y * y * 3.0));
}
static void differentiate(math::SinOp op, Rule &r) {
  r.addTo(op, r.d() * r(op.getOperand()).apply<math::CosOp>());
}
static void differentiate(math::CosOp op, Rule &r) {
  r.addTo(op, -(r.d() * r(op.getOperand()).apply<math::SinOp>()));
}
static void differentiate(math::TanOp op, Rule &r) {
  Number y = r(op.getResult());
  r.addTo(op, r.d() * (y * y + 1.0));
}
static void differentiate(math::SinhOp op, Rule &r) {
  r.addTo(op, r.d() * r(op.getOperand()).apply<math::CoshOp>());
}
static void differentiate(math::CoshOp op, Rule &r) {
  r.addTo(op, r.d() * r(op.getOperand()).apply<math::SinhOp>());
}
static void differentiate(math::TanhOp op, Rule &r) {
  Number y = r(op.getResult());
  r.addTo(op, r.d() * (r(1.0) - y * y));
}
static void differentiate(math::AsinOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, r.d() * (r(1.0) - x * x).apply<math::RsqrtOp>());
}
static void differentiate(math::AcosOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, -(r.d() * (r(1.0) - x * x).apply<math::RsqrtOp>()));
}
static void differentiate(math::AtanOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, r.d() / (x * x + 1.0));
}
static void differentiate(math::AsinhOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, r.d() * (x * x + 1.0).apply<math::RsqrtOp>());
}
static void differentiate(math::AcoshOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, r.d() * (x * x + -1.0).apply<math::RsqrtOp>());
}
static void differentiate(math::AtanhOp op, Rule &r) {
  Number x = r(op.getOperand());
  r.addTo(op, r.d() / (r(1.0) - x * x));
}

/// The density whose integral the error function is, times `factor`.
static void addToErf(Operation *op, double factor, Rule &r) {
  Number x = r(op->getOperand(0));
  r.addTo(op, r.d() * (factor * 2.0 * llvm::numbers::inv_sqrtpi) *
                  (-(x * x)).apply<math::ExpOp>());
}
static void differentiate(math::ErfOp op, Rule &r) { addToErf(op, 1.0, r); }
static void differentiate(math::ErfcOp op, Rule &r) { addToErf(op, -1.0, r); }

/// Zero at zero, where there is no derivative.
static void differentiate(math::AbsFOp op, Rule &r) {
  Number x = r(op.getOperand()), zero = r(0.0);
  Number below =
      r.select(r.compare(arith::CmpFPredicate::OLT, x, zero), -r.d(), zero);
  r.addTo(op, r.select(r.compare(arith::CmpFPredicate::OGT, x, zero), r.d(),
                       below));
}

// Steps are constant wherever they have a derivative.
static void differentiate(math::FloorOp, Rule &) {}
static void differentiate(math::CeilOp, Rule &) {}
static void differentiate(math::RoundOp, Rule &) {}
static void differentiate(math::RoundEvenOp, Rule &) {}
static void differentiate(math::TruncOp, Rule &) {}

//===----------------------------------------------------------------------===//
// math: several operands
//===----------------------------------------------------------------------===//

static void differentiate(math::FmaOp op, Rule &r) {
  if (r.isActive(op.getA()))
    r.add(op.getA(), r.d() * r(op.getB()));
  if (r.isActive(op.getB()))
    r.add(op.getB(), r.d() * r(op.getA()));
  r.add(op.getC(), r.d());
}

static void differentiate(math::PowFOp op, Rule &r) {
  Number x = r(op.getLhs()), power = r(op.getRhs());
  if (r.isActive(op.getLhs()))
    r.add(op.getLhs(), r.d() * power * x.combine<math::PowFOp>(power + -1.0));
  if (r.isActive(op.getRhs()))
    r.add(op.getRhs(), r.d() * r(op.getResult()) * x.apply<math::LogOp>());
}

static void differentiate(math::FPowIOp op, Rule &r) {
  Number x = r(op.getLhs());
  Value power = op.getRhs();
  Value one = arith::ConstantOp::create(
      r.builder, r.loc, r.builder.getIntegerAttr(power.getType(), 1));
  Value less = arith::SubIOp::create(r.builder, r.loc, power, one);
  Number factor = {r, arith::SIToFPOp::create(r.builder, r.loc,
                                              r.d().value.getType(), power)};
  Number lower = {r, math::FPowIOp::create(r.builder, r.loc, x.value, less)};
  r.add(op.getLhs(), r.d() * factor * lower);
}

static void differentiate(math::Atan2Op op, Rule &r) {
  Number y = r(op.getLhs()), x = r(op.getRhs());
  Number share = r.d() / (x * x + y * y);
  if (r.isActive(op.getLhs()))
    r.add(op.getLhs(), share * x);
  if (r.isActive(op.getRhs()))
    r.add(op.getRhs(), -(share * y));
}

static void differentiate(math::CopySignOp op, Rule &r) {
  // The sign of x turns the sign of the result.
  Number one = r(1.0);
  r.add(op.getLhs(), r.d() * one.combine<math::CopySignOp>(r(op.getLhs())) *
                         one.combine<math::CopySignOp>(r(op.getRhs())));
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
template <typename OpTy>
struct NumberModel
    : DifferentiableOpInterface::ExternalModel<NumberModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    if (isa<ShapedType>(op->getResult(0).getType()))
      return op->emitOpError("has no gradient on ")
             << op->getResult(0).getType();
    Rule rule(op, builder, adjoints);
    differentiate(cast<OpTy>(op), rule);
    return success();
  }
};
} // namespace

template <typename... OpTys> static void attach(MLIRContext *context) {
  (OpTys::template attachInterface<NumberModel<OpTys>>(*context), ...);
}

void fovea::attn::registerArithRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attach<arith::AddFOp, arith::DivFOp, arith::ExtFOp, arith::MaximumFOp,
           arith::MaxNumFOp, arith::MinimumFOp, arith::MinNumFOp, arith::MulFOp,
           arith::NegFOp, arith::SelectOp, arith::SubFOp, arith::TruncFOp>(
        context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attach<math::AbsFOp, math::AcosOp, math::AcoshOp, math::AsinOp,
           math::AsinhOp, math::Atan2Op, math::AtanOp, math::AtanhOp,
           math::CbrtOp, math::CeilOp, math::CopySignOp, math::CosOp,
           math::CoshOp, math::ErfOp, math::ErfcOp, math::Exp2Op, math::ExpM1Op,
           math::ExpOp, math::FPowIOp, math::FloorOp, math::FmaOp,
           math::Log10Op, math::Log1pOp, math::Log2Op, math::LogOp,
           math::PowFOp, math::RoundEvenOp, math::RoundOp, math::RsqrtOp,
           math::SinOp, math::SinhOp, math::SqrtOp, math::TanOp, math::TanhOp,
           math::TruncOp>(context);
  });
}
