//===- Module.cpp - Device code on the CPU --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/Module.h"
#include "RewriteForHost.h"
#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "fovea/Target/LLVM/RunPasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"

#include <cfenv>
#include <mutex>

using namespace llvm;
using namespace fovea::simt;

struct fovea::simt::Module::Impl {
  std::unique_ptr<orc::LLJIT> jit;
  std::unique_ptr<Rewritten> code;
  StringMap<const KernelInfo *> kernels;
};

fovea::simt::Module::Module(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
fovea::simt::Module::~Module() = default;

static Error defineSymbols(orc::LLJIT &jit) {
  orc::MangleAndInterner mangle(jit.getExecutionSession(), jit.getDataLayout());
  orc::SymbolMap symbols = fovea::getRuntimeSymbols(mangle);
  auto add = [&](StringRef name, auto *function) {
    symbols[mangle(name)] = {
        orc::ExecutorAddr::fromPtr(reinterpret_cast<void *>(function)),
        JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  };
  add("fovea_simt_execute", &fovea_simt_execute);
  add("fovea_simt_register", &fovea_simt_register);
  add("fovea_simt_shared", &fovea_simt_shared);
  add("fovea_simt_accumulator", &fovea_simt_accumulator);
  add("fovea_simt_written", &fovea_simt_written);
  add("fovea_simt_check_written", &fovea_simt_check_written);
  add("fovea_simt_access", &fovea_simt_access);
  add("fovea_simt_pause", &fovea_simt_pause);
  add("fovea_simt_spend", &fovea_simt_spend);
  add("fovea_simt_trap", &fovea_simt_trap);
  return jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols)));
}

/// LLVM's fast selection of instructions makes a load that a `select` takes an
/// operand of `vblendvps` or `vblendvpd`, which reads 16 bytes, whatever the
/// load has: at the end of a page that is a fault. It leaves volatile loads.
static void keepSelectedLoads(llvm::Module &module) {
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (auto *select = dyn_cast<SelectInst>(&instruction))
        for (Value *value : {select->getTrueValue(), select->getFalseValue()})
          if (auto *load = dyn_cast<LoadInst>(value))
            load->setVolatile(true);
}

Expected<std::unique_ptr<fovea::simt::Module>>
fovea::simt::Module::create(llvm::Module &module, bool clocks) {
  static std::once_flag initialized;
  std::call_once(initialized, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
  });
  auto host = orc::JITTargetMachineBuilder::detectHost();
  if (!host)
    return host.takeError();
  // Most emulated kernels run once: compiling them takes longer than running.
  host->setCodeGenOptLevel(CodeGenOptLevel::None);
  auto machine = host->createTargetMachine();
  if (!machine)
    return machine.takeError();

  auto impl = std::make_unique<Impl>();
  auto code = rewriteForHost(module, (*machine)->getTargetTriple(),
                             (*machine)->createDataLayout(), clocks);
  if (!code)
    return code.takeError();
  impl->code = std::move(*code);
  // The module has been optimised; what the rewriting adds is stores to and
  // loads from slots.
  runPasses(module, machine->get(), buildLightPipeline);
  keepSelectedLoads(module);
  auto object = orc::SimpleCompiler(**machine)(module);
  if (!object)
    return object.takeError();

  auto jit = orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(*host))
                 .setDataLayout(module.getDataLayout())
                 .setPlatformSetUp(orc::setUpInactivePlatform)
                 .setNumCompileThreads(0)
                 .create();
  if (!jit)
    return jit.takeError();
  impl->jit = std::move(*jit);
  std::string errors;
  impl->jit->getExecutionSession().setErrorReporter(
      [&](Error error) { errors += toString(std::move(error)) + "\n"; });
  if (Error error = defineSymbols(*impl->jit))
    return std::move(error);
  if (Error error = impl->jit->addObjectFile(std::move(*object)))
    return std::move(error);
  for (KernelInfo &info : impl->code->kernels) {
    auto address = impl->jit->lookup((kEntryPrefix + info.kernel.name).str());
    if (!address)
      return joinErrors(createStringError(errors), address.takeError());
    info.kernel.entry = address->toPtr<void (*)(void **)>();
    impl->kernels[info.kernel.name] = &info;
  }
  impl->jit->getExecutionSession().setErrorReporter(
      [](Error error) { consumeError(std::move(error)); });
  return std::unique_ptr<Module>(new Module(std::move(impl)));
}

Expected<std::unique_ptr<fovea::simt::Module>>
fovea::simt::Module::create(StringRef bitcode, StringRef name,
                            const std::function<void(llvm::Module &)> &editor,
                            bool clocks) {
  LLVMContext context;
  auto module = parseBitcodeFile(MemoryBufferRef(bitcode, name), context);
  if (!module)
    return module.takeError();
  if (editor)
    editor(**module);
  return create(**module, clocks);
}

/// Gives emulated code the floating-point environment of a device: to nearest,
/// with subnormal numbers.
namespace {
class DeviceEnvironment {
public:
  DeviceEnvironment() {
    fegetenv(&previous);
    fesetenv(FE_DFL_ENV);
  }
  ~DeviceEnvironment() { fesetenv(&previous); }

private:
  fenv_t previous;
};
} // namespace

Error fovea::simt::Module::launch(StringRef kernel, Dim3 grid, Dim3 block,
                                  size_t dynamicShared, void **params,
                                  const Options &options, Counters *counters) {
  auto it = impl->kernels.find(kernel);
  if (it == impl->kernels.end())
    return createStringError("the module has no kernel '" + kernel + "'");
  Counters local;
  if (!counters)
    counters = &local;
  *counters = Counters();
  std::vector<uint64_t> executions(impl->code->table.ops.size());
  std::string error;
  {
    DeviceEnvironment environment;
    error = runGrid(it->second->kernel, grid, block, dynamicShared, params,
                    options, *counters, executions);
  }
  MapVector<StringRef, uint64_t> totals;
  for (const auto &op : impl->code->table.ops)
    if (executions[op->index])
      totals[op->name] += executions[op->index];
  for (auto &[name, executed] : totals)
    counters->operations.emplace_back(name.str(), executed);
  if (error.empty())
    return Error::success();
  return createStringError(inconvertibleErrorCode(), error);
}

std::vector<std::string> fovea::simt::Module::getKernelNames() const {
  std::vector<std::string> names;
  for (const KernelInfo &info : impl->code->kernels)
    names.push_back(info.kernel.name);
  return names;
}

size_t fovea::simt::Module::getStaticShared() const {
  return impl->code->kernels.front().kernel.staticShared;
}

int fovea::simt::Module::getNumParams(StringRef kernel) const {
  auto it = impl->kernels.find(kernel);
  return it == impl->kernels.end() ? -1 : int(it->second->numParams);
}

Dim3 fovea::simt::Module::getCluster(StringRef kernel) const {
  auto it = impl->kernels.find(kernel);
  return it == impl->kernels.end() ? Dim3{1, 1, 1} : it->second->kernel.cluster;
}
