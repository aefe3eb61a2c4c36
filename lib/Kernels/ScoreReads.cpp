//===- ScoreReads.cpp - Captured tensors that score regions read ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreEvaluator.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

/// Whether all that an index may be is within a dimension of a memref.
static bool isWithin(Value memref, int64_t dim,
                     const ConstantIntRanges &range) {
  int64_t extent = cast<MemRefType>(memref.getType()).getDimSize(dim);
  return !ShapedType::isDynamic(extent) && range.smin().isNonNegative() &&
         range.smax().slt(extent);
}

/// Whether the score is NaN where `number` is.
static bool makesScoreNaN(Value number) {
  return llvm::any_of(number.getUsers(), [](Operation *user) {
    if (isa<YieldOp>(user))
      return true;
    return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
               arith::NegFOp, arith::ExtFOp, arith::TruncFOp, math::ExpOp,
               math::Exp2Op, math::TanhOp>(user) &&
           makesScoreNaN(user->getResult(0));
  });
}

ScoreBody::Lanes ScoreBody::Evaluator::read(tensor::ExtractOp op) {
  Value memref = body.getMemRef(op);
  SmallVector<Lanes> at;
  for (Value index : op.getIndices())
    at.push_back(state.lanes.at(index));
  Type type = op.getType();
  Lanes result = {Value(), isWide(type), getUnknown(type)};
  // A NaN in place of what is not there takes no instruction behind it.
  bool poisons = makesScoreNaN(op);
  if (llvm::all_of(at, isUniform)) {
    result.value = readScalar(memref, at, poisons);
    return result;
  }
  result.kind = Lanes::Vector;
  // The other indices are those of a row.
  bool isRun = at.back().kind == Lanes::Ramp && std::abs(at.back().step) == 1 &&
               llvm::all_of(ArrayRef(at).drop_back(), isUniform) &&
               cast<MemRefType>(memref.getType()).isLastDimUnitStride();
  auto [value, isInside] =
      isRun ? readRun(memref, at, poisons) : gather(memref, at, poisons);
  result.value = value;
  if (isInside)
    addOutside(isInside);
  if (type.isIndex())
    result.value = arith::IndexCastOp::create(b, vectorOf(b.getIntegerType(64)),
                                              result.value);
  return result;
}

/// Whether scalar indices of leading dimensions are within; null where they
/// are known to be.
Value ScoreBody::Evaluator::areInside(Value memref, ArrayRef<Lanes> at) {
  Value all;
  for (auto [dim, index] : llvm::enumerate(at)) {
    if (index.kind != Lanes::Uniform || isWithin(memref, dim, index.range))
      continue;
    // What is negative is large without its sign.
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                         index.value, b.extent(memref, dim));
    all = all ? b.both(all, inside) : inside;
  }
  return all;
}

/// What stands for an element that is not there.
static TypedAttr getMissing(Builder &b, Type type, bool poisons) {
  if (!poisons)
    return b.getZeroAttr(type);
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  TypedAttr nan =
      b.getFloatAttr(element, APFloat::getQNaN(element.getFloatSemantics()));
  auto vector = dyn_cast<VectorType>(type);
  return vector ? DenseElementsAttr::get(vector, Attribute(nan)) : nan;
}

Value ScoreBody::Evaluator::readScalar(Value memref, ArrayRef<Lanes> at,
                                       bool poisons) {
  SmallVector<Value> indices;
  Value isInside;
  for (auto [dim, index] : llvm::enumerate(at)) {
    indices.push_back(index.value);
    if (isWithin(memref, dim, index.range))
      continue;
    Value extent = b.extent(memref, dim), number = index.value;
    if (!b.getLanes() && fits32(index.range)) {
      // Without lanes these are threads, whose integers have 32 bits. Rows that
      // lists do not name may have more: what is compared is also the index.
      Type narrow = b.getI32Type();
      extent = arith::IndexCastOp::create(
          b, narrow, b.min(extent, std::numeric_limits<int32_t>::max()));
      number = arith::IndexCastOp::create(b, narrow, number);
      indices.back() =
          arith::IndexCastUIOp::create(b, b.getIndexType(), number);
    }
    // What is negative is large without its sign.
    Value inside =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, extent);
    isInside = isInside ? b.both(isInside, inside) : inside;
  }
  if (!isInside)
    return memref::LoadOp::create(b, memref, indices);
  if (!poisons)
    addOutside(isInside);
  Type type = getElementTypeOrSelf(memref);
  return b.select(
      isInside, type,
      [&]() -> Value { return memref::LoadOp::create(b, memref, indices); },
      [&]() -> Value {
        return arith::ConstantOp::create(b, getMissing(b, type, poisons));
      });
}

