//===- ConvKernel.h - Loops of sums of convolutions -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.conv_apply on memrefs, or its gradient. Columns between the
// first column of a basis and that of the next are a *segment*: they share one
// profile of weights by lag, the distance of query and key.
//
//   values    widened, with whole vectors of columns (where they are not), and
//             zeros for those that are no finite numbers
//   for (batch, head)
//     bounds       first column of every segment
//     weights      profiles, from score sums in f64, about the greatest taken
//                  off
//     normaliser   sums of weights, without subtraction
//     judge rows   those that rounding may spoil are marked
//     (product)    weights times values, by one of the algorithms
//     exact rows   marked rows once more, from the scores
//     spoilt rows  those that read a value that is no finite number
//
// A NaN in a product of a tile, or in a transform, would be in rows that do not
// read it, so products have none: zeros stand for such values and weights. Rows
// that read such a weight are marked, since their normalisers are NaN.
//
// Transforms of values and weights (ConvPieces.cpp) are what the partitioned
// algorithms of both have in common: the values of a segment are cut in pieces
// as long as a block of rows; the weights between a piece and a block at a
// distance are a window of a profile, the same for all pieces of a segment.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H

#include "ConvPlan.h"
#include "fovea/Conversion/AttnToVector/FFT/FFTKernel.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"

namespace fovea::attn {

/// What all algorithms share, in both directions.
class ConvKernel {
public:
  ConvKernel(mlir::OpBuilder &builder, mlir::Operation *op, mlir::Value basis,
             mlir::Value sizes, mlir::Value value, const ConvPlan &plan);
  virtual ~ConvKernel() = default;

  void emit();

protected:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  /// Allocates what a head needs.
  virtual void allocateBuffers();
  /// What all heads share, from the values.
  virtual void prepareShared() {}
  /// One head, whose weights and normalisers are there.
  virtual void emitHead() = 0;
  /// What comes behind all heads.
  virtual void finish() {}
  /// Whether the products of a head find out, as they read values in place,
  /// that one of them is no finite number.
  virtual bool findsSpoilt() const { return false; }
  /// Marks rows `[first, end)` of a block whose rounding errors may not be
  /// small next to their normalisers; returns how many. A product without
  /// transforms is as exact as sums are.
  virtual Value judgeBlock(Value block, Value first, Value end) {
    return markRows(first, end);
  }

  // Loops.
  void forAll(mlir::ArrayRef<Value> counts,
              llvm::function_ref<void(ValueRange)> body);
  /// A parallel loop over rows, a few of them a task.
  void forAllRows(mlir::ArrayRef<Value> leading,
                  llvm::function_ref<void(ValueRange leading, Value row)> body);

  /// Visits the vectors of `[low, high)`; `mask` is null but for the last one,
  /// which may not be whole.
  Values forEachVector(
      Value low, Value high, ValueRange inits,
      llvm::function_ref<Values(Value at, Value mask, ValueRange)> body);

  // Buffers that live as long as the operation, or a task of heads.
  Value allocate(mlir::Type type, mlir::ArrayRef<Value> extents);

  /// Copies a row of values to `target`, if that is there, with zeros for those
  /// that are no finite numbers; returns which ones these are, of all vectors
  /// together.
  Value cleanRow(Value batch, Value group, Value row, Value target);

  // Segments.
  Value firstColumn(Value segment) { return loadIndex(bounds, segment); }
  Value segmentOf(Value column) { return loadIndex(segments, column); }
  Value loadIndex(Value memref, ValueRange indices);
  void storeIndex(Value index, Value memref, ValueRange indices);

  // Profiles.
  void prepareExactRows(Value end);
  Value weightOffset(Value segment, Value lag);
  Value scoreOffset(Value segment, Value lag);
  /// A parallel loop over chunks of lags.
  void
  forAllLagChunks(llvm::function_ref<void(Value firstLag, Value count)> body);

  // ConvNormalisers.cpp

