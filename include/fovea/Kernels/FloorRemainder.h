//===- FloorRemainder.h - Remainders of positions ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// IR has no remainder that is never negative: score regions write
// `x - floordiv(x, c) * c`. As one operation it takes no quotient for each
// entry, and is bounded.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_FLOORREMAINDER_H
#define FOVEA_KERNELS_FLOORREMAINDER_H

#include "mlir/IR/Value.h"
#include <optional>

namespace fovea::attn {

/// What is left of `number`, an index, behind the multiple of `divisor` below.
struct FloorRemainder {
  mlir::Value number;
  int64_t divisor;
};

/// The remainder that `value` is, if it is one.
std::optional<FloorRemainder> matchFloorRemainder(mlir::Value value);

/// The remainder and the constant that two values are, if they are such.
struct RemainderEquality {
  FloorRemainder remainder;
  int64_t rest;
};
std::optional<RemainderEquality> matchRemainderEquality(mlir::Value lhs,
                                                        mlir::Value rhs);

/// `number` modulo `divisor`, at least zero.
int64_t floorRemainder(int64_t number, int64_t divisor);

} // namespace fovea::attn

#endif // FOVEA_KERNELS_FLOORREMAINDER_H
