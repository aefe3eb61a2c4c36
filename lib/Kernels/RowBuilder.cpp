//===- RowBuilder.cpp - Loops over rows of any width ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/RowBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

void RowBuilder::forColumns(
    Value begin, Value end,
    llvm::function_ref<void(KernelBuilder &, Value)> body) {
  Value whole = add(begin, roundDown(sub(end, begin), getLanes()));
  loop(begin, whole, getLanes(), [&](Value column) { body(*this, column); });
  if (isEqualConstantIntOrValue(whole, end))
    return;
  loop(whole, end, 1, [&](Value column) {
    KernelBuilder single(getLoc(), *this, getStateType(), /*lanes=*/1);
    body(single, column);
  });
}

void RowBuilder::packRow(Value source, ValueRange at, Value first, Value target,
                         Value row, int64_t columns) {
  int64_t width = cast<MemRefType>(source.getType()).getShape().back();
  int64_t lanes = getLanes();
  Value available = sub(index(width), first);
  auto from = [&](Value column) {
    Values indices(at);
    indices.push_back(add(first, column));
    return indices;
  };
  auto packVector = [&](Value begin, bool isFirst) {
    ifThenElse(
        less(add(begin, lanes - 1), available),
        [&] {
          storeVector(loadVector(source, from(begin)), target, {row, begin});
        },
        [&] {
          storeVector(splat(0.0), target, {row, begin});
          if (isFirst)
            return loop(begin, min(available, lanes), 1, [&](Value i) {
              storeScalar(loadScalar(source, from(i)), target, {row, i});
            });
          // The last vector of the row, of which a part is there already.
          ifThen(less(begin, available), [&] {
            Value last = sub(available, index(lanes));
            storeVector(loadVector(source, from(last)), target, {row, last});
          });
        });
  };
  if (columns == 0)
    return;
  packVector(index(0), /*isFirst=*/true);
  overVectors(columns - lanes, [&](Value column) {
    packVector(add(column, lanes), /*isFirst=*/false);
  });
}

Value RowBuilder::dotPacked(Value a, Value aRow, Value b, Value bRow,
                            int64_t columns) {
  Value sums = loop(index(0), index(columns), getLanes(), splat(0.0),
                    [&](Value column, ValueRange sums) -> Values {
                      return {fma(loadVector(a, {aRow, column}),
                                  loadVector(b, {bRow, column}), sums.front())};
                    })
                   .front();
  return vector::ReductionOp::create(*this, vector::CombiningKind::ADD, sums);
}

void RowBuilder::forAll(ArrayRef<Value> bounds,
                        llvm::function_ref<void(ValueRange)> body) {
  SmallVector<OpFoldResult> mixed = getAsOpFoldResult(bounds);
  auto forall = scf::ForallOp::create(*this, mixed, /*outputs=*/ValueRange(),
                                      /*mapping=*/std::nullopt);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPoint(forall.getTerminator());
  body(forall.getInductionVars());
}

Value RowBuilder::loadIndex(Value memref, ValueRange indices) {
  Value element = memref::LoadOp::create(*this, memref, indices);
  return arith::IndexCastOp::create(*this, getIndexType(), element);
}

void RowBuilder::storeIndex(Value value, Value memref, ValueRange indices) {
  Value element = arith::IndexCastOp::create(*this, getI32Type(), value);
  memref::StoreOp::create(*this, element, memref, indices);
}

Value RowBuilder::toNumber(Value index) {
  Value integer = arith::IndexCastOp::create(*this, getI32Type(), index);
  return arith::SIToFPOp::create(*this, getStateType(), integer);
}

Value RowBuilder::allocate(ArrayRef<Value> leading, ArrayRef<int64_t> trailing,
                           Type elementType) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicExtents;
  for (Value extent : leading) {
    std::optional<int64_t> known = getConstantIntValue(extent);
    shape.push_back(known.value_or(ShapedType::kDynamic));
    if (!known)
      dynamicExtents.push_back(extent);
  }
  llvm::append_range(shape, trailing);
  return memref::AllocOp::create(*this, MemRefType::get(shape, elementType),
                                 dynamicExtents, getI64IntegerAttr(64));
}

Value RowBuilder::allocateLike(Value like, Type elementType, unsigned drop) {
  auto type = cast<MemRefType>(like.getType());
  SmallVector<Value> dynamicExtents;
  for (int64_t dim = drop; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      dynamicExtents.push_back(extent(like, dim));
  return memref::AllocOp::create(
      *this, MemRefType::get(type.getShape().drop_front(drop), elementType),
      dynamicExtents, getI64IntegerAttr(64));
}
