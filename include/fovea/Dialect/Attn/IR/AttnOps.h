//===- AttnOps.h - Operations of the attention dialect -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNOPS_H
#define FOVEA_DIALECT_ATTN_IR_ATTNOPS_H

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/TilingInterface.h"

namespace fovea::attn {
/// The type that sums, soft-max state and `lse` have for data of type `type`:
/// f64 for f64, f32 for everything else.
mlir::FloatType getStateType(mlir::Type type);

/// Of an operation that reads its destinations before it writes them.
template <typename OpTy>
class UpdatesInits : public mlir::OpTrait::TraitBase<OpTy, UpdatesInits> {};

} // namespace fovea::attn

#define GET_OP_CLASSES
#include "fovea/Dialect/Attn/IR/AttnOps.h.inc"

#endif // FOVEA_DIALECT_ATTN_IR_ATTNOPS_H
