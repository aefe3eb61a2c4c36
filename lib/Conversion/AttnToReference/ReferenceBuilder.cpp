//===- ReferenceBuilder.cpp - Emits plain loops in f64 --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <functional>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Value ReferenceBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(builder, value);
}

Value ReferenceBuilder::extent(Value buffer, int64_t dim) {
  return builder.createOrFold<memref::DimOp>(buffer, dim);
}

Value ReferenceBuilder::add(Value a, Value b) {
  return builder.createOrFold<arith::AddIOp>(a, b);
}

Value ReferenceBuilder::sub(Value a, Value b) {
  return builder.createOrFold<arith::SubIOp>(a, b);
}

Value ReferenceBuilder::mul(Value a, Value b) {
  return builder.createOrFold<arith::MulIOp>(a, b);
}

Value ReferenceBuilder::div(Value a, Value b) {
  return builder.createOrFold<arith::DivUIOp>(a, b);
}

Value ReferenceBuilder::min(Value a, Value b) {
  return builder.createOrFold<arith::MinSIOp>(a, b);
}

Value ReferenceBuilder::max(Value a, Value b) {
  return builder.createOrFold<arith::MaxSIOp>(a, b);
}

Value ReferenceBuilder::distance(Value a, Value b) {
  return max(sub(a, b), sub(b, a));
}

Value ReferenceBuilder::less(Value a, Value b) {
  return builder.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, a, b);
}

Value ReferenceBuilder::lessOrEqual(Value a, Value b) {
  return builder.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::sle, a, b);
}

Value ReferenceBuilder::both(Value a, Value b) {
  return builder.createOrFold<arith::AndIOp>(a, b);
}

Value ReferenceBuilder::either(Value a, Value b) {
  return builder.createOrFold<arith::OrIOp>(a, b);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value ReferenceBuilder::number(double value) {
  return arith::ConstantOp::create(builder, builder.getF64FloatAttr(value));
}

Value ReferenceBuilder::minusInfinity() {
  return number(-std::numeric_limits<double>::infinity());
}

Value ReferenceBuilder::addNumbers(Value a, Value b) {
  return arith::AddFOp::create(builder, a, b);
}

Value ReferenceBuilder::subNumbers(Value a, Value b) {
  return arith::SubFOp::create(builder, a, b);
}

Value ReferenceBuilder::mulNumbers(Value a, Value b) {
  return arith::MulFOp::create(builder, a, b);
}

Value ReferenceBuilder::divNumbers(Value a, Value b) {
  return arith::DivFOp::create(builder, a, b);
}

Value ReferenceBuilder::maxNumbers(Value a, Value b) {
  return arith::MaximumFOp::create(builder, a, b);
}

Value ReferenceBuilder::exp(Value a) { return math::ExpOp::create(builder, a); }

Value ReferenceBuilder::sin(Value a) { return math::SinOp::create(builder, a); }

Value ReferenceBuilder::cos(Value a) { return math::CosOp::create(builder, a); }

Value ReferenceBuilder::sqrt(Value a) {
  return math::SqrtOp::create(builder, a);
}

Value ReferenceBuilder::absolute(Value a) {
  return math::AbsFOp::create(builder, a);
}

Value ReferenceBuilder::log(Value a) {
  if (isa<IndexType>(a.getType()))
    a = toNumber(a);
  return math::LogOp::create(builder, a);
}

Value ReferenceBuilder::lessNumber(Value a, Value b) {
  return arith::CmpFOp::create(builder, arith::CmpFPredicate::OLT, a, b);
}

Value ReferenceBuilder::equalNumber(Value a, Value b) {
  return arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, a, b);
}

Value ReferenceBuilder::toNumber(Value index) {
  index = arith::IndexCastOp::create(builder, builder.getI64Type(), index);
  return arith::SIToFPOp::create(builder, builder.getF64Type(), index);
}

Value ReferenceBuilder::toIndex(Value number) {
  number = arith::FPToSIOp::create(builder, builder.getI64Type(), number);
  return arith::IndexCastOp::create(builder, builder.getIndexType(), number);
}

Value ReferenceBuilder::isMinusInfinity(Value a) {
  return arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, a,
                               minusInfinity());
}

Value ReferenceBuilder::isNotMinusInfinity(Value a) {
  return arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, a,
                               minusInfinity());
}

