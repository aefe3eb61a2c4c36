//===- RewriteForHost.cpp - From device code to host code -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RewriteForHost.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;
using namespace fovea::simt;
using fovea::emitCall;

/// Address spaces of shared memory: of the block, and of its cluster.
static bool isSharedSpace(unsigned space) { return space == 3 || space == 7; }

namespace {

class Rewriter {
public:
  Rewriter(Module &module, Rewritten &result)
      : module(module), context(module.getContext()), result(result),
        i32(Type::getInt32Ty(context)), i64(Type::getInt64Ty(context)),
        pointer(PointerType::get(context, 0)) {}

  Error rewrite(const Triple &triple, const DataLayout &layout, bool clocks);

private:
  Error checkCallees();
  Error placeShared(uint32_t &staticBytes);
  Error rewriteCall(CallInst &call);
  Error bind(CallInst &call, fovea::simt::Op &op);
  void instrument(Function &function);
  void addPauses(Function &function);
  void makeEntry(Function &kernel, uint32_t staticBytes);
  std::string describe(Instruction &instruction);

  fovea::simt::Op &addOp(StringRef name, Instruction &place) {
    return result.table.add(name.str(), describe(place));
  }
  /// Memory for the operands and the results of one operation at a time.
  std::pair<Value *, Value *> getSlots(Function &function);

  Module &module;
  LLVMContext &context;
  Rewritten &result;
  Type *i32, *i64;
  PointerType *pointer;
  DenseMap<Function *, std::pair<Value *, Value *>> slots;
  /// Operations of a function before this one, for messages.
  DenseMap<Function *, unsigned> numbers;
};

} // namespace

Constant *fovea::simt::getAddress(const Op &op, LLVMContext &context) {
  return ConstantExpr::getIntToPtr(
      ConstantInt::get(Type::getInt64Ty(context),
                       reinterpret_cast<uintptr_t>(&op)),
      PointerType::get(context, 0));
}

