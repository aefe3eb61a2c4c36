//===- SymbolicExtents.cpp - Extents as products of symbols ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/SymbolicExtents.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;

/// Primes that stand for symbols are greater, and products of three of them
/// and a few thousand fit in 63 bits.
static constexpr int64_t kLeastPrime = int64_t(1) << 17;
/// In place of a dimension where the value is an index.
static constexpr unsigned kIsIndex = std::numeric_limits<unsigned>::max();

static bool isPrime(int64_t number) {
  for (int64_t factor = 2; factor * factor <= number; ++factor)
    if (number % factor == 0)
      return false;
  return true;
}

SymbolicExtents::SymbolicExtents(Operation *root) {
  auto add = [&](Type type) {
    if (auto shaped = dyn_cast<ShapedType>(type); shaped && shaped.hasRank())
      for (int64_t extent : shaped.getShape())
        if (extent >= kLeastPrime)
          large.push_back(extent);
  };
  root->walk([&](Operation *op) {
    llvm::for_each(op->getResultTypes(), add);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArgumentTypes(), add);
  });
  root->walk([&](func::FuncOp function) { readAssertions(function); });
}

/// What is asserted before anything is computed holds wherever it is asked for.
void SymbolicExtents::readAssertions(func::FuncOp function) {
  if (function.isExternal())
    return;
  for (Operation &op : function.getBody().front()) {
    if (isa<linalg::LinalgOp>(op))
      return;
    auto assertion = dyn_cast<cf::AssertOp>(op);
    if (!assertion)
      continue;
    auto comparison = assertion.getArg().getDefiningOp<arith::CmpIOp>();
    if (!comparison || comparison.getPredicate() != arith::CmpIPredicate::eq)
      continue;
    int64_t left = get(OpFoldResult(comparison.getLhs()));
    int64_t right = get(OpFoldResult(comparison.getRhs()));
    // The later symbol is written as the other, which has none of it.
    if (right > left)
      std::swap(left, right);
    bool isSymbol = llvm::any_of(symbols, [&](const Symbol &symbol) {
      return symbol.prime == left && symbol.dim;
    });
    if (!isSymbol || right == left || isStatic(right))
      continue;
    for (auto &entry : known)
      if (entry.second == left)
        entry.second = right;
  }
}

int64_t SymbolicExtents::getSymbol(Value value, std::optional<unsigned> dim,
                                   std::optional<Sum> sum) {
  int64_t prime = symbols.empty() ? kLeastPrime : symbols.back().prime;
  do
    ++prime;
  while (!isPrime(prime) || llvm::any_of(large, [&](int64_t number) {
    return number % prime == 0;
  }));
  symbols.push_back({prime, value, dim, sum});
  return prime;
}