  /// A parallel loop over `[first, end)`, rows or lags whose windows a task
  /// sums: `size` of them, and no more than `most`, whole vectors.
  void forAllWindowTasks(Value size, int64_t most,
                         llvm::function_ref<void(Value first, Value end)> body);
  /// The sums of a task, in f64, for windows of `[0, count)`.
  void clearWindows(Value count);
  /// Adds windows of `length` elements to those of `[first, end)`, which begins
  /// with a whole vector. The first window begins at element `start`, every
  /// other one element after the one before. `load` gives the vector of
  /// elements from one on, also of some that no window has; elements out of
  /// `[0, size)` are zeros.
  void addWindows(Value first, Value end, Value start, Value length, Value size,
                  llvm::function_ref<Value(Value element)> load);
  /// `store` takes vectors of the sums of `[0, count)`, of which the last one
  /// may not be whole.
  void finishWindows(Value count,
                     llvm::function_ref<void(Value at, Value sums)> store);

  /// How many rows are marked, and before which row all of them are.
  struct Marked {
    Value count, end;
  };
  Marked judgeRows();
  /// A parallel loop over tasks of `size` rows, `[first, end)`, each of which
  /// returns how many it has marked.
  Marked
  markTasks(int64_t size,
            llvm::function_ref<Value(Value task, Value first, Value end)> mark);
  Value markRows(Value first, Value end, Value noise = Value(),
                 Value value = Value());
  Value isMarked(Value row);
  /// Whether an entry counts: its score is not minus infinity.
  Value isRead(Value segment, Value lag);
  /// The greatest score of a row; 0 when there is none.
  Value findRowTop(Value row);
  /// Visits the segments of a row: `[low, high)` are the lags it reads of one.
  Values forEachRun(Value row, ValueRange inits,
                    llvm::function_ref<Values(Value segment, Value low,
                                              Value high, ValueRange)>
                        body);
  /// Stores to `rowWeights` the weights of at most `kLags` lags from `first` on
  /// next to that of the score `top`. Returns `sum` with them added.
  Value storeRunWeights(Value segment, Value first, Value count, Value top,
                        Value sum, Value rowWeights);
  /// The binary logarithm of the greatest weight that there may be.
  static constexpr int kLogMostWeight = 8;
  /// Lags whose score sums lie in the first-level cache while bases are added,
  /// and those that are looked at for the greatest one.
  static constexpr int64_t kLagChunk = 1024, kFirstLags = 256;
  /// Lags whose weights are computed at a time, and rows of a task.
  static constexpr int64_t kLags = 64, kTaskRows = 64, kExactRows = 16;

  // Numbers in f64, whatever the state type.
  mlir::VectorType getWideType();
  Value wide(double number);
  Value splatWide(double number);
  Value widen(Value number);

  /// The vector of which the first `count` elements are true.
  Value firstLanes(Value count);
  /// Elements that `mask` is false for are not read and count as `otherwise`.
  Value loadMasked(Value memref, ValueRange indices, Value mask,
                   double otherwise);
  /// Calls `body` with the first column of every vector up to `end`; one that
  /// is not whole has a constant.
  Values overColumns(int64_t end, ValueRange inits,
                     llvm::function_ref<Values(Value, ValueRange)> body);
  /// Columns from `column` on of a row that is not padded; 0 beyond the width.
  Value loadColumns(Value memref, ValueRange at, Value column);
  /// Stores them, as many as there are.
  void storeColumns(Value numbers, Value memref, ValueRange at, Value column);

  // ConvPieces.cpp

  /// What describes a piece.
  struct Piece {
    Value block, begin, end, window;
  };
  /// Frequencies of a task.
  static constexpr int64_t kFrequencies = 8;

