//===- GPUConvBuilder.cpp - Emission of convolutions on a GPU -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvBuilder.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Narrow values are tf32 numbers, and weights are rounded as they were.
static F32Math chooseMath(Value value, F32Math math) {
  Type type = cast<MemRefType>(value.getType()).getElementType();
  return !type.isF32() && math == F32Math::TF32x3 ? F32Math::TF32 : math;
}

GPUConvBuilder::GPUConvBuilder(OpBuilder &builder, Operation *op, Value basis,
                               Value sizes, Value value, F32Math math)
    : KernelBuilder(op->getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
      op(op), basis(basis), sizes(sizes), value(value),
      math(chooseMath(value, math)),
      width(cast<MemRefType>(value.getType()).getDimSize(3)),
      batches(extent(basis, 0)), heads(extent(basis, 1)),
      headsOfKey(getHeadsOfKey(*this, heads, extent(value, 1))),
      numBases(extent(basis, 2)), numTokens(extent(basis, 3)) {}

Value fovea::attn::getHeadsOfKey(KernelBuilder &b, Value heads,
                                 Value keyHeads) {
  return b.max(b.div(heads, b.max(keyHeads, 1)), 1);
}

Value GPUConvBuilder::loadValue(KernelBuilder &k, ValueRange head, Value token,
                                Value column) {
  Value at[] = {head[0], k.div(head[1], headsOfKey), token, column};
  return k.loadScalar(value, at);
}

Value GPUConvBuilder::allocate(ArrayRef<Value> extents, Type type) {
  return buffers.emplace_back(
      KernelBuilder::allocate(extents, /*trailing=*/{}, type));
}

Value GPUConvBuilder::tabulate(ArrayRef<Value> grid, Type type,
                               function_ref<Value(ValueRange)> find) {
  Value table = allocate(grid, type);
  parallelLoop(*this, grid, [&](ValueRange at) {
    Value found = find(at);
    if (found.getType().isIndex())
      storeIndex(found, table, at);
    else
      memref::StoreOp::create(*this, found, table, at);
  });
  return table;
}

Value GPUConvBuilder::tabulateSums(
    ArrayRef<Value> grid, function_ref<Value(ValueRange, Value)> part) {
  Value table = allocate(grid, getF64Type());
  auto emitPart = [&](GPUKernelBuilder &k, ValueRange at, Value lane) {
    InsertionGuard guard(*this);
    setInsertionPoint(k.getInsertionBlock(), k.getInsertionPoint());
    return part(at, lane);
  };
  auto combine = [](GPUKernelBuilder &k, Value left, Value right) {
    return k.fadd(left, right);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value total) {
    memref::StoreOp::create(k, total, table, at);
  };
  launchSharedRows(*this, grid, kWarpSize, {emitPart, combine, store});
  return table;
}

void GPUConvBuilder::freeBuffers() {
  while (!buffers.empty())
    memref::DeallocOp::create(*this, buffers.pop_back_val());
}

Value GPUConvBuilder::wide(double number) {
  return arith::ConstantOp::create(*this, getF64FloatAttr(number));
}

Value GPUConvBuilder::widen(Value number) {
  return arith::ExtFOp::create(*this, getF64Type(), number);
}

Value GPUConvBuilder::loadWide(Value memref, ValueRange at) {
  KernelBuilder k(getLoc(), *this, getF64Type(), /*lanes=*/0);
  return k.loadScalar(memref, at);
}

void GPUConvBuilder::storeWide(Value number, Value memref, ValueRange at) {
  memref::StoreOp::create(*this, number, memref, at);
}
