//===- RegisterPipelines.cpp - Names of the pipelines -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Pipelines/Pipelines.h"
#include "fovea/Target/CPU/CPUInfo.h"
#include "fovea/Target/NVVM/GPUInfo.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace fovea;

/// Parses the options and builds the pipeline; a PassPipelineRegistration could
/// not report a CPU that does not exist.
static LogicalResult
addCPUPipeline(OpPassManager &pm, StringRef text,
               llvm::function_ref<LogicalResult(const Twine &)> emitError) {
  CPUPipelineOptions options;
  if (failed(options.parseFromString(text)))
    return failure();
  llvm::Expected<CPUInfo> cpu = getCPUInfo(options.cpu);
  if (!cpu)
    return emitError(llvm::toString(cpu.takeError()));
  buildCPUPipeline(pm, *cpu, options.raise);
  return success();
}

static LogicalResult
addNVVMPipeline(OpPassManager &pm, StringRef text,
                llvm::function_ref<LogicalResult(const Twine &)> emitError) {
  NVVMPipelineOptions options;
  if (failed(options.parseFromString(text)))
    return failure();
  llvm::Expected<GPUInfo> gpu = getGPUInfo(options.chip, options.features);
  if (!gpu)
    return emitError(llvm::toString(gpu.takeError()));
  buildNVVMPipeline(pm, *gpu, options);
  return success();
}

void fovea::registerPipelines() {
  registerPassPipeline(
      "attn-cpu-pipeline",
      "attention IR on tensors to the LLVM dialect, as parallel vector code",
      addCPUPipeline,
      [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) {
        visit(CPUPipelineOptions());
      });
  registerPassPipeline(
      "attn-nvvm-pipeline",
      "attention IR on tensors to the LLVM dialect, as kernels for NVIDIA GPUs",
      addNVVMPipeline,
      [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) {
        visit(NVVMPipelineOptions());
      });
  PassPipelineRegistration<>(
      "attn-reference-pipeline",
      "attention IR on tensors to the LLVM dialect, as plain loops in f64",
      buildReferencePipeline);
}
