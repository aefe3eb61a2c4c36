//===- ConvPartitioned.h - Weights times values by transforms ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H

#include "ConvTransforms.h"

namespace fovea::attn::conv {

/// What transforms find out about the values of the pieces that they read.
class PieceMeasures {
public:
  PieceMeasures(ConvBuilder &b, ConvSpectra &spectra);

  /// Of the rows of a transform: sums of squares of both parts, in f64, and the
  /// greatest numbers of each, over a column of each lane.
  struct Measures {
    Value squares, tops;
  };
  Measures start();
  ComplexRow add(const Measures &measures, ComplexRow row);
  /// Stores them for the pieces of both parts, which may be one.
  void store(const Measures &measures, Value first, Value second,
             Value columns);

  /// The greatest value of the first pieces, in f64.
  Value findGreatest(Value end);
  /// The greater of `top` and the magnitude of `numbers`; NaN stays.
  Value maxMagnitude(Value top, Value numbers);

private:
  ConvBuilder &b;
  /// Norms of pieces; the greatest value of every piece and group of columns.
  Value norms, tops;
};

/// The results of blocks, which take the places of spectra of pieces. Results
/// before that of the first block come to nothing, and make the first tile
/// whole, which has the fewest pieces.
class ConvResults {
public:
  ConvResults(ConvSpectra &spectra, Value output);

  /// The result of the first block.
  Value first() { return b.sub(count, s.pieces.numBlocks); }
  Value placeOf(Value result) { return b.loadIndex(places, result); }
  void setPlace(Value result, Value place) {
    b.storeIndex(place, places, result);
  }
  /// The number of pieces that a block reads.
  Value endOf(Value block);
  /// Tiles of results, last to first.
  void forEachTile(function_ref<void(Value result)> body);
  /// Adds up what `load` gives of the pieces that a tile of results reads,
  /// `count` rows of each, times the weights at a frequency, or for every other
  /// row, if it `isMirrored`, at its negative. Pieces that begin in the blocks
  /// of the tile are multiplied for the blocks from there on.
  Values addProducts(Value result, Value frequency, int64_t count,
                     function_ref<FFTKernel::Rows(Value piece)> load,
                     bool isMirrored = false);
  /// Stores vectors of a row of the output, if there is one, normalised.
  void store(ArrayRef<Value> numbers, Value row, Value column, double factor);

  Value count;

private:
  ConvSpectra &s;
  ConvBuilder &b;
  Value output, places;
};

/// What the steps of the partitioned algorithm share.
struct PartitionedTables {
  PartitionedTables(ConvTables &tables, ConvTransform &transform, Value output);

  ConvTables &t;
  ConvBuilder &b;
  ConvTransform &transform;
  /// Whether products wait for memory.
  bool hasFewBlocks;
  /// Groups of columns that go through all steps together.
  int64_t slots;
  ConvSpectra spectra;
  ConvResults results;
  PieceMeasures measures;
};

/// What comes behind the spectra of windows, for one head.
class ConvSteps {
public:
  explicit ConvSteps(PartitionedTables &tables)
      : p(tables), b(p.b), plan(b.plan), transform(p.transform), s(p.spectra) {}
  virtual ~ConvSteps() = default;
  /// Where results go, which ConvResults has to know before there are spectra.
  virtual void findPlaces() {}
  virtual void emit() = 0;

protected:
  PartitionedTables &p;
  ConvBuilder &b;
  const ConvPlan &plan;
  ConvTransform &transform;
  ConvSpectra &s;
};

/// With one basis and one block: a transform that is multiplied in the middle.
std::unique_ptr<ConvSteps> makeConvWhole(PartitionedTables &tables);
/// A few groups of columns at a time.
std::unique_ptr<ConvSteps> makeConvPasses(PartitionedTables &tables);
/// With `plan.abreast` pieces, or blocks, in the vectors of a transform.
std::unique_ptr<ConvSteps> makeConvAbreast(PartitionedTables &tables);

/// Whether the last group of columns fills only the real parts of rows.
inline bool hasHalfGroup(const ConvBuilder &b) {
  return b.paddedWidth % b.plan.getColumns() != 0;
}

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H
