//===- ReferencePipeline.cpp - Attention to plain loops in f64 -===//
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
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void fovea::buildReferencePipeline(OpPassManager &pm) {
  addInputPasses(pm);
  pm.addNestedPass<func::FuncOp>(attn::createWidenSumsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandTreeSelectPass());
  pm.addNestedPass<func::FuncOp>(attn::createExpandConvPass());
  pm.addPass(attn::createCheckShapesPass());
  pm.addNestedPass<func::FuncOp>(attn::createCheckCodesPass());
  pm.addPass(createConvertElementwiseToLinalgPass());
  pm.addNestedPass<func::FuncOp>(attn::createGuardDivisionsPass());
  addBufferizationPasses(pm);
  pm.addPass(attn::createCheckNodesPass());
  pm.addPass(attn::createCheckSizesPass());
  pm.addNestedPass<func::FuncOp>(attn::createLowerToReferencePass());
  addDeallocationPasses(pm);
  addLowerToLoopsPasses(pm);
  addLowerToLLVMPasses(pm);
}
