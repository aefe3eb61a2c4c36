//===- ConvTransforms.h - Transforms of values and of weights ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the partitioned algorithms of both directions have in common: the values
// of a segment are cut in pieces as long as a block of rows; the weights
// between a piece and a block at a distance are a window of a profile, the same
// for all pieces of a segment.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVTRANSFORMS_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVTRANSFORMS_H

#include "ConvKernel.h"
#include "fovea/Conversion/AttnToVector/FFT/FFTKernel.h"

namespace fovea::attn::conv {

/// Transforms of as many rows as a block and the longest piece have, in memory:
/// rows are complex, the last two dimensions of a memref [.., rows, 2 lanes].
class ConvTransform {
public:
  /// Where `isStreamed`, spectra of pieces and blocks are stored past the
  /// caches.
  explicit ConvTransform(ConvBuilder &b, bool isStreamed = false);

  FFTKernel make() {
    return FFTKernel(b, b.plan.radices, twiddles, b.plan.separateAdds);
  }
  /// Spectra of so many pieces or blocks, for some groups of columns.
  Value allocate(Value count, int64_t groups);

  // Rows.
  ComplexRow loadRow(Value memref, ArrayRef<Value> indices);
  void storeRow(ComplexRow row, Value memref, ArrayRef<Value> indices,
                bool streaming = false);
  /// Asks for as many numbers as a row has, from column `first` on.
  void prefetchRow(Value memref, ArrayRef<Value> indices, Value first,
                   unsigned locality);
  /// A vector of a row of `memref`; zeros unless `token` is before `end`.
  Value loadToken(Value memref, ArrayRef<Value> leading, Value token,
                  Value column, Value end);
  /// Two vectors.
  ComplexRow loadTokens(Value memref, ArrayRef<Value> leading, Value token,
                        Value column, Value end);

  // Transforms of the spectrum `at` of a memref.

  /// `visit` sees the rows of the spectrum. By default, a forward transform
  /// stores them, and an inverse one has them from memory.
  void emit(FFTKernel::Direction direction, Value memref, ArrayRef<Value> at,
            FFTKernel::Steps steps, FFTKernel::VisitSpectrum visit = nullptr);
  /// The transform of a piece or a block of rows, padded with zeros.
  void padAndTransform(Value memref, ArrayRef<Value> at,
                       FFTKernel::LoadRow source);
  /// The last rows of the inverse transform, as many as a block has.
  void invertBlock(Value memref, ArrayRef<Value> at,
                   function_ref<void(Value row, ComplexRow)> sink);

  // Frequencies.

  /// A parallel loop over frequencies, each of which is followed by the one
  /// below where one thread has both.
  void forAllFrequencies(function_ref<void(Value frequency)> body);
  /// Where spectra of pieces have a frequency and the one that follows, and
  /// where those of windows have it, or its negative: then factors and products
  /// are conjugate, by what `signs` has to be flipped.
  struct Frequency {
    Value at, next, ofWindows, signs;
  };
  Frequency locate(Value at, Value next);
  /// Visits a frequency and its negative, `mirror`, once if both are the same.
  void forBoth(Value frequency, Value mirror,
               function_ref<void(const Frequency &)> body);
  ComplexRow conjugate(ComplexRow row, const Frequency &frequency);
  ComplexRow conjugate(ComplexRow row) {
    return {row.re, mlir::arith::NegFOp::create(b, row.im)};
  }
  /// Twice the spectra of the real and of the imaginary part of what is
  /// transformed, from its own at a frequency and at the negative: with
  /// z = x + i y, 2 X(f) = Z(f) + conj Z(-f) and 2 i Y(f) = Z(f) - conj Z(-f).
  std::pair<ComplexRow, ComplexRow> separate(ComplexRow z, ComplexRow mirror);
  /// Adds `row * factor`, a complex product, to two sums.
  void addProduct(ComplexRow row, ComplexRow factor, Value *sums);