/// Elements next to each other, one after the other or in the opposite order:
/// as a whole where all of them are there.
ScoreBody::Evaluator::Read
ScoreBody::Evaluator::readRun(Value memref, ArrayRef<Lanes> at, bool poisons) {
  int64_t lanes = b.getLanes(), dim = at.size() - 1;
  bool isReversed = at.back().step < 0;
  Value first =
      isReversed ? b.sub(at.back().value, b.index(lanes - 1)) : at.back().value;
  Value end = b.add(first, lanes);
  auto compare = [&](arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    return arith::CmpIOp::create(b, predicate, lhs, rhs);
  };
  Value isWhole =
      b.both(compare(arith::CmpIPredicate::sge, first, b.index(0)),
             compare(arith::CmpIPredicate::sle, end, b.extent(memref, dim)));
  if (Value isInside = areInside(memref, at))
    isWhole = b.both(isWhole, isInside);
  VectorType type = vectorOf(getElementTypeOrSelf(memref));
  VectorType maskType = vectorOf(b.getI1Type());
  SmallVector<Type> types = {type};
  if (!poisons)
    types.push_back(maskType);
  auto choice = scf::IfOp::create(b, types, isWhole,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  SmallVector<Value> indices;
  for (const Lanes &index : at.drop_back())
    indices.push_back(index.value);
  indices.push_back(first);
  Value run = vector::LoadOp::create(b, type, memref, indices);
  if (isReversed) {
    SmallVector<int64_t> order;
    for (int64_t lane = lanes; lane-- > 0;)
      order.push_back(lane);
    run = vector::ShuffleOp::create(b, run, run, order);
  }
  auto yield = [&](Value found, Value isInside) {
    SmallVector<Value> results = {found};
    if (!poisons)
      results.push_back(isInside);
    scf::YieldOp::create(b, results);
  };
  yield(run,
        arith::ConstantOp::create(b, DenseElementsAttr::get(maskType, true)));
  b.setInsertionPointToStart(choice.elseBlock());
  Read read = gather(memref, at, poisons);
  yield(read.value, read.isInside);
  return {choice.getResult(0), poisons ? Value() : choice.getResult(1)};
}

/// Elements anywhere, and which lanes have one; others have zero or NaN.
ScoreBody::Evaluator::Read
ScoreBody::Evaluator::gather(Value memref, ArrayRef<Lanes> at, bool poisons) {
  auto type = cast<MemRefType>(memref.getType());
  // Offsets of several dimensions may be too large for 32 bits.
  bool isNarrow = type.getRank() == 1;
  for (const Lanes &index : at)
    isNarrow &= index.kind == Lanes::Uniform || fits32(index.range);
  unsigned bits = isNarrow ? 32 : 64;
  Type integer = b.getIntegerType(bits);
  VectorType indexType = vectorOf(integer), maskType = vectorOf(b.getI1Type());
  auto broadcast = [&](Value number) -> Value {
    number = arith::IndexCastOp::create(b, integer, number);
    return vector::BroadcastOp::create(b, indexType, number);
  };
  Value mask =
      arith::ConstantOp::create(b, DenseElementsAttr::get(maskType, true));
  if (Value isInside = areInside(memref, at))
    mask = vector::BroadcastOp::create(b, maskType, isInside);
  SmallVector<Value> begin;
  Value offsets;
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  for (auto [dim, index] : llvm::enumerate(at)) {
    bool isScalar = index.kind == Lanes::Uniform;
    begin.push_back(isScalar ? index.value : b.index(0));
    if (isScalar)
      continue;
    Value vector = toVector(index, bits);
    Value extent = b.extent(memref, dim);
    if (isNarrow)
      extent = b.min(extent, std::numeric_limits<int32_t>::max());
    Value inside = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, vector,
                                         broadcast(extent));
    mask = arith::AndIOp::create(b, mask, inside);
    Value stride = getValueOrCreateConstantIndexOp(
        b, b.getLoc(), metadata.getConstifiedMixedStrides()[dim]);
    vector = arith::MulIOp::create(b, vector, broadcast(stride));
    offsets = offsets ? arith::AddIOp::create(b, offsets, vector) : vector;
  }
  VectorType resultType = vectorOf(type.getElementType());
  Value missing =
      arith::ConstantOp::create(b, getMissing(b, resultType, poisons));
  Value gathered = vector::GatherOp::create(b, resultType, memref, begin,
                                            offsets, mask, missing);
  return {gathered, poisons ? Value() : mask};
}

/// Remembers the lanes, or all of them, that are not inside.
void ScoreBody::Evaluator::addOutside(Value isInside) {
  auto constantLike = [&](Value value) -> Value {
    return arith::ConstantOp::create(b, b.getOneAttr(value.getType()));
  };
  Value isOutside = arith::XOrIOp::create(b, isInside, constantLike(isInside));
  Value &all = state.isOutside;
  if (!all) {
    all = isOutside;
    return;
  }
  for (Value *flags : {&all, &isOutside})
    if (!isa<VectorType>(flags->getType()) &&
        (isa<VectorType>(all.getType()) ||
         isa<VectorType>(isOutside.getType())))
      *flags = vector::BroadcastOp::create(b, vectorOf(b.getI1Type()), *flags);
  all = arith::OrIOp::create(b, all, isOutside);
}
