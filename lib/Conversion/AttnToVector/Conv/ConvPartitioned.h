//===- ConvPartitioned.h - Weights times values by transforms ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H

#include "ConvKernel.h"

namespace fovea::attn {

/// The partitioned algorithm of attn.conv_apply, see ConvPartitioned.cpp.
class ConvPartitioned : public ConvApplyKernel {
public:
  using ConvApplyKernel::ConvApplyKernel;

protected:
  void allocateBuffers() override;
  /// Finds `places`, where results go.
  virtual void findPlaces();
  /// What comes behind the spectra of windows.
  virtual void emitSteps();

  // Of rows that a transform reads.

  /// Sums of squares of both parts, in f64, and the greatest numbers of each,
  /// over a column of each lane.
  struct Measures {
    Value squares, tops;
  };
  Measures startMeasuring();
  ComplexRow measure(const Measures &measures, ComplexRow row);
  void storeMeasures(const Measures &measures, Value first, Value second,
                     Value columns);

  /// Tiles of results, last to first.
  void forEachTile(llvm::function_ref<void(Value result)> body);
  /// Adds up what `load` gives of the pieces that a tile of results reads,
  /// `count` rows of each, times the weights at a frequency, or for every other
  /// row, if it `isMirrored`, at its negative. Pieces that begin in the blocks
  /// of the tile are multiplied for the blocks from there on.
  Values addProducts(Value result, Value frequency, int64_t count,
                     llvm::function_ref<FFTKernel::Rows(Value piece)> load,
                     bool isMirrored = false);
  /// Stores vectors of a row of the output, if there is one, normalised.
  void storeResult(mlir::ArrayRef<Value> numbers, Value row, Value column,
                   double factor);

  /// The result of the first block. Results before it come to nothing, and
  /// make the first tile whole, which has the fewest pieces.
  Value firstResult() { return b.sub(numResults, numBlocks); }
  Value placeOf(Value result) { return loadIndex(places, result); }
  /// The number of pieces that a block reads.
  Value endOf(Value block) {
    return b.select(b.less(block, b.index(0)), b.index(0),
                    loadInteger(ends, b.max(block, 0)));
  }

  /// Whether products wait for memory.
  bool hasFewBlocks;
  /// Results, which are those of blocks, and the spectra that they replace.
  Value numResults, places;

private:
  void emitProduct() override;
  bool findsSpoilt() const override { return true; }
  Value cleanValues();
  Value judgeBlock(Value block, Value first, Value end) override;
  Value judgeSingleRows(Value begin, Value first, Value end, Value noise,
                        Value top);
  Value findGreatest(Value end);
  Value maxMagnitude(Value top, Value numbers);
  void emitPass(Value firstGroup, int64_t groups, bool hasHalf);
  void transformWhole(Value index, Value columns, Value slot);
  void transformHalves(Value first, Value columns, Value slot);
  void multiplyFrequency(Value frequency, Value mirror, int64_t groups,
                         bool hasHalf);
  Values multiplyTile(const Frequency &frequency, Value firstSlot,
                      int64_t groups, Value result);
  void storeHalves(mlir::ArrayRef<Value> sums, Value frequency, Value mirror,
                   Value slot, Value result);
  void invertWhole(Value block, Value columns, Value slot);
  void invertHalves(Value result, Value columns, Value slot);
  void convolveGroup(Value group);

  Value firstColumnOf(Value columns) {
    return b.mul(columns, plan.getColumns());
  }
  bool hasHalf() const { return paddedWidth % plan.getColumns() != 0; }
  bool fuses() const { return plan.algorithm == ConvAlgorithm::Single; }

  /// The greatest value of every piece and group of columns.
  Value pieceTops;
};

/// The same with `plan.abreast` pieces, or blocks, in the vectors of a
/// transform.
void emitConvAbreast(mlir::OpBuilder &builder, ConvApplyOp op,
                     const ConvPlan &plan);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPARTITIONED_H
