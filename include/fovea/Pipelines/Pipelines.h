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

#include "fovea/Support/F32Math.h"
#include "fovea/Support/MatrixProducts.h"
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
  Option<bool> raise{*this, "raise", llvm::cl::desc("find attention in linalg"),
                     llvm::cl::init(true)};
};

struct NVVMPipelineOptions : mlir::PassPipelineOptions<NVVMPipelineOptions> {
  Option<std::string> chip{*this, "chip",
                           llvm::cl::desc("target GPU as LLVM names it"),
                           llvm::cl::init("sm_80")};
  Option<std::string> features{
      *this, "features",
      llvm::cl::desc("PTX version, such as +ptx80; empty for the oldest that "
                     "has the chip"),
      llvm::cl::init("")};
  Option<attn::F32Math> f32{
      *this, "f32", llvm::cl::desc("products of f32 data"),
      llvm::cl::init(attn::F32Math::TF32x3), attn::getF32MathValues()};
  Option<attn::MatrixProducts> products{
      *this, "products",
      llvm::cl::desc("what computes products of matrices around attention"),
      llvm::cl::init(attn::MatrixProducts::Library),
      attn::getMatrixProductsValues()};
  Option<int64_t> cluster{
      *this, "cluster",
      llvm::cl::desc("most blocks of sm_90a that share tiles of keys, 1 or 2"),
      llvm::cl::init(1)};
  Option<bool> emulate{*this, "emulate",
                       llvm::cl::desc("run kernels in the emulator"),
                       llvm::cl::init(false)};
  Option<bool> host{*this, "host",
                    llvm::cl::desc("generate code and lower what runs on the "
                                   "host; otherwise stop at the NVVM dialect"),
                    llvm::cl::init(true)};
  Option<bool> raise{*this, "raise", llvm::cl::desc("find attention in linalg"),
                     llvm::cl::init(true)};
  Option<unsigned> optLevel{*this, "opt-level",
                            llvm::cl::desc("effort of LLVM's optimizer on "
                                           "kernels, 0 to 3"),
                            llvm::cl::init(3)};
};

struct CPUInfo;
struct GPUInfo;

/// `--attn-cpu-pipeline`: parallel vector code for a CPU. Attention is found in
/// linalg if `raise` says so.
void buildCPUPipeline(mlir::OpPassManager &pm, const CPUInfo &cpu,
                      bool raise = true);

/// `--attn-nvvm-pipeline`: kernels for an NVIDIA GPU, and host code that
/// launches them. The chip of the options is `gpu`.
void buildNVVMPipeline(mlir::OpPassManager &pm, const GPUInfo &gpu,
                       const NVVMPipelineOptions &options);

/// `--attn-reference-pipeline`: plain loops in f64, the oracle.
void buildReferencePipeline(mlir::OpPassManager &pm);

/// Registers the named pipelines.
void registerPipelines();

} // namespace fovea

#endif // FOVEA_PIPELINES_PIPELINES_H
