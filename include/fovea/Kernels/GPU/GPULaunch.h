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

/// The head and its block that a block of threads has, where each of `heads`
/// heads has as many blocks and heads go in sections, of which the last may
/// have fewer: the last blocks of all heads of a section come first, head by
/// head. With sections of one head, its blocks follow each other.
std::pair<mlir::Value, mlir::Value>
splitSections(KernelBuilder &builder, mlir::Value number, mlir::Value heads,
              mlir::Value blocks, mlir::Value section);

/// In which order blocks of threads have the iterations of a parallel loop. Its
/// first dimensions are heads; others, if there are any, are blocks of each.
struct BlockOrder {
  unsigned numHeadDims = 0;
  /// Blocks of a cluster have the same block of neighbouring heads, as many as
  /// divide the last of these dimensions.
  int64_t cluster = 1;
  /// How many heads a section has: as many, filled up to whole clusters, and at
  /// most all; null: one cluster.
  mlir::Value section;
  /// At most so many blocks of threads, each of which goes through iterations
  /// by a loop, in steps of as many; null: one for each iteration.
  mlir::Value mostBlocks;
};

/// Replaces a parallel loop on memrefs by a launch whose blocks run one
/// iteration each, or several in a loop, with all their threads.
mlir::gpu::LaunchOp launchForall(mlir::scf::ForallOp forall, int64_t numThreads,
                                 int64_t sharedBytes, const BlockOrder &order);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPULAUNCH_H
