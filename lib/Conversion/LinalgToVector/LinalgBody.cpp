//===- LinalgBody.cpp - The body of a linalg op at a point ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgBody.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

bool LinalgBody::canEmit(linalg::LinalgOp op) {
  return llvm::all_of(
      op.getBlock()->without_terminator(), [&](Operation &inner) {
        // What other points write must not be read.
        if (auto load = dyn_cast<memref::LoadOp>(inner))
          return !llvm::is_contained(op.getDpsInits(), load.getMemRef());
        // LLVM has no integer powers of vectors that differ from lane to lane.
        return inner.getNumRegions() == 0 && !isa<math::FPowIOp>(inner) &&
               (isa<arith::ConstantOp, linalg::IndexOp, cf::AssertOp>(inner) ||
                OpTrait::hasElementwiseMappableTraits(&inner));
      });
}

/// Whether the last of `results` counts along `loop`, and no other one does.
static bool isLastAlong(AffineMap map, ArrayRef<AffineExpr> results,
                        unsigned loop) {
  AffineExpr rest = simplifyAffineExpr(
      results.back() - getAffineDimExpr(loop, map.getContext()),
      map.getNumDims(), /*numSymbols=*/0);
  return !rest.isFunctionOfDim(loop) &&
         llvm::none_of(results.drop_back(), [&](AffineExpr expr) {
           return expr.isFunctionOfDim(loop);
         });
}

/// Whether the last dimension is two neighbours, and the next pair follows.
static bool holdsPairs(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset, rank = type.getRank();
  return rank >= 2 && type.getDimSize(rank - 1) == 2 &&
         type.getElementType().isIntOrFloat() &&
         type.getElementTypeBitWidth() >= 8 &&
         succeeded(type.getStridesAndOffset(strides, offset)) &&
         strides[rank - 1] == 1 && strides[rank - 2] == 2;
}

bool LinalgBody::isContiguous(OpOperand &operand, unsigned loop) {
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  AffineMap map = op.getMatchingIndexingMap(&operand);
  // Elements narrower than a byte have one each, but not in vectors.
  return type && map.getNumResults() > 0 && type.isLastDimUnitStride() &&
         type.getElementTypeBitWidth() >= 8 &&
         isLastAlong(map, map.getResults(), loop);
}

bool LinalgBody::isPaired(OpOperand &operand, unsigned loop) {
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  if (!type || !holdsPairs(type))
    return false;
  AffineMap map = op.getMatchingIndexingMap(&operand);
  AffineExpr half = map.getResults().back();
  auto dim = dyn_cast<AffineDimExpr>(half);
  return (isa<AffineConstantExpr>(half) ||
          (dim && dim.getPosition() == pairLoop)) &&
         isLastAlong(map, map.getResults().drop_back(), loop);
}

bool LinalgBody::isInvariant(OpOperand &operand, unsigned loop) {
  return !op.getMatchingIndexingMap(&operand).isFunctionOfDim(loop);
}

//===----------------------------------------------------------------------===//
// Numbers among vectors
//===----------------------------------------------------------------------===//

/// Whether `load` reads neighbours for neighbours along `loop`.
static bool isContiguousLoad(memref::LoadOp load, unsigned loop) {
  auto last = load.getIndices().empty()
                  ? nullptr
                  : load.getIndices().back().getDefiningOp<linalg::IndexOp>();
  MemRefType type = load.getMemRefType();
  return last && last.getDim() == loop && type.isLastDimUnitStride() &&
         type.getElementType().isIntOrFloat() &&
         type.getElementTypeBitWidth() >= 8;
}

/// Whether `load` reads one of each pair for neighbours along `loop`.
bool LinalgBody::isPairLoad(memref::LoadOp load, unsigned loop) {
  if (!holdsPairs(load.getMemRefType()))
    return false;
  auto along = load.getIndices().drop_back().back();
  auto at = along.getDefiningOp<linalg::IndexOp>();
  auto half = load.getIndices().back().getDefiningOp<linalg::IndexOp>();
  std::optional<int64_t> known = getConstantIntValue(load.getIndices().back());
  return at && at.getDim() == loop &&
         (half ? half.getDim() == pairLoop : known == 0 || known == 1);
}

