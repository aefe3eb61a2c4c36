//===- GPUTreeKernels.h - GPU code of trees of averages ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operations on trees as parallel loops with a thread for each column of a
// node, level by level: nodes of one level do not depend on each other.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_TREE_GPUTREEKERNELS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_TREE_GPUTREEKERNELS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

// Each emits its code before the operation, on memrefs.
void emitTreeLoops(mlir::OpBuilder &builder, TreeBuildOp op);
void emitTreeLoops(mlir::OpBuilder &builder, TreeMaterializeOp op);
void emitTreeLoops(mlir::OpBuilder &builder, TreeFetchOp op);
void emitTreeLoops(mlir::OpBuilder &builder, TreeUpdateOp op);
void emitTreeLoops(mlir::OpBuilder &builder, TreeSplitOp op);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_TREE_GPUTREEKERNELS_H
