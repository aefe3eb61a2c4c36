//===- Presence.h - Rows of tokens that are present -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_PRESENCE_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_PRESENCE_H

#include "mlir/IR/Builders.h"

namespace fovea::attn::detail {

/// `rows`, a tensor `[B, H, N, ...]`, with zeros for the tokens that `mask`,
/// `[B, N]` of i1, says are absent, whatever was there.
mlir::Value keepRows(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value rows, mlir::Value mask);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_PRESENCE_H