/// The values of the body that are numbers where vectors run along `loop`; none
/// when some operation has no vectors.
std::optional<LinalgBody::ValueSet> LinalgBody::findScalars(unsigned loop) {
  ValueSet found;
  for (OpOperand *input : op.getDpsInputOperands())
    if (isInvariant(*input, loop))
      found.insert(op.getMatchingBlockArgument(input));
  auto isScalar = [&](Value value) {
    return value.getParentBlock() != op.getBlock() || found.contains(value);
  };
  for (Operation &inner : op.getBlock()->without_terminator()) {
    bool areScalar = llvm::all_of(inner.getOperands(), isScalar);
    if (isa<cf::AssertOp>(inner)) {
      if (!areScalar)
        return std::nullopt;
      continue;
    }
    if (auto load = dyn_cast<memref::LoadOp>(inner)) {
      if (!areScalar &&
          !(isContiguousLoad(load, loop) &&
            llvm::all_of(load.getIndices().drop_back(), isScalar)) &&
          !(isPairLoad(load, loop) &&
            llvm::all_of(load.getIndices().drop_back(2), isScalar)))
        return std::nullopt;
    } else if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      areScalar = index.getDim() != loop;
    } else {
      // Functions of numbers would be calls, those of vectors are polynomials.
      auto isFloat = [](Type type) { return isa<FloatType>(type); };
      areScalar &= llvm::none_of(inner.getOperandTypes(), isFloat) &&
                   llvm::none_of(inner.getResultTypes(), isFloat);
    }
    if (areScalar)
      found.insert_range(inner.getResults());
  }
  return found;
}

/// The values of the body that do not depend on where vectors along `loop` are,
/// but for what is read in the body, which its checks must precede.
LinalgBody::ValueSet LinalgBody::findInvariants(unsigned loop) {
  ValueSet found;
  auto isSameAlong = [&](OpOperand &input) {
    return isInvariant(input, loop) &&
           !(pairLoop && !isInvariant(input, *pairLoop));
  };
  for (OpOperand *input : op.getDpsInputOperands())
    if (isSameAlong(*input))
      found.insert(op.getMatchingBlockArgument(input));
  for (Operation &inner : op.getBlock()->without_terminator()) {
    auto index = dyn_cast<linalg::IndexOp>(inner);
    bool isSame = llvm::all_of(inner.getOperands(), [&](Value value) {
      return value.getParentBlock() != op.getBlock() || found.contains(value);
    });
    if (isSame &&
        !(index && (index.getDim() == loop || index.getDim() == pairLoop)) &&
        !isa<memref::LoadOp, cf::AssertOp>(inner))
      found.insert_range(inner.getResults());
  }
  return found;
}

bool LinalgBody::hasVectors(unsigned loop) {
  return findScalars(loop).has_value();
}

bool LinalgBody::hasFunctions() {
  return llvm::any_of(*op.getBlock(), [&](Operation &inner) {
    return isa_and_nonnull<math::MathDialect>(inner.getDialect()) &&
           !isa<math::AbsFOp, math::AbsIOp, math::CopySignOp, math::FmaOp,
                math::FloorOp, math::CeilOp, math::SqrtOp>(inner) &&
           !invariants.contains(inner.getResult(0));
  });
}

