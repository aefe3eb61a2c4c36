//===- GPUInfo.cpp - What is known of GPUs ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Target/NVVM/GPUInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Triple.h"
#include <memory>

using namespace fovea;

/// Shared memory that a block can have, by the CUDA programming guide: 1 KB
/// less than a multiprocessor has.
static int64_t getSharedBytes(int32_t capability) {
  switch (capability) {
  case 80:
  case 87:
    return 163 << 10;
  case 86:
  case 89:
  case 120:
  case 121:
    return 99 << 10;
  default:
    return 227 << 10;
  }
}

llvm::Expected<GPUInfo> fovea::getGPUInfo(llvm::StringRef chip,
                                          llvm::StringRef features) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return llvm::createStringError("LLVM has no code generator for NVIDIA "
                                   "GPUs: " +
                                   error);
  GPUInfo info;
  info.chip = chip.str();
  info.features = features.str();
  llvm::StringRef number = chip;
  bool isGPU = number.consume_front("sm_") &&
               !number.consumeInteger(10, info.capability) &&
               (number.empty() || number == "a" || number == "f");
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(
      target->createMCSubtargetInfo(triple, "", ""));
  if (!isGPU || !subtarget->isCPUStringValid(chip))
    return llvm::createStringError("unknown GPU '" + chip +
                                   "': expected a name that LLVM knows, such "
                                   "as 'sm_80' or 'sm_90a'");
  if (info.capability < 80)
    return llvm::createStringError("GPU '" + chip +
                                   "' is too old: kernels need 'sm_80' or "
                                   "later");
  info.isExact = number == "a";
  info.sharedBytes = getSharedBytes(info.capability);
  return info;
}
