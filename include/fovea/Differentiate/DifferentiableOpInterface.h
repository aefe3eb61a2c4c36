//===- DifferentiableOpInterface.h - Operations with gradients --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_H
#define FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace fovea::attn {

/// Of an operation whose results are constants to a gradient.
constexpr llvm::StringLiteral kStopGradientAttrName = "attn.stop_gradient";

/// The adjoints of the values of a function, or of the body of an operation:
/// the derivative of a sum of the results, weighted by their cotangents, with
/// respect to each value. They are kept in the type that sums have, f32 for
/// anything narrower, and are rounded once, where they leave.
class Adjoints {
public:
  /// Differentiates with respect to `value`.
  void activate(mlir::Value value) { active.insert(value); }
  /// Whether `value` depends on one that is differentiated with respect to.
  bool isActive(mlir::Value value) const { return active.contains(value); }
  /// Activates the results of `op` that depend on active values.
  void activateResults(mlir::Operation *op);

  /// The adjoint of `value` so far; null stands for zero.
  mlir::Value find(mlir::Value value) const { return adjoints.lookup(value); }
  /// The same in the type of `value`, and zeros instead of null.
  mlir::Value getRounded(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value value) const;

  /// Adds `contribution` to the adjoint of `value`, if that is active.
  void add(mlir::OpBuilder &builder, mlir::Value value,
           mlir::Value contribution);
  /// Replaces the adjoint of `value`.
  void set(mlir::Value value, mlir::Value adjoint) {
    adjoints[value] = adjoint;
  }

  /// Goes through `ops` from the last to the first.
  llvm::LogicalResult emitVJPs(mlir::OpBuilder &builder,
                               llvm::ArrayRef<mlir::Operation *> ops);

private:
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, mlir::Value> adjoints;
};

/// `value` with elements of type `type`, if they are floating-point numbers of
/// another one.
mlir::Value convertFloat(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value value, mlir::Type type);

/// A tensor of the shape of `like`, or a number where that is one, of
/// uninitialised elements or zeros.
mlir::Value createEmptyLike(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value like, mlir::Type elementType);
mlir::Value createZerosLike(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value like, mlir::Type elementType);

} // namespace fovea::attn

#include "fovea/Differentiate/DifferentiableOpInterface.h.inc"

#endif // FOVEA_DIFFERENTIATE_DIFFERENTIABLEOPINTERFACE_H
