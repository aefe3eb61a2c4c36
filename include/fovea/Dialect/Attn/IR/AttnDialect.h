//===- AttnDialect.h - Attention dialect -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_H
#define FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"

#include "fovea/Dialect/Attn/IR/AttnDialect.h.inc"
#include "fovea/Dialect/Attn/IR/AttnEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "fovea/Dialect/Attn/IR/AttnAttributes.h.inc"

namespace fovea::attn {

/// Marks an argument of a public function whose memory the function may write
/// to once it works on buffers.
constexpr llvm::StringLiteral kWrittenAttrName = "attn.written";

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_H
