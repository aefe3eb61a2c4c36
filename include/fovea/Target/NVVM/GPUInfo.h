//===- GPUInfo.h - What is known of GPUs ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TARGET_NVVM_GPUINFO_H
#define FOVEA_TARGET_NVVM_GPUINFO_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fovea {

/// A GPU as the compiler sees it.
struct GPUInfo {
  /// The name that LLVM knows, such as "sm_90a".
  std::string chip;
  /// PTX version, such as "+ptx80"; empty for the oldest that has the chip.
  std::string features;
  /// 10 * major + minor of the compute capability.
  int32_t capability;
  /// True if code for the chip runs on no other.
  bool isExact;
  /// Most shared memory of a block, in bytes.
  int64_t sharedBytes;
};

/// Facts about a chip; an error for what is no NVIDIA GPU of compute capability
/// 8.0 or later that LLVM can generate code for.
llvm::Expected<GPUInfo> getGPUInfo(llvm::StringRef chip,
                                   llvm::StringRef features = "");

} // namespace fovea

#endif // FOVEA_TARGET_NVVM_GPUINFO_H
