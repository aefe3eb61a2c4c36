//===- CountWork.cpp - What instructions ask of a multiprocessor ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instructions of the machine are those that ptxas makes of this code, in
// another order, so what is counted here is near and not exact: see
// docs/GPUModel.md.
//
//===----------------------------------------------------------------------===//

#include "RewriteForHost.h"
#include "Runtime/Rates.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/PatternMatch.h"

using namespace llvm;
using namespace fovea::simt;

namespace {

class WorkCounter {
public:
  explicit WorkCounter(const DataLayout &layout) : layout(layout) {}

  void count(const Instruction &instruction);
  /// What has been counted since the last call; nothing if that is nothing.
  std::optional<Work> take();
  /// Loads from here on are under way together: machine code has them early.
  void startBlock() { hasLoaded = false; }

private:
  void add(Pipe pipe, double cycles, double times = 1) {
    work.cycles[Issue] += times;
    work.cycles[pipe] += cycles * times;
  }
  void countAccess(const Value *address, Type *type, bool isLoad);
  void countCall(const CallBase &call);
  /// An intrinsic without its prefix or an instruction in inline assembly.
  void countOperation(StringRef name);

  const DataLayout &layout;
  Work work;
  bool hasLoaded = false;
};

} // namespace

std::optional<Work> WorkCounter::take() {
  Work taken = work;
  work = Work();
  if (taken.cycles[Issue] == 0)
    return std::nullopt;
  return taken;
}

void WorkCounter::countAccess(const Value *address, Type *type, bool isLoad) {
  const Value *object = getUnderlyingObject(address);
  // Parameters are in constant memory, local variables in registers.
  if (isa<AllocaInst>(object) ||
      (isa<Argument>(object) && cast<Argument>(object)->hasByValAttr()))
    return;
  uint64_t bytes = layout.getTypeStoreSize(type);
  add(Lsu, rates::kLsu, divideCeil(bytes, 16));
  unsigned space = address->getType()->getPointerAddressSpace();
  if (space > 1)
    return;
  work.bytes += bytes;
  work.loads += isLoad && !hasLoaded;
  hasLoaded |= isLoad;
}

void WorkCounter::countOperation(StringRef name) {
  auto is = [&](std::initializer_list<StringRef> prefixes) {
    return any_of(prefixes, [&](StringRef p) { return name.starts_with(p); });
  };
  if (is({"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div"}))
    return add(Mufu, rates::kMufu);
  if (is({"mma"}))
    return add(Multiply, rates::kProduct);
  // Its descriptors go to registers of their own.
  if (is({"wgmma.mma_async"})) {
    add(Alu, rates::kAlu, 2);
    return add(Issue, 0);
  }
  if (is({"fma", "add.rn.f", "add.f", "mul.rn.f", "mul.f", "sub.f"}))
    return add(Fma, rates::kFma);
  if (is({"shfl", "ldmatrix", "stmatrix", "ld.", "st.", "redux",
          "cp.async."}) &&
      !name.contains("bulk"))
    return add(Lsu, rates::kLsu);
  // What only joins, such as barriers, takes its place and no more.
  if (is({"bar", "mbarrier", "cp.async", "wgmma", "fence", "setmaxnreg",
          "bra"}))
    return add(Issue, 0);
  add(Alu, rates::kAlu);
}

void WorkCounter::countCall(const CallBase &call) {
  if (call.isInlineAsm()) {
    const auto *assembly = cast<InlineAsm>(call.getCalledOperand());
    SmallVector<StringRef> statements;
    StringRef(assembly->getAsmString()).split(statements, ';');
    for (StringRef statement : statements) {
      size_t colon = statement.find(": ");
      if (colon != StringRef::npos)
        statement = statement.drop_front(colon + 1);
      statement = statement.ltrim(" \t\n\r{}");
      if (statement.starts_with("@"))
        statement = statement.drop_until(isSpace).ltrim();
      if (statement.empty() || statement.starts_with(".reg") ||
          statement.starts_with("//"))
        continue;
      countOperation(statement);
    }
    return;
  }
  const Function *callee = call.getCalledFunction();
  StringRef name = callee ? callee->getName() : "";
  if (name.consume_front("llvm.nvvm."))
    return countOperation(name);
  double times = 1;
  if (auto *vector = dyn_cast<FixedVectorType>(call.getType()))
    times = vector->getNumElements();
  switch (call.getIntrinsicID()) {
  case Intrinsic::fma:
  case Intrinsic::fmuladd:
    return add(Fma, rates::kFma, times);
  case Intrinsic::exp2:
  case Intrinsic::log2:
  case Intrinsic::sqrt:
    return add(Mufu, rates::kMufu, times);
  case Intrinsic::fabs:
  case Intrinsic::assume:
  case Intrinsic::lifetime_start:
  case Intrinsic::lifetime_end:
    return;
  default:
    return add(Alu, rates::kAlu, times);
  }
}

