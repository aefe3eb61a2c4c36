//===- ShapeConstraints.h - Extents that go together ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers compare static extents. What attention ops need of dynamic extents
// of the function's arguments is collected here at compile time and checked at
// every call.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_SHAPECONSTRAINTS_H
#define FOVEA_LIB_EXECUTIONENGINE_SHAPECONSTRAINTS_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class FunctionOpInterface;
} // namespace mlir

namespace fovea::detail {

/// What must hold between the extent of one argument and that of another.
struct ShapeConstraint {
  enum Kind {
    /// The same.
    Equal,
    /// The first is a multiple of the second.
    Multiple
  } kind;
  unsigned argument, dim;
  /// The other extent: a dimension of an argument, or without one `constant`.
  std::optional<unsigned> otherArgument;
  unsigned otherDim = 0;
  int64_t constant = 0;
  /// True when the other extent is the one that is said to be equal or a
  /// multiple.
  bool isReversed = false;
  /// The operation that asks for it, such as "attn.dense".
  std::string op;

  llvm::Error
  check(llvm::ArrayRef<TensorRef> inputs,
        llvm::function_ref<std::string(unsigned)> describeArgument) const;
};

/// Constraints of the attention ops in `function` on extents of its arguments,
/// as far as they are dynamic.
llvm::SmallVector<ShapeConstraint>
collectShapeConstraints(mlir::FunctionOpInterface function);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_SHAPECONSTRAINTS_H
