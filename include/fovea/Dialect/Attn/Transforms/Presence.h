//===- Presence.h - Rows of tokens that are present ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_TRANSFORMS_PRESENCE_H
#define FOVEA_DIALECT_ATTN_TRANSFORMS_PRESENCE_H

#include "mlir/IR/Builders.h"

namespace fovea::attn::detail {

// Of a mask [B, N] that may be null: then all tokens are present.

/// A copy of `rows`, [B, _, N] or [B, _, N, _], that holds `absent` in the rows
/// of absent tokens, whatever they held; `rows` itself without a mask.
mlir::Value keepRows(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value rows, mlir::Value mask, double absent = 0.0);

/// The same in the memory of `rows`, a result that nothing else reads.
mlir::Value keepInPlace(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value rows, mlir::Value mask,
                        double absent = 0.0);

/// [B, 1, N], or [B, 1, N, 1] of `rank` 4: `present` or `absent`. Null without
/// a mask.
mlir::Value createRows(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::Value mask, int64_t rank, mlir::Type elementType,
                       double present, double absent);

/// Log weights of keys, [B, 1, N]: minus infinity of absent ones. Null without
/// a mask.
mlir::Value createTokenLogWeights(mlir::OpBuilder &builder, mlir::Location loc,
                                  mlir::Value mask, mlir::Type elementType);

} // namespace fovea::attn::detail

#endif // FOVEA_DIALECT_ATTN_TRANSFORMS_PRESENCE_H
