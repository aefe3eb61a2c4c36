//===- ConvAlgebra.h - Numerics of sums of convolutions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the kernels of all targets know of which score sums count, what weights
// they have and how small a normaliser may be. Score sums are natural
// logarithms in f64; a *score* is the binary logarithm of a weight. Numbers are
// scalars or vectors.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_CONVALGEBRA_H
#define FOVEA_KERNELS_CONVALGEBRA_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn::conv {

/// The greater one, where neither NaN nor plus infinity is great: taken off all
/// scores, it would leave none to the rows that do not read it.
mlir::Value maxNumber(KernelBuilder &builder, mlir::Value sum, mlir::Value top);

/// `top`, or 0 where it is minus infinity: without an entry all weights are
/// zero, whatever is taken off.
mlir::Value zeroIfNone(KernelBuilder &builder, mlir::Value top);

/// What is added to scores, which takes `top` off their sums.
mlir::Value getShift(KernelBuilder &builder, mlir::Value top);

/// The score of a score sum, in f64.
mlir::Value getScore(KernelBuilder &builder, mlir::Value sum,
                     mlir::Value shift);

/// The same, no less than the lowest number of the state type: only what is not
/// read has minus infinity.
mlir::Value getLimitedScore(KernelBuilder &builder, mlir::Value sum,
                            mlir::Value shift);

/// The weight of a score in the state type, which `top` is taken off, if given.
mlir::Value getWeight(KernelBuilder &builder, mlir::Value score,
                      mlir::Value top = {});

/// The lags `low .. high - 1` at which a row reads the keys of a segment that
/// begins with `first`, not behind the row.
struct Lags {
  mlir::Value low, high;
};
Lags getLags(KernelBuilder &builder, mlir::Value row, mlir::Value first,
             mlir::Value end);

/// What the weighted sum of a row is divided by: its normaliser, or 1 where
/// nothing is read. And what it is multiplied by: the reciprocal, or 0.
mlir::Value getDivisor(KernelBuilder &builder, mlir::Value normaliser);
mlir::Value getFactor(KernelBuilder &builder, mlir::Value normaliser);

/// The greatest reciprocal of a normaliser of weights that share a maximum:
/// what weights that underflow might have added is less than the rounding error
/// of a normaliser as large.
double getMostReciprocal(mlir::FloatType stateType);

/// The rounding error of products by transforms of `length` numbers, next to
/// the norms of their factors, as a part of what a row may have.
double getNoiseFactor(int64_t length);

} // namespace fovea::attn::conv

#endif // FOVEA_KERNELS_CONVALGEBRA_H
