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
//   ConvValues           values as products read them
//   for (batch, head)
//     ConvSegments       first column of every segment
//     ConvProfiles       weights, from score sums in f64
//     ConvNormalisers    sums of weights, without subtraction
//     ConvMarks          rows that rounding may spoil are marked
//     ConvProduct        weights times values, or its gradient, by one of the
//                        algorithms
//     RowWeights         marked rows once more, from the scores
//
// Each is an object that a kernel holds: ConvTables has those that all kernels
// need, and ConvTransforms.h those of algorithms by Fourier transforms. What is
// allocated for a thread is filled for one head after the other.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H

#include "ConvNormalisers.h"
#include "ConvValues.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include <memory>

namespace fovea::attn::conv {

/// What all algorithms share, in both directions.
struct ConvTables {
  ConvTables(ConvBuilder &b, ConvValues &values)
      : b(b), values(values), segments(b), profiles(b, segments),
        normalisers(b, segments, profiles), marks(b, segments, normalisers) {}
  /// Fills those of the present head but the marks.
  void prepare();

  ConvBuilder &b;
  ConvValues &values;
  ConvSegments segments;
  ConvProfiles profiles;
  ConvNormalisers normalisers;
  ConvMarks marks;
};

/// The weights of single rows from their scores, with the row's own maximum
/// taken off: a soft-max that nothing else can spoil. Lives for a task.
class RowWeights {
public:
  explicit RowWeights(ConvTables &tables);

  /// The greatest score of a row; 0 when there is none.
  Value findTop(Value row);
  /// The sum of the weights of a row next to the score `top`, a vector.
  /// `visitRun` sees runs of them, of `count` lags from `firstLag` on.
  Value sum(Value row, Value top,
            function_ref<void(Value firstLag, Value count)> visitRun);
  /// Visits the entries of a row that are read, at lags `[firstLag, endLag)`.
  void
  forEachEntry(Value row, Value top, Value firstLag, Value endLag,
               function_ref<void(Value segment, Value lag, Value weight)> body);
  /// A weight of the present run.
  Value load(Value at) { return b.loadScalar(weights, at); }

private:
  Values forEachSegment(
      Value row, ValueRange inits,
      function_ref<Values(Value segment, Value low, Value high, ValueRange)>
          body);
  Value storeRun(Value segment, Value first, Value count, Value top, Value sum);

  ConvTables &t;
  ConvBuilder &b;
  Value weights;
};

/// The code of one head. Its constructor allocates what a thread needs for one
/// head after the other.
class ConvKernel {
public:
  virtual ~ConvKernel() = default;
  virtual void emitHead() = 0;
};

/// Emits loops over all heads, of which tasks take `headsOfTask` each, one
/// after the other; if there are few tasks, or much in each, heads themselves
/// are parallel. Both may be there, so `allocate` is called for each.
void emitConvHeads(ConvBuilder &b, Value headsOfTask,
                   function_ref<std::unique_ptr<ConvKernel>()> allocate);

/// An algorithm for weights times values, or of its gradient.
class ConvProduct {
public:
  virtual ~ConvProduct() = default;
  /// What has to be known before the rows of a gradient are judged.
  virtual void prepare() {}
  /// How many rows of a gradient are prepared at a time, and what comes right
  /// behind these, while the caches hold them.
  virtual int64_t getPreparedRows() { return kTaskRows; }
  virtual void takePreparedRows(Value /*task*/) {}
  /// Computes all rows of the present head. Forward, those that will be marked
  /// may hold anything; a gradient has none of those that are marked.
  virtual void emit() = 0;
  /// Marks rows `[first, end)` of a block whose rounding errors may not be
  /// small next to their normalisers; returns how many. A product without
  /// transforms is as exact as sums are.
  virtual Value judgeBlock(Value block, Value first, Value end) = 0;
};

/// Emits the forward direction with the algorithm that `allocate` makes.
void emitConvApply(
    ConvBuilder &b, ConvValues &values, ConvApplyOp op,
    function_ref<std::unique_ptr<ConvProduct>(ConvTables &)> allocate);

void emitConvToeplitz(mlir::OpBuilder &builder, ConvApplyOp op,
                      const ConvPlan &plan);
void emitConvPartitioned(mlir::OpBuilder &builder, ConvApplyOp op,
                         const ConvPlan &plan);

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVKERNEL_H