Value ReferenceBuilder::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(builder, condition, a, b);
}

Value ReferenceBuilder::poisonInfinity(Value a) {
  return addNumbers(a, subNumbers(a, a));
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

Value ReferenceBuilder::allocate(ArrayRef<int64_t> shape,
                                 ValueRange dynamicExtents) {
  return memref::AllocOp::create(
      builder, MemRefType::get(shape, builder.getF64Type()), dynamicExtents);
}

Value ReferenceBuilder::load(Value buffer, ValueRange indices) {
  Value element = memref::LoadOp::create(builder, buffer, indices);
  // Through f32, which has the conversions that every target knows; exact.
  if (element.getType().getIntOrFloatBitWidth() < 32)
    element = arith::ExtFOp::create(builder, builder.getF32Type(), element);
  if (!element.getType().isF64())
    element = arith::ExtFOp::create(builder, builder.getF64Type(), element);
  return element;
}

SmallVector<Value> ReferenceBuilder::broadcastIndices(Value buffer,
                                                      ValueRange indices) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> clamped;
  for (auto [dim, position] : llvm::enumerate(indices)) {
    if (type.getDimSize(dim) == 1)
      clamped.push_back(index(0));
    else
      clamped.push_back(position);
  }
  return clamped;
}

Value ReferenceBuilder::loadBroadcast(Value buffer, ValueRange indices) {
  return load(buffer, broadcastIndices(buffer, indices));
}

void ReferenceBuilder::store(Value number, Value buffer, ValueRange indices) {
  Type type = cast<MemRefType>(buffer.getType()).getElementType();
  if (!type.isF64())
    number = arith::TruncFOp::create(builder, builder.getF32Type(), number);
  if (type.getIntOrFloatBitWidth() < 32)
    number = arith::TruncFOp::create(builder, type, number);
  memref::StoreOp::create(builder, number, buffer, indices);
}

Value ReferenceBuilder::loadIndex(Value buffer, ValueRange indices) {
  Value element = memref::LoadOp::create(builder, buffer, indices);
  return arith::IndexCastOp::create(builder, builder.getIndexType(), element);
}

Value ReferenceBuilder::loadCondition(Value buffer, ValueRange indices) {
  return memref::LoadOp::create(builder, buffer, indices);
}

void ReferenceBuilder::storeIndex(Value index, Value buffer,
                                  ValueRange indices) {
  Type type = cast<MemRefType>(buffer.getType()).getElementType();
  Value element = arith::IndexCastOp::create(builder, type, index);
  memref::StoreOp::create(builder, element, buffer, indices);
}

void ReferenceBuilder::storeRow(Value row, Value buffer, ValueRange indices) {
  forEach(extent(row, 0), [&](Value column) {
    SmallVector<Value> position(indices);
    position.push_back(column);
    store(load(row, column), buffer, position);
  });
}

Value ReferenceBuilder::allocateZeros(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> dynamicExtents;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      dynamicExtents.push_back(extent(buffer, dim));
  Value zeros = allocate(type.getShape(), dynamicExtents);
  forEachElement(zeros, [&](ValueRange at) { store(number(0.0), zeros, at); });
  return zeros;
}

void ReferenceBuilder::addTo(Value buffer, ValueRange indices, Value number) {
  SmallVector<Value> at = broadcastIndices(buffer, indices);
  store(addNumbers(load(buffer, at), number), buffer, at);
}

