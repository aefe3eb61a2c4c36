//===- NVVMPipeline.cpp - Attention to GPU kernels ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/LoopsToGPU/Passes.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Pipelines/LowerToLLVM.h"
#include "fovea/Pipelines/Pipelines.h"
#include "fovea/Target/NVVM/GPUInfo.h"
#include "fovea/Target/NVVM/Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace fovea;

/// For whole kernels, which have many operations in few blocks: from the last
/// one up takes a thirtieth of the time that it takes from the first one down.
static std::unique_ptr<Pass> createKernelCanonicalizerPass() {
  GreedyRewriteConfig config;
  config.setUseTopDownTraversal(false);
  return createCanonicalizerPass(config);
}

/// Tensors to launches of kernels on buffers.
static void addKernelPasses(OpPassManager &pm, const GPUInfo &gpu,
                            const NVVMPipelineOptions &options) {
  attn::SetTargetPassOptions target;
  target.gpu = true;
  target.sharedBytes = gpu.sharedBytes;
  target.warpgroups = gpu.isExact && gpu.capability == 90;
  pm.addPass(attn::createSetTargetPass(target));
  addInputPasses(pm);
  pm.addPass(createInlinerPass());
  if (options.raise)
    pm.addNestedPass<func::FuncOp>(attn::createRaiseAttentionPass());
  pm.addNestedPass<func::FuncOp>(attn::createWidenSumsPass());
  bool callsLibrary = options.products == attn::MatrixProducts::Library;
  if (callsLibrary)
    pm.addNestedPass<func::FuncOp>(attn::createPrepareProductsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addNestedPass<func::FuncOp>(attn::createFindMasksPass());
  pm.addNestedPass<func::FuncOp>(attn::createCopyStridedOperandsPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandTreeSelectPass());
  pm.addPass(attn::createCheckShapesPass());
  pm.addNestedPass<func::FuncOp>(attn::createCheckCodesPass());
  attn::ExpandPatternsPassOptions expansion;
  expansion.narrowSummaries = true;
  // Many threads want all blocks at once.
  expansion.autoReduction = attn::Reduction::Associative;
  pm.addNestedPass<func::FuncOp>(attn::createExpandPatternsPass(expansion));
  pm.addNestedPass<func::FuncOp>(attn::createExpandConvPass());
  pm.addNestedPass<func::FuncOp>(attn::createNarrowSourcesPass());
  pm.addPass(createConvertElementwiseToLinalgPass());
  pm.addNestedPass<func::FuncOp>(attn::createGuardDivisionsPass());
  pm.addNestedPass<func::FuncOp>(attn::createFuseElementwisePass());
  // Sums that are rounded go to their destinations at once.
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  pm.addPass(bufferization::createEmptyTensorToAllocTensorPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  attn::SelectGPUTilesPassOptions tiles;
  tiles.cluster = options.cluster;
  pm.addNestedPass<func::FuncOp>(attn::createSelectGPUTilesPass(tiles));
  pm.addNestedPass<func::FuncOp>(attn::createTileStreamPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  addBufferizationPasses(pm);
  pm.addNestedPass<func::FuncOp>(attn::createKeepLoopStatesPass());
  addDeallocationPasses(pm);
  pm.addPass(attn::createCheckNodesPass());
  pm.addPass(attn::createCheckSizesPass());
  attn::ConvertAttnToGPUPassOptions kernels;
  kernels.f32 = options.f32;
  pm.addPass(attn::createConvertAttnToGPUPass(kernels));
  if (callsLibrary) {
    attn::ProductsToRuntimePassOptions products;
    products.f32 = options.f32;
    pm.addPass(attn::createProductsToRuntimePass(products));
  }
  pm.addPass(attn::createAssertionsToChecksPass());
  pm.addNestedPass<func::FuncOp>(attn::createLoopsToGPUPass());
  pm.addPass(createLowerAffinePass());
  // Most of what kernels repeat goes at once, which halves the next pass's
  // time.
  pm.addPass(createCSEPass());
  pm.addPass(createKernelCanonicalizerPass());
  pm.addPass(createCSEPass());
  // Constants outside of a kernel would become its parameters.
  pm.addPass(createGpuLaunchSinkIndexComputationsPass());
  pm.addPass(createGpuKernelOutliningPass());
  pm.addPass(attn::createMergeGPUModulesPass());
}

/// Bodies of kernels to the LLVM and NVVM dialects.
static void addLowerToNVVMPasses(OpPassManager &pm) {
  OpPassManager &modules = pm.nest<gpu::GPUModuleOp>();
  modules.addPass(createConvertComplexToStandardPass());
  modules.addPass(attn::createLowerGPUMathPass());
  modules.addPass(createConvertNVGPUToNVVMPass());
  modules.addPass(createSCFToControlFlowPass());
  modules.addPass(createConvertNVVMToLLVMPass());
  modules.addPass(attn::createLowerReshapesPass());
  modules.addPass(memref::createExpandStridedMetadataPass());
  modules.addPass(createLowerAffinePass());
  modules.addPass(createConvertGpuOpsToNVVMOps());
  modules.addPass(createKernelCanonicalizerPass());
  modules.addPass(createCSEPass());
  modules.addPass(createReconcileUnrealizedCastsPass());
  modules.addPass(attn::createMarkTensorMapsPass());
}

void fovea::buildNVVMPipeline(OpPassManager &pm, const GPUInfo &gpu,
                              const NVVMPipelineOptions &options) {
  addKernelPasses(pm, gpu, options);
  addLowerToNVVMPasses(pm);
  if (!options.host)
    return;
  SerializeGPUModulesPassOptions code;
  code.chip = gpu.chip;
  code.features = gpu.features;
  code.optLevel = options.optLevel;
  pm.addPass(createSerializeGPUModulesPass(code));
  attn::PlaceGPUBuffersPassOptions buffers;
  buffers.emulate = options.emulate;
  pm.addPass(attn::createPlaceGPUBuffersPass(buffers));
  pm.addPass(attn::createLaunchToRuntimePass());
  addLowerToLoopsPasses(pm);
  addLowerToLLVMPasses(pm);
}
