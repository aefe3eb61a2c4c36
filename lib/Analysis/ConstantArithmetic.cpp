//===- ConstantArithmetic.cpp - Operations on columns of numbers ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConstantArithmetic.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

bool fovea::detail::isComputedType(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.getWidth() <= 64;
  return isa<IndexType, Float16Type, BFloat16Type, Float32Type, Float64Type>(
      type);
}

static unsigned getWidth(Type type) {
  return isa<IndexType>(type) ? 64 : type.getIntOrFloatBitWidth();
}

/// As elements are kept: sign-extended, but i1 as 0 or 1.
static int64_t wrap(uint64_t value, unsigned width) {
  return width == 1 ? value & 1 : llvm::SignExtend64(value, width);
}

static double round(double value, Type type) {
  if (type.isF64())
    return value;
  if (type.isF32())
    return static_cast<float>(value);
  llvm::APFloat rounded(value);
  bool losesInfo = false;
  rounded.convert(cast<FloatType>(type).getFloatSemantics(),
                  llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return rounded.convertToDouble();
}

ConstantElement fovea::detail::getElement(Attribute number) {
  if (auto real = dyn_cast<FloatAttr>(number))
    return ConstantElement(real.getValue().convertToDouble());
  auto integer = cast<IntegerAttr>(number);
  const llvm::APInt &value = integer.getValue();
  return ConstantElement(value.getBitWidth() == 1
                             ? static_cast<int64_t>(value.getZExtValue())
                             : value.getSExtValue());
}

namespace {
/// Columns of integers as the type has them: signed ones as they are kept,
/// unsigned ones without the sign.
struct Signed {
  int64_t operator()(ConstantElement e) const {
    return width == 1 ? -e.integer : e.integer;
  }
  unsigned width;
};
struct Unsigned {
  uint64_t operator()(ConstantElement e) const {
    return width == 64 ? e.integer
                       : e.integer & llvm::maskTrailingOnes<uint64_t>(width);
  }
  unsigned width;
};
struct Real {
  double operator()(ConstantElement e) const { return e.real; }
};
struct ToInteger {
  ConstantElement operator()(uint64_t value) const {
    return ConstantElement(wrap(value, width));
  }
  unsigned width;
};
struct Identity {
  template <typename Number> Number operator()(Number value) const {
    return value;
  }
};
struct ToReal {
  ConstantElement operator()(double value) const {
    return ConstantElement(round(value, type));
  }
  Type type;
};
} // namespace

template <typename Get, typename Put, typename Function>
static ColumnFunction unary(Get get, Put put, Function function) {
  return [=](ArrayRef<const Column *> operands, Column &out) {
    for (auto [a, to] : llvm::zip_equal(*operands[0], out))
      to = put(function(get(a)));
    return true;
  };
}

template <typename Get, typename Put, typename Function>
static ColumnFunction binary(Get get, Put put, Function function) {
  return [=](ArrayRef<const Column *> operands, Column &out) {
    for (auto [a, b, to] : llvm::zip_equal(*operands[0], *operands[1], out))
      to = put(function(get(a), get(b)));
    return true;
  };
}

/// A division, which is not defined by zero, nor of the least number by -1.
template <typename Get, typename Put, typename Function>
static ColumnFunction division(Get get, Put put, Function function) {
  return [=](ArrayRef<const Column *> operands, Column &out) {
    for (auto [a, b, to] : llvm::zip_equal(*operands[0], *operands[1], out)) {
      if (b.integer == 0 || b.integer == -1)
        return false;
      to = put(function(get(a), get(b)));
    }
    return true;
  };
}

static bool compare(arith::CmpFPredicate predicate, double a, double b) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::AlwaysTrue:
    return true;
  case P::OEQ:
    return a == b;
  case P::OGT:
    return a > b;
  case P::OGE:
    return a >= b;
  case P::OLT:
    return a < b;
  case P::OLE:
    return a <= b;
  case P::ONE:
    return !unordered && a != b;
  case P::ORD:
    return !unordered;
  case P::UEQ:
    return unordered || a == b;
  case P::UGT:
    return unordered || a > b;
  case P::UGE:
    return unordered || a >= b;
  case P::ULT:
    return unordered || a < b;
  case P::ULE:
    return unordered || a <= b;
  case P::UNE:
    return unordered || a != b;
  case P::UNO:
    return unordered;
  }
  llvm_unreachable("not a predicate");
}

