//===- RuntimeCalls.cpp - Calls of the runtime from IR --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"

using namespace mlir;
using namespace fovea::attn;

void RuntimeCalls::emitCheck(ImplicitLocOpBuilder &b, StringRef function,
                             StringRef text, ValueRange arguments) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  SmallVector<Value> operands = {
      LLVM::AddressOfOp::create(b, pointer, getText(b, text).getSymName())};
  llvm::append_range(operands, arguments);
  LLVM::LLVMFuncOp callee =
      getFunction(b, function, ValueRange(operands).getTypes());
  LLVM::CallOp::create(b, callee, operands);
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