/// It becomes one instruction with the sum that takes it.
static bool isFused(const Instruction &product) {
  if (!product.hasOneUse() || !product.hasAllowContract())
    return false;
  auto *sum = dyn_cast<Instruction>(*product.user_begin());
  return sum &&
         (sum->getOpcode() == Instruction::FAdd ||
          sum->getOpcode() == Instruction::FSub) &&
         sum->hasAllowContract();
}

/// What combines bits makes a predicate of them, too.
static bool testsBits(const Instruction &instruction) {
  const auto *test = dyn_cast<ICmpInst>(&instruction);
  if (!test || !test->isEquality() ||
      !PatternMatch::match(test->getOperand(1), PatternMatch::m_Zero()))
    return false;
  const auto *bits = dyn_cast<BinaryOperator>(test->getOperand(0));
  return bits && bits->isBitwiseLogicOp() && bits->hasOneUse();
}

void WorkCounter::count(const Instruction &instruction) {
  Type *type = instruction.getType();
  double times = 1;
  if (auto *vector = dyn_cast<FixedVectorType>(type))
    times = vector->getNumElements();
  if (type->getScalarType()->isIntegerTy(64))
    times *= 2;
  switch (instruction.getOpcode()) {
  case Instruction::FMul:
    if (isFused(instruction))
      return;
    [[fallthrough]];
  case Instruction::FAdd:
  case Instruction::FSub:
    return add(Fma, rates::kFma, times);
  case Instruction::Mul:
    return add(Fma, rates::kAlu, times);
  case Instruction::ICmp:
    if (testsBits(instruction))
      return;
    [[fallthrough]];
  case Instruction::Add:
  case Instruction::Sub:
  case Instruction::And:
  case Instruction::Or:
  case Instruction::Xor:
  case Instruction::Shl:
  case Instruction::LShr:
  case Instruction::AShr:
  case Instruction::FCmp:
  case Instruction::Select:
  case Instruction::SExt:
  case Instruction::FPExt:
    return add(Alu, rates::kAlu, times);
  case Instruction::FPTrunc:
    // Two numbers become halves of a register.
    return add(Alu, rates::kAlu, times / 2);
  case Instruction::SIToFP:
  case Instruction::UIToFP:
  case Instruction::FPToSI:
  case Instruction::FPToUI:
  case Instruction::FDiv:
    return add(Mufu, rates::kMufu, times);
  case Instruction::SDiv:
  case Instruction::UDiv:
  case Instruction::SRem:
  case Instruction::URem:
    return add(Alu, rates::kAlu, 20 * times);
  case Instruction::GetElementPtr:
    // Instructions have a constant offset of their own.
    if (!cast<GetElementPtrInst>(instruction).hasAllConstantIndices())
      add(Alu, rates::kAlu);
    return;
  case Instruction::Load:
    return countAccess(cast<LoadInst>(instruction).getPointerOperand(), type,
                       /*isLoad=*/true);
  case Instruction::Store: {
    const auto &store = cast<StoreInst>(instruction);
    return countAccess(store.getPointerOperand(),
                       store.getValueOperand()->getType(), /*isLoad=*/false);
  }
  case Instruction::AtomicRMW:
  case Instruction::AtomicCmpXchg:
    return countAccess(instruction.getOperand(0),
                       instruction.getOperand(1)->getType(), /*isLoad=*/true);
  case Instruction::Br:
    if (cast<BranchInst>(instruction).isConditional())
      add(Issue, 0);
    return;
  case Instruction::Call:
    return countCall(cast<CallBase>(instruction));
  default:
    // Casts, parts of vectors and structures, phi: registers have names only.
    return;
  }
}

/// Whether events may come from here: the work ahead is theirs.
static bool mayBeEvent(const Instruction &instruction) {
  auto *call = dyn_cast<CallInst>(&instruction);
  if (!call)
    return false;
  StringRef text =
      call->isInlineAsm()
          ? cast<InlineAsm>(call->getCalledOperand())->getAsmString()
      : call->getCalledFunction() ? call->getCalledFunction()->getName()
                                  : StringRef();
  return text.contains("bar") || text.contains("wgmma") ||
         text.contains("cp.async");
}

void fovea::simt::countWork(Function &function, std::deque<Work> &table) {
  LLVMContext &context = function.getContext();
  WorkCounter counter(function.getParent()->getDataLayout());
  auto spend = [&](Instruction *place) {
    std::optional<Work> work = counter.take();
    if (!work)
      return;
    table.push_back(*work);
    IRBuilder<> builder(place);
    auto address = reinterpret_cast<uintptr_t>(&table.back());
    fovea::emitCall(builder, "fovea_simt_spend", builder.getVoidTy(),
                    {ConstantExpr::getIntToPtr(builder.getInt64(address),
                                               PointerType::get(context, 0))});
  };
  for (BasicBlock &block : function) {
    counter.startBlock();
    for (Instruction &instruction : make_early_inc_range(block)) {
      counter.count(instruction);
      if (instruction.isTerminator() || mayBeEvent(instruction))
        spend(&instruction);
    }
  }
}
