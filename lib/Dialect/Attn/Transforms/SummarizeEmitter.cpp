//===- SummarizeEmitter.cpp - Short names for emitted code ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeEmitter.h"

using namespace mlir;
using namespace fovea::attn;

/// `type` with the elements of `memref`.
static VectorType storedType(VectorType type, Value memref) {
  return type.clone(cast<MemRefType>(memref.getType()).getElementType());
}

Value SummarizeEmitter::load(VectorType type, Value memref,
                             ValueRange indices) {
  VectorType stored = storedType(type, memref);
  Value value = vector::LoadOp::create(builder, loc, stored, memref, indices);
  if (stored != type)
    value = arith::ExtFOp::create(builder, loc, type, value);
  return value;
}

void SummarizeEmitter::store(Value value, Value memref, ValueRange indices) {
  auto type = cast<VectorType>(value.getType());
  VectorType stored = storedType(type, memref);
  if (stored != type)
    value = arith::TruncFOp::create(builder, loc, stored, value);
  vector::StoreOp::create(builder, loc, value, memref, indices);
}

void SummarizeEmitter::loop(Value from, Value to, int64_t step,
                            llvm::function_ref<void(Value)> body) {
  scf::ForOp::create(builder, loc, from, to, index(step), ValueRange(),
                     [&](OpBuilder &, Location, Value iv, ValueRange) {
                       body(iv);
                       scf::YieldOp::create(builder, loc);
                     });
}

SummarizeEmitter::Values
SummarizeEmitter::loop(Value from, Value to, ValueRange initial,
                       llvm::function_ref<Values(Value, ValueRange)> body) {
  auto op = scf::ForOp::create(
      builder, loc, from, to, index(1), initial,
      [&](OpBuilder &, Location, Value iv, ValueRange carried) {
        scf::YieldOp::create(builder, loc, body(iv, carried));
      });
  return llvm::to_vector(ValueRange(op.getResults()));
}

void SummarizeEmitter::ifThen(Value condition,
                              llvm::function_ref<void()> then) {
  if (matchPattern(condition, m_One()))
    return then();
  auto op = scf::IfOp::create(builder, loc, condition, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(op.thenBlock());
  then();
}

void SummarizeEmitter::ifThenElse(Value condition,
                                  llvm::function_ref<void()> then,
                                  llvm::function_ref<void()> otherwise) {
  if (matchPattern(condition, m_One()))
    return then();
  if (matchPattern(condition, m_Zero()))
    return otherwise();
  auto op = scf::IfOp::create(builder, loc, condition, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(op.thenBlock());
  then();
  builder.setInsertionPointToStart(op.elseBlock());
  otherwise();
}
