//===- JIT.cpp - LLVM IR to executable code -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/JIT.h"
#include "CompilerThread.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "fovea/Support/Clock.h"
#include "fovea/Target/LLVM/EmitCode.h"
#include "fovea/Target/LLVM/RunPasses.h"
#include "fovea/Target/NVVM/Attributes.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Compiler.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#if LLVM_ADDRESS_SANITIZER_BUILD
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/Transforms/Instrumentation/AddressSanitizer.h"
#endif

using namespace llvm;

#if LLVM_ADDRESS_SANITIZER_BUILD
/// Where our own code is instrumented, so are kernels: whatever they load or
/// store outside of a tensor is reported.
static void addAddressSanitizer(Module &module) {
  for (Function &function : module)
    if (!function.isDeclaration())
      function.addFnAttr(Attribute::SanitizeAddress);
  fovea::runPasses(module, /*machine=*/nullptr, [](PassBuilder &) {
    ModulePassManager passes;
    // No constructor of the module: nothing would run it.
    passes.addPass(AddressSanitizerPass(
        AddressSanitizerOptions(), /*UseGlobalGC=*/false,
        /*UseOdrIndicator=*/false, AsanDtorKind::None, AsanCtorKind::None));
    return passes;
  });
}

/// What the instrumented code calls.
static Error addSanitizerSymbols(orc::LLJIT &jit) {
  auto symbols = orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      jit.getDataLayout().getGlobalPrefix(),
      [](const orc::SymbolStringPtr &name) {
        return (*name).starts_with("__asan_");
      });
  if (!symbols)
    return symbols.takeError();
  jit.getMainJITDylib().addGenerator(std::move(*symbols));
  return Error::success();
}
#endif

void fovea::detail::optimize(Module &module, TargetMachine &machine,
                             unsigned optLevel) {
  checkHeadroom();
  // Level 1: MLIR has simplified the code already.
  runPasses(module, &machine, [&](PassBuilder &builder) {
    return optLevel == 1 ? buildKernelPipeline(builder)
                         : buildDefaultPipeline(builder, optLevel);
  });
}

fovea::detail::LoadedCode::~LoadedCode() {
  if (unload)
    unload();
}

Expected<std::unique_ptr<fovea::detail::LoadedCode>>
fovea::detail::LoadedCode::create(Module &module, StringRef entry,
                                  TargetMachine &machine, unsigned optLevel,
                                  CompileTimes &times) {
  Stopwatch watch;
  for (Function &function : module)
    if (!function.isDeclaration() && function.getName() != entry &&
        function.getName() != kUnloadName)
      function.setLinkage(GlobalValue::InternalLinkage);
  std::string errors;
  collectErrors(module.getContext(), errors);
  bool unloads = module.getFunction(kUnloadName);
  optimize(module, machine, optLevel);
#if LLVM_ADDRESS_SANITIZER_BUILD
  addAddressSanitizer(module);
  // Allocating registers of code with so many checks would take most of the
  // time of tests, which run it once or twice. LLVM does not allocate tiles of
  // AMX without it.
  if (none_of(module, [](const Function &function) {
        return function.getReturnType()->isX86_AMXTy();
      }))
    machine.setOptLevel(CodeGenOptLevel::None);
#endif
  times.optimize = watch.lap();
  SmallVector<char, 0> object;
  Error error = emitCode(module, machine, CodeGenFileType::ObjectFile,
                         /*splitAddresses=*/optLevel == 1, object);
  times.codegen = watch.lap();
  if (error)
    errors += toString(std::move(error));
  if (!errors.empty())
    return createStringError(errors);
  std::unique_ptr<MemoryBuffer> kept;
  if (!unloads)
    kept =
        MemoryBuffer::getMemBufferCopy(StringRef(object.data(), object.size()));
  auto code = load(std::make_unique<SmallVectorMemoryBuffer>(
                       std::move(object), /*RequiresNullTerminator=*/false),
                   entry, machine, times, unloads);
  if (code)
    (*code)->object = std::move(kept);
  return code;
}

Expected<std::unique_ptr<fovea::detail::LoadedCode>>
fovea::detail::LoadedCode::load(std::unique_ptr<MemoryBuffer> object,
                                StringRef entry, const TargetMachine &machine,
                                CompileTimes &times, bool unloads) {
  Stopwatch watch;
  std::string errors;
  auto takeErrors = [&](Error error) {
    errors += toString(std::move(error));
    return createStringError(errors);
  };
  auto code = std::make_unique<LoadedCode>();
  orc::JITTargetMachineBuilder machineBuilder(machine.getTargetTriple());
  Expected<std::unique_ptr<orc::LLJIT>> jit =
      orc::LLJITBuilder()
          .setJITTargetMachineBuilder(std::move(machineBuilder))
          .setDataLayout(machine.createDataLayout())
          // There are no global constructors to run.
          .setPlatformSetUp(orc::setUpInactivePlatform)
          .setNumCompileThreads(0)
          .create();
  if (!jit)
    return takeErrors(jit.takeError());
  code->jit = std::move(*jit);
  code->jit->getExecutionSession().setErrorReporter(
      [&errors](Error error) { errors += toString(std::move(error)) + "\n"; });
  orc::MangleAndInterner mangle(code->jit->getExecutionSession(),
                                code->jit->getDataLayout());
  if (Error error = code->jit->getMainJITDylib().define(
          orc::absoluteSymbols(getRuntimeSymbols(mangle))))
    return takeErrors(std::move(error));
#if LLVM_ADDRESS_SANITIZER_BUILD
  if (Error error = addSanitizerSymbols(*code->jit))
    return takeErrors(std::move(error));
#endif
  if (Error error = code->jit->addObjectFile(std::move(object)))
    return takeErrors(std::move(error));
  Expected<orc::ExecutorAddr> address = code->jit->lookup(entry);
  if (!address)
    return takeErrors(address.takeError());
  if (unloads) {
    Expected<orc::ExecutorAddr> unload = code->jit->lookup(kUnloadName);
    if (!unload)
      return takeErrors(unload.takeError());
    code->unload = unload->toPtr<void (*)()>();
  }
  code->jit->getExecutionSession().setErrorReporter(
      [](Error error) { consumeError(std::move(error)); });
  code->entry = *address;
  times.link = watch.lap();
  return std::move(code);
}
