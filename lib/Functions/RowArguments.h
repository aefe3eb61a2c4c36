//===- RowArguments.h - Rows, and what broadcasts to them -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_ROWARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_ROWARGUMENTS_H

#include "Arguments.h"

namespace fovea::functions {

/// An array [B,H,N,D] that has columns.
inline Argument checkRows(Checker &check, llvm::StringRef operand,
                          llvm::StringRef name, const TensorRef &array) {
  Argument rows = check.operand(operand, name, array);
  check.notEmpty(rows);
  return rows;
}

/// An array of another type than numbers that broadcasts to `shape`, of which
/// any extent will do where it is negative.
inline Argument checkPart(Checker &check, llvm::StringRef name,
                          const TensorRef &array, ElementType type,
                          llvm::ArrayRef<int64_t> shape, unsigned numFree) {
  Argument part(name, array);
  check.check(part.elementType == type,
              name + ": found element type " +
                  getArrayTypeName(part.elementType) + ", needed " +
                  (type == ElementType::I1 ? "bool" : "int32"));
  part.extendTo(shape.size());
  check.broadcasts(part, shape, numFree);
  return part;
}

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ROWARGUMENTS_H
