//===- RegisterPipelines.cpp - Names of the pipelines -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Pipelines/Pipelines.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

void fovea::registerPipelines() {
  PassPipelineRegistration<CPUPipelineOptions>(
      "attn-cpu-pipeline",
      "attention IR on tensors to the LLVM dialect, as parallel vector code",
      [](mlir::OpPassManager &pm, const CPUPipelineOptions &options) {
        buildCPUPipeline(pm, options);
      });
  PassPipelineRegistration<>(
      "attn-reference-pipeline",
      "attention IR on tensors to the LLVM dialect, as plain loops in f64",
      buildReferencePipeline);
}