void ReferenceBuilder::storeAll(Value from, Value to, bool adds) {
  forEachElement(from, [&](ValueRange at) {
    Value number = load(from, at);
    store(adds ? addNumbers(load(to, at), number) : number, to, at);
  });
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

void ReferenceBuilder::forEachElement(Value buffer,
                                      function_ref<void(ValueRange)> body) {
  int64_t rank = cast<MemRefType>(buffer.getType()).getRank();
  SmallVector<Value> at;
  std::function<void()> nest = [&] {
    if (static_cast<int64_t>(at.size()) == rank)
      return body(at);
    forEach(extent(buffer, at.size()), [&](Value index) {
      at.push_back(index);
      nest();
      at.pop_back();
    });
  };
  nest();
}

void ReferenceBuilder::forEach(Value begin, Value end,
                               function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(builder, begin, end, index(1));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(loop.getBody()->getTerminator());
  body(loop.getInductionVar());
}

Value ReferenceBuilder::accumulate(Value begin, Value end, Value state,
                                   function_ref<Value(Value, Value)> body) {
  auto loop = scf::ForOp::create(builder, begin, end, index(1), state);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value next = body(loop.getInductionVar(), loop.getRegionIterArg(0));
  scf::YieldOp::create(builder, next);
  return loop.getResult(0);
}

void ReferenceBuilder::ifThen(Value condition, function_ref<void()> body) {
  auto choice = scf::IfOp::create(builder, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  body();
}

Value ReferenceBuilder::when(Value condition, function_ref<Value()> body,
                             Value otherwise) {
  auto choice = scf::IfOp::create(builder, TypeRange(otherwise.getType()),
                                  condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  Value result = body();
  scf::YieldOp::create(builder, result);
  builder.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(builder, otherwise);
  return choice.getResult(0);
}

Value ReferenceBuilder::dot(Value a, ValueRange aIndices, Value b,
                            ValueRange bIndices) {
  int64_t last = cast<MemRefType>(a.getType()).getRank() - 1;
  Value sum = accumulate(
      index(0), extent(a, last), number(0.0), [&](Value d, Value sum) {
        SmallVector<Value> aIndex(aIndices), bIndex(bIndices);
        aIndex.push_back(d);
        bIndex.push_back(d);
        return addNumbers(sum, mulNumbers(load(a, aIndex), load(b, bIndex)));
      });
  return poisonInfinity(sum);
}

Value ReferenceBuilder::keyHead(Value query, Value key, Value head) {
  return div(head, div(extent(query, 1), extent(key, 1)));
}

//===----------------------------------------------------------------------===//
// Soft-max
//===----------------------------------------------------------------------===//

/// Adds `weight * value` of an entry to `row`.
static void addEntry(ReferenceBuilder &ref, const ReferenceEntry &entry,
                     Value weight, Value row) {
  ref.forEach(ref.extent(row, 0), [&](Value column) {
    Value value = ref.poisonInfinity(entry.value(column));
    Value term = ref.mulNumbers(weight, value);
    ref.store(ref.addNumbers(ref.load(row, column), term), row, column);
  });
}

static void clear(ReferenceBuilder &ref, Value row) {
  ref.forEach(ref.extent(row, 0),
              [&](Value column) { ref.store(ref.number(0.0), row, column); });
}

void fovea::attn::emitSquaredReluRow(ReferenceBuilder &ref, EntryWalker walk,
                                     Value row) {
  clear(ref, row);
  Value zero = ref.number(0.0);
  walk(zero, [&](const ReferenceEntry &entry, Value state) -> Value {
    Value positive = ref.maxNumbers(entry.score, zero);
    Value weight = ref.mulNumbers(positive, positive);
    if (entry.logWeight)
      weight = ref.mulNumbers(weight, ref.exp(entry.logWeight));
    addEntry(ref, entry, weight, row);
    return state;
  });
}

Value fovea::attn::emitSoftmaxRow(ReferenceBuilder &ref, EntryWalker walk,
                                  Value row, Value sink) {
  Value columns = ref.extent(row, 0);
  auto scoreOf = [&](const ReferenceEntry &entry) {
    return entry.logWeight ? ref.addNumbers(entry.score, entry.logWeight)
                           : entry.score;
  };
  Value top = walk(sink ? sink : ref.minusInfinity(),
                   [&](const ReferenceEntry &entry, Value top) {
                     return ref.maxNumbers(top, scoreOf(entry));
                   });
  // No score is minus infinity, so this is a row without entries.
  Value isEmpty = ref.isMinusInfinity(top);
  clear(ref, row);
  Value ofSink = ref.number(0.0);
  if (sink)
    ofSink = ref.select(isEmpty, ofSink, ref.exp(ref.subNumbers(sink, top)));
  Value sum = walk(ofSink, [&](const ReferenceEntry &entry, Value sum) {
    Value weight = ref.exp(ref.subNumbers(scoreOf(entry), top));
    addEntry(ref, entry, weight, row);
    return ref.addNumbers(sum, weight);
  });
  Value divisor = ref.select(isEmpty, ref.number(1.0), sum);
  ref.forEach(columns, [&](Value column) {
    ref.store(ref.divNumbers(ref.load(row, column), divisor), row, column);
  });
  // Minus infinity plus log 1 for a row without entries.
  return ref.addNumbers(top, ref.log(divisor));
}