static ColumnFunction getIntegerComparison(arith::CmpIPredicate predicate,
                                           unsigned width) {
  using P = arith::CmpIPredicate;
  Signed get{width};
  Unsigned getUnsigned{width};
  ToInteger put{1};
  switch (predicate) {
  case P::eq:
    return binary(get, put, std::equal_to<>());
  case P::ne:
    return binary(get, put, std::not_equal_to<>());
  case P::slt:
    return binary(get, put, std::less<>());
  case P::sle:
    return binary(get, put, std::less_equal<>());
  case P::sgt:
    return binary(get, put, std::greater<>());
  case P::sge:
    return binary(get, put, std::greater_equal<>());
  case P::ult:
    return binary(getUnsigned, put, std::less<>());
  case P::ule:
    return binary(getUnsigned, put, std::less_equal<>());
  case P::ugt:
    return binary(getUnsigned, put, std::greater<>());
  case P::uge:
    return binary(getUnsigned, put, std::greater_equal<>());
  }
  llvm_unreachable("not a predicate");
}

/// NaN if either is, and 0 is above -0.
static double getMaximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::nan("");
  if (a == b)
    return std::signbit(a) ? b : a;
  return std::max(a, b);
}

static ColumnFunction getIntegerFunction(Operation *op, unsigned width) {
  Signed get{width};
  Unsigned getUnsigned{width};
  ToInteger put{getWidth(getElementTypeOrSelf(op->getResult(0)))};
  return TypeSwitch<Operation *, ColumnFunction>(op)
      .Case([&](arith::AddIOp) {
        return binary(getUnsigned, put, std::plus<>());
      })
      .Case([&](arith::SubIOp) {
        return binary(getUnsigned, put, std::minus<>());
      })
      .Case([&](arith::MulIOp) {
        return binary(getUnsigned, put, std::multiplies<>());
      })
      .Case([&](arith::AndIOp) {
        return binary(getUnsigned, put, std::bit_and<>());
      })
      .Case([&](arith::OrIOp) {
        return binary(getUnsigned, put, std::bit_or<>());
      })
      .Case([&](arith::XOrIOp) {
        return binary(getUnsigned, put, std::bit_xor<>());
      })
      .Case([&](arith::MaxSIOp) {
        return binary(get, put, [](auto a, auto b) { return std::max(a, b); });
      })
      .Case([&](arith::MinSIOp) {
        return binary(get, put, [](auto a, auto b) { return std::min(a, b); });
      })
      .Case([&](arith::MaxUIOp) {
        return binary(getUnsigned, put,
                      [](auto a, auto b) { return std::max(a, b); });
      })
      .Case([&](arith::MinUIOp) {
        return binary(getUnsigned, put,
                      [](auto a, auto b) { return std::min(a, b); });
      })
      .Case(
          [&](arith::DivSIOp) { return division(get, put, std::divides<>()); })
      .Case(
          [&](arith::RemSIOp) { return division(get, put, std::modulus<>()); })
      .Case([&](arith::DivUIOp) {
        return division(getUnsigned, put, std::divides<>());
      })
      .Case([&](arith::RemUIOp) {
        return division(getUnsigned, put, std::modulus<>());
      })
      .Case([&](arith::FloorDivSIOp) {
        return division(get, put, [](int64_t a, int64_t b) {
          return a / b - (a % b != 0 && (a < 0) != (b < 0));
        });
      })
      .Case([&](math::AbsIOp) {
        return unary(get, put, [](int64_t a) {
          return a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
        });
      })
      .Case<arith::ExtSIOp, arith::IndexCastOp, arith::TruncIOp>(
          [&](Operation *) { return unary(get, put, Identity()); })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp>(
          [&](Operation *) { return unary(getUnsigned, put, Identity()); })
      .Case([&](arith::CmpIOp compare) {
        return getIntegerComparison(compare.getPredicate(), width);
      })
      .Default([](Operation *) { return nullptr; });
}

