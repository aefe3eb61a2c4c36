//===- SummarizeEmitter.h - Short names for emitted code -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZEEMITTER_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZEEMITTER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {

/// Emits index arithmetic, loops and vector accesses at the insertion point of
/// a builder. Arithmetic on constants is folded as it is emitted, so that
/// static shapes leave no trace of the general case.
class SummarizeEmitter {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = llvm::SmallVector<mlir::Value>;

  SummarizeEmitter(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  Value index(int64_t value) {
    return mlir::arith::ConstantIndexOp::create(builder, loc, value);
  }
  Value add(Value a, Value b) { return fold<mlir::arith::AddIOp>(a, b); }
  Value add(Value a, int64_t b) { return b ? add(a, index(b)) : a; }
  Value sub(Value a, Value b) { return fold<mlir::arith::SubIOp>(a, b); }
  Value mul(Value a, Value b) { return fold<mlir::arith::MulIOp>(a, b); }
  Value mul(Value a, int64_t b) {
    return fold<mlir::arith::MulIOp>(a, index(b));
  }
  /// Quotients and remainders of values that are never negative.
  Value div(Value a, int64_t b) {
    return fold<mlir::arith::DivUIOp>(a, index(b));
  }
  Value div(Value a, Value b) { return fold<mlir::arith::DivUIOp>(a, b); }
  Value rem(Value a, int64_t b) {
    return fold<mlir::arith::RemUIOp>(a, index(b));
  }
  Value rem(Value a, Value b) { return fold<mlir::arith::RemUIOp>(a, b); }
  Value ceilDiv(Value a, int64_t b) { return div(add(a, b - 1), b); }
  /// Minimum and maximum of signed values: a difference may be negative.
  Value min(Value a, Value b) { return fold<mlir::arith::MinSIOp>(a, b); }
  Value min(Value a, int64_t b) { return min(a, index(b)); }
  Value max(Value a, int64_t b) {
    return fold<mlir::arith::MaxSIOp>(a, index(b));
  }
  Value equal(Value a, Value b) {
    return builder.createOrFold<mlir::arith::CmpIOp>(
        loc, mlir::arith::CmpIPredicate::eq, a, b);
  }
  Value less(Value a, Value b) {
    return builder.createOrFold<mlir::arith::CmpIOp>(
        loc, mlir::arith::CmpIPredicate::slt, a, b);
  }
  Value either(Value a, Value b) { return fold<mlir::arith::OrIOp>(a, b); }
  Value both(Value a, Value b) { return fold<mlir::arith::AndIOp>(a, b); }
  Value select(Value condition, Value a, Value b) {
    return builder.createOrFold<mlir::arith::SelectOp>(loc, condition, a, b);
  }
  Value extent(Value memref, int64_t dim) {
    return builder.createOrFold<mlir::memref::DimOp>(loc, memref, dim);
  }

  /// Loads a vector of `type` from elements that may be narrower.
  Value load(mlir::VectorType type, Value memref, ValueRange indices);
  /// Stores `value`, rounded to the elements of `memref`.
  void store(Value value, Value memref, ValueRange indices);
  Value fma(Value a, Value b, Value accumulator) {
    return mlir::vector::FMAOp::create(builder, loc, a, b, accumulator);
  }
  Value zero(mlir::VectorType type) {
    return mlir::arith::ConstantOp::create(builder, loc,
                                           builder.getZeroAttr(type));
  }
  /// Asks for the cache line at `indices` to be brought to the second level.
  void prefetch(Value memref, ValueRange indices) {
    mlir::memref::PrefetchOp::create(builder, loc, memref, indices,
                                     /*isWrite=*/false, /*localityHint=*/2,
                                     /*isDataCache=*/true);
  }
  /// Scratch memory of one task, aligned to cache lines.
  Value scratch(llvm::ArrayRef<int64_t> shape, mlir::Type elementType) {
    return mlir::memref::AllocaOp::create(
        builder, loc, mlir::MemRefType::get(shape, elementType),
        builder.getI64IntegerAttr(64));
  }

  /// A loop that carries nothing.
  void loop(Value from, Value to, int64_t step,
            llvm::function_ref<void(Value)> body);
  /// A loop over `[from, to)` that carries `initial`.
  Values loop(Value from, Value to, ValueRange initial,
              llvm::function_ref<Values(Value, ValueRange)> body);
  void ifThen(Value condition, llvm::function_ref<void()> then);
  void ifThenElse(Value condition, llvm::function_ref<void()> then,
                  llvm::function_ref<void()> otherwise);

private:
  template <typename OpTy> Value fold(Value a, Value b) {
    return builder.createOrFold<OpTy>(loc, a, b);
  }

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_SUMMARIZEEMITTER_H
