//===- IndexBuilder.h - Integers in bodies of loops -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_INDEXBUILDER_H
#define FOVEA_LIB_FUNCTIONS_INDEXBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::functions {

/// Integers of the bodies of loops, all of type index.
struct IndexBuilder : mlir::ImplicitLocOpBuilder {
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  mlir::Value number(int64_t value) {
    return mlir::arith::ConstantIndexOp::create(*this, value);
  }
  mlir::Value widen(mlir::Value integer) {
    return mlir::arith::IndexCastOp::create(*this, getIndexType(), integer);
  }
  mlir::Value narrow(mlir::Value index) {
    return mlir::arith::IndexCastOp::create(*this, getI32Type(), index);
  }
  /// An element of integers [x].
  mlir::Value load(mlir::Value list, mlir::Value at) {
    return widen(mlir::tensor::ExtractOp::create(*this, list, at));
  }
  mlir::Value add(mlir::Value left, mlir::Value right) {
    return mlir::arith::AddIOp::create(*this, left, right);
  }
  mlir::Value sub(mlir::Value left, mlir::Value right) {
    return mlir::arith::SubIOp::create(*this, left, right);
  }
  mlir::Value mul(mlir::Value left, int64_t right) {
    return mlir::arith::MulIOp::create(*this, left, number(right));
  }
  /// Of numbers that are not negative.
  mlir::Value div(mlir::Value left, int64_t right) {
    return mlir::arith::DivUIOp::create(*this, left, number(right));
  }
  mlir::Value rem(mlir::Value left, int64_t right) {
    return mlir::arith::RemUIOp::create(*this, left, number(right));
  }
  mlir::Value clamp(mlir::Value value, int64_t least, mlir::Value most) {
    value = mlir::arith::MaxSIOp::create(*this, value, number(least));
    return mlir::arith::MinSIOp::create(*this, value, most);
  }
  mlir::Value extent(mlir::Value array, int64_t dim) {
    return createOrFold<mlir::tensor::DimOp>(array, dim);
  }
  mlir::Value lastOf(mlir::Value array, int64_t dim = 0) {
    return createOrFold<mlir::arith::SubIOp>(extent(array, dim), number(1));
  }
  mlir::Value is(mlir::arith::CmpIPredicate how, mlir::Value left,
                 mlir::Value right) {
    return mlir::arith::CmpIOp::create(*this, how, left, right);
  }
  mlir::Value select(mlir::Value condition, mlir::Value one,
                     mlir::Value other) {
    return mlir::arith::SelectOp::create(*this, condition, one, other);
  }
  mlir::Value index(int64_t dim) {
    return mlir::linalg::IndexOp::create(*this, dim);
  }
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_INDEXBUILDER_H
