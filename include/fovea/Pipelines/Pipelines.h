//===- Pipelines.h - Named pass pipelines -----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pipelines that take attention IR on tensors to the LLVM dialect. Tools
// and the embedding API build them through the functions here.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PIPELINES_PIPELINES_H
#define FOVEA_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassOptions.h"
#include <string>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace fovea {

struct CPUPipelineOptions : mlir::PassPipelineOptions<CPUPipelineOptions> {
  Option<std::string> cpu{
      *this, "cpu", llvm::cl::desc("target CPU as LLVM names it, or 'native'"),
      llvm::cl::init("native")};
};

struct CPUInfo;

/// `--attn-cpu-pipeline`: parallel vector code for a CPU.
void buildCPUPipeline(mlir::OpPassManager &pm, const CPUInfo &cpu);

/// `--attn-reference-pipeline`: plain loops in f64, the oracle.
void buildReferencePipeline(mlir::OpPassManager &pm);

/// Registers the named pipelines.
void registerPipelines();

} // namespace fovea

#endif // FOVEA_PIPELINES_PIPELINES_H