static std::optional<int64_t> multiply(int64_t a, int64_t b) {
  int64_t product;
  if (llvm::MulOverflow(a, b, product))
    return std::nullopt;
  return product;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

SymbolicExtents::Sum SymbolicExtents::getSum(int64_t index) const {
  for (const Symbol &symbol : symbols)
    if (symbol.prime == index && symbol.sum)
      return *symbol.sum;
  return {index, 0};
}

/// None where it is negative, or may be.
std::optional<int64_t> SymbolicExtents::add(int64_t index, int64_t constant) {
  Sum sum = getSum(index);
  if (llvm::AddOverflow(sum.constant, constant, sum.constant) ||
      sum.constant < 0 || sum.constant >= kLeastPrime)
    return std::nullopt;
  if (sum.constant == 0)
    return sum.index;
  if (isStatic(sum.index))
    return sum.index + sum.constant;
  for (const Symbol &symbol : symbols)
    if (symbol.sum && symbol.sum->index == sum.index &&
        symbol.sum->constant == sum.constant)
      return symbol.prime;
  return getSymbol(Value(), std::nullopt, sum);
}

std::optional<int64_t> SymbolicExtents::getLeast(int64_t a, int64_t b) const {
  if ((a == 0 && isExtent(b)) || (b == 0 && isExtent(a)))
    return 0;
  Sum first = getSum(a);
  Sum second = getSum(b);
  if (first.index != second.index)
    return std::nullopt;
  return first.constant < second.constant ? a : b;
}

//===----------------------------------------------------------------------===//
// Where extents come from
//===----------------------------------------------------------------------===//

int64_t SymbolicExtents::get(Value shaped, unsigned dim) {
  auto type = cast<ShapedType>(shaped.getType());
  if (!type.isDynamicDim(dim))
    return type.getDimSize(dim);
  if (auto found = known.find({shaped, dim}); found != known.end())
    return found->second;
  std::optional<int64_t> extent = compute(shaped, dim);
  if (!extent)
    extent = getSymbol(shaped, dim);
  known[{shaped, dim}] = *extent;
  return *extent;
}

SmallVector<int64_t> SymbolicExtents::getShape(Value shaped) {
  return llvm::map_to_vector(
      llvm::seq<unsigned>(cast<ShapedType>(shaped.getType()).getRank()),
      [&](unsigned dim) { return get(shaped, dim); });
}

std::optional<int64_t> SymbolicExtents::compute(Value shaped, unsigned dim) {
  auto result = dyn_cast<OpResult>(shaped);
  if (!result)
    return std::nullopt;
  return TypeSwitch<Operation *, std::optional<int64_t>>(result.getOwner())
      .Case<tensor::CastOp, memref::CastOp>(
          [&](auto op) -> std::optional<int64_t> {
            auto type = dyn_cast<ShapedType>(op.getSource().getType());
            if (!type || !type.hasRank())
              return std::nullopt;
            return get(op.getSource(), dim);
          })
      .Case([&](tensor::EmptyOp op) { return get(op.getMixedSizes()[dim]); })
      .Case([&](tensor::ExpandShapeOp op) {
        return get(op.getMixedOutputShape()[dim]);
      })
      .Case([&](tensor::CollapseShapeOp op) {
        std::optional<int64_t> product = 1;
        ReassociationIndices group = op.getReassociationIndices()[dim];
        for (int64_t source : group)
          if (product)
            product = multiply(*product, get(op.getSrc(), source));
        return product;
      })
      .Case([&](tensor::ExtractSliceOp op) -> std::optional<int64_t> {
        unsigned kept = 0;
        llvm::SmallBitVector dropped = op.getDroppedDims();
        for (auto [source, size] : llvm::enumerate(op.getMixedSizes()))
          if (!dropped.test(source) && kept++ == dim)
            return get(size);
        return std::nullopt;
      })
      .Case([&](tensor::InsertSliceOp op) { return get(op.getDest(), dim); })
      .Case([&](tensor::ConcatOp op) -> std::optional<int64_t> {
        if (op.getDim() != dim)
          return get(op.getInputs().front(), dim);
        if (op.getInputs().size() != 2)
          return std::nullopt;
        int64_t first = get(op.getInputs()[0], dim);
        int64_t second = get(op.getInputs()[1], dim);
        if (isStatic(second))
          return add(first, second);
        return isStatic(first) ? add(second, first) : std::nullopt;
      })
      .Case([&](tensor::ReshapeOp op) -> std::optional<int64_t> {
        auto shape = op.getShape().getDefiningOp<tensor::FromElementsOp>();
        if (!shape)
          return std::nullopt;
        return get(OpFoldResult(shape.getElements()[dim]));
      })
      .Case([&](DestinationStyleOpInterface op) {
        return get(op.getTiedOpOperand(result)->get(), dim);
      })
      .Default([&](Operation *op) -> std::optional<int64_t> {
        if (!OpTrait::hasElementwiseMappableTraits(op))
          return std::nullopt;
        for (Value operand : op->getOperands())
          if (isa<RankedTensorType>(operand.getType()))
            return get(operand, dim);
        return std::nullopt;
      });
}

int64_t SymbolicExtents::get(OpFoldResult index) {
  auto value = dyn_cast<Value>(index);
  if (!value)
    return cast<IntegerAttr>(cast<Attribute>(index)).getInt();
  if (auto found = known.find({value, kIsIndex}); found != known.end())
    return found->second;
  std::optional<int64_t> extent = compute(value);
  if (!extent)
    extent = getSymbol(value, std::nullopt);
  known[{value, kIsIndex}] = *extent;
  return *extent;
}

std::optional<int64_t> SymbolicExtents::compute(Value index) {
  APInt constant;
  if (matchPattern(index, m_ConstantInt(&constant))) {
    // No extent, or none that is seen not to be a symbol.
    if (constant.isNegative() || constant.sge(kLeastPrime))
      return std::nullopt;
    return constant.getSExtValue();
  }
  Operation *op = index.getDefiningOp();
  if (!op)
    return std::nullopt;
  return TypeSwitch<Operation *, std::optional<int64_t>>(op)
      .Case<tensor::DimOp, memref::DimOp>(
          [&](auto op) -> std::optional<int64_t> {
            std::optional<int64_t> dim = op.getConstantIndex();
            auto type = dyn_cast<ShapedType>(op.getSource().getType());
            if (!dim || !type || !type.hasRank() || *dim < 0 ||
                *dim >= type.getRank())
              return std::nullopt;
            return get(op.getSource(), *dim);
          })
      .Case(
          [&](arith::IndexCastOp op) { return get(OpFoldResult(op.getIn())); })
      .Case<arith::AddIOp, arith::SubIOp>(
          [&](auto op) -> std::optional<int64_t> {
            APInt constant;
            int64_t added;
            if (matchPattern(op.getRhs(), m_ConstantInt(&constant)))
              added = constant.getSExtValue();
            else if (!isStatic(added = get(OpFoldResult(op.getRhs()))))
              return std::nullopt;
            return add(get(OpFoldResult(op.getLhs())),
                       isa<arith::AddIOp>(op) ? added : -added);
          })
      .Case([&](arith::MinSIOp op) {
        return getLeast(get(OpFoldResult(op.getLhs())),
                        get(OpFoldResult(op.getRhs())));
      })
      .Case<arith::MaxUIOp, arith::MinUIOp>(
          [&](auto op) -> std::optional<int64_t> {
            // Frontends take the greater of extents that are to be the same.
            int64_t extent = get(OpFoldResult(op.getLhs()));
            if (extent != get(OpFoldResult(op.getRhs())))
              return std::nullopt;
            return extent;
          })
      .Case([&](arith::MulIOp op) {
        return multiply(get(OpFoldResult(op.getLhs())),
                        get(OpFoldResult(op.getRhs())));
      })
      .Case<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp>(
          [&](auto op) -> std::optional<int64_t> {
            int64_t product = get(OpFoldResult(op.getLhs()));
            int64_t factor = get(OpFoldResult(op.getRhs()));
            if (factor == 0 || product % factor != 0)
              return std::nullopt;
            return product / factor;
          })
      .Case([&](arith::SelectOp op) -> std::optional<int64_t> {
        // Frontends ask whether an extent is -1, which stands for another.
        auto comparison = op.getCondition().getDefiningOp<arith::CmpIOp>();
        if (!comparison ||
            comparison.getPredicate() != arith::CmpIPredicate::slt ||
            !matchPattern(comparison.getRhs(), m_Zero()) ||
            !isExtent(get(OpFoldResult(comparison.getLhs()))))
          return std::nullopt;
        return get(OpFoldResult(op.getFalseValue()));
      })
      .Case([&](arith::MaxSIOp op) -> std::optional<int64_t> {
        int64_t extent = get(OpFoldResult(op.getLhs()));
        if (!matchPattern(op.getRhs(), m_Zero()) || !isExtent(extent))
          return std::nullopt;
        return extent;
      })
      .Case([&](affine::AffineApplyOp op) -> std::optional<int64_t> {
        return computeExpr(op.getAffineMap().getResult(0), op.getMapOperands(),
                           op.getAffineMap().getNumDims());
      })
      .Default([](Operation *) { return std::nullopt; });
}

/// Products of the operands, which affine maps have where symbols are
/// multiplied, quotients, and sums with constants.
std::optional<int64_t> SymbolicExtents::computeExpr(AffineExpr expr,
                                                    ValueRange operands,
                                                    unsigned numDims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    int64_t value = constant.getValue();
    return value >= 0 && value < kLeastPrime ? std::optional(value)
                                             : std::nullopt;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return get(OpFoldResult(operands[dim.getPosition()]));
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return get(OpFoldResult(operands[numDims + symbol.getPosition()]));
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::optional<int64_t> left = computeExpr(binary.getLHS(), operands, numDims);
  auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (expr.getKind() == AffineExprKind::Add && left && constant)
    return add(*left, constant.getValue());
  std::optional<int64_t> right =
      computeExpr(binary.getRHS(), operands, numDims);
  if (!left || !right)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Mul)
    return multiply(*left, *right);
  bool isQuotient = expr.getKind() == AffineExprKind::FloorDiv ||
                    expr.getKind() == AffineExprKind::CeilDiv;
  if (!isQuotient || *right == 0 || *left % *right != 0)
    return std::nullopt;
  return *left / *right;
}

