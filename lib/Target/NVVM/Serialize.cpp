//===- Serialize.cpp - Code of GPU modules ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/NVVM/Serialize.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/Target/LLVM/FatalErrors.h"
#include "fovea/Target/LLVM/RunPasses.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;
using namespace fovea;

/// MLIR makes the symbol of dynamic shared memory internal, which the back end
/// would turn into a variable of one byte.
static void exportDynamicSharedMemory(Module &module) {
  constexpr unsigned kSharedSpace = 3;
  for (GlobalVariable &global : module.globals()) {
    auto *type = dyn_cast<ArrayType>(global.getValueType());
    if (global.getAddressSpace() != kSharedSpace || !type ||
        type->getNumElements() != 0)
      continue;
    global.setInitializer(nullptr);
    global.setLinkage(GlobalValue::ExternalLinkage);
    // What swizzled copies of the tensor memory accelerator need.
    global.setAlignment(Align(1024));
  }
}

/// MLIR cannot say of inline assembly that all threads of a warp must come to
/// it together, which instructions with `.sync.aligned` need: LLVM might move
/// it to where only some do.
static void keepAssemblyConvergent(Module &module) {
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (auto *call = dyn_cast<CallInst>(&instruction);
          call && call->isInlineAsm() &&
          cast<InlineAsm>(call->getCalledOperand())->hasSideEffects()) {
        call->setConvergent();
        // Without it, LLVM takes convergence for what none of a function needs.
        function.setConvergent();
      }
}

/// The GPUs that can run `op`, if that is not all of them.
static std::optional<mlir::NVVM::NVVMCheckSMVersion>
getRequiredChip(mlir::Operation *op) {
  if (auto required = dyn_cast<mlir::NVVM::RequiresSMInterface>(op))
    return required.getRequiredMinSMVersion();
  // Upstream does not say it of these.
  StringRef name = op->getName().getStringRef();
  using Version = mlir::NVVM::NVVMCheckSMVersion;
  if (name.starts_with("nvvm.cp.async.bulk"))
    return Version(/*archAccelerated=*/false, 90);
  if (name.starts_with("nvvm.wgmma"))
    return Version(/*archAccelerated=*/true, 90);
  return std::nullopt;
}

/// An error that names an operation of a kernel that `gpu` cannot run: LLVM
/// would end the process.
static Error checkChip(mlir::gpu::GPUModuleOp gpuModule, const GPUInfo &gpu) {
  auto target =
      mlir::NVVM::NVVMCheckSMVersion::getTargetSMVersionFromStr(gpu.chip);
  Error error = Error::success();
  gpuModule.walk([&](mlir::Operation *op) {
    auto required = getRequiredChip(op);
    if (!required || required->isCompatibleWith(target))
      return mlir::WalkResult::advance();
    consumeError(std::move(error));
    std::string text;
    raw_string_ostream os(text);
    os << "'" << op->getName() << "' op in GPU module '" << gpuModule.getName()
       << "' needs ";
    ListSeparator separator(" or ");
    for (int version : required->smVersionList)
      os << StringRef(separator) << "'sm_" << version
         << (required->archAccelerated ? "a'" : "'");
    os << (required->archAccelerated ? "" : " or later") << ", but found '"
       << gpu.chip << "'";
    error = createStringError(text);
    return mlir::WalkResult::interrupt();
  });
  return error;
}

Expected<GPUCode> fovea::generateGPUCode(mlir::gpu::GPUModuleOp gpuModule,
                                         const GPUInfo &gpu,
                                         unsigned optLevel) {
  if (Error error = checkChip(gpuModule, gpu))
    return std::move(error);
  GPUCode code;
  Error error = catchFatalErrors([&]() -> Error {
    LLVMContext context;
    std::unique_ptr<Module> module =
        mlir::translateModuleToLLVMIR(gpuModule, context, gpuModule.getName());
    if (!module)
      return createStringError("cannot translate GPU module '" +
                               gpuModule.getName() + "' to LLVM IR");
    exportDynamicSharedMemory(*module);
    keepAssemblyConvergent(*module);
    return generateGPUCode(*module, gpu, optLevel).moveInto(code);
  });
  if (error)
    return createStringError("cannot generate code for '" + gpu.chip +
                             "': " + toString(std::move(error)));
  return code;
}

Expected<GPUCode> fovea::generateGPUCode(Module &module, const GPUInfo &gpu,
                                         unsigned optLevel) {
  LLVMInitializeNVPTXAsmPrinter();
  std::string errors;
  collectErrors(module.getContext(), errors);
  llvm::scope_exit restore(
      [&] { module.getContext().setDiagnosticHandlerCallBack(nullptr); });
  Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError(error);
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, gpu.chip, gpu.features, {}, {}, {},
      optLevel == 0 ? CodeGenOptLevel::None : CodeGenOptLevel::Aggressive));
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  // A function that nobody has defined would be left to the driver to find.
  for (Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic())
      return createStringError("GPU module '" + module.getName() + "' calls '" +
                               function.getName() +
                               "', which it does not define");
  runPasses(module, machine.get(), [&](PassBuilder &builder) {
    return buildDefaultPipeline(builder, optLevel);
  });

  GPUCode code;
  {
    raw_string_ostream os(code.bitcode);
    WriteBitcodeToFile(module, os);
  }
  SmallString<0> ptx;
  raw_svector_ostream os(ptx);
  legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, os, nullptr,
                                   CodeGenFileType::AssemblyFile))
    return createStringError("LLVM cannot generate PTX");
  passes.run(module);
  if (!errors.empty())
    return createStringError(errors);
  code.ptx = ptx.str().str();
  return code;
}

//===----------------------------------------------------------------------===//
// Machine code
//===----------------------------------------------------------------------===//

static Expected<std::string> findPTXAS() {
  if (ErrorOr<std::string> path = sys::findProgramByName("ptxas"))
    return *path;
  for (const char *variable : {"CUDA_HOME", "CUDA_ROOT", "CUDA_PATH"})
    if (const char *root = std::getenv(variable))
      if (ErrorOr<std::string> path =
              sys::findProgramByName("ptxas", {std::string(root) + "/bin"}))
        return *path;
  if (ErrorOr<std::string> path =
          sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *path;
  return createStringError(
      "machine code for GPUs needs the program 'ptxas' of a CUDA toolkit, "
      "which "
      "is neither on the path nor in $CUDA_HOME/bin; PTX needs none");
}

Expected<std::string> fovea::assemblePTX(StringRef ptx, const GPUInfo &gpu) {
  Expected<std::string> program = findPTXAS();
  if (!program)
    return program.takeError();
  Expected<std::string> code = convertFile(
      *program, "ptx", ptx, "cubin", [&](StringRef input, StringRef output) {
        return SmallVector<StringRef>{"-arch", gpu.chip, input, "-o", output};
      });
  if (!code)
    return createStringError("ptxas failed: " + toString(code.takeError()));
  return code;
}
