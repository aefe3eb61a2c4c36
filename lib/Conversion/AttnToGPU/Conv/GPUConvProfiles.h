//===- GPUConvProfiles.h - Weights of convolutions on a GPU -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVPROFILES_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVPROFILES_H

#include "GPUConvBuilder.h"

namespace fovea::attn {

/// The segments of heads: the keys between the first of a basis and that of the
/// next.
class GPUConvSegments {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Finds the segment of every key.
  explicit GPUConvSegments(GPUConvBuilder &b);

  /// The first key of a segment; the number of tokens behind the last one.
  Value first(KernelBuilder &k, ValueRange head, Value segment);
  /// The first key of all.
  Value first(KernelBuilder &k, ValueRange head) {
    return first(k, head, k.index(0));
  }
  Value end(KernelBuilder &k, ValueRange head, Value segment) {
    return first(k, head, k.add(segment, 1));
  }
  /// The segment of a key that is none before the first one.
  Value of(KernelBuilder &k, ValueRange head, Value key);

private:
  GPUConvBuilder &b;
  /// [B, H, N]
  Value segments;
};

/// The weights of each segment by lag, the distance of query and key, from
/// score sums in f64, the head's greatest one taken off.
class GPUConvProfiles {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  GPUConvProfiles(GPUConvBuilder &b, GPUConvSegments &segments);

  /// The weight of a score, which `top` is taken off, times `factor`; that of
  /// minus infinity is hidden.
  static Value weigh(KernelBuilder &k, Value score, Value top = {},
                     Value factor = {});
  /// The score of an entry that the row reaches.
  Value loadScore(KernelBuilder &k, ValueRange head, Value row, Value key);
  /// The weight that `find` looks up for an entry, at a place of the profiles;
  /// hidden if the row does not reach the key.
  Value weighEntry(KernelBuilder &k, ValueRange head, Value row, Value key,
                   llvm::function_ref<Value(ValueRange place)> find);
  /// Whether weights may be hidden in a tile that has no earlier row and no
  /// later key than these. The head's first key is not behind the tile's.
  Value mayHide(KernelBuilder &k, ValueRange head, Value row, Value key);

  /// [B, H, R, N]; scores are binary logarithms of weights.
  Value weights, scores;

private:
  using SumVisitor = llvm::function_ref<Values(Value segment, Value sum,
                                               Value exists, ValueRange)>;
  Values visitLag(ValueRange head, Value lag, ValueRange inits,
                  SumVisitor visit);
  void findRange(ValueRange lags, Value highs, Value lows);
  void findShifts();
  void store();

  GPUConvBuilder &b;
  GPUConvSegments &segments;
  /// What is added to scores, in f64, and whether heads have scores of minus
  /// infinity [B, H].
  Value shifts, masked;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVPROFILES_H
