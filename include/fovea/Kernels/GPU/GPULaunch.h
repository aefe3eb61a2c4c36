//===- GPULaunch.h - Kernels from parallel loops ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_GPULAUNCH_H
#define FOVEA_KERNELS_GPU_GPULAUNCH_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {

/// An error for an operation on tensors or memrefs of f64, all of them or
/// `operands` alone.
mlir::LogicalResult verifyGPUElementTypes(mlir::Operation *op);
mlir::LogicalResult verifyGPUElementTypes(mlir::Operation *op,
                                          mlir::ValueRange operands);

/// The widest head, and the most value columns that a block keeps sums of.
constexpr int64_t kMaxHeadWidth = 256;
/// The widest queries: more columns would be more code than they are worth.
constexpr int64_t kMaxQueryWidth = 1024;

/// An error for heads of operands that are wider than kernels take.
mlir::LogicalResult verifyGPUWidths(mlir::Operation *op,
                                    mlir::ValueRange operands,
                                    int64_t most = kMaxHeadWidth);

/// Whether `op` writes a buffer that nobody reads.
bool isUnread(mlir::Operation *op, mlir::Value buffer);

/// A launch of `numBlocks` blocks in a row, with an empty body; in clusters of
/// `cluster` blocks each, which must divide them.
mlir::gpu::LaunchOp createLaunch(mlir::OpBuilder &builder, mlir::Location loc,
                                 mlir::Value numBlocks, int64_t numThreads,
                                 int64_t sharedBytes, int64_t cluster = 1);

/// A parallel loop over the points of a grid, which --attn-loops-to-gpu makes a
/// kernel of one thread for each point.
void parallelLoop(KernelBuilder &builder, llvm::ArrayRef<mlir::Value> extents,
                  llvm::function_ref<void(mlir::ValueRange)> body);

/// The digits of `number` in a system whose digits have these extents, the last
/// one varying fastest.
KernelBuilder::Values splitNumber(KernelBuilder &builder, mlir::Value number,
                                  mlir::ValueRange extents);

/// Goes into a launch of one block of the builder's threads for each point of a
/// grid, and begins the kernel. Returns the point, a number below each extent.
KernelBuilder::Values beginBlocks(GPUKernelBuilder &builder,
                                  mlir::ValueRange extents,
                                  int64_t sharedBytes = 0);

/// Iterations of a parallel loop that are neighbours in one dimension, as many
/// as divide its extent: the blocks of a cluster.
struct LoopCluster {
  unsigned dim = 0;
  int64_t size = 1;
};

/// Replaces a parallel loop on memrefs by a launch whose blocks run one
/// iteration each, with all their threads.
mlir::gpu::LaunchOp launchForall(mlir::scf::ForallOp forall, int64_t numThreads,
                                 int64_t sharedBytes, LoopCluster cluster = {});

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPULAUNCH_H
