//===- SoftmaxAlgebra.h - Numerics of the streaming soft-max ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The only place that knows the base of the exponential, what a masked score is
// and what an empty row gives. Scores are kept in base 2: log2(e) is multiplied
// into the scale, the bias and the log weights, and comes out again in lse.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_SOFTMAXALGEBRA_H
#define FOVEA_KERNELS_SOFTMAXALGEBRA_H

#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn::softmax {

/// log2(e): multiplies natural scores.
constexpr double kLog2E = 1.44269504088896340736;

/// The score of an entry that is not admitted. Finite, so that the difference
/// of two masked scores is no NaN, and not so far down that `exp2` overflows.
constexpr double kMasked = -0x1p33;

/// Scores this low or lower count as not admitted: half way, because a mask
/// may be a term that is added to a score. Neighbouring f32 numbers of this
/// size are 512 apart, so scores that mean anything are well above it.
constexpr double kAdmitted = kMasked / 2;

/// The weight of an entry that is not admitted, where a product is taken
/// without those: minus zero, which `exp2` never gives.
constexpr double kHidden = -0.0;

/// Whether a score, or a term of one, removes its entry. False for NaN.
mlir::Value isMasked(KernelBuilder &builder, mlir::Value score);

/// `isHidden ? kHidden : weight`.
mlir::Value hide(KernelBuilder &builder, mlir::Value isHidden,
                 mlir::Value weight);

/// Whether a weight is `kHidden`.
mlir::Value isHidden(KernelBuilder &builder, mlir::Value weight);

/// `sum + weight * factor`, or `sum` for a hidden weight, whatever the factor.
mlir::Value addVisible(KernelBuilder &builder, mlir::Value weight,
                       mlir::Value factor, mlir::Value sum);

/// Sums of a product with weights, `again()` where they are not all finite: a
/// weight of zero leaves numbers as they are, but not a NaN or an infinity,
/// which only a product without the hidden entries can tell from one that is
/// read.
KernelBuilder::Values
unlessFinite(KernelBuilder &builder, mlir::ValueRange sums,
             llvm::function_ref<KernelBuilder::Values()> again);

/// `2^x` for `x <= 0`, element by element: 0 far below the smallest normal
/// number, NaN for NaN and for minus infinity, which only an infinite key gives
/// a score. Beyond -0x1p34 it may be NaN. On AVX-512 it takes three
/// instructions fewer, by a table of powers and the instruction that scales.
/// Relative error 2 ulp in f32, 1 ulp in f64.
mlir::Value exp2(KernelBuilder &builder, mlir::Value x);

/// Natural logarithm of normal numbers above 0, element by element, to 1 ulp.
mlir::Value log(KernelBuilder &builder, mlir::Value x);

/// Logarithm of integers that count: -inf for 0, NaN below.
mlir::Value logCount(KernelBuilder &builder, mlir::Value count);

/// The running maximum, in base 2, and the sum of rows that have read nothing
/// but a sink: an entry with the natural score `sink`, which may be minus
/// infinity. A sum for what is not finite else is NaN.
std::pair<mlir::Value, mlir::Value> startWithSink(KernelBuilder &builder,
                                                  mlir::Value sink);

/// What one vector of rows has after the last key: `1 / sum`, or 0 for rows
/// that admitted nothing (their maximum is no admitted score).
mlir::Value inverseSum(KernelBuilder &builder, mlir::Value maximum,
                       mlir::Value sum);

/// Natural logarithm of the sum of exponentials, -inf for empty rows.
mlir::Value logSumExp(KernelBuilder &builder, mlir::Value maximum,
                      mlir::Value sum);

} // namespace fovea::attn::softmax

#endif // FOVEA_KERNELS_SOFTMAXALGEBRA_H
