//===- CPUInfo.cpp - What code generation asks of a CPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/CPU/CPUInfo.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
#include "llvm/TargetParser/Triple.h"

using namespace fovea;

llvm::Error fovea::checkAddressWidth(const llvm::MCSubtargetInfo &subtarget,
                                     const llvm::Triple &triple,
                                     llvm::StringRef cpu) {
  if (triple.getArch() != llvm::Triple::x86_64 ||
      subtarget.checkFeatures("+64bit"))
    return llvm::Error::success();
  return llvm::createStringError(
      "CPU '" + cpu + "' has no 64-bit mode, which " + triple.str() + " needs");
}

llvm::Expected<CPUInfo> fovea::getCPUInfo(llvm::StringRef cpuAndTuning) {
  llvm::InitializeNativeTarget();
  auto [cpu, tuning] = cpuAndTuning.split(',');
  if (!tuning.empty() && tuning != "+fast-bf16-dot" &&
      tuning != "-fast-bf16-dot")
    return llvm::createStringError("unknown tuning '" + tuning.str() +
                                   "' after CPU '" + cpu.str() +
                                   "': expected '+fast-bf16-dot' or "
                                   "'-fast-bf16-dot'");
  CPUInfo info;
  info.name = cpu.str();
  if (cpu == "native") {
    info.name = llvm::sys::getHostCPUName().str();
    llvm::SubtargetFeatures features;
    for (auto &feature : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature.getKey(), feature.getValue());
    info.features = features.getString();
  }

  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return llvm::createStringError("no code generator for this machine: " +
                                   error);
  std::unique_ptr<llvm::MCSubtargetInfo> generic(
      target->createMCSubtargetInfo(triple, "", ""));
  if (cpu != "native" && !generic->isCPUStringValid(info.name))
    return llvm::createStringError("unknown CPU '" + cpu.str() + "' for " +
                                   triple.str() +
                                   ": expected 'native' or a name that LLVM "
                                   "knows, such as 'x86-64-v3'");
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(
      target->createMCSubtargetInfo(triple, info.name, info.features));
  if (llvm::Error error = checkAddressWidth(*subtarget, triple, info.name))
    return std::move(error);
  if (triple.isAArch64()) {
    info.numRegisters = 32;
  } else if (triple.isX86()) {
    if (subtarget->checkFeatures("+avx512f,+avx512dq,+avx512vl")) {
      info.vectorBits = 512;
      info.numRegisters = 32;
    } else if (subtarget->checkFeatures("+avx2,+fma")) {
      info.vectorBits = 256;
    }
    bool isZen = llvm::StringRef(info.name).starts_with("znver");
    info.hasSeparateAdds = isZen;
    info.splitsVectors = info.name == "znver4" && info.vectorBits == 512;
    bool hasBF16Dot = subtarget->checkFeatures("+avx512bf16");
    info.hasFastBF16Dot = hasBF16Dot && isZen;
    if (tuning == "+fast-bf16-dot" && !hasBF16Dot)
      return llvm::createStringError("CPU '" + info.name +
                                     "' has no dot product of bf16 pairs");
    if (!tuning.empty())
      info.hasFastBF16Dot = tuning.starts_with("+");
  }
  return info;
}
