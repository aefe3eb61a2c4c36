//===- GPU.h - GPUs that kernels are compiled for ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_GPU_H
#define FOVEA_EXECUTIONENGINE_GPU_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Target/NVVM/GPUInfo.h"

namespace fovea {

/// The GPU that `options` ask for.
llvm::Expected<GPUInfo> findGPU(const CompileOptions &options);

/// Makes Target::GPUEmulator known: `getChip` names the GPU that it stands for.
/// The emulator is no part of this library; it calls this when a program
/// registers it.
void setGPUEmulator(std::string (*getChip)());

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_GPU_H