  /// Rows of a transform.
  const int64_t length;

private:
  ConvBuilder &b;
  bool isStreamed;
  Value twiddles;
};

/// The pieces of a head, in the order of the sequence, and the windows of its
/// segments, by their distances from a segment's first block on. Pieces of a
/// segment begin a block apart; the last one has what is left, as soon as that
/// is no more than the longest piece.
class ConvPieces {
public:
  ConvPieces(ConvBuilder &b, ConvSegments &segments, ConvProfiles &profiles);
  /// Cuts the present head.
  void cut();

  /// The block that a piece begins in, its columns, and the window that is its
  /// segment's at distance 0.
  struct Piece {
    Value block, begin, end, window;
  };
  Piece load(Value index);
  /// How many pieces begin in a block and those before it.
  Value end(Value block) { return b.loadIndex(ends, block); }
  /// Where the weights of a window begin. Pairs of windows are of one segment.
  Value window(Value index) { return b.loadIndex(windows, index); }
  /// Pieces of a segment, and its first one, block and window.
  Value count(Value segment);
  Value first(Value segment) {
    return b.loadIndex(firsts, {segment, b.index(0)});
  }
  Value firstBlock(Value segment) {
    return b.div(segments.first(segment), b.plan.block);
  }
  Value firstWindow(Value segment) {
    return b.loadIndex(firsts, {segment, b.index(1)});
  }

  /// Blocks of rows, and no fewer pieces and windows than there may be.
  Value numBlocks, maxPieces, maxWindows;
  /// Pieces, and windows, a multiple of two vectors, the last of zeros.
  Value numPieces, numWindows;

private:
  void cutSegment(Value segment, Value firstPiece, Value count);
  Value listWindows(Value segment, Value firstWindow);

  ConvBuilder &b;
  ConvSegments &segments;
  ConvProfiles &profiles;
  /// What describes each piece [pieces, 4]; how many begin up to each block;
  /// where windows begin; the first piece and window of each segment [R, 2].
  Value pieces, ends, windows, firsts;
};

/// Spectra of the windows of profiles, which are real: those of a frequency are
/// conjugate to those of its negative, so there are spectra for one of the two,
/// the first, for all windows side by side [rows, re or im, windows].
class WindowSpectra {
public:
  WindowSpectra(ConvTables &tables, ConvTransform &transform,
                ConvPieces &pieces);
  /// Transforms those of the present head.
  void transformAll();

  /// The spectrum of a window, for all lanes.
  ComplexRow load(Value frequency, Value window);
  /// The norm of a window and its partner, in f64.
  Value loadNorm(Value window);
  /// A parallel loop over the frequencies that there are spectra for.
  void forAllPairs(function_ref<void(Value frequency, Value mirror)> body);

private:
  void transformPairs(Value first);
  void packWindows(ValueRange starts, Value work, Value squares, Value row,
                   int64_t step, int64_t count);
  void storeNorms(Value squares, Value first);
  void storeSpectra(Value work, Value first);
  void prefetch(Value frequency);

  ConvTables &t;
  ConvBuilder &b;
  ConvTransform &transform;
  ConvPieces &pieces;
  Value spectra, norms;
};

/// What kernels by transforms hold of a head.
struct ConvSpectra {
  /// Spectra for `groups` groups of columns at a time.
  ConvSpectra(ConvTables &tables, ConvTransform &transform, int64_t groups);

  /// Stores the transform of a piece for group `slot` of those that there are
  /// spectra of. `visit` sees all rows of the piece.
  void transformPiece(Value index, Value slot, Value column,
                      function_ref<ComplexRow(ComplexRow)> visit = {});
  ComplexRow loadValues(Value token, Value column, Value end) {
    return transform.loadTokens(t.values.memref, {b.batch, b.group}, token,
                                column, end);
  }
  /// What the errors of a block may be, in f64. `end` pieces may be multiplied
  /// for it. Errors of `partner`, if there is one, are also those of the block.
  Value boundNoise(Value block, Value end, Value partner = Value());

  ConvTables &t;
  ConvBuilder &b;
  ConvTransform &transform;
  ConvPieces pieces;
  WindowSpectra windows;
  /// Spectra of pieces [pieces, groups, rows, 2 lanes], and their norms in f64.
  Value memref, norms;
};

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVTRANSFORMS_H
