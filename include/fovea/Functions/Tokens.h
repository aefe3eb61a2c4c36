//===- Tokens.h - Which tokens of arrays are present ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_TOKENS_H
#define FOVEA_FUNCTIONS_TOKENS_H

#include "fovea/ExecutionEngine/Kernel.h"
#include <optional>

namespace fovea {

/// Which tokens of a batch are present: all of them unless one of the two says
/// otherwise. Rows of absent tokens may hold anything.
struct TokenOptions {
  /// [B,N] of i1: padding may be on the left, on the right or between.
  std::optional<TensorRef> mask;
  /// [B] of i32 or i64: the tokens of each batch entry, from its first row,
  /// which the host reads.
  std::optional<TensorRef> lengths;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_TOKENS_H
