//===- ConstantArithmetic.h - Operations on columns of numbers --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_CONSTANTARITHMETIC_H
#define FOVEA_LIB_ANALYSIS_CONSTANTARITHMETIC_H

#include "fovea/Analysis/ConstantCone.h"
#include <functional>

namespace fovea::detail {

/// Numbers of one scalar at many points.
using Column = std::vector<ConstantElement>;
/// Computes a column from others of its length; false where the program would
/// have no defined result, such as a division by zero.
using ColumnFunction =
    std::function<bool(llvm::ArrayRef<const Column *> operands, Column &out)>;

/// What the operation, on scalars or element by element, does with columns;
/// null for one that is not computed when compiling.
ColumnFunction getColumnFunction(mlir::Operation *op);

/// Whether numbers of the type are computed.
bool isComputedType(mlir::Type type);

/// A constant's element.
ConstantElement getElement(mlir::Attribute number);

} // namespace fovea::detail

#endif // FOVEA_LIB_ANALYSIS_CONSTANTARITHMETIC_H
