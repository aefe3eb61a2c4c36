//===- TreeToGPU.cpp - GPU kernels of trees of averages -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUTreeKernels.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;

template <typename OpTy>
static LogicalResult lowerTree(OpTy op, OpBuilder &builder,
                               GPULowering &lowering) {
  // Scores are only compared, in any type.
  if (!std::is_same_v<OpTy, TreeSplitOp> && failed(verifyGPUElementTypes(op)))
    return failure();
  emitTreeLoops(builder, op);
  return success();
}

void fovea::attn::attachTreeToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerTree<TreeBuildOp>,
                  lowerTree<TreeMaterializeOp>, lowerTree<TreeFetchOp>,
                  lowerTree<TreeUpdateOp>, lowerTree<TreeSplitOp>>(context);
}
