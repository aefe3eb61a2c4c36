//===- FileEntry.cpp - Entry points of code in files ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileEntry.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace fovea;

void fovea::detail::setBaselineCPU(Function &function,
                                   const TargetMachine &machine) {
  function.addFnAttr("target-cpu", getBaselineCPU(machine.getTargetTriple()));
  function.addFnAttr("target-features", "");
}

namespace {
/// Emits calls of the runtime that check the items of the list `arguments`.
class CheckEmitter {
public:
  CheckEmitter(IRBuilder<> &builder, Value *arguments)
      : builder(builder), module(*builder.GetInsertBlock()->getModule()),
        arguments(arguments) {}

  void checkCPU(StringRef cpu, StringRef features) {
    auto *state = new GlobalVariable(
        module, builder.getInt32Ty(), /*isConstant=*/false,
        GlobalValue::InternalLinkage, builder.getInt32(0), "cpu_is_checked");
    emitCall("fovea_rt_check_cpu", {state, builder.CreateGlobalString(cpu),
                                    builder.CreateGlobalString(features)});
  }

  void checkAddress(const std::string &name, size_t index, unsigned alignment) {
    emitCall("fovea_rt_check_address",
             {builder.CreateGlobalString(name), load(index),
              builder.getInt64(alignment)});
  }

  void checkTensor(const std::string &name, size_t index,
                   const ValueSpec &spec) {
    Constant *shape = ConstantDataArray::get(
        builder.getContext(), ArrayRef<uint64_t>(toWords(spec.shape)));
    auto *extents =
        new GlobalVariable(module, shape->getType(), /*isConstant=*/true,
                           GlobalValue::PrivateLinkage, shape, "extents");
    emitCall("fovea_rt_check_tensor",
             {builder.CreateGlobalString(name), load(index),
              builder.getInt64(spec.shape.size()), extents,
              builder.getInt64(getByteWidth(spec.elementType))});
  }

private:
  static SmallVector<uint64_t> toWords(ArrayRef<int64_t> numbers) {
    // A rank of 0 has no extents, but an address.
    SmallVector<uint64_t> words(numbers);
    if (words.empty())
      words.push_back(0);
    return words;
  }

  Value *load(size_t index) {
    Type *pointer = builder.getPtrTy();
    return builder.CreateLoad(
        pointer, builder.CreateConstInBoundsGEP1_64(pointer, arguments, index));
  }

  void emitCall(StringRef name, ArrayRef<Value *> operands) {
    SmallVector<Type *> types;
    for (Value *operand : operands)
      types.push_back(operand->getType());
    builder.CreateCall(
        module.getOrInsertFunction(
            name, FunctionType::get(builder.getVoidTy(), types, false)),
        operands);
  }

  IRBuilder<> &builder;
  Module &module;
  Value *arguments;
};
} // namespace

static_assert(kDynamicExtent == std::numeric_limits<int64_t>::min(),
              "what fovea_rt_check_tensor takes for any extent");

Function *fovea::detail::addFileEntry(Function *packed, StringRef name,
                                      const Kernel::Impl &impl,
                                      const TargetMachine &machine) {
  Function *entry =
      Function::Create(packed->getFunctionType(), GlobalValue::ExternalLinkage,
                       name, *packed->getParent());
  setBaselineCPU(*entry, machine);
  packed->addFnAttr(Attribute::NoInline);
  IRBuilder<> builder(BasicBlock::Create(entry->getContext(), "entry", entry));
  CheckEmitter checks(builder, entry->getArg(0));
  checks.checkCPU(machine.getTargetCPU(), getNeededFeatures(machine));
  size_t index = 0;
  if (!impl.signature.results.empty())
    checks.checkAddress("results of @" + impl.name, index++, alignof(int64_t));
  for (auto [number, spec] : enumerate(impl.signature.arguments)) {
    std::string argument = impl.describeArgument(number);
    if (spec.isScalar)
      checks.checkAddress(argument, index++, 1);
    else
      checks.checkTensor(argument, index++, spec);
  }
  builder.CreateCall(packed, {entry->getArg(0)});
  builder.CreateRetVoid();
  return entry;
}
