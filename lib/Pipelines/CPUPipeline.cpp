//===- CPUPipeline.cpp - Attention to parallel vector code ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Pipelines/LowerToLLVM.h"
#include "fovea/Pipelines/Pipelines.h"
#include "fovea/Target/CPU/CPUInfo.h"
#include "mlir/Conversion/ComplexToStandard/ComplexToStandard.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void fovea::buildCPUPipeline(OpPassManager &pm, const CPUInfo &cpu,
                             bool raise) {
  attn::SetTargetPassOptions target;
  target.vectorBits = cpu.vectorBits;
  target.numRegisters = cpu.numRegisters;
  target.separateAdds = cpu.hasSeparateAdds;
  target.splitVectors = cpu.splitsVectors;
  target.bf16Pairs = cpu.hasFastBF16Dot;
  target.amx = cpu.hasAMX;
  pm.addPass(attn::createSetTargetPass(target));
  addInputPasses(pm);
  // Attention may begin in one function and end in another, as masks of JAX do.
  if (raise) {
    pm.addPass(createInlinerPass());
    pm.addNestedPass<func::FuncOp>(attn::createRaiseAttentionPass());
    // Attention of several layers may read one bias.
    pm.addPass(createCSEPass());
  }
  pm.addNestedPass<func::FuncOp>(attn::createWidenSumsPass());
  pm.addNestedPass<func::FuncOp>(attn::createPrepareProductsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addNestedPass<func::FuncOp>(attn::createFindMasksPass());
  pm.addNestedPass<func::FuncOp>(attn::createCopyStridedOperandsPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandTreeSelectPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandConvPass());
  pm.addPass(attn::createCheckShapesPass());
  pm.addNestedPass<func::FuncOp>(attn::createCheckCodesPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandPatternsPass());
  // Arithmetic on tensors, as one loop nest where it can be.
  pm.addPass(createConvertElementwiseToLinalgPass());
  pm.addNestedPass<func::FuncOp>(attn::createGuardDivisionsPass());
  // Of complex numbers there are no vectors, but of their parts.
  pm.addNestedPass<func::FuncOp>(createConvertComplexToStandardPass());
  pm.addNestedPass<func::FuncOp>(attn::createFuseElementwisePass());
  // What is inserted into a larger array is computed there.
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  // Every tensor.empty becomes a buffer of its own before CSE can merge two.
  pm.addPass(bufferization::createEmptyTensorToAllocTensorPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(attn::createSelectTilesPass());
  pm.addNestedPass<func::FuncOp>(attn::createTileStreamPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  addBufferizationPasses(pm);
  addDeallocationPasses(pm);
  // A gradient has many buffers, few of them at a time.
  pm.addNestedPass<func::FuncOp>(
      bufferization::createOptimizeAllocationLivenessPass());
  pm.addPass(attn::createCheckNodesPass());
  pm.addPass(attn::createCheckSizesPass());
  pm.addNestedPass<func::FuncOp>(attn::createVectorizeLinalgPass());
  // Layers of a model are the same code, and what follows takes its time.
  pm.addPass(attn::createOutlineParallelPass());
  pm.addPass(func::createDuplicateFunctionEliminationPass());
  // Now, while kernels are single operations, which these passes skip.
  addLowerToLoopsPasses(pm);
  pm.addPass(attn::createConvertAttnToVectorPass());
  pm.addPass(attn::createOutlineParallelPass());
  // Keys and values of one shape are summarised by the same code.
  pm.addPass(func::createDuplicateFunctionEliminationPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  addLowerToLLVMPasses(pm);
}
