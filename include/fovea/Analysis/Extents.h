//===- Extents.h - Shapes for given arguments -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_EXTENTS_H
#define FOVEA_ANALYSIS_EXTENTS_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir {
class FunctionOpInterface;
} // namespace mlir

namespace fovea {

/// The shapes of values in a function that gets arguments of these shapes.
class Extents {
public:
  Extents(mlir::FunctionOpInterface function,
          llvm::ArrayRef<llvm::SmallVector<int64_t>> argumentShapes);

  /// The shape, of zeros if an extent does not follow from the arguments.
  llvm::SmallVector<int64_t> shapeOf(mlir::Value value);

  /// False once an extent was not found.
  bool isKnown = true;

private:
  mlir::Block *entry;
  llvm::ArrayRef<llvm::SmallVector<int64_t>> argumentShapes;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_EXTENTS_H
