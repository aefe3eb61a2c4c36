//===- ExtentRules.h - Extents that go together -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the operations of the dialect ask of the extents of their operands. The
// verifier checks static extents; those known at run time only are checked by
// whoever uses this list.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_EXTENTRULES_H
#define FOVEA_ANALYSIS_EXTENTRULES_H

#include "mlir/IR/Operation.h"
#include <string>

namespace fovea {

/// An extent of an operand, which diagnostics call `name`.
struct OperandExtent {
  std::string name;
  mlir::Value operand;
  unsigned dim;
};

struct ExtentRule {
  enum Kind {
    /// `first` equals `second`.
    Equal,
    /// `first` is a multiple of `second`.
    Multiple,
    /// `first` is the number of summaries of `second` rows:
    /// `ceil(second / interval) * rank`.
    Summaries
  } kind;
  OperandExtent first, second;
  int64_t interval = 0, rank = 0;
};

/// Calls `visit` for every rule of `op`, which may be of any dialect, static
/// extents included.
void forEachExtentRule(mlir::Operation *op,
                       llvm::function_ref<void(const ExtentRule &)> visit);

} // namespace fovea

#endif // FOVEA_ANALYSIS_EXTENTRULES_H