std::string Rewriter::describe(Instruction &instruction) {
  if (const DebugLoc &place = instruction.getDebugLoc())
    if (place.getLine())
      return (place->getFilename() + ":" + Twine(place.getLine())).str();
  Function &function = *instruction.getFunction();
  return ("operation " + Twine(++numbers[&function]) + " of '" +
          function.getName() + "'")
      .str();
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Turns variables in shared memory into offsets in the block's: first those
/// of known size, then the dynamic part, where all others begin.
Error Rewriter::placeShared(uint32_t &staticBytes) {
  const DataLayout &layout = module.getDataLayout();
  SmallVector<GlobalVariable *> variables;
  for (GlobalVariable &variable : module.globals())
    if (isSharedSpace(variable.getAddressSpace()))
      variables.push_back(&variable);
  auto isDynamic = [&](GlobalVariable *variable) {
    return layout.getTypeAllocSize(variable->getValueType()) == 0;
  };
  uint64_t bytes = 0, dynamicAlignment = 16;
  SmallVector<std::pair<GlobalVariable *, uint64_t>> places;
  for (GlobalVariable *variable : variables) {
    uint64_t alignment =
        std::max<uint64_t>(variable->getAlign().valueOrOne().value(), 16);
    if (isDynamic(variable)) {
      dynamicAlignment = std::max(dynamicAlignment, alignment);
      continue;
    }
    bytes = alignTo(bytes, alignment);
    places.emplace_back(variable, bytes);
    bytes += layout.getTypeAllocSize(variable->getValueType());
  }
  bytes = alignTo(bytes, dynamicAlignment);
  for (GlobalVariable *variable : variables)
    if (isDynamic(variable))
      places.emplace_back(variable, bytes);
  staticBytes = bytes;

  SmallVector<Constant *> constants(variables.begin(), variables.end());
  convertUsersOfConstantsToInstructions(constants);
  DenseMap<Function *, Instruction *> bases;
  for (auto &[variable, offset] : places) {
    for (Use &use : make_early_inc_range(variable->uses())) {
      auto *user = dyn_cast<Instruction>(use.getUser());
      if (!user)
        return createStringError("shared variable '" + variable->getName() +
                                 "' is used by a constant");
      Function *function = user->getFunction();
      Instruction *&base = bases[function];
      if (!base) {
        IRBuilder<> builder(&*function->getEntryBlock().getFirstInsertionPt());
        CallInst *call = emitCall(builder, "fovea_simt_shared", pointer, {});
        call->setDoesNotAccessMemory();
        call->setDoesNotThrow();
        base = call;
      }
      IRBuilder<> builder(base->getNextNode());
      use.set(builder.CreateAddrSpaceCast(
          builder.CreateConstGEP1_64(builder.getInt8Ty(), base, offset),
          variable->getType()));
    }
  }
  for (GlobalVariable *variable : variables)
    variable->eraseFromParent();
  return Error::success();
}

/// Reports accesses to shared memory to the runtime.
void Rewriter::instrument(Function &function) {
  const DataLayout &layout = module.getDataLayout();
  enum { Reads, Writes, Atomics };
  auto note = [&](Instruction &instruction, Value *address, Value *bytes,
                  int kind, Align alignment) {
    unsigned space = address->getType()->getPointerAddressSpace();
    // Generic addresses may be of shared memory, unless they are local.
    if (!isSharedSpace(space) &&
        (space != 0 ||
         isa<AllocaInst, GlobalVariable>(getUnderlyingObject(address))))
      return;
    IRBuilder<> builder(&instruction);
    static constexpr StringLiteral names[] = {"load", "store", "atomic"};
    emitCall(builder, "fovea_simt_access", builder.getVoidTy(),
             {builder.CreateAddrSpaceCast(address, pointer),
              builder.CreateZExtOrTrunc(bytes, i32), builder.getInt32(kind),
              builder.getInt32(alignment.value()),
              getAddress(addOp(names[kind], instruction), context)});
  };
  auto size = [&](Type *type) {
    return ConstantInt::get(i32, layout.getTypeStoreSize(type));
  };
  SmallVector<Instruction *> all;
  for (Instruction &instruction : instructions(function))
    all.push_back(&instruction);
  for (Instruction *instruction : all) {
    if (Value *address = getLoadStorePointerOperand(instruction))
      note(*instruction, address, size(getLoadStoreType(instruction)),
           instruction->isAtomic()      ? Atomics
           : isa<LoadInst>(instruction) ? Reads
                                        : Writes,
           getLoadStoreAlignment(instruction));
    else if (auto *update = dyn_cast<AtomicRMWInst>(instruction))
      note(*update, update->getPointerOperand(),
           size(update->getValOperand()->getType()), Atomics,
           update->getAlign());
    else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(instruction))
      note(*exchange, exchange->getPointerOperand(),
           size(exchange->getNewValOperand()->getType()), Atomics,
           exchange->getAlign());
    else if (auto *copy = dyn_cast<AnyMemTransferInst>(instruction)) {
      note(*copy, copy->getRawSource(), copy->getLength(), Reads, Align(1));
      note(*copy, copy->getRawDest(), copy->getLength(), Writes, Align(1));
    } else if (auto *fill = dyn_cast<AnyMemSetInst>(instruction)) {
      note(*fill, fill->getRawDest(), fill->getLength(), Writes, Align(1));
    }
  }
}

