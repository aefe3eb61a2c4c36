//===- LowerToLLVM.h - What the pipelines share -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PIPELINES_LOWERTOLLVM_H
#define FOVEA_PIPELINES_LOWERTOLLVM_H

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace fovea {

/// What any IR goes through first: checks of what upstream's passes take for
/// granted, and linalg that is no loops to linalg that is.
void addInputPasses(mlir::OpPassManager &pm);

/// Tensors to buffers, across functions. Public functions get a C interface and
/// never write to their arguments.
void addBufferizationPasses(mlir::OpPassManager &pm);

/// Frees every buffer that a function allocates and does not return. Results
/// are fresh memory that the caller owns. To be run before operations disappear
/// that the analysis can see through, so right after the last pass that
/// allocates.
void addDeallocationPasses(mlir::OpPassManager &pm);

/// What is not a kernel: linalg, and vectors of several dimensions, to loops.
void addLowerToLoopsPasses(mlir::OpPassManager &pm);

/// Buffers, loops and vectors to the LLVM dialect. Allocation goes through the
/// runtime. What is left then is an error.
void addLowerToLLVMPasses(mlir::OpPassManager &pm);

} // namespace fovea

#endif // FOVEA_PIPELINES_LOWERTOLLVM_H
