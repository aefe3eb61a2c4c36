//===- Inspect.h - What the IR says about a run -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEARUN_INSPECT_H
#define FOVEA_TOOLS_FOVEARUN_INSPECT_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea::run {

struct Inspection {
  /// Floating-point operations that the attention ops ask for; none where one
  /// of them works on extents that only the running kernel knows, or there are
  /// no such ops.
  std::optional<double> usefulFlops;
  /// Which results are logarithms of soft-max sums, bounded absolutely.
  llvm::SmallVector<bool> isLogSumExp;
};

/// Looks at function `entry` of a module that has been compiled already.
Inspection inspect(llvm::StringRef text, llvm::StringRef entry,
                   llvm::ArrayRef<TensorRef> inputs);

} // namespace fovea::run

#endif // FOVEA_TOOLS_FOVEARUN_INSPECT_H