//===----------------------------------------------------------------------===//
// What extents are
//===----------------------------------------------------------------------===//

bool SymbolicExtents::isStatic(int64_t extent) const {
  return extent == 0 || llvm::none_of(symbols, [&](const Symbol &symbol) {
           return extent % symbol.prime == 0;
         });
}

bool SymbolicExtents::isExtent(int64_t index) const {
  return llvm::none_of(symbols, [&](const Symbol &symbol) {
    return index % symbol.prime == 0 &&
           (symbol.sum ? !isExtent(symbol.sum->index) : !symbol.dim);
  });
}

int64_t SymbolicExtents::getTypeExtent(int64_t extent) const {
  return isStatic(extent) ? extent : ShapedType::kDynamic;
}

SmallVector<int64_t>
SymbolicExtents::getTypeShape(ArrayRef<int64_t> shape) const {
  return llvm::map_to_vector(
      shape, [&](int64_t extent) { return getTypeExtent(extent); });
}

OpFoldResult SymbolicExtents::materialize(OpBuilder &builder, Location loc,
                                          int64_t extent) const {
  if (isStatic(extent))
    return builder.getIndexAttr(extent);
  AffineExpr product = builder.getAffineConstantExpr(1);
  SmallVector<OpFoldResult> operands;
  for (const Symbol &symbol : symbols)
    for (; extent % symbol.prime == 0; extent /= symbol.prime) {
      product = product * builder.getAffineSymbolExpr(operands.size());
      Value value = symbol.value;
      if (symbol.sum) {
        OpFoldResult index = materialize(builder, loc, symbol.sum->index);
        operands.push_back(affine::makeComposedFoldedAffineApply(
            builder, loc, builder.getAffineSymbolExpr(0) + symbol.sum->constant,
            {index}));
      } else if (symbol.dim && isa<MemRefType>(value.getType()))
        operands.push_back(
            builder.createOrFold<memref::DimOp>(loc, value, *symbol.dim));
      else if (symbol.dim)
        operands.push_back(
            builder.createOrFold<tensor::DimOp>(loc, value, *symbol.dim));
      else if (!value.getType().isIndex())
        operands.push_back(arith::IndexCastOp::create(
                               builder, loc, builder.getIndexType(), value)
                               .getResult());
      else
        operands.push_back(value);
    }
  return affine::makeComposedFoldedAffineApply(builder, loc, product * extent,
                                               operands);
}
