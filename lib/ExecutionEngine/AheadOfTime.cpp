//===- AheadOfTime.cpp - Code in files ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/AheadOfTime.h"
#include "CHeader.h"
#include "Compilation.h"
#include "CompilerThread.h"
#include "PackedEntry.h"
#include "RuntimeUse.h"
#include "fovea/ExecutionEngine/GPU.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "fovea/Target/LLVM/EmitCode.h"
#include "fovea/Target/NVVM/Attributes.h"
#include "fovea/Target/NVVM/Serialize.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include <dlfcn.h>

using namespace llvm;
using namespace fovea;
using fovea::detail::Compilation;

/// Code of the kernels alone.
static Expected<std::string> getKernels(Compilation &compilation,
                                        CodeKind kind) {
  Expected<GPUInfo> gpu = findGPU(compilation.options);
  if (!gpu)
    return gpu.takeError();
  SmallVector<mlir::gpu::GPUModuleOp> modules(
      compilation.module->getOps<mlir::gpu::GPUModuleOp>());
  if (modules.size() != 1)
    return createStringError("@" + compilation.impl->name +
                             " has no GPU kernels");
  Expected<GPUCode> code = generateGPUCode(modules.front(), *gpu);
  if (!code || kind == CodeKind::PTX)
    return code ? Expected<std::string>(code->ptx) : code.takeError();
  return assemblePTX(code->ptx, *gpu);
}

/// The runtime of this process, which the code in shared libraries needs; where
/// it is inside the program, whoever loads them brings another.
static std::string findRuntime() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&fovea_rt_version), &info))
    return {};
  SmallString<128> path;
  if (!sys::path::filename(info.dli_fname).starts_with("libfovea_rt.") ||
      sys::fs::real_path(info.dli_fname, path))
    return {};
  return path.str().str();
}

/// Links an object file to a shared library, by the system's C compiler.
static Expected<std::string> linkSharedLibrary(StringRef object) {
  std::string program;
  for (StringRef name : {"cc", "gcc", "clang"})
    if (ErrorOr<std::string> path = sys::findProgramByName(name)) {
      program = *path;
      break;
    }
  if (program.empty())
    return createStringError("a shared library needs a linker, but there is no "
                             "'cc', 'gcc' or 'clang' on the path");
  std::string runtime = findRuntime(), search;
  Expected<std::string> library = convertFile(
      program, "o", object, "so", [&](StringRef input, StringRef output) {
        SmallVector<StringRef> arguments = {"-shared", "-o", output, input};
        if (!runtime.empty()) {
          search = ("-Wl,-rpath," + sys::path::parent_path(runtime)).str();
          arguments.append({"-Wl,--enable-new-dtags", search, runtime});
        }
        arguments.push_back("-lm");
        return arguments;
      });
  if (!library)
    return createStringError("the linker failed: " +
                             toString(library.takeError()));
  return library;
}

/// Says in the module for which CPU its code is: text has no target machine.
static void addCPU(Module &module, const TargetMachine &machine) {
  for (Function &function : module) {
    if (function.isDeclaration() || function.hasFnAttribute("target-cpu"))
      continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
  }
}

/// Code of the host, with that of the GPU inside.
static Error generateHostCode(Compilation &compilation, CodeKind kind,
                              CompiledCode &result) {
  const CompileOptions &options = compilation.options;
  Expected<std::unique_ptr<TargetMachine>> machine =
      fovea::detail::createFileTargetMachine(
          StringRef(options.cpu).split(',').first);
  if (!machine)
    return machine.takeError();
  LLVMContext context;
  StringRef symbol;
  Expected<std::unique_ptr<Module>> module =
      compilation.translate(context, **machine, symbol);
  if (!module)
    return module.takeError();
  Function *packed = fovea::detail::addFileEntry(
      (*module)->getFunction(symbol), compilation.impl->name + "_packed",
      *compilation.impl, **machine);
  for (Function &function : **module)
    if (!function.isDeclaration() && &function != packed)
      function.setLinkage(GlobalValue::InternalLinkage);
  if (Function *unload = (*module)->getFunction(kUnloadName)) {
    // It runs where the entry has refused to, too.
    fovea::detail::setBaselineCPU(*unload, **machine);
    appendToGlobalDtors(**module, unload, /*Priority=*/65535);
  }
  Workspace workspace = fovea::detail::findWorkspace(**module);
  fovea::detail::optimize(**module, **machine, options.optLevel);

  bool isLibrary = kind == CodeKind::SharedLibrary;
  if (kind == CodeKind::LLVM) {
    addCPU(**module, **machine);
    raw_string_ostream os(result.code);
    (*module)->print(os, nullptr);
    return Error::success();
  }
  SmallVector<char, 0> emitted;
  if (Error error =
          emitCode(**module, **machine,
                   kind == CodeKind::Assembly ? CodeGenFileType::AssemblyFile
                                              : CodeGenFileType::ObjectFile,
                   /*splitAddresses=*/options.optLevel == 1, emitted))
    return error;
  Expected<std::string> code = std::string(emitted.begin(), emitted.end());
  if (isLibrary)
    code = linkSharedLibrary(*code);
  if (!code)
    return code.takeError();
  result.code = std::move(*code);
  Expected<std::string> header = fovea::detail::writeCHeader(
      *compilation.impl, compilation.impl->name + "_packed",
      options.target == fovea::Target::GPU ? "GPU " + options.chip
                                           : "CPU " + options.cpu,
      workspace);
  if (!header)
    return header.takeError();
  result.header = std::move(*header);
  return Error::success();
}

static Error rename(Compilation &compilation, StringRef name) {
  mlir::SymbolTable symbols(*compilation.module);
  if (symbols.lookup(name) && symbols.lookup(name) != compilation.entry)
    return createStringError("cannot call @" + compilation.impl->name + " '" +
                             name + "': the module has another @" + name);
  if (failed(symbols.rename(compilation.entry, name)))
    return createStringError("cannot call @" + compilation.impl->name + " '" +
                             name + "'");
  compilation.impl->name = name.str();
  return Error::success();
}

static Expected<CompiledCode> compileHere(StringRef text,
                                          const CompileOptions &options,
                                          CodeKind kind, StringRef name) {
  bool isKernels = kind == CodeKind::PTX || kind == CodeKind::Cubin;
  if (isKernels && options.target != fovea::Target::GPU)
    return createStringError("PTX and machine code of kernels need target "
                             "'nvvm'");
  Compilation compilation(options);
  if (Error error = compilation.parse(text))
    return std::move(error);
  if (!name.empty())
    if (Error error = rename(compilation, name))
      return std::move(error);
  bool stopAtKernels = isKernels || (kind == CodeKind::MLIR &&
                                     options.target == fovea::Target::GPU);
  if (Error error = compilation.runPasses(stopAtKernels))
    return std::move(error);
  CompiledCode result;
  if (kind == CodeKind::MLIR) {
    raw_string_ostream os(result.code);
    compilation.module->print(os);
    os << '\n';
    return result;
  }
  if (isKernels) {
    Expected<std::string> code = getKernels(compilation, kind);
    if (!code)
      return code.takeError();
    result.code = std::move(*code);
    return result;
  }
  if (Error error = generateHostCode(compilation, kind, result))
    return std::move(error);
  return result;
}

Expected<CompiledCode> fovea::compileAheadOfTime(StringRef text,
                                                 const CompileOptions &options,
                                                 CodeKind kind,
                                                 StringRef name) {
  return fovea::detail::compileOnThread<CompiledCode>(
      [&] { return compileHere(text, options, kind, name); });
}