  void allocatePieces();
  /// Spectra of so many pieces or blocks, for some groups of columns.
  Value allocateSpectra(Value count, int64_t groups);
  void cutPieces();
  Piece loadPiece(Value index);
  Value loadInteger(Value memref, Value index);
  FFTKernel makeTransform() {
    return FFTKernel(b, plan.radices, twiddles, plan.separateAdds);
  }
  /// Access to rows of `[.., rows, 2 lanes]`.
  ComplexRow loadRow(Value memref, mlir::ArrayRef<Value> indices);
  void storeRow(ComplexRow row, Value memref, mlir::ArrayRef<Value> indices);
  /// Asks for as many numbers as a row has, from column `first` on.
  void prefetchRow(Value memref, mlir::ArrayRef<Value> indices, Value first,
                   unsigned locality);
  /// A vector of a row of `memref`; zeros unless `token` is before `end`.
  Value loadToken(Value memref, mlir::ArrayRef<Value> leading, Value token,
                  Value column, Value end);
  /// Two vectors.
  ComplexRow loadTokens(Value memref, mlir::ArrayRef<Value> leading,
                        Value token, Value column, Value end);
  ComplexRow loadValues(Value token, Value column, Value end) {
    return loadTokens(values, {batch, group}, token, column, end);
  }
  /// The transform of a piece or a block of rows, padded with zeros.
  void transformTo(Value spectra, Value index, Value columns,
                   FFTKernel::LoadRow source);
  /// Stores it for group `slot` of those that there are spectra of. All rows of
  /// the piece are visited.
  void transformPiece(Value index, Value slot, Value column,
                      llvm::function_ref<ComplexRow(ComplexRow)> visit = {});
  /// The last rows of the inverse transform, as many as a block has.
  void invert(Value spectra, Value index, Value columns,
              llvm::function_ref<void(Value row, ComplexRow)> sink);
  void transformWindows();
  void transformWindows(Value first);
  struct SquareRange {
    int scale, least;
  };
  SquareRange getSquareRange();
  void packWindows(ValueRange starts, Value work, Value squares, Value row,
                   int64_t step, int64_t count);
  void storeWindowNorms(Value squares, Value first);
  void prefetchWindows(Value frequency);
  /// What the errors of a block may be, in f64. `end` pieces may be multiplied
  /// for it. Errors of `partner`, if there is one, are also those of the block.
  Value boundNoise(Value block, Value end, Value partner = Value());
  /// A parallel loop over frequencies, each of which is followed by the one
  /// below where one thread has both.
  void forAllFrequencies(llvm::function_ref<void(Value frequency)> body);
  /// The same over those that there are spectra of windows for: of a frequency
  /// and its negative, `mirror`, where spectra of real numbers are conjugate,
  /// the first.
  void
  forAllPairs(llvm::function_ref<void(Value frequency, Value mirror)> body);
  /// Where spectra of pieces have a frequency and the one that follows, and
  /// where those of windows have it, or its negative: then factors and products
  /// are conjugate, by what `signs` has to be flipped.
  struct Frequency {
    Value at, next, ofWindows, signs;
  };
  Frequency locate(Value at, Value next);
  void forBoth(Value frequency, Value mirror,
               llvm::function_ref<void(const Frequency &)> body);
  ComplexRow conjugate(ComplexRow row, const Frequency &frequency);
  /// The spectrum of a window, for all lanes.
  ComplexRow loadWeight(Value frequency, Value window);
  /// Twice the spectra of the real and of the imaginary part of what is
  /// transformed, from its own at a frequency and at the negative: with
  /// z = x + i y, 2 X(f) = Z(f) + conj Z(-f) and 2 i Y(f) = Z(f) - conj Z(-f).
  std::pair<ComplexRow, ComplexRow> separate(ComplexRow z, ComplexRow mirror);
  /// Adds `row * factor`, a complex product, to two sums.
  void addProduct(ComplexRow row, ComplexRow factor, Value *sums);

  KernelBuilder b;
  mlir::Operation *op;
  Value basis, sizes, value;
  const ConvPlan &plan;
  int64_t lanes, width;
  Value numTokens, numBases;
  /// The head that the code inside of the loops is for.
  Value batch, head, group;
  /// Values [B, G, N, paddedWidth], in the state type, and room for copies of
  /// those that do not stay in place. Where one is no finite number, from about
  /// which token on, or N: [B, G], or [B, H] where products find out.
  Value values, copies, firstSpoilt;
  int64_t paddedWidth;
  /// First columns [R + 1], and the segment of every column [N].
  Value bounds, segments;
  /// Profiles, one row for each segment, and one of zeros. Lag 0 is entry
  /// `plan.front` of a row of weights and entry 0 of a row of scores, which
  /// are binary logarithms of weights.
  Value weights, scores, weightRow, scoreRow;
  /// Reciprocals of normalisers [N], up to a whole vector, 0 for rows without
  /// columns; marks [N]: 1 for rows that are computed again.
  Value reciprocals, marks;
  llvm::SmallVector<Value> buffers;
  bool packsValues;

