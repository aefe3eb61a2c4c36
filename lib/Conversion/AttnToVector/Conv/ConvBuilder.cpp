//===- ConvBuilder.cpp - Emission of sums of convolutions -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

static FloatType getElementType(Value memref) {
  return cast<FloatType>(cast<MemRefType>(memref.getType()).getElementType());
}

ConvBuilder::ConvBuilder(OpBuilder &builder, Operation *op, Value basis,
                         Value sizes, Value value, const ConvPlan &plan)
    : RowBuilder(op->getLoc(), builder,
                 fovea::attn::getStateType(getElementType(value)), plan.lanes),
      op(op), basis(basis), sizes(sizes), value(value), plan(plan),
      width(cast<MemRefType>(value.getType()).getDimSize(3)),
      paddedWidth(llvm::alignTo(width, plan.columnMultiple)),
      numTokens(extent(basis, 3)), numBases(extent(basis, 2)) {}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

void ConvBuilder::forAll(ArrayRef<Value> counts,
                         function_ref<void(ValueRange)> body) {
  KernelBuilder::forAll(counts, [&](ValueRange task) {
    body(task);
    freeScratch();
  });
}

void ConvBuilder::forAllRows(ArrayRef<Value> leading,
                             function_ref<void(ValueRange, Value)> body) {
  Values counts(leading);
  counts.push_back(ceilDiv(numTokens, kTaskRows));
  forAll(counts, [&](ValueRange task) {
    Value first = mul(task.back(), kTaskRows);
    Value end = min(add(first, kTaskRows), numTokens);
    loop(first, end, 1, [&](Value row) { body(task.drop_back(), row); });
  });
}

Values ConvBuilder::forEachVector(
    Value low, Value high, ValueRange inits,
    function_ref<Values(Value, Value, ValueRange)> body) {
  int64_t lanes = getLanes();
  Value end = add(low, roundDown(max(sub(high, low), 0), lanes));
  Values carried =
      loop(low, end, lanes, inits, [&](Value at, ValueRange carried) {
        return body(at, /*mask=*/Value(), carried);
      });
  return loop(end, high, lanes, carried, [&](Value at, ValueRange carried) {
    return body(at, firstLanes(sub(high, at)), carried);
  });
}

Value ConvBuilder::listIf(Value first, Value end, Value list,
                          function_ref<Value(Value)> isListed) {
  return loop(first, end, 1, index(0), [&](Value number, ValueRange count) {
    Value isIn = isListed(number);
    // An entry that is not kept is written over by the next one.
    storeIndex(number, list, count[0]);
    return Values{select(isIn, add(count[0], 1), count[0])};
  })[0];
}

Value ConvBuilder::allocate(Type type, ArrayRef<Value> extents) {
  return buffers.emplace_back(
      KernelBuilder::allocate(extents, /*trailing=*/{}, type));
}

void ConvBuilder::freeBuffers(size_t count) {
  while (buffers.size() > count)
    memref::DeallocOp::create(*this, buffers.pop_back_val());
}

//===----------------------------------------------------------------------===//
// Numbers in f64
//===----------------------------------------------------------------------===//

VectorType ConvBuilder::getWideType() {
  return VectorType::get({getLanes()}, getF64Type());
}

Value ConvBuilder::wide(double number) {
  return arith::ConstantOp::create(*this, getF64FloatAttr(number));
}

Value ConvBuilder::splatWide(double number) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(cast<ShapedType>(Type(getWideType())),
                                    getF64FloatAttr(number)));
}

Value ConvBuilder::widen(Value number) {
  if (getElementTypeOrSelf(number.getType()).isF64())
    return number;
  Type type = getF64Type();
  if (auto vector = dyn_cast<VectorType>(number.getType()))
    type = vector.clone(type);
  return arith::ExtFOp::create(*this, type, number);
}

Value ConvBuilder::narrow(Value numbers) {
  if (getStateType().isF64())
    return numbers;
  return arith::TruncFOp::create(*this, getVectorType(), numbers);
}

Value ConvBuilder::loadWide(Value memref, Value at) {
  return vector::LoadOp::create(*this, getWideType(), memref, at);
}

void ConvBuilder::storeWide(Value numbers, Value memref, Value at) {
  vector::StoreOp::create(*this, numbers, memref, at);
}

void ConvBuilder::clearWide(Value memref, Value end) {
  loop(index(0), end, getLanes(),
       [&](Value at) { storeWide(splatWide(0.0), memref, at); });
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Value ConvBuilder::firstLanes(Value count) {
  return vector::CreateMaskOp::create(
      *this, VectorType::get({getLanes()}, getI1Type()), count);
}

Value ConvBuilder::loadMasked(Value memref, ValueRange indices, Value mask,
                              double otherwise) {
  if (!mask)
    return loadVector(memref, indices);
  FloatType elementType = getElementType(memref);
  auto type = VectorType::get({getLanes()}, elementType);
  Value fill = arith::ConstantOp::create(
      *this, DenseElementsAttr::get(cast<ShapedType>(Type(type)),
                                    getFloatAttr(elementType, otherwise)));
  Value numbers =
      vector::MaskedLoadOp::create(*this, type, memref, indices, mask, fill);
  if (elementType.getWidth() >= getStateType().getWidth())
    return numbers;
  return arith::ExtFOp::create(*this, getVectorType(), numbers);
}

void ConvBuilder::storeMasked(Value numbers, Value memref, ValueRange indices,
                              Value mask) {
  FloatType elementType = getElementType(memref);
  if (elementType != getStateType())
    numbers = arith::TruncFOp::create(
        *this, VectorType::get({getLanes()}, elementType), numbers);
  vector::MaskedStoreOp::create(*this, memref, indices, mask, numbers);
}

Values ConvBuilder::overColumns(int64_t end, ValueRange inits,
                                function_ref<Values(Value, ValueRange)> body) {
  Values carried = overVectors(width, inits, body);
  for (int64_t column = llvm::alignDown(width, getLanes()); column < end;
       column += getLanes())
    carried = body(index(column), carried);
  return carried;
}

void ConvBuilder::clearRow(Value memref, ValueRange at) {
  loop(index(0), index(paddedWidth), getLanes(), [&](Value column) {
    Values indices(at);
    indices.push_back(column);
    storeVector(splat(0.0), memref, indices);
  });
}

Value ConvBuilder::loadColumns(Value memref, ValueRange at, Value column) {
  Values indices(at);
  indices.push_back(column);
  std::optional<int64_t> known = getConstantIntValue(column);
  int64_t left = known ? width - *known : getLanes();
  if (left >= getLanes())
    return loadVector(memref, indices);
  if (left <= 0)
    return splat(0.0);
  return loadMasked(memref, indices, firstLanes(index(left)), 0.0);
}

void ConvBuilder::storeColumns(Value numbers, Value memref, ValueRange at,
                               Value column) {
  Values indices(at);
  indices.push_back(column);
  if (paddedWidth == width)
    return storeVector(numbers, memref, indices);
  Value mask = firstLanes(sub(index(width), column));
  storeMasked(numbers, memref, indices, mask);
}
