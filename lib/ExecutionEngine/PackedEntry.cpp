//===- PackedEntry.cpp - One calling convention for all kernels -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackedEntry.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

using namespace llvm;
using namespace fovea;
static Type *getScalarType(LLVMContext &context, ElementType type) {
  switch (type) {
  case ElementType::F16:
    return Type::getHalfTy(context);
  case ElementType::BF16:
    return Type::getBFloatTy(context);
  case ElementType::F32:
    return Type::getFloatTy(context);
  case ElementType::F64:
    return Type::getDoubleTy(context);
  case ElementType::I1:
    return Type::getInt1Ty(context);
  default:
    return Type::getIntNTy(context, 8 * getByteWidth(type));
  }
}

/// Item `index` of what a packed function takes.
static Value *loadItem(IRBuilder<> &builder, Value *list, size_t index) {
  Type *pointer = builder.getPtrTy();
  return builder.CreateLoad(
      pointer, builder.CreateConstInBoundsGEP1_64(pointer, list, index));
}

/// The type of a value inside the struct of results, and of the descriptor of a
/// tensor.
static Type *getValueType(LLVMContext &context, const ValueSpec &spec) {
  if (spec.isScalar)
    return getScalarType(context, spec.elementType);
  Type *word = Type::getInt64Ty(context);
  Type *pointer = PointerType::get(context, 0);
  SmallVector<Type *> fields = {pointer, pointer, word};
  if (size_t rank = spec.shape.size())
    fields.append(2, ArrayType::get(word, rank));
  return StructType::get(context, fields);
}

/// Has the runtime refuse gradients in the memory of other arguments: C calls
/// the packed function without the checks of Kernel::invoke.
static void checkSeparateArguments(IRBuilder<> &builder,
                                   const Kernel::Impl &impl,
                                   ArrayRef<Value *> descriptors) {
  for (const fovea::detail::SeparateArguments &pair : impl.separateArguments) {
    Value *message = builder.CreateGlobalString(pair.getMessage(
        [&](unsigned index) { return impl.describeArgument(index); }));
    SmallVector<Value *> operands = {message};
    for (unsigned index : {pair.written, pair.other}) {
      const ValueSpec &spec = impl.signature.arguments[index];
      operands.append({descriptors[index], builder.getInt64(spec.shape.size()),
                       builder.getInt64(getByteWidth(spec.elementType))});
    }
    emitCall(builder, "fovea_rt_check_separate", builder.getVoidTy(), operands);
  }
}

