//===- Rope.h - Rotary position embedding of arrays -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_ROPE_H
#define FOVEA_FUNCTIONS_ROPE_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Functions/ResultMemory.h"
#include "llvm/ADT/SmallVector.h"

namespace fovea {

//===----------------------------------------------------------------------===//
// Frequencies
//===----------------------------------------------------------------------===//

/// What is done to the frequencies base^(-2 i / width) for contexts that are
/// longer than those of training.
enum class RopeScalingKind {
  None,
  /// Divided by the factor: positions are interpolated (arXiv:2306.15595).
  Linear,
  /// base factor^(width / (width - 2)) as the base.
  NTK,
  /// The same with factor length / originalLength - (factor - 1) as the factor,
  /// or 1 where the length is no more than the original one.
  DynamicNTK,
  /// Between the two by the turns that a pair makes in the original length
  /// (arXiv:2309.00071).
  YaRN,
  /// Divided by the factor where the wavelength is long (Llama 3.1).
  Llama3
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::None;
  double base = 10000.0;
  double factor = 1.0;
  /// Tokens of the contexts of training, for the last three kinds.
  std::optional<int64_t> originalLength;
  /// Tokens of the present context, for DynamicNTK.
  std::optional<int64_t> length;
  /// YaRN: pairs with more turns than `betaFast` stay as they are, those with
  /// fewer than `betaSlow` are interpolated.
  double betaFast = 32.0, betaSlow = 1.0;
  /// Llama3: wavelengths above originalLength / lowFactor are divided, those
  /// below originalLength / highFactor stay as they are.
  double lowFactor = 1.0, highFactor = 4.0;
};

struct RopeFrequencies {
  /// In radians for each position, of width / 2 pairs.
  llvm::SmallVector<double> frequencies;
  /// What cosines and sines are multiplied by: 0.1 ln(factor) + 1 for YaRN, 1
  /// otherwise.
  double magnitude = 1.0;
};

/// The frequencies of `width` columns, an even number.
llvm::Expected<RopeFrequencies> rope_frequencies(int64_t width,
                                                 const RopeScaling &scaling);

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// The columns of pair i of w: 2 i and 2 i + 1, or i and i + w / 2.
enum class RopeStyle { Interleaved, Half };

struct RopeOptions {
  /// Frequencies are base^(-2 i / width) unless they are given.
  double base = 10000.0;
  std::optional<llvm::SmallVector<double>> frequencies;
  RopeStyle style = RopeStyle::Interleaved;
  /// So many columns turn, an even number; all by default. Those behind them
  /// are copied.
  std::optional<int64_t> width;
  double magnitude = 1.0;
  Target target = Target::CPU;
  ResultMemory out;
};

/// Turns pairs of columns of every row of x [B,H,N,D] by position times
/// frequency: see `attn.rope`. Positions are of i32 and broadcast to [B,H,N].
llvm::Expected<OwnedTensor> rope(const TensorRef &x, const TensorRef &positions,
                                 const RopeOptions &options = {});

/// The gradient of `rope` for x from that of its result, dOut [B,H,N,D]: pairs
/// of columns are turned back.
llvm::Expected<OwnedTensor> rope_backward(const TensorRef &dOut,
                                          const TensorRef &positions,
                                          const RopeOptions &options = {});

} // namespace fovea

#endif // FOVEA_FUNCTIONS_ROPE_H
