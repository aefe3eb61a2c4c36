//===- GPURuntimeCalls.cpp - Calls of the GPU runtime ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

DeviceType fovea::attn::getDeviceType(Type elementType) {
  if (elementType.isF32())
    return DeviceType::F32;
  assert((elementType.isF16() || elementType.isBF16()) && "other type");
  return elementType.isF16() ? DeviceType::F16 : DeviceType::BF16;
}

Value GPURuntimeCalls::call(OpBuilder &builder, Location loc, StringRef name,
                            ValueRange operands, Type resultType) {
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    Type result =
        resultType ? resultType : LLVM::LLVMVoidType::get(module.getContext());
    auto type = LLVM::LLVMFunctionType::get(
        result, llvm::to_vector(operands.getTypes()));
    function = LLVM::LLVMFuncOp::create(builder, module.getLoc(), name, type);
  }
  auto call = LLVM::CallOp::create(builder, loc, function, operands);
  return resultType ? call.getResult() : Value();
}

Value GPURuntimeCalls::getPointer(OpBuilder &builder, Location loc,
                                  Value memref) {
  Value address =
      memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memref);
  address =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
  return LLVM::IntToPtrOp::create(builder, loc, pointerType, address);
}

Value GPURuntimeCalls::getElementPointer(OpBuilder &builder, Location loc,
                                         Value memref, ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  auto metadata =
      memref::ExtractStridedMetadataOp::create(builder, loc, memref);
  Value element = metadata.getOffset();
  for (auto [index, stride] : llvm::zip(indices, metadata.getStrides())) {
    Value distance = arith::MulIOp::create(builder, loc, index, stride);
    element = arith::AddIOp::create(builder, loc, element, distance);
  }
  element =
      arith::IndexCastOp::create(builder, loc, builder.getI64Type(), element);
  Type stored = LLVMTypeConverter(builder.getContext())
                    .convertType(type.getElementType());
  return LLVM::GEPOp::create(builder, loc, pointerType, stored,
                             getPointer(builder, loc, memref),
                             ArrayRef<LLVM::GEPArg>{element});
}

/// The dynamic sizes of a memref.
static SmallVector<Value> getDynamicSizes(OpBuilder &builder, Location loc,
                                          Value memref) {
  SmallVector<Value> sizes;
  auto type = cast<MemRefType>(memref.getType());
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      sizes.push_back(memref::DimOp::create(builder, loc, memref, dim));
  return sizes;
}

int64_t GPURuntimeCalls::getElementBytes(MemRefType type) {
  Type element = type.getElementType();
  auto complex = dyn_cast<ComplexType>(element);
  if (complex)
    element = complex.getElementType();
  int64_t bits = element.isIndex() ? 64 : element.getIntOrFloatBitWidth();
  // A truth value takes a byte.
  return (complex ? 2 : 1) * llvm::divideCeil(bits, 8);
}

Value GPURuntimeCalls::getNumBytes(OpBuilder &builder, Location loc,
                                   MemRefType type, ValueRange dynamicSizes) {
  int64_t fixed = getElementBytes(type);
  for (int64_t extent : type.getShape())
    if (!ShapedType::isDynamic(extent))
      fixed *= extent;
  Value bytes = arith::ConstantIndexOp::create(builder, loc, fixed);
  for (Value size : dynamicSizes)
    bytes = arith::MulIOp::create(builder, loc, bytes, size);
  return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), bytes);
}

Value GPURuntimeCalls::getNumBytes(OpBuilder &builder, Location loc,
                                   Value memref) {
  return getNumBytes(builder, loc, cast<MemRefType>(memref.getType()),
                     getDynamicSizes(builder, loc, memref));
}

