//===- HostTarget.cpp - Code generation for this machine ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/CPU/HostTarget.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;

/// Whether this process may use a feature that the machine has: Linux refuses
/// AMX to some. The runtime, which asks where code of a file runs, does so
/// here.
static bool mayUse(StringRef feature) {
  if (!feature.starts_with("amx"))
    return true;
  std::string features = "amx-tile," + feature.str();
  int32_t state = 0;
  auto check = [](void **args) {
    fovea_rt_check_cpu(static_cast<int32_t *>(args[0]), "native",
                       static_cast<const char *>(args[1]));
  };
  void *args[] = {&state, features.data()};
  return fovea_rt_invoke(check, args) == FOVEA_RT_OK;
}

namespace {
/// What is known about the machine, found out once.
struct Host {
  Triple triple;
  std::string cpu, features, error;
  StringMap<bool> featureMap;
  const llvm::Target *target = nullptr;

  Host() : triple(sys::getProcessTriple()) {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    target = TargetRegistry::lookupTarget(triple, error);
    cpu = sys::getHostCPUName().str();
    for (const auto &feature : sys::getHostCPUFeatures()) {
      bool isThere = feature.getValue() && mayUse(feature.getKey());
      featureMap[feature.getKey()] = isThere;
      if (!features.empty())
        features += ',';
      features += isThere ? '+' : '-';
      features += feature.getKey();
    }
  }
};
} // namespace

static const Host &getHost() {
  static const Host host;
  return host;
}

/// Whether code generation uses the feature of its own accord; others, such as
/// virtualisation or cache control, need an explicit request in the IR.
static bool isUsedByCodegen(const Triple &triple, StringRef feature) {
  if (!triple.isX86())
    return true;
  for (StringRef prefix :
       {"sse", "ssse", "avx", "fma", "f16c", "bmi", "lzcnt", "popcnt", "movbe",
        "xop", "tbm", "amx", "cx16", "gfni", "vaes", "vpclmul", "64bit"})
    if (feature.starts_with(prefix))
      return true;
  return false;
}

/// Whether the runtime can tell if a machine has the feature, and code can be
/// wrong without it; see fovea_rt_check_cpu.
static bool isNeeded(const Triple &triple, StringRef feature) {
  if (triple.isX86())
    return isUsedByCodegen(triple, feature) && feature != "sse-unaligned-mem" &&
           feature != "64bit-mode";
  return triple.isAArch64() &&
         is_contained({"fp-armv8", "neon", "lse", "fullfp16", "rdm",
                       "complxnum", "dotprod", "sve", "fp16fml", "sve2", "i8mm",
                       "bf16"},
                      feature);
}

std::string fovea::detail::getNeededFeatures(const TargetMachine &machine,
                                             const Module &module) {
  // LLVM leaves AMX alone where nobody asks for it.
  bool usesAMX = any_of(module, [](const Function &function) {
    return function.getName().starts_with("llvm.x86.tile");
  });
  SmallVector<StringRef> names;
  for (const SubtargetFeatureKV &feature :
       machine.getMCSubtargetInfo()->getEnabledProcessorFeatures()) {
    StringRef name = feature.Key;
    if (isNeeded(machine.getTargetTriple(), name) &&
        (usesAMX || !name.starts_with("amx")))
      names.push_back(name);
  }
  return llvm::join(names, ",");
}

StringRef fovea::detail::getBaselineCPU(const Triple &triple) {
  return triple.isX86() ? "x86-64" : "generic";
}

/// An error if `subtarget` has no registers of the width that addresses have:
/// LLVM would end the process.
static Error checkAddressWidth(const MCSubtargetInfo &subtarget) {
  const Triple &triple = subtarget.getTargetTriple();
  if (triple.getArch() != Triple::x86_64 || subtarget.checkFeatures("+64bit"))
    return Error::success();
  return createStringError("CPU '" + subtarget.getCPU() +
                           "' has no 64-bit mode, which " + triple.str() +
                           " needs");
}

Expected<std::unique_ptr<MCSubtargetInfo>>
fovea::detail::createSubtarget(StringRef cpu) {
  const Host &host = getHost();
  if (!host.target)
    return createStringError("no code generator for this machine: " +
                             host.error);
  auto create = [&](StringRef name, StringRef features) {
    return std::unique_ptr<MCSubtargetInfo>(
        host.target->createMCSubtargetInfo(host.triple, name, features));
  };
  if (cpu.empty() || cpu == "native")
    return create(host.cpu, host.features);
  // Asking about an unknown name prints a warning, so the table comes first.
  if (!create("", "")->isCPUStringValid(cpu))
    return createStringError(
        "unknown CPU '" + cpu + "' for " + host.triple.str() +
        "; expected 'native' (here '" + host.cpu +
        "') or a name that LLVM knows, such as 'x86-64-v3'");
  std::unique_ptr<MCSubtargetInfo> subtarget = create(cpu, "");
  if (Error error = checkAddressWidth(*subtarget))
    return std::move(error);
  return std::move(subtarget);
}

/// An error if this machine cannot run code for `subtarget`.
static Error checkRunsHere(const Host &host, const MCSubtargetInfo &subtarget) {
  SmallVector<StringRef> missing;
  for (const auto &feature : host.featureMap)
    if (!feature.getValue() && isUsedByCodegen(host.triple, feature.getKey()) &&
        subtarget.checkFeatures(("+" + feature.getKey()).str()))
      missing.push_back(feature.getKey());
  if (missing.empty())
    return Error::success();
  llvm::sort(missing);
  return createStringError("cannot run code for CPU '" + subtarget.getCPU() +
                           "' on this machine ('" + host.cpu +
                           "'), which lacks " + llvm::join(missing, ", "));
}

static Expected<std::unique_ptr<TargetMachine>>
createTargetMachine(StringRef cpu, bool isRunHere) {
  Expected<std::unique_ptr<MCSubtargetInfo>> subtarget =
      fovea::detail::createSubtarget(cpu);
  if (!subtarget)
    return subtarget.takeError();
  const Host &host = getHost();
  if (isRunHere && !cpu.empty() && cpu != "native")
    if (Error error = checkRunsHere(host, **subtarget))
      return std::move(error);
  std::unique_ptr<TargetMachine> machine(host.target->createTargetMachine(
      host.triple, (*subtarget)->getCPU(), (*subtarget)->getFeatureString(),
      TargetOptions(), Reloc::PIC_, CodeModel::Small, CodeGenOptLevel::Default,
      /*JIT=*/isRunHere));
  if (!machine)
    return createStringError("cannot create a code generator for " +
                             host.triple.str());
  return std::move(machine);
}

Expected<std::unique_ptr<TargetMachine>>
fovea::detail::createHostTargetMachine(StringRef cpu) {
  return createTargetMachine(cpu, /*isRunHere=*/true);
}

Expected<std::unique_ptr<TargetMachine>>
fovea::detail::createFileTargetMachine(StringRef cpu) {
  return createTargetMachine(cpu, /*isRunHere=*/false);
}
