//===- GPUConvTransforms.h - Blocks of convolutions on a GPU ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sequence is cut in blocks of s tokens. A *piece* is the part of a block
// that a segment has; there are at most as many as blocks and segments, and
// piece (block p, segment r) has slot p + r. Two neighbouring columns are the
// real and the imaginary part of a complex one.
//
//   pieces   transforms of 2 s rows, s of them zero
//   windows  of the profile of each segment for each distance d of two blocks:
//            lags s (d - 1) .. s (d + 1) - 1, transforms of real numbers
//   results  of block o: sum over the pieces before of piece times window, one
//            inverse transform, the second half of which are the rows
//   noise    of block o: the same sum over the norms
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H

#include "GPUConvKernel.h"

namespace fovea::attn {

/// The pieces of all heads, and the numbers of both factors of products.
class GPUConvPieces {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Cuts blocks of `block` tokens.
  GPUConvPieces(GPUConvTables &tables, int64_t block);

  /// A piece: `begin .. end - 1` are its tokens, none in a slot without one.
  struct Piece {
    Value segment, block, begin, end;
  };
  Piece load(ValueRange head, Value slot);
  /// The segment of a piece, -1 in a slot without one.
  Value segmentOf(ValueRange head, Value slot);
  /// A value, zero behind the last column.
  Value loadValue(ValueRange head, Value token, Value column);
  /// Row `number` of a window: a weight, zero where there is no such lag.
  Value loadWindow(ValueRange head, Value segment, Value distance,
                   Value number);

  GPUConvTables &t;
  GPUConvBuilder &b;
  /// Tokens of a block, rows of a transform, and complex columns.
  const int64_t block, length, pairs;
  const Value numBlocks, numSlots;

private:
  Value findSegment(ValueRange at);

  /// [B, H, slots]
  Value segments;
};

/// Bounds of the rounding errors of transforms.
class GPUConvNoise {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  explicit GPUConvNoise(GPUConvPieces &pieces);

  /// Whether they are small in a row, next to its normaliser times the greatest
  /// value that it reads.
  Value isQuiet(ValueRange row, Value normaliser);

private:
  void measurePieces();
  void measureWindows();
  Value topOfPairs(ValueRange head, Value slot);
  Value boundBlock(ValueRange at);
  void boundBlocks();
  void findGreatest();
  Value topOfRows(ValueRange head, Value begin, Value end, Value top);

  GPUConvPieces &pieces;
  GPUConvBuilder &b;
  /// Squares of norms of pieces [B, H, slots, pairs] and of windows [B, H, R,
  /// blocks], and noise of blocks [B, H, blocks], in f64; the greatest value of
  /// rows, and of 256 rows from the first that a head reads.
  Value pieceNorms, windowNorms, noise, rowTops, blockTops;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H
