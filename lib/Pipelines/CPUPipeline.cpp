//===- CPUPipeline.cpp - Attention to parallel vector code -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Pipelines/Pipelines.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

void fovea::buildCPUPipeline(OpPassManager &pm,
                             const CPUPipelineOptions &options) {
  pm.addNestedPass<func::FuncOp>(attn::createTileStreamPass());
}
