//===- CPUInfo.cpp - What code generation asks of a CPU -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/CPU/CPUInfo.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "llvm/MC/MCSubtargetInfo.h"

using namespace fovea;

llvm::Expected<CPUInfo> fovea::getCPUInfo(llvm::StringRef cpuAndTuning) {
  auto [cpu, tuning] = cpuAndTuning.split(',');
  if (!tuning.empty() && tuning != "+fast-bf16-dot" &&
      tuning != "-fast-bf16-dot")
    return llvm::createStringError("unknown tuning '" + tuning.str() +
                                   "' after CPU '" + cpu.str() +
                                   "': expected '+fast-bf16-dot' or "
                                   "'-fast-bf16-dot'");
  llvm::Expected<std::unique_ptr<llvm::MCSubtargetInfo>> created =
      detail::createSubtarget(cpu);
  if (!created)
    return created.takeError();
  const llvm::MCSubtargetInfo *subtarget = created->get();
  const llvm::Triple &triple = subtarget->getTargetTriple();
  CPUInfo info;
  info.name = subtarget->getCPU().str();
  info.features = subtarget->getFeatureString().str();
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
    info.hasAMX = tuning.empty() && info.vectorBits == 512 && hasBF16Dot &&
                  subtarget->checkFeatures("+amx-tile,+amx-bf16");
  }
  return info;
}