static ColumnFunction getRealFunction(Operation *op, Type type) {
  ToReal put{type};
  Real get;
  return TypeSwitch<Operation *, ColumnFunction>(op)
      .Case([&](arith::AddFOp) { return binary(get, put, std::plus<>()); })
      .Case([&](arith::SubFOp) { return binary(get, put, std::minus<>()); })
      .Case(
          [&](arith::MulFOp) { return binary(get, put, std::multiplies<>()); })
      .Case([&](arith::DivFOp) { return binary(get, put, std::divides<>()); })
      .Case([&](arith::NegFOp) { return unary(get, put, std::negate<>()); })
      .Case([&](arith::MaximumFOp) { return binary(get, put, getMaximum); })
      .Case([&](arith::MinimumFOp) {
        return binary(get, put,
                      [](double a, double b) { return -getMaximum(-a, -b); });
      })
      .Case([&](math::AbsFOp) {
        return unary(get, put, [](double a) { return std::fabs(a); });
      })
      .Case([&](math::FloorOp) {
        return unary(get, put, [](double a) { return std::floor(a); });
      })
      .Case([&](math::CeilOp) {
        return unary(get, put, [](double a) { return std::ceil(a); });
      })
      .Case([&](math::SqrtOp) {
        return unary(get, put, [](double a) { return std::sqrt(a); });
      })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *) { return unary(get, put, Identity()); })
      .Default([](Operation *) { return nullptr; });
}

/// To an integer that has no such number there is no defined result.
static ColumnFunction getRealToInteger(unsigned width, bool isSigned) {
  double limit = std::ldexp(1.0, isSigned ? width - 1 : width);
  double least = isSigned ? -limit : 0.0;
  return [=](ArrayRef<const Column *> operands, Column &out) {
    for (auto [a, to] : llvm::zip_equal(*operands[0], out)) {
      double value = std::trunc(a.real);
      if (!(value >= least && value < limit))
        return false;
      to.integer = wrap(value < 0 ? static_cast<int64_t>(value)
                                  : static_cast<uint64_t>(value),
                        width);
    }
    return true;
  };
}

static ColumnFunction getSelection() {
  return [](ArrayRef<const Column *> operands, Column &out) {
    for (auto [c, a, b, to] :
         llvm::zip_equal(*operands[0], *operands[1], *operands[2], out))
      to = c.integer ? a : b;
    return true;
  };
}

ColumnFunction fovea::detail::getColumnFunction(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumOperands() == 0)
    return nullptr;
  Type from = getElementTypeOrSelf(op->getOperand(0));
  Type to = getElementTypeOrSelf(op->getResult(0));
  if (!isComputedType(from) || !isComputedType(to))
    return nullptr;
  if (isa<arith::SelectOp>(op))
    return getSelection();
  if (auto comparison = dyn_cast<arith::CmpFOp>(op)) {
    arith::CmpFPredicate predicate = comparison.getPredicate();
    return binary(Real(), ToInteger{1},
                  [=](double a, double b) { return compare(predicate, a, b); });
  }
  if (isa<arith::FPToSIOp, arith::FPToUIOp>(op))
    return getRealToInteger(getWidth(to), isa<arith::FPToSIOp>(op));
  if (isa<arith::SIToFPOp>(op))
    return unary(Signed{getWidth(from)}, ToReal{to}, Identity());
  if (isa<arith::UIToFPOp>(op))
    return unary(Unsigned{getWidth(from)}, ToReal{to}, Identity());
  if (isa<FloatType>(from))
    return getRealFunction(op, to);
  return getIntegerFunction(op, getWidth(from));
}
