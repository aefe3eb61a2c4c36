//===- ListCalls.cpp - Calls of the runtime with lists --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ListCalls.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

Value ListCalls::integer(int64_t value) {
  return arith::ConstantIntOp::create(builder, value, /*width=*/64);
}

Value ListCalls::integer(Value index) {
  return arith::IndexCastOp::create(builder, builder.getI64Type(), index);
}

Value ListCalls::extent(Value memref, int64_t dim) {
  return builder.createOrFold<memref::DimOp>(memref, dim);
}

Value ListCalls::stride(Value memref) {
  auto [strides, offset] =
      cast<MemRefType>(memref.getType()).getStridesAndOffset();
  if (!ShapedType::isDynamic(strides[0]))
    return arith::ConstantIndexOp::create(builder, strides[0]);
  return memref::ExtractStridedMetadataOp::create(builder, memref)
      .getStrides()[0];
}

Value ListCalls::address(Value memref, Value batch, int64_t column) {
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  if (!memref)
    return LLVM::ZeroOp::create(builder, pointer);
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  Value start =
      ShapedType::isDynamic(offset)
          ? Value(memref::ExtractStridedMetadataOp::create(builder, memref)
                      .getOffset())
          : Value(arith::ConstantIndexOp::create(builder, offset));
  auto add = [&](Value a, Value b) {
    return builder.createOrFold<arith::AddIOp>(a, b);
  };
  auto mul = [&](Value a, Value b) {
    return builder.createOrFold<arith::MulIOp>(a, b);
  };
  auto index = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, value);
  };
  Value element = add(add(start, mul(batch, stride(memref))), index(column));
  Value bytes = mul(element, index(type.getElementTypeBitWidth() / 8));
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(builder, memref);
  return LLVM::IntToPtrOp::create(builder, pointer, integer(add(base, bytes)));
}

void ListCalls::call(StringRef name, ValueRange arguments) {
  RuntimeCalls::emitCall(builder, module, name, /*resultType=*/Type(),
                         arguments);
}
