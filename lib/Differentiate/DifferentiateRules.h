//===- DifferentiateRules.h - Gradients, by dialect -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIFFERENTIATE_DIFFERENTIATERULES_H
#define FOVEA_LIB_DIFFERENTIATE_DIFFERENTIATERULES_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Differentiate/DifferentiableOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {

/// Models of DifferentiableOpInterface for the operations of a dialect: arith
/// and math on numbers, everything else on tensors.
void registerArithRules(mlir::DialectRegistry &registry);
void registerBranchRules(mlir::DialectRegistry &registry);
void registerLinalgRules(mlir::DialectRegistry &registry);
void registerLoopRules(mlir::DialectRegistry &registry);
void registerSecondRules(mlir::DialectRegistry &registry);
void registerTensorRules(mlir::DialectRegistry &registry);
void registerAttnRules(mlir::DialectRegistry &registry);
void registerTreeRules(mlir::DialectRegistry &registry);

/// Activates what depends on active values in an iteration of a loop.
void activateBody(mlir::scf::ForOp loop, Adjoints &adjoints);

/// An error unless the regions of a branch or loop can be run again.
llvm::LogicalResult checkRepeatable(mlir::Operation *op);

/// The adjoint of `value`, or zeros, in the type that adjoints have.
mlir::Value getAdjointOrZeros(mlir::OpBuilder &b, mlir::Location loc,
                              const Adjoints &adjoints, mlir::Value value);

/// Replaces a loop by one that counts its iterations, and one of that many.
llvm::LogicalResult countIterations(mlir::scf::WhileOp loop);

/// Replaces the gradient of attention by products of tiles of its queries.
llvm::LogicalResult expandGradient(DenseBackwardOp op);

/// Erases operations that nothing needs, and takes from loops what they carry
/// for nothing.
void eraseDeadOps(mlir::Block &block, mlir::Operation *except = nullptr);

/// Computes again, after `boundary`, what operations before it are cheap to
/// compute from values that are kept anyway.
void recomputeCheapValues(mlir::Operation *boundary);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIFFERENTIATE_DIFFERENTIATERULES_H