Expected<StringRef> fovea::detail::addPackedEntry(Module &module,
                                                  Kernel::Impl &impl) {
  LLVMContext &context = module.getContext();
  const Signature &signature = impl.signature;
  Function *callee = module.getFunction("_mlir_ciface_" + impl.name);
  if (!callee || callee->isDeclaration())
    return createStringError("the pass pipeline left no C interface of '@" +
                             impl.name + "'");

  // A single scalar is returned, everything else written to a struct whose
  // address comes first.
  bool returnsValue =
      signature.results.size() == 1 && signature.results[0].isScalar;
  bool writesStruct = !signature.results.empty() && !returnsValue;
  size_t numParameters = signature.arguments.size() + writesStruct;
  if (callee->arg_size() != numParameters)
    return createStringError("the C interface of '@" + impl.name + "' has " +
                             Twine(callee->arg_size()) +
                             " parameters, but its type needs " +
                             Twine(numParameters));

  const DataLayout &layout = module.getDataLayout();
  SmallVector<Type *> resultTypes;
  for (const ValueSpec &spec : signature.results)
    resultTypes.push_back(getValueType(context, spec));
  if (resultTypes.size() == 1) {
    impl.resultOffsets.push_back(0);
    impl.resultBytes = layout.getTypeAllocSize(resultTypes[0]);
  } else if (!resultTypes.empty()) {
    StructType *type = StructType::get(context, resultTypes);
    const StructLayout *fields = layout.getStructLayout(type);
    for (size_t i = 0; i < resultTypes.size(); ++i)
      impl.resultOffsets.push_back(fields->getElementOffset(i));
    impl.resultBytes = layout.getTypeAllocSize(type);
  }

  PointerType *pointer = PointerType::get(context, 0);
  auto *packed = Function::Create(
      FunctionType::get(Type::getVoidTy(context), {pointer}, false),
      GlobalValue::ExternalLinkage, kPackedName, module);
  IRBuilder<> builder(BasicBlock::Create(context, "entry", packed));
  Value *list = packed->getArg(0);
  size_t next = 0;
  SmallVector<Value *> arguments;
  Value *result =
      signature.results.empty() ? nullptr : loadItem(builder, list, next++);
  if (writesStruct)
    arguments.push_back(result);
  for (const ValueSpec &spec : signature.arguments) {
    Value *address = loadItem(builder, list, next++);
    if (!spec.isScalar) {
      arguments.push_back(address);
      continue;
    }
    // Truth values take a byte in the host's memory.
    bool isBool = spec.elementType == ElementType::I1;
    Type *type =
        isBool ? builder.getInt8Ty() : getScalarType(context, spec.elementType);
    Value *value = builder.CreateAlignedLoad(type, address, Align(1));
    arguments.push_back(isBool ? builder.CreateIsNotNull(value) : value);
  }
  checkSeparateArguments(builder, impl,
                         ArrayRef(arguments).drop_front(writesStruct));
  Value *returned = builder.CreateCall(callee, arguments);
  if (returnsValue) {
    if (returned->getType()->isIntegerTy(1))
      returned = builder.CreateZExt(returned, builder.getInt8Ty());
    builder.CreateStore(returned, result);
  }
  builder.CreateRetVoid();
  return StringRef(kPackedName);
}

//===----------------------------------------------------------------------===//
// Entry points of code in files
//===----------------------------------------------------------------------===//

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
    emit("fovea_rt_check_cpu", {state, builder.CreateGlobalString(cpu),
                                builder.CreateGlobalString(features)});
  }

  void checkAddress(const std::string &name, size_t index, unsigned alignment) {
    emit("fovea_rt_check_address", {builder.CreateGlobalString(name),
                                    load(index), builder.getInt64(alignment)});
  }

  void checkTensor(const std::string &name, size_t index,
                   const ValueSpec &spec) {
    Value *strides = ConstantPointerNull::get(builder.getPtrTy());
    if (!spec.strides.empty())
      strides = makeList("strides", spec.strides);
    emit("fovea_rt_check_tensor",
         {builder.CreateGlobalString(name), load(index),
          builder.getInt64(spec.shape.size()), makeList("extents", spec.shape),
          strides, builder.getInt64(getByteWidth(spec.elementType)),
          builder.getInt64(spec.isWritten)});
  }

private:
  Value *makeList(StringRef name, ArrayRef<int64_t> numbers) {
    // A rank of 0 has no extents, but an address.
    SmallVector<uint64_t> words(numbers);
    if (words.empty())
      words.push_back(0);
    Constant *list =
        ConstantDataArray::get(builder.getContext(), ArrayRef<uint64_t>(words));
    return new GlobalVariable(module, list->getType(), /*isConstant=*/true,
                              GlobalValue::PrivateLinkage, list, name);
  }

  Value *load(size_t index) { return loadItem(builder, arguments, index); }

  void emit(StringRef name, ArrayRef<Value *> operands) {
    emitCall(builder, name, builder.getVoidTy(), operands);
  }

  IRBuilder<> &builder;
  Module &module;
  Value *arguments;
};
} // namespace

static_assert(kDynamicExtent == std::numeric_limits<int64_t>::min(),
              "what fovea_rt_check_tensor takes for any extent or stride");

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
  checks.checkCPU(machine.getTargetCPU(),
                  getNeededFeatures(machine, *packed->getParent()));
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
