//===- Accumulators.cpp - Uses of results of wgmma ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RewriteForHost.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

/// Inline assembly with wgmma takes and gives accumulators as they are: it may
/// pass one on before it is there.
static bool isWarpgroupAsm(const Value *value) {
  auto *call = dyn_cast<CallInst>(value);
  if (!call || !call->isInlineAsm())
    return false;
  return cast<InlineAsm>(call->getCalledOperand())
      ->getAsmString()
      .contains("wgmma.");
}

/// Values that hold what an operand held.
static bool passesOn(const Instruction &instruction) {
  return isa<PHINode, SelectInst, ExtractValueInst, InsertValueInst,
             FreezeInst>(instruction);
}

void fovea::simt::guardAccumulators(
    Function &function, OpTable &table,
    function_ref<std::string(Instruction &)> describe) {
  // Forwards from every product.
  SetVector<Instruction *> tainted;
  for (Instruction &instruction : instructions(function))
    if (isWarpgroupAsm(&instruction) && !instruction.getType()->isVoidTy())
      tainted.insert(&instruction);
  for (size_t i = 0; i < tainted.size(); ++i)
    for (User *user : tainted[i]->users())
      if (auto *instruction = cast<Instruction>(user); passesOn(*instruction))
        tainted.insert(instruction);

  // Each other use reads; one reading serves all uses of an instruction.
  SmallVector<Use *> uses;
  for (Instruction *value : tainted)
    if (!value->getType()->isStructTy())
      for (Use &use : value->uses()) {
        auto *user = cast<Instruction>(use.getUser());
        // The condition of a select is no part of its result.
        bool isCondition = isa<SelectInst>(user) && use.getOperandNo() == 0;
        if ((!tainted.contains(user) || isCondition) && !isWarpgroupAsm(user))
          uses.push_back(&use);
      }
  Module &module = *function.getParent();
  Type *i32 = Type::getInt32Ty(module.getContext());
  auto *pointer = PointerType::get(module.getContext(), 0);
  FunctionCallee read = module.getOrInsertFunction(
      "fovea_simt_accumulator", FunctionType::get(i32, {i32, pointer}, false));
  DenseMap<std::pair<Value *, Instruction *>, Value *> readings;
  for (Use *use : uses) {
    Value *value = use->get();
    auto *user = cast<Instruction>(use->getUser());
    Value *&reading = readings[{value, user}];
    if (!reading) {
      Type *type = value->getType();
      if (type->getPrimitiveSizeInBits() != 32)
        continue;
      IRBuilder<> builder(user);
      Op &op = table.add();
      op.name = user->getOpcodeName();
      op.where = describe(*user);
      Value *address = ConstantExpr::getIntToPtr(
          builder.getInt64(reinterpret_cast<uintptr_t>(&op)), pointer);
      Value *bits = builder.CreateBitCast(value, i32);
      reading = builder.CreateBitCast(builder.CreateCall(read, {bits, address}),
                                      type);
    }
    use->set(reading);
  }
}
