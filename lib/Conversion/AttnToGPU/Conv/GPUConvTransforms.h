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
// Gradients go the other way. With g of block o in the second half of a line,
//
//   values   of piece p: sum over the blocks o from p on of conj(window) times
//            g, one inverse transform, the first half of which are the rows
//   lags     of a window: sum over the pieces p of its segment of conj(piece p)
//            times g of block p + d, one inverse transform
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H

#include "GPUConvKernel.h"

namespace fovea::attn {

/// A complex number.
struct ComplexNumber {
  mlir::Value re, im;
};

/// Lines of complex numbers in f32.
class GPUConvLines {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  GPUConvLines(GPUConvBuilder &b, llvm::ArrayRef<Value> extents,
               int64_t length);

  /// Stores what `find` gives for each number `at.back()` of every line.
  void fill(llvm::function_ref<ComplexNumber(ValueRange at)> find);
  void transform(bool inverse);
  ComplexNumber load(llvm::ArrayRef<Value> at);
  void store(const ComplexNumber &number, llvm::ArrayRef<Value> at);
  /// The real part, or the imaginary one.
  Value loadPart(llvm::ArrayRef<Value> at, Value part);

private:
  GPUConvBuilder &b;
  KernelBuilder::Values grid;
  Value memref;
};

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
  /// Row `at[4]` of two columns of a piece: [head, slot, pair, row].
  ComplexNumber loadPair(ValueRange at);
  /// Row `number` of a window: a weight, zero where there is no such lag.
  Value loadWindow(ValueRange head, Value segment, Value distance,
                   Value number);

  GPUConvTables &t;
  GPUConvBuilder &b;
  /// Tokens of a block, rows of a transform, and complex columns.
  const int64_t block, length, pairs;
  const Value numBlocks, numSlots;

  /// The grids of lines: two columns of a piece, or of a block; a window.
  KernelBuilder::Values ofPieces();
  KernelBuilder::Values ofBlocks();
  KernelBuilder::Values ofWindows();

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

  /// Of products with the values, or of any with numbers up to 1.
  enum class Factor { Values, Ones };
  GPUConvNoise(GPUConvPieces &pieces, Factor factor);

  /// Whether they are small in a row, next to its normaliser times the greatest
  /// value that it reads, or 1.
  Value isQuiet(ValueRange row, Value normaliser);

private:
  void measurePieces();
  void measureWindows();
  Value topOfPairs(ValueRange head, Value slot);
  Value boundBlock(ValueRange at);
  void boundBlocks();
  void findGreatest();
  Value topOfRows(ValueRange head, Value begin, Value end, Value top);
  Value topUpTo(ValueRange row);

  GPUConvPieces &pieces;
  GPUConvBuilder &b;
  const Factor factor;
  /// Of a piece, those that have a norm of their own.
  const int64_t pairs;
  /// Squares of norms of pieces [B, H, slots, pairs] and of windows [B, H, R,
  /// blocks], and noise of blocks [B, H, blocks], in f64; the greatest value of
  /// rows, and of 256 rows from the first that a head reads.
  Value pieceNorms, windowNorms, noise, rowTops, blockTops;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVTRANSFORMS_H
