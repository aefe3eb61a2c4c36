//===- SumLanes.h - Sums of the elements of vectors -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SUMLANES_H
#define FOVEA_KERNELS_SUMLANES_H

#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {

/// The sum of the elements of a vector, by halves: one after the other, each
/// would wait for the one before.
inline mlir::Value sumLanes(KernelBuilder &b, mlir::Value vector) {
  return mlir::vector::ReductionOp::create(b, mlir::vector::CombiningKind::ADD,
                                           vector,
                                           mlir::arith::FastMathFlags::reassoc);
}

} // namespace fovea::attn

#endif // FOVEA_KERNELS_SUMLANES_H
