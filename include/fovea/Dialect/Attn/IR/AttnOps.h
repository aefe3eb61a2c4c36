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
#include "fovea/Dialect/Attn/IR/Contract.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
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

namespace detail {
mlir::LogicalResult verifySeparateInits(mlir::Operation *op);
} // namespace detail

/// Of an operation whose destinations share no memory with one another or with
/// other operands. Its verifier sees one buffer in two places; whether the
/// buffers that a function gets overlap is known at its calls only.
template <typename OpTy>
class SeparateInits : public mlir::OpTrait::TraitBase<OpTy, SeparateInits> {
public:
  static mlir::LogicalResult verifyTrait(mlir::Operation *op) {
    return detail::verifySeparateInits(op);
  }
};

/// One source of attn.stream with its operands; absent operands are null.
struct StreamSource {
  mlir::Value keys, values, logWeight, bias, codes;
  SourceAttr attr;
  mlir::Value lengths = {};
  /// Terms by distance: of `relative` its keys and its bias.
  mlir::Value relativeKeys = {}, relativeBias = {}, distanceBias = {};
  mlir::Value rowList = {};
  /// Its own score region, or null.
  mlir::Region *score = nullptr;

  /// The operand whose extent 2 counts the rows of the source.
  mlir::Value getRowsOperand() const { return codes ? codes : keys; }
  /// Whether values or log weights differ from query block to query block.
  bool hasValueBlocks() const;
  bool hasLogWeightBlocks() const;
};

/// One source of attn.stream_backward, and the destinations of its gradients;
/// those not asked for are null.
struct StreamSourceGradient {
  StreamSource forward;
  mlir::Value keys, values, logWeight, bias;
};

} // namespace fovea::attn

#include "fovea/Dialect/Attn/IR/AttnInterfaces.h.inc"

#define GET_OP_CLASSES
#include "fovea/Dialect/Attn/IR/AttnOps.h.inc"

#endif // FOVEA_DIALECT_ATTN_IR_ATTNOPS_H
