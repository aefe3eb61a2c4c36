//===- ExtentOrigin.h - Where an extent comes from --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_EXTENTORIGIN_H
#define FOVEA_ANALYSIS_EXTENTORIGIN_H

#include "mlir/IR/Value.h"

namespace fovea {

/// A dimension of a function's argument, or, without an argument, a constant.
struct ExtentOrigin {
  std::optional<unsigned> argument;
  unsigned dim = 0;
  int64_t constant = 0;
};

/// The origin of extent `dim` of the shaped `value` in the function whose entry
/// block is `entry`; none when the extent is computed in some other way.
std::optional<ExtentOrigin> getExtentOrigin(mlir::Value value, unsigned dim,
                                            mlir::Block *entry);

} // namespace fovea

#endif // FOVEA_ANALYSIS_EXTENTORIGIN_H