void LinalgBody::setVectorLoop(unsigned loop) {
  vectorLoop = loop;
  scalars = *findScalars(loop);
  invariants = findInvariants(loop);
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

Value LinalgBody::spread(Value value) {
  if (isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(b, vectorOf(value.getType()), value);
}

void LinalgBody::emitInner(Operation &inner, bool isVector,
                           IRMapping &mapping) {
  if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
    Value at = position[index.getDim()];
    if (isVector && index.getDim() == vectorLoop)
      at = arith::AddIOp::create(
          b, spread(at),
          vector::StepOp::create(b,
                                 cast<VectorType>(vectorOf(b.getIndexType()))));
    return mapping.map(index.getResult(), at);
  }
  auto load = dyn_cast<memref::LoadOp>(inner);
  bool isScalar = llvm::all_of(
      inner.getResults(), [&](Value value) { return scalars.contains(value); });
  // Which one of a pair this is: the other one's part of the body has no use.
  if (auto select = dyn_cast<arith::SelectOp>(inner))
    if (std::optional<int64_t> which =
            getConstantIntValue(mapping.lookupOrDefault(select.getCondition())))
      return mapping.map(select.getResult(),
                         mapping.lookupOrDefault(*which
                                                     ? select.getTrueValue()
                                                     : select.getFalseValue()));
  if (!isVector || isScalar || isa<cf::AssertOp>(inner)) {
    Operation *copy = b.clone(inner, mapping);
    SmallVector<Value> folded;
    if (isa<arith::CmpIOp>(copy) && succeeded(b.tryFold(copy, folded)) &&
        !folded.empty()) {
      mapping.map(inner.getResult(0), folded.front());
      copy->erase();
    }
    return;
  }
  if (load && isPairLoad(load, *vectorLoop)) {
    Values at = llvm::map_to_vector(load.getIndices(), [&](Value index) {
      return mapping.lookupOrDefault(index);
    });
    at.end()[-2] = position[*vectorLoop];
    Value loaded = loadOther(load.getType(),
                             mapping.lookupOrDefault(load.getMemRef()), at);
    return mapping.map(load.getResult(), loaded);
  }
  if (load) {
    Values at;
    for (Value index : load.getIndices().drop_back())
      at.push_back(mapping.lookupOrDefault(index));
    at.push_back(position[*vectorLoop]);
    Value loaded =
        vector::LoadOp::create(b, cast<VectorType>(vectorOf(load.getType())),
                               mapping.lookupOrDefault(load.getMemRef()), at);
    return mapping.map(load.getResult(), loaded);
  }
  if (isa<arith::ConstantOp>(inner)) {
    Operation *constant = b.clone(inner);
    return mapping.map(inner.getResult(0), spread(constant->getResult(0)));
  }
  if (auto found = inverses.find(&inner); found != inverses.end()) {
    auto [factor, inverse] = found->second;
    Value dividend = spread(mapping.lookupOrDefault(inner.getOperand(0)));
    dividend = arith::MulFOp::create(b, dividend, factor);
    return mapping.map(inner.getResult(0),
                       arith::MulFOp::create(b, dividend, inverse));
  }
  IRMapping vectors;
  for (Value operand : inner.getOperands())
    vectors.map(operand, spread(mapping.lookupOrDefault(operand)));
  Operation *copy = b.clone(inner, vectors);
  for (auto [result, own] : llvm::zip(inner.getResults(), copy->getResults())) {
    own.setType(vectorOf(own.getType()));
    mapping.map(result, own);
  }
}

void LinalgBody::enterRow(Value isEmpty) {
  leaveRow();
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (!argument.use_empty() && invariants.contains(argument))
      row.map(argument, load(*input, /*isVector=*/true));
  }
  for (Operation &inner : op.getBlock()->without_terminator()) {
    auto check = dyn_cast<cf::AssertOp>(inner);
    if (check && isEmpty && isInvariantValue(check.getArg())) {
      Value holds = row.lookupOrDefault(check.getArg());
      cf::AssertOp::create(b, b.either(holds, isEmpty), check.getMsg());
      checked.insert(check);
    } else if (inner.getNumResults() > 0 &&
               llvm::all_of(inner.getResults(), [&](Value value) {
                 return invariants.contains(value);
               })) {
      emitInner(inner, /*isVector=*/true, row);
    } else if (isDividedByRow(inner)) {
      invertDivisor(inner);
    }
  }
}

/// Whether `inner` divides by a number that rows have, as soft-maxes and norms
/// do: a product with its inverse is as good. It is not where the result is
/// made a whole number, nor for constants, whose multiples are expected to give
/// whole numbers.
bool LinalgBody::isDividedByRow(Operation &inner) {
  auto division = dyn_cast<arith::DivFOp>(inner);
  if (!division || !invariants.contains(division.getRhs()))
    return false;
  Operation *divisor = division.getRhs().getDefiningOp();
  bool isConstant = divisor && divisor->hasTrait<OpTrait::ConstantLike>();
  return !isConstant &&
         (division.getType().isF32() || division.getType().isF64()) &&
         llvm::none_of(*op.getBlock(), [](Operation &other) {
           return isa<arith::FPToSIOp, arith::FPToUIOp, arith::CmpFOp,
                      arith::RemFOp, math::FloorOp, math::CeilOp, math::RoundOp,
                      math::RoundEvenOp, math::TruncOp>(other);
         });
}

