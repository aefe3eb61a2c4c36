//===- SplitAddresses.cpp - Parts of addresses that stay the same ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/LLVM/SplitAddresses.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;

namespace {
/// A constant and values times their factors, modulo 2^64.
struct Sum {
  uint64_t constant = 0;
  SmallMapVector<Value *, uint64_t, 4> factors;

  void add(const Sum &other, uint64_t factor) {
    constant += other.constant * factor;
    for (auto [value, otherFactor] : other.factors)
      factors[value] += otherFactor * factor;
  }
};

class AddressSplitter {
public:
  AddressSplitter(Function &function, LoopInfo &loops)
      : function(function), loops(loops) {}

  /// Returns whether anything changed.
  bool run();

private:
  const Sum &getSum(Value *index);
  std::optional<Sum> getOffset(GetElementPtrInst *address);
  Value *split(GetElementPtrInst *address);

  Function &function;
  LoopInfo &loops;
  DenseMap<Value *, std::unique_ptr<Sum>> sums;
};
} // namespace

const Sum &AddressSplitter::getSum(Value *index) {
  if (auto known = sums.find(index); known != sums.end())
    return *known->second;
  auto sum = std::make_unique<Sum>();
  auto *op = dyn_cast<BinaryOperator>(index);
  unsigned opcode = op ? op->getOpcode() : 0;
  auto *right = op ? dyn_cast<ConstantInt>(op->getOperand(1)) : nullptr;
  if (auto *constant = dyn_cast<ConstantInt>(index)) {
    sum->constant = constant->getSExtValue();
  } else if (opcode == Instruction::Add) {
    sum->add(getSum(op->getOperand(0)), 1);
    sum->add(getSum(op->getOperand(1)), 1);
  } else if (opcode == Instruction::Sub) {
    sum->add(getSum(op->getOperand(0)), 1);
    sum->add(getSum(op->getOperand(1)), -1);
  } else if (opcode == Instruction::Mul && right) {
    sum->add(getSum(op->getOperand(0)), right->getSExtValue());
  } else if (opcode == Instruction::Shl && right && right->getValue().ult(64)) {
    sum->add(getSum(op->getOperand(0)), uint64_t(1) << right->getZExtValue());
  } else {
    sum->factors[index] = 1;
  }
  return *(sums[index] = std::move(sum));
}

/// The offset of `address` in elements of its type; none if it is constant or
/// has parts of other sizes.
std::optional<Sum> AddressSplitter::getOffset(GetElementPtrInst *address) {
  const DataLayout &layout = function.getDataLayout();
  SmallMapVector<Value *, APInt, 4> factors;
  APInt constant(64, 0);
  if (address->getType()->isVectorTy() || address->hasAllConstantIndices() ||
      !address->collectOffset(layout, 64, factors, constant))
    return std::nullopt;
  int64_t size = layout.getTypeAllocSize(address->getResultElementType());
  auto isWhole = [&](const APInt &bytes) {
    return size > 0 && bytes.getSExtValue() % size == 0;
  };
  if (!isWhole(constant))
    return std::nullopt;
  Sum offset;
  offset.constant = constant.getSExtValue() / size;
  for (auto &[index, factor] : factors) {
    if (!index->getType()->isIntegerTy(64) || !isWhole(factor))
      return std::nullopt;
    offset.add(getSum(index), factor.getSExtValue() / size);
  }
  return offset;
}

/// Returns what takes the place of `address`; null if that is to stay.
Value *AddressSplitter::split(GetElementPtrInst *address) {
  std::optional<Sum> sum = getOffset(address);
  if (!sum)
    return nullptr;
  Type *type = address->getResultElementType();
  unsigned innermost = loops.getLoopDepth(address->getParent());
  auto getDepth = [&](Value *value) -> unsigned {
    auto *instruction = dyn_cast<Instruction>(value);
    return instruction ? std::min(loops.getLoopDepth(instruction->getParent()),
                                  innermost)
                       : 0;
  };
  IRBuilder<> builder(address);
  Value *pointer = address->getPointerOperand();
  for (unsigned depth = 0; depth <= innermost; ++depth) {
    Value *offset = nullptr;
    for (auto [value, factor] : sum->factors) {
      if (factor == 0 || getDepth(value) != depth)
        continue;
      Value *term = factor == 1
                        ? value
                        : builder.CreateMul(value, builder.getInt64(factor));
      offset = offset ? builder.CreateAdd(offset, term) : term;
    }
    if (offset)
      pointer = builder.CreateGEP(type, pointer, offset);
  }
  if (sum->constant)
    pointer = builder.CreateGEP(type, pointer, builder.getInt64(sum->constant));
  return pointer;
}

bool AddressSplitter::run() {
  SmallVector<GetElementPtrInst *> addresses;
  for (Instruction &instruction : instructions(function))
    if (auto *address = dyn_cast<GetElementPtrInst>(&instruction))
      addresses.push_back(address);
  // Sums refer to values until the end.
  SmallVector<WeakTrackingVH> dead;
  for (GetElementPtrInst *address : addresses) {
    Value *pointer = split(address);
    if (!pointer)
      continue;
    address->replaceAllUsesWith(pointer);
    dead.push_back(address);
  }
  RecursivelyDeleteTriviallyDeadInstructions(dead);
  return !addresses.empty();
}

PreservedAnalyses
fovea::SplitAddressesPass::run(Function &function,
                               FunctionAnalysisManager &manager) {
  LoopInfo &loops = manager.getResult<LoopAnalysis>(function);
  if (!AddressSplitter(function, loops).run())
    return PreservedAnalyses::all();
  PreservedAnalyses preserved;
  preserved.preserveSet<CFGAnalyses>();
  return preserved;
}
