//===- FunctionData.h - What is known of data in a function -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_TOOLS_EXPLAIN_FUNCTIONDATA_H
#define FOVEA_LIB_TOOLS_EXPLAIN_FUNCTIONDATA_H

#include "fovea/Analysis/KnownData.h"
#include "fovea/Tools/Explain/Explain.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir {
class FunctionOpInterface;
} // namespace mlir

namespace fovea::explanation {

/// The elements of what decides in a function which rows are read: of
/// arguments, as the options give them, and of values that follow from these,
/// which are computed here by a kernel that does nothing else.
struct FunctionData {
  KnownData known;
  /// For each deciding operand that is not known, the numbers of the arguments
  /// whose data it takes, and why it was not computed though that is given.
  struct Unknown {
    llvm::SmallVector<unsigned> arguments;
    std::string reason;
  };
  llvm::DenseMap<mlir::Value, Unknown> unknown;
};

/// The operands of an operation that decide which rows it reads: integers, and
/// what functions of scores capture.
llvm::SmallVector<mlir::Value> getDecidingOperands(mlir::Operation *op);

FunctionData findData(mlir::FunctionOpInterface function,
                      const ArgumentShapes &shapes,
                      const ExplainOptions &options);

} // namespace fovea::explanation

#endif // FOVEA_LIB_TOOLS_EXPLAIN_FUNCTIONDATA_H