/// A loop that looks at memory in a way that another thread may change it lets
/// that thread run.
void Rewriter::addPauses(Function &function) {
  DominatorTree tree(function);
  LoopInfo loops(tree);
  for (Loop *loop : loops.getLoopsInPreorder()) {
    Instruction *watch = nullptr;
    for (BasicBlock *block : loop->blocks())
      for (Instruction &instruction : *block) {
        auto *load = dyn_cast<LoadInst>(&instruction);
        if ((load && (load->isAtomic() || load->isVolatile())) ||
            isa<AtomicCmpXchgInst, AtomicRMWInst>(instruction))
          watch = &instruction;
      }
    SmallVector<BasicBlock *> latches;
    loop->getLoopLatches(latches);
    if (watch)
      for (BasicBlock *latch : latches) {
        IRBuilder<> builder(latch->getTerminator());
        emitCall(builder, "fovea_simt_pause", builder.getVoidTy(),
                 {getAddress(addOp("loop", *watch), context)});
      }
  }
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static bool isOperation(const CallInst &call) {
  if (call.isInlineAsm())
    return true;
  const Function *callee = call.getCalledFunction();
  return callee && callee->getName().starts_with("llvm.nvvm.");
}

static bool isTrap(const CallInst &call) {
  return call.getIntrinsicID() == Intrinsic::trap ||
         call.getIntrinsicID() == Intrinsic::debugtrap ||
         call.getIntrinsicID() == Intrinsic::ubsantrap;
}

/// The number that rounds to the nearest tf32 number, ties away from zero.
static Value *roundToTF32(IRBuilder<> &builder, Value *number) {
  // Half of the last bit that stays is added, carrying into the exponent where
  // it must; infinities stay what they are.
  Value *bits = builder.CreateBitCast(number, builder.getInt32Ty());
  bits = builder.CreateAdd(bits, builder.getInt32(0x1000));
  bits = builder.CreateAnd(bits, builder.getInt32(~0x1fffu));
  return builder.CreateSelect(builder.CreateFCmpUNO(number, number),
                              builder.getInt32(0x7fffffff), bits);
}

/// Functions that are nowhere, such as those of a library for the device.
Error Rewriter::checkCallees() {
  std::string missing;
  for (Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic() &&
        !function.use_empty())
      missing +=
          (missing.empty() ? "'" : ", '") + function.getName().str() + "'";
  if (missing.empty())
    return Error::success();
  return createStringError("device code calls functions without a body: " +
                           missing);
}

/// The 64-bit slot that carries `value`; null if it does not fit.
static Value *toSlot(IRBuilder<> &builder, Value *value) {
  Type *type = value->getType();
  if (type->isPointerTy())
    return builder.CreatePtrToInt(value, builder.getInt64Ty());
  unsigned bits = type->getPrimitiveSizeInBits();
  if (bits == 0 || bits > 64)
    return nullptr;
  if (!type->isIntegerTy())
    value = builder.CreateBitCast(value, builder.getIntNTy(bits));
  return builder.CreateZExt(value, builder.getInt64Ty());
}

static Value *fromSlot(IRBuilder<> &builder, Value *slot, Type *type) {
  if (type->isPointerTy())
    return builder.CreateIntToPtr(slot, type);
  Value *value = builder.CreateTrunc(
      slot, builder.getIntNTy(type->getPrimitiveSizeInBits()));
  return type->isIntegerTy() ? value : builder.CreateBitCast(value, type);
}

std::pair<Value *, Value *> Rewriter::getSlots(Function &function) {
  auto &entry = slots[&function];
  if (!entry.first) {
    IRBuilder<> builder(&*function.getEntryBlock().getFirstInsertionPt());
    Type *type = ArrayType::get(i64, kMaxSlots);
    entry.first = builder.CreateAlloca(type, nullptr, "operands");
    entry.second = builder.CreateAlloca(type, nullptr, "results");
  }
  return entry;
}

/// Finds out what `op` does.
Error Rewriter::bind(CallInst &call, fovea::simt::Op &op) {
  if (!call.isInlineAsm()) {
    if (!bindIntrinsic(op))
      return createStringError("intrinsic '" + op.name + "' is not emulated (" +
                               op.where + ")");
    // The intrinsics of copies to clusters have a mask of the blocks that get
    // a copy and a hint, and then, their first bit, whether the mask counts.
    if (StringRef(op.name).starts_with("llvm.nvvm.cp.async.bulk.") &&
        (StringRef(op.name).contains(".g2s.") ||
         StringRef(op.name).ends_with(".to.shared.cluster")))
      for (auto [number, operand] : enumerate(call.args()))
        if (operand->getType()->isIntegerTy(1)) {
          op.param[2] =
              match(operand.get(), PatternMatch::m_One()) ? number - 2 : 0;
          break;
        }
    return Error::success();
  }
  auto *assembly = cast<InlineAsm>(call.getCalledOperand());
  std::vector<int> tied;
  // An input that must be in the register of a result names it by number.
  for (const InlineAsm::ConstraintInfo &constraint :
       assembly->ParseConstraints()) {
    if (constraint.isIndirect)
      return createStringError(
          "inline assembly with an indirect operand is not "
          "emulated: " +
          assembly->getAsmString());
    if (constraint.Type != InlineAsm::isInput)
      continue;
    unsigned number;
    bool isTied = !constraint.Codes.empty() &&
                  !StringRef(constraint.Codes[0]).getAsInteger(10, number);
    tied.push_back(isTied ? int(number) : -1);
  }
  if (tied.size() != op.numIn)
    return createStringError(
        "cannot read the constraints of inline assembly: " +
        assembly->getConstraintString());
  std::string text =
      bindAsm(result.table, op, assembly->getAsmString().str(), tied);
  if (text.empty())
    return Error::success();
  return createStringError("inline assembly: " + text + " (" + op.where +
                           "): " + assembly->getAsmString());
}

Error Rewriter::rewriteCall(CallInst &call) {
  IRBuilder<> builder(&call);
  StringRef name =
      call.isInlineAsm() ? "asm" : call.getCalledFunction()->getName();
  if (isTrap(call)) {
    emitCall(builder, "fovea_simt_trap", builder.getVoidTy(),
             {getAddress(addOp("trap", call), context)});
    call.eraseFromParent();
    return Error::success();
  }
  if (call.getIntrinsicID() == Intrinsic::nvvm_f2tf32_rna) {
    call.replaceAllUsesWith(roundToTF32(builder, call.getArgOperand(0)));
    call.eraseFromParent();
    return Error::success();
  }
  StringRef registerName = name;
  if (registerName.consume_front("llvm.nvvm.read.ptx.sreg.")) {
    int number = findSpecialRegister(registerName.str());
    if (number < 0)
      return createStringError("special register '" + registerName +
                               "' is not emulated");
    Value *value = emitCall(builder, "fovea_simt_register", i64,
                            {builder.getInt32(uint32_t(number))});
    call.replaceAllUsesWith(fromSlot(builder, value, call.getType()));
    call.eraseFromParent();
    return Error::success();
  }

  fovea::simt::Op &op = addOp(name, call);
  SmallVector<Value *> in;
  for (Value *operand : call.args()) {
    if (operand->getType()->isMetadataTy())
      continue;
    in.push_back(toSlot(builder, operand));
    if (!in.back())
      return createStringError("operand " + Twine(in.size() - 1) + " of '" +
                               name + "' has more than 64 bits");
  }
  SmallVector<Type *> outs;
  if (auto *structure = dyn_cast<StructType>(call.getType()))
    outs.append(structure->element_begin(), structure->element_end());
  else if (!call.getType()->isVoidTy())
    outs.push_back(call.getType());
  for (Type *type : outs)
    if (!type->isPointerTy() && (type->getPrimitiveSizeInBits() == 0 ||
                                 type->getPrimitiveSizeInBits() > 64))
      return createStringError("a result of '" + name +
                               "' has more than 64 bits");
  op.numIn = in.size();
  op.numOut = outs.size();
  if (op.numIn > kMaxSlots || op.numOut > kMaxSlots)
    return createStringError("'" + name + "' has too many operands");
  if (Error error = bind(call, op))
    return error;

  auto [operands, results] = getSlots(*call.getFunction());
  for (auto [i, value] : enumerate(in))
    builder.CreateStore(value, builder.CreateConstGEP1_64(i64, operands, i));
  // Not to be made dependent on conditions that differ between threads.
  emitCall(builder, "fovea_simt_execute", builder.getVoidTy(),
           {getAddress(op, context), operands, results})
      ->setConvergent();
  SmallVector<Value *> values;
  for (auto [i, type] : enumerate(outs))
    values.push_back(fromSlot(
        builder,
        builder.CreateLoad(i64, builder.CreateConstGEP1_64(i64, results, i)),
        type));
  if (call.getType()->isStructTy()) {
    Value *structure = PoisonValue::get(call.getType());
    for (auto [i, value] : enumerate(values))
      structure = builder.CreateInsertValue(structure, value, i);
    call.replaceAllUsesWith(structure);
  } else if (!values.empty()) {
    call.replaceAllUsesWith(values.front());
  }
  call.eraseFromParent();
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// "128,1,1", with missing ones being 1.
static Dim3 parseExtents(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  uint32_t extents[3] = {1, 1, 1};
  for (size_t i = 0; i < parts.size() && i < 3; ++i)
    (void)parts[i].trim().getAsInteger(10, extents[i]);
  return {extents[0], extents[1], extents[2]};
}

void Rewriter::makeEntry(Function &kernel, uint32_t staticBytes) {
  KernelInfo info;
  info.kernel.name = kernel.getName().str();
  info.kernel.staticShared = staticBytes;
  info.kernel.hasWork = !result.work.empty();
  info.numParams = kernel.arg_size();
  if (kernel.hasFnAttribute("nvvm.reqntid"))
    info.kernel.required =
        parseExtents(kernel.getFnAttribute("nvvm.reqntid").getValueAsString());
  if (kernel.hasFnAttribute("nvvm.maxntid")) {
    Dim3 most =
        parseExtents(kernel.getFnAttribute("nvvm.maxntid").getValueAsString());
    info.kernel.maxThreads = most.x * most.y * most.z;
  }

  if (kernel.hasFnAttribute("nvvm.cluster_dim"))
    info.kernel.cluster = parseExtents(
        kernel.getFnAttribute("nvvm.cluster_dim").getValueAsString());

  auto *entry = Function::Create(
      FunctionType::get(Type::getVoidTy(context), {pointer}, false),
      Function::ExternalLinkage, kEntryPrefix + kernel.getName(), module);
  IRBuilder<> builder(BasicBlock::Create(context, "entry", entry));
  SmallVector<Value *> arguments;
  for (Argument &argument : kernel.args()) {
    Value *address = builder.CreateLoad(
        pointer, builder.CreateConstGEP1_64(pointer, entry->getArg(0),
                                            argument.getArgNo()));
    if (Type *type = argument.getParamByValType()) {
      // A parameter by value is a copy, aligned as the kernel expects.
      AllocaInst *copy = builder.CreateAlloca(type);
      Align alignment = std::max(argument.getParamAlign().valueOrOne(),
                                 module.getDataLayout().getABITypeAlign(type));
      copy->setAlignment(alignment);
      builder.CreateMemCpy(copy, alignment, address, Align(1),
                           module.getDataLayout().getTypeAllocSize(type));
      arguments.push_back(
          builder.CreateAddrSpaceCast(copy, argument.getType()));
    } else {
      arguments.push_back(builder.CreateLoad(argument.getType(), address));
    }
  }
  for (Argument &argument : kernel.args())
    for (Attribute::AttrKind kind : {Attribute::ByVal, Attribute::Alignment})
      if (argument.hasByValAttr() || kind != Attribute::Alignment)
        argument.removeAttr(kind);
  builder.CreateCall(&kernel, arguments);
  builder.CreateRetVoid();
  result.kernels.push_back(std::move(info));
}

Error Rewriter::rewrite(const Triple &triple, const DataLayout &layout,
                        bool clocks) {
  if (Error error = checkCallees())
    return error;
  if (clocks)
    for (Function &function : module)
      countWork(function, result.work);
  module.setTargetTriple(triple);
  module.setDataLayout(layout);
  uint32_t staticBytes = 0;
  if (Error error = placeShared(staticBytes))
    return error;

  SmallVector<Function *> functions, kernels;
  for (Function &function : module)
    if (!function.isDeclaration())
      functions.push_back(&function);
  for (Function *function : functions) {
    guardAccumulators(*function, result.table,
                      [this](Instruction &place) { return describe(place); });
    instrument(*function);
    addPauses(*function);
    SmallVector<CallInst *> calls;
    for (Instruction &instruction : instructions(*function))
      if (auto *call = dyn_cast<CallInst>(&instruction))
        if (isOperation(*call) || isTrap(*call))
          calls.push_back(call);
    for (CallInst *call : calls)
      if (Error error = rewriteCall(*call))
        return error;
  }

  for (Function *function : functions) {
    if (function->getCallingConv() == CallingConv::PTX_Kernel)
      kernels.push_back(function);
    function->setCallingConv(CallingConv::C);
    function->removeFnAttr("target-cpu");
    function->removeFnAttr("target-features");
    // Large frames must touch the guard page below the stack.
    function->addFnAttr("probe-stack", "inline-asm");
    for (User *user : function->users())
      if (auto *call = dyn_cast<CallInst>(user))
        call->setCallingConv(CallingConv::C);
  }
  for (Function *kernel : kernels)
    makeEntry(*kernel, staticBytes);
  for (Function *function : functions)
    function->setLinkage(GlobalValue::InternalLinkage);
  if (kernels.empty())
    return createStringError("the module has no kernel");

  std::string text;
  raw_string_ostream stream(text);
  if (verifyModule(module, &stream))
    return createStringError("rewritten device code is not valid: " + text);
  return Error::success();
}

Expected<std::unique_ptr<Rewritten>>
fovea::simt::rewriteForHost(Module &module, const Triple &triple,
                            const DataLayout &layout, bool clocks) {
  auto result = std::make_unique<Rewritten>();
  if (Error error = Rewriter(module, *result).rewrite(triple, layout, clocks))
    return std::move(error);
  return std::move(result);
}