/// The inverses of the least numbers are infinite, and those of the largest 0
/// where denormal numbers are: these grow or shrink first, and the dividends
/// with them.
void LinalgBody::invertDivisor(Operation &inner) {
  Value divisor = row.lookup(cast<arith::DivFOp>(inner).getRhs());
  auto constant = [&](double number) -> Value {
    TypedAttr value =
        b.getFloatAttr(getElementTypeOrSelf(divisor.getType()), number);
    if (auto type = dyn_cast<VectorType>(divisor.getType()))
      value = DenseElementsAttr::get(type, Attribute(value));
    return arith::ConstantOp::create(b, value);
  };
  Value one = constant(1.0), factor = one;
  Value size = math::AbsFOp::create(b, divisor);
  auto choose = [&](arith::CmpFPredicate predicate, double limit,
                    double number) {
    Value isBeyond = arith::CmpFOp::create(b, predicate, size, constant(limit));
    factor = arith::SelectOp::create(b, isBeyond, constant(number), factor);
  };
  choose(arith::CmpFPredicate::OLT, 0x1p-100, 0x1p64);
  choose(arith::CmpFPredicate::OGT, 0x1p100, 0x1p-64);
  Value scaled = arith::MulFOp::create(b, divisor, factor);
  Value inverse = arith::DivFOp::create(b, one, scaled);
  inverses[&inner] = {spread(factor), spread(inverse)};
}

LinalgBody::Values LinalgBody::emit(bool isVector, ValueRange old) {
  IRMapping mapping = isVector ? row : IRMapping();
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (!argument.use_empty() && !mapping.contains(argument))
      mapping.map(argument, load(*input, isVector));
  }
  for (auto [argument, value] : llvm::zip(op.getRegionOutputArgs(), old))
    if (value)
      mapping.map(argument, value);
  for (Operation &inner : op.getBlock()->without_terminator()) {
    bool isDone = inner.getNumResults() > 0
                      ? mapping.contains(inner.getResult(0))
                      : checked.contains(&inner);
    if (!isDone)
      emitInner(inner, isVector, mapping);
  }
  Values results;
  for (Value value : op.getBlock()->getTerminator()->getOperands()) {
    Value result = mapping.lookupOrDefault(value);
    results.push_back(isVector ? spread(result) : result);
  }
  return results;
}

LinalgBody::Values LinalgBody::indices(OpOperand &operand) {
  Values result;
  for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults())
    result.push_back(
        affine::expandAffineExpr(b, b.getLoc(), expr, position, {}));
  return result;
}

Value LinalgBody::loadOther(Type type, Value memref, Values indices) {
  int64_t half = *getConstantIntValue(indices.back());
  indices.back() = b.index(0);
  Value both = vector::LoadOp::create(b, VectorType::get({2 * lanes}, type),
                                      memref, indices);
  return vector::DeinterleaveOp::create(b, both).getResult(half);
}

Value LinalgBody::load(OpOperand &operand, bool isVector) {
  if (Value value = given.lookup(&operand))
    return value;
  Value memref = operand.get();
  auto type = dyn_cast<MemRefType>(memref.getType());
  if (!type)
    return memref;
  if (!isVector || isInvariant(operand, *vectorLoop))
    return memref::LoadOp::create(b, memref, indices(operand));
  if (isPaired(operand, *vectorLoop))
    return loadOther(type.getElementType(), memref, indices(operand));
  VectorType vector = VectorType::get({lanes}, type.getElementType());
  if (isContiguous(operand, *vectorLoop))
    return vector::LoadOp::create(b, vector, memref, indices(operand));
  // One by one, for functions of all at once.
  Value &at = position[*vectorLoop];
  Value first = at;
  Values elements;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    at = b.add(first, lane);
    elements.push_back(memref::LoadOp::create(b, memref, indices(operand)));
  }
  at = first;
  return vector::FromElementsOp::create(b, vector, elements);
}

void LinalgBody::store(Value value, OpOperand &operand, bool isVector) {
  if (isVector)
    vector::StoreOp::create(b, value, operand.get(), indices(operand));
  else
    memref::StoreOp::create(b, value, operand.get(), indices(operand));
}

void LinalgBody::storePairs(Value first, Value second, OpOperand &operand,
                            bool isVector) {
  Value &half = position[*pairLoop];
  half = b.index(0);
  if (isVector)
    return store(vector::InterleaveOp::create(b, first, second), operand,
                 isVector);
  store(first, operand, isVector);
  half = b.index(1);
  store(second, operand, isVector);
}
