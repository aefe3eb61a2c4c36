//===- GPUConvGradient.h - Gradients of convolutions on a GPU ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With P[i, j] = 2^(score[i - j] - top[i]) factor[i], where rows that are not
// listed have the head's greatest score as their own, and g = d_output:
//
//   value sums     P^T g for every query head, one product of matrices; heads
//                  that share values are added up
//   lag sums       a block of threads for each distance of a tile of queries
//                  and one of keys: g value^T by products of tiles, times P,
//                  and a thread for each diagonal of the tile, by segment
//   bases          basis r is in the profiles of all segments from r on
//
// By transforms, these sums are over the listed rows alone, and those of
// GPUConvGradientTransforms.cpp are added.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVGRADIENT_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVGRADIENT_H

#include "GPUConvTransforms.h"
#include <optional>

namespace fovea::attn {

/// Sums over the rows that are not listed, by transforms.
class GPUConvCorrelations {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// `deltas` is d_output . output [B, H, N].
  GPUConvCorrelations(GPUConvTables &tables, ConvApplyBackwardOp op,
                      Value deltas, int64_t block);

  /// Whether a row may take part: rounding errors are small next to its
  /// normaliser, and the numbers that it brings and reads are no greater than
  /// transforms take.
  Value isQuiet(ValueRange row, Value normaliser);
  void emit(Value reciprocals);

  /// Of P^T g, for a head.
  Value loadValue(ValueRange head, Value token, Value column);
  /// Of the gradients of the scores of a profile.
  Value loadProfile(ValueRange head, Value segment, Value lag);

private:
  void findBounds();
  Value loadGradient(ValueRange row, Value column, Value reciprocals);
  void sumLags();
  void sumValues();

  GPUConvTables &t;
  GPUConvBuilder &b;
  ConvApplyBackwardOp op;
  Value deltas;
  GPUConvPieces pieces;
  GPUConvNoise noise;
  /// Pieces, then their gradients; windows; blocks of rows; gradients of
  /// windows.
  GPUConvLines pieceLines, windowLines, rowLines, lagLines;
  /// The first tokens with values that are too great [B, G]; d_output . output
  /// next to the normaliser [B, H, 1, N], and sums of windows of that.
  Value firstGreat, means;
  std::optional<GPUWindowSums> sumsOfMeans;
};

/// What products read of queries: weights with what their rows are multiplied
/// by, and gradients.
class GPUConvRowGradients {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Where `others` has sums over the rows that are not listed, these are
  /// hidden.
  GPUConvRowGradients(GPUConvTables &tables, GPUConvRows &listed,
                      GPUConvCorrelations *others, Value dOutput, Value deltas);

  /// The weight of an entry.
  Value weightOf(KernelBuilder &k, ValueRange head, Value row, Value key);
  Value loadGradient(KernelBuilder &k, ValueRange head, Value row,
                     Value column);
  Value loadDelta(KernelBuilder &k, ValueRange head, Value row) {
    return k.loadScalar(deltas, {head[0], head[1], row});
  }

  /// Rows as the depth of a product: numbers for a tile of keys that begins at
  /// `key`, and the row of one.
  std::pair<Value, Value> numbersFor(KernelBuilder &k, ValueRange head,
                                     Value key);
  Value rowOf(KernelBuilder &k, ValueRange head, Value number);
  /// Runs `body` for every tile of rows, at one distance from a tile of keys
  /// from `begin` on, that has rows which count.
  void forEachTile(KernelBuilder &k, ValueRange head, Value distance,
                   Value begin, llvm::function_ref<void(Value keyTile)> body);

  GPUConvCorrelations *const others;

private:
  void findFactors();

  GPUConvTables &t;
  GPUConvBuilder &b;
  GPUConvRows &listed;
  Value dOutput, deltas;
  /// What is taken off the scores of a row, and what its weights are multiplied
  /// by [B, H, N].
  Value tops, factors;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVGRADIENT_H
