//===- GPUSerialLoops.h - Kernels of loops that are not parallel *- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUSERIALLOOPS_H
#define FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUSERIALLOOPS_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {

/// The iterations of a parallel loop, numbered with the last dimension varying
/// fastest.
struct NumberedIterations {
  KernelBuilder::Values counts;
  mlir::Value total;

  NumberedIterations(KernelBuilder &builder, mlir::scf::ParallelOp loop);
  /// Emits iteration `number`.
  void emit(KernelBuilder &builder, mlir::scf::ParallelOp loop,
            mlir::Value number) const;
};

/// Replaces an operation on memrefs that reduces all elements of its operands
/// to one number, such as a sum, by parallel loops: over many parts, over sums
/// of these, and a last one. Returns whether the operation is of that form.
bool splitWholeReduction(mlir::linalg::LinalgOp op);

/// Whether a loop on the host accesses single elements and does nothing that a
/// kernel cannot do.
bool isSerialLoop(mlir::scf::ForOp loop);

/// Puts a loop that accesses single elements and gives numbers, as the sum of a
/// line is one, into a loop of one iteration, with all that uses these, if that
/// is next to it.
void wrapLoopOfNumbers(mlir::scf::ForOp loop);

/// Makes such a loop, whose linalg operations and copies are parallel loops by
/// now, a kernel of one block: all threads go through it together, and share
/// the iterations of parallel loops inside.
void launchSerialLoop(mlir::scf::ForOp loop, int64_t numThreads);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LOOPSTOGPU_GPUSERIALLOOPS_H
