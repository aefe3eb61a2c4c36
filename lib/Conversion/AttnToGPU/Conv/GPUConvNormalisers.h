//===- GPUConvNormalisers.h - Sums of weights of rows on a GPU --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVNORMALISERS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVNORMALISERS_H

#include "GPUConvProfiles.h"

namespace fovea::attn {

/// Sums of windows of lines of numbers [B, H, L, N] in f64, without
/// subtraction. Threads have no neighbours to share windows with, as lanes of a
/// vector have, so that each adds up its own from a *pyramid*: sums of 16, 256,
/// .. numbers.
class GPUWindowSums {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  GPUWindowSums(GPUConvBuilder &b, Value numbers);

  /// Numbers `low .. high - 1` of a line.
  Value sum(ValueRange line, Value low, Value high);

private:
  Value sumNumbers(Value numbers, ValueRange line, Value low, Value high,
                   Value sum);

  GPUConvBuilder &b;
  /// The numbers, and what is above them.
  KernelBuilder::Values pyramid;
};

/// Sums of the weights of every row.
class GPUConvNormalisers {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  GPUConvNormalisers(GPUConvBuilder &b, GPUConvSegments &segments,
                     GPUConvProfiles &profiles);

  Value load(ValueRange row) { return b.loadWide(normalisers, row); }

private:
  Value sumRow(ValueRange at);

  GPUConvBuilder &b;
  GPUConvSegments &segments;
  GPUWindowSums weights;
  /// [B, H, N]
  Value normalisers;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVNORMALISERS_H