Value GPURuntimeCalls::makeBuffer(OpBuilder &builder, Location loc,
                                  Value pointer, MemRefType type,
                                  ValueRange dynamicSizes, ValueRange strides) {
  LLVMTypeConverter converter(builder.getContext());
  auto descriptor =
      MemRefDescriptor::poison(builder, loc, converter.convertType(type));
  descriptor.setAllocatedPtr(builder, loc, pointer);
  descriptor.setAlignedPtr(builder, loc, pointer);
  descriptor.setConstantOffset(builder, loc, 0);
  auto constant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, builder.getI64Type(),
                                    builder.getI64IntegerAttr(value));
  };
  SmallVector<Value> sizes;
  for (int64_t extent : type.getShape()) {
    if (!ShapedType::isDynamic(extent)) {
      sizes.push_back(constant(extent));
      continue;
    }
    sizes.push_back(arith::IndexCastOp::create(
        builder, loc, builder.getI64Type(), dynamicSizes.front()));
    dynamicSizes = dynamicSizes.drop_front();
  }
  Value stride = constant(1);
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    descriptor.setSize(builder, loc, dim, sizes[dim]);
    descriptor.setStride(builder, loc, dim,
                         strides.empty() ? stride : strides[dim]);
    stride = LLVM::MulOp::create(builder, loc, stride, sizes[dim]);
  }
  return UnrealizedConversionCastOp::create(builder, loc, type,
                                            Value(descriptor))
      .getResult(0);
}

Value GPURuntimeCalls::makeBuffer(OpBuilder &builder, Location loc,
                                  Value pointer, Value like,
                                  ValueRange strides) {
  return makeBuffer(builder, loc, pointer, cast<MemRefType>(like.getType()),
                    getDynamicSizes(builder, loc, like), strides);
}

Value GPURuntimeCalls::makeSlot(OpBuilder &builder, Location loc,
                                func::FuncOp function, Type type,
                                unsigned alignment) {
  // Once, even if the access is in a loop.
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  Value one = LLVM::ConstantOp::create(builder, loc, builder.getI64Type(),
                                       builder.getI64IntegerAttr(1));
  type = LLVMTypeConverter(builder.getContext()).convertType(type);
  return LLVM::AllocaOp::create(builder, loc, pointerType, type, one,
                                alignment);
}

Value GPURuntimeCalls::getListElement(OpBuilder &builder, Location loc,
                                      Value list, Type type, int32_t index) {
  return LLVM::GEPOp::create(builder, loc, pointerType, type, list,
                             ArrayRef<LLVM::GEPArg>{index});
}

Value GPURuntimeCalls::makeList(OpBuilder &builder, Location loc,
                                func::FuncOp function, Type type,
                                ValueRange values) {
  Value list = makeSlot(builder, loc, function,
                        LLVM::LLVMArrayType::get(type, values.size()));
  for (auto [i, value] : llvm::enumerate(values))
    LLVM::StoreOp::create(
        builder, loc,
        arith::IndexCastOp::create(builder, loc, type, value).getResult(),
        getListElement(builder, loc, list, type, i));
  return list;
}

Value GPURuntimeCalls::getFailure(func::FuncOp function, bool make) {
  constexpr StringLiteral name = "fovea_rt_gpu_failure";
  OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
  Location loc = function.getLoc();
  Value pointer;
  for (auto found : function.getOps<LLVM::CallOp>())
    if (found.getCallee() == name)
      pointer = found.getResult();
  if (!pointer && make)
    pointer = call(builder, loc, name, {}, pointerType);
  if (!pointer)
    return Value();
  builder.setInsertionPointAfterValue(pointer);
  return makeFailureWords(builder, loc, pointer);
}

Value GPURuntimeCalls::makeFailureWords(OpBuilder &builder, Location loc,
                                        Value pointer) {
  auto type = MemRefType::get({kFailureWords}, builder.getI64Type());
  return makeBuffer(builder, loc, pointer, type, {});
}

void GPURuntimeCalls::transformLines(OpBuilder &builder, Location loc,
                                     Value lines, bool inverse) {
  auto type = cast<MemRefType>(lines.getType());
  auto extent = [&](int64_t dim) -> Value {
    Value size = memref::DimOp::create(builder, loc, lines, dim);
    return arith::IndexCastOp::create(builder, loc, builder.getI64Type(), size);
  };
  Value count =
      arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(1));
  for (int64_t dim = 0; dim < type.getRank() - 2; ++dim)
    count = arith::MulIOp::create(builder, loc, count, extent(dim));
  Value isInverse = arith::ConstantOp::create(
      builder, loc, builder.getI32IntegerAttr(inverse));
  call(builder, loc, "fovea_rt_gpu_transform",
       {getPointer(builder, loc, lines), extent(type.getRank() - 2), count,
        isInverse});
}
