//===- RuntimeCalls.cpp - Calls of the runtime from IR --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

void RuntimeCalls::emitCheck(ImplicitLocOpBuilder &b, StringRef function,
                             StringRef text, ValueRange arguments) {
  SmallVector<Value> operands = {getTextAddress(b, text)};
  llvm::append_range(operands, arguments);
  LLVM::LLVMFuncOp callee =
      getFunction(b, function, ValueRange(operands).getTypes());
  LLVM::CallOp::create(b, callee, operands);
}

Value RuntimeCalls::getTextAddress(ImplicitLocOpBuilder &b, StringRef text) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  return LLVM::AddressOfOp::create(b, pointer, getText(b, text).getSymName());
}

Value RuntimeCalls::emitCall(ImplicitLocOpBuilder &b, ModuleOp module,
                             StringRef function, Type resultType,
                             ValueRange arguments) {
  auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(function);
  if (!callee) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    Type result =
        resultType ? resultType : LLVM::LLVMVoidType::get(b.getContext());
    auto type = LLVM::LLVMFunctionType::get(
        result, llvm::to_vector(arguments.getTypes()));
    callee = LLVM::LLVMFuncOp::create(b, function, type);
  }
  auto call = LLVM::CallOp::create(b, callee, arguments);
  return resultType ? call.getResult() : Value();
}

Value RuntimeCalls::emitLoopThreads(ImplicitLocOpBuilder &b, ModuleOp module) {
  Value threads = emitCall(b, module, "fovea_rt_loop_threads", b.getI64Type(),
                           /*arguments=*/{});
  return arith::IndexCastOp::create(b, b.getIndexType(), threads);
}

static Value toI64(ImplicitLocOpBuilder &b, Value index) {
  return arith::IndexCastOp::create(b, b.getI64Type(), index);
}

Value RuntimeCalls::getAddress(ImplicitLocOpBuilder &b, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  Value elementBytes =
      arith::ConstantIndexOp::create(b, type.getElementTypeBitWidth() / 8);
  Value bytes = arith::MulIOp::create(b, metadata.getOffset(), elementBytes);
  Value address = toI64(b, arith::AddIOp::create(b, base, bytes));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  return LLVM::IntToPtrOp::create(b, pointer, address);
}

SmallVector<Value> RuntimeCalls::describe(ImplicitLocOpBuilder &b,
                                          Value memref) {
  SmallVector<Value> arguments = {getAddress(b, memref)};
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
  for (Value value : metadata.getSizes())
    arguments.push_back(toI64(b, value));
  for (Value value : metadata.getStrides())
    arguments.push_back(toI64(b, value));
  return arguments;
}

LLVM::LLVMFuncOp RuntimeCalls::getFunction(ImplicitLocOpBuilder &b,
                                           StringRef name,
                                           TypeRange argumentTypes) {
  if (auto function = symbols.lookup<LLVM::LLVMFuncOp>(name))
    return function;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module.getBody());
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  SmallVector<Type>(argumentTypes));
  auto function = LLVM::LLVMFuncOp::create(b, name, type);
  symbols.insert(function);
  return function;
}

LLVM::GlobalOp RuntimeCalls::getText(ImplicitLocOpBuilder &b, StringRef text) {
  LLVM::GlobalOp &global = texts[text];
  if (global)
    return global;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module.getBody());
  std::string bytes = text.str() + '\0';
  global = LLVM::GlobalOp::create(
      b, LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size()),
      /*isConstant=*/true, LLVM::Linkage::Internal, "attn_check_text",
      b.getStringAttr(bytes));
  symbols.insert(global);
  return global;
}
