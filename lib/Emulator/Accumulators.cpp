//===- Accumulators.cpp - Uses of results of wgmma ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RewriteForHost.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;
using fovea::emitCall;
using fovea::simt::Op;
using fovea::simt::OpTable;

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

namespace {
/// Follows the registers that wgmma takes back to the instructions that write
/// them. A stamp says after how many fences that was: 0 for never, such as for
/// constants and for what wgmma itself writes.
class WriteStamps {
public:
  explicit WriteStamps(Function &function)
      : i32(Type::getInt32Ty(function.getContext())) {}

  /// The latest stamp of the registers among the operands of `call`; null if
  /// there is none.
  Value *findLatest(CallInst &call) {
    SmallSetVector<Value *, 32> stamps;
    for (Value *operand : call.args())
      // Descriptors have 64 bits.
      if (operand->getType()->getPrimitiveSizeInBits() == 32)
        if (Value *stamp = find(operand); stamp != getNever())
          stamps.insert(stamp);
    Value *latest = nullptr;
    IRBuilder<> builder(&call);
    for (Value *stamp : stamps)
      latest =
          latest ? builder.CreateBinaryIntrinsic(Intrinsic::umax, latest, stamp)
                 : stamp;
    return latest;
  }

private:
  Constant *getNever() { return ConstantInt::get(i32, 0); }

  Value *find(Value *value) {
    auto *instruction = dyn_cast<Instruction>(value);
    if (!instruction)
      return getNever();
    if (Value *known = stamps.lookup(value))
      return known;
    return stamps[value] = make(*instruction);
  }

  Value *make(Instruction &instruction) {
    if (auto *phi = dyn_cast<PHINode>(&instruction)) {
      IRBuilder<> builder(phi);
      PHINode *stamp = builder.CreatePHI(i32, phi->getNumIncomingValues());
      stamps[phi] = stamp;
      for (auto [block, value] : zip(phi->blocks(), phi->incoming_values()))
        stamp->addIncoming(find(value), block);
      return stamp;
    }
    // Neither changes a register.
    if (isa<BitCastInst, FreezeInst>(instruction))
      return find(instruction.getOperand(0));
    if (auto *extract = dyn_cast<ExtractElementInst>(&instruction))
      if (cast<VectorType>(extract->getVectorOperandType())
              ->getElementCount()
              .isScalar())
        return find(extract->getVectorOperand());
    if (auto *extract = dyn_cast<ExtractValueInst>(&instruction))
      if (isWarpgroupAsm(extract->getAggregateOperand()))
        return getNever();
    IRBuilder<> builder(&*std::next(instruction.getIterator()));
    return emitCall(builder, "fovea_simt_written", i32, {});
  }

  Type *i32;
  DenseMap<Value *, Value *> stamps;
};
} // namespace

/// Lets each product report registers that were written after the last fence.
static void guardWrites(Function &function, OpTable &table,
                        function_ref<std::string(Instruction &)> describe) {
  SmallVector<CallInst *> products;
  for (Instruction &instruction : instructions(function))
    if (auto *call = dyn_cast<CallInst>(&instruction))
      if (isWarpgroupAsm(call) && cast<InlineAsm>(call->getCalledOperand())
                                      ->getAsmString()
                                      .contains("mma_async"))
        products.push_back(call);
  if (products.empty())
    return;
  WriteStamps stamps(function);
  for (CallInst *call : products) {
    Value *latest = stamps.findLatest(*call);
    if (!latest)
      continue;
    IRBuilder<> builder(call);
    const Op &op = table.add("wgmma.mma_async", describe(*call));
    emitCall(builder, "fovea_simt_check_written", builder.getVoidTy(),
             {latest, getAddress(op, builder.getContext())});
  }
}

void fovea::simt::guardAccumulators(
    Function &function, OpTable &table,
    function_ref<std::string(Instruction &)> describe) {
  guardWrites(function, table, describe);
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
  LLVMContext &context = function.getContext();
  Type *i32 = Type::getInt32Ty(context);
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
      const Op &op = table.add(user->getOpcodeName(), describe(*user));
      reading =
          builder.CreateBitCast(emitCall(builder, "fovea_simt_accumulator", i32,
                                         {builder.CreateBitCast(value, i32),
                                          getAddress(op, context)}),
                                type);
    }
    use->set(reading);
  }
}