  // Of pieces.
  int64_t length, numGroups;
  /// Groups of columns that there are spectra of at a time.
  int64_t slots;
  Value twiddles, numBlocks, maxPieces, maxWindows;
  /// Of runtime calls: what they write.
  Value pieces, ends, windows, numPieces, numWindows;
  /// Spectra of pieces [pieces, groups, rows, 2 lanes] and of windows [rows, re
  /// or im, windows], see forAllPairs.
  Value pieceSpectra, windowSpectra;
  /// Norms in f64.
  Value pieceNorms, windowNorms;

private:
  using ScoreVisitor = llvm::function_ref<Values(Value segment, Value lag,
                                                 Value sum, ValueRange)>;

  void emitHeads(Value batch, Value first, Value end);
  void freeBuffers(size_t count);
  void prepareValues();
  void findSpoilt(Value marks);
  Value maxNumber(Value sums, Value tops);
  void prepareBounds();
  void prepareWeights();
  void storeTop(Value tops, Value first);
  Values forEachScoreSum(
      Value first, Value count, ValueRange inits, ScoreVisitor visit,
      llvm::function_ref<Values(Value segment, ValueRange)> finish = {});
  Value normalise(Value sums);
  /// Numbers in f64, in the state type.
  Value narrow(Value numbers);
  void storeWeights();
  void cleanWeights();
  void listSegments(Value first, Value end);
  void prepareNormalisers();
  void sumShortSegments(Value firstRow, Value count);
  Value sumLongSegments(Value firstRow, Value count);
  Values addLags(Value segment, Value low, Value high, ValueRange sums);
  void sumRows(Value firstRow, Value count, Value common);
  void storeNormalisers(Value row, Value sums);
  Value lengthOf(Value segment);
  void addToWindows(Value at, Value sums, Value buffer);
  Values addNeighbours(Value sums, ValueRange neighbour, bool isBehind);
  void addRun(Value at, Value size, Value count, ValueRange shared,
              llvm::function_ref<Value(Value index)> load);

  /// The greatest score of every chunk of lags; what is added to scores, in
  /// binary logarithms; sums of the weights of a segment [R, chunks].
  Value partialTops, shift, chunkSums;
  /// Parts of the sums of the windows of a task.
  Value strides, suffixes, rests;
  /// What makes normalisers of the rows of a task.
  Value entering, leaving, shortSums;
  /// How many rows every task has marked.
  Value markedOfTask;
};

/// The forward direction.
class ConvApplyKernel : public ConvKernel {
public:
  ConvApplyKernel(mlir::OpBuilder &builder, ConvApplyOp op,
                  const ConvPlan &plan)
      : ConvKernel(builder, op, op.getBasis(), op.getSizes(), op.getValue(),
                   plan),
        apply(op) {}

protected:
  /// Writes all rows; those that will be marked may hold anything.
  virtual void emitProduct() = 0;
  /// Stores `numbers`, columns from `column` on, to a row of the output.
  void storeOutput(Value numbers, Value row, Value column) {
    storeColumns(numbers, apply.getOutput(), {batch, head, row}, column);
  }

  ConvApplyOp apply;

private:
  void emitHead() override;
  void countRows(Value count);
  // ConvRows.cpp
  void emitExactRows(const Marked &marked);
  void emitExactRow(Value row, Value sums, Value rowWeights);
  Value addRun(Value row, Value segment, Value low, Value count, Value top,
               Value normaliser, Value sums, Value rowWeights);
  void spoilRows();
  Value listSpoilt(Value first, Value tokens);
  Value spoilRow(Value row, Value key);
};

void emitConvToeplitz(mlir::OpBuilder &builder, ConvApplyOp op,
                      const ConvPlan &plan);
void emitConvPartitioned(mlir::OpBuilder &builder, ConvApplyOp op,
                         const ConvPlan &plan);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H
