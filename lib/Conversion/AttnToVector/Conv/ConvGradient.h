//===- ConvGradient.h - Loops of attn.conv_apply_backward -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With g = d_output / normaliser and e = (d_output . output) / normaliser, both
// by row, the entries of a segment at one lag share a weight w:
//
//   d_value[j]     = sum_i w[i - j] g[i]                    the other way round
//   d_profile[lag] = w[lag] sum_j (g[j + lag] . value[j] - e[j + lag])
//
//   for (batch, head)
//     (tables)      as in ConvKernel.h
//     judge rows    those that are marked get g = 0
//     rows          g and e; rows with numbers that are not finite, and those
//                   that may read such values, are marked, too
//     (products)    both sums, by one of the algorithms
//     exact rows    marked rows add entry by entry
//     bases         basis r is in the profiles of all segments from r on
//
// Heads that share values add to d_value one after the other. No task adds to
// what another one does.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H

#include "ConvTransforms.h"

namespace fovea::attn::conv {

/// Sums for the gradients of values [B, G, N, paddedWidth], in place where it
/// can hold them.
class ValueGradients {
public:
  /// Zeros, unless `beginHead` and `begin` are called for every head.
  ValueGradients(ConvBuilder &b, Value dValue, bool areBegun);
  /// Stores zeros for the keys of the present head before `firstKey`, if no
  /// other head adds to them.
  void beginHead(Value firstKey);
  /// Begins, or adds to, the gradients of a value of the present head: columns
  /// from `column` on in both parts of a row.
  void begin(ComplexRow numbers, Value key, Value column);
  /// Adds a vector of columns to that of a value of the present head.
  void add(Value numbers, Value key, Value column);
  /// Stores the gradients.
  void finish();

private:
  ConvBuilder &b;
  Value dValue, sums;
  /// Whether there are zeros before the first head.
  bool areCleared;
  /// Whether what is begun can be stored past the caches, if it should be.
  Value isAligned;
};

/// Whether spectra of pieces and of rows, and what comes of them, are stored
/// past the caches.
bool areSpectraFar(const ConvBuilder &b);

/// Gradients of the profiles of a head, which are stored where scores are.
class ProfileGradients {
public:
  ProfileGradients(ConvTables &tables, Value dBasis);

  Value load(Value segment, Value lag) {
    return b.loadVector(memref, t.profiles.scoreAt(segment, lag));
  }
  void store(Value numbers, Value segment, Value lag) {
    b.storeVector(numbers, memref, t.profiles.scoreAt(segment, lag));
  }
  /// Stores for every vector of lags of every segment its weights times what
  /// `sum` gives.
  void storeWeighted(function_ref<Value(Value segment, Value lag)> sum);
  /// Adds one number.
  void add(Value number, Value segment, Value lag);
  /// Stores gradients of the bases.
  void finish();

private:
  void storeBases(Value lag);

  ConvTables &t;
  ConvBuilder &b;
  Value dBasis, memref;
};

/// g [N, paddedWidth] and e of the rows of a head. Those that are marked have
/// zeros.
class RowGradients {
public:
  RowGradients(ConvTables &tables, ConvApplyBackwardOp op);
  /// Computes them, a few at a time, which `take` comes behind; returns which
  /// rows are marked after all.
  ConvMarks::Marked prepare(int64_t taskRows,
                            function_ref<void(Value task)> take);
  /// e of a vector of rows, up to a block of which may be before the first one
  /// or behind the last, where zeros are.
  Value loadDeltas(Value row) {
    return b.loadVector(deltas, b.add(row, front));
  }
  /// The product of a row of d_output with another.
  Value dot(Value row, function_ref<Value(Value column)> other);
  Value dotOutput(Value row);
  Value loadGradient(Value row, Value column);
  /// A row of g for transforms; zeros behind the last one.
  ComplexRow loadRow(ConvTransform &transform, Value row, Value column);

  /// g, unless it is d_output times `factors`.
  Value memref;

private:
  Value prepareRow(Value row);
  void storeRow(Value row, Value delta, Value factor);
  void clearRow(Value row);
  void storeDelta(Value delta, Value row) {
    b.storeScalar(delta, deltas, b.add(row, front));
  }

  ConvTables &t;
  ConvBuilder &b;
  ConvApplyBackwardOp op;
  /// Zeros before and behind e.
  int64_t front;
  Value deltas, factors;
};

/// Rows that were marked, which add to the gradients entry by entry.
class ExactRowGradients {
public:
  ExactRowGradients(ConvTables &tables, RowGradients &rows,
                    ValueGradients &values, ProfileGradients &profiles);
  void emit(const ConvMarks::Marked &marked);

private:
  void prepareRow(Value row, RowWeights &weights);
  void addValues(Value row, Value firstKey, Value endKey, RowWeights &weights);
  void addLags(Value row, Value firstLag, Value endLag, RowWeights &weights);
  void
  forEachEntry(Value row, Value firstLag, Value endLag, RowWeights &weights,
               function_ref<void(Value segment, Value lag, Value weight)> body);

  ConvTables &t;
  ConvBuilder &b;
  RowGradients &rows;
  ValueGradients &values;
  ProfileGradients &profiles;
  /// The rows that are marked, in order; of each, the greatest score, the
  /// reciprocal of the normaliser next to it, and d_output . output.
  Value marked, tops, factors, deltas;
};

/// What algorithms of the gradient share.
struct ConvGradientTables {
  ConvGradientTables(ConvBuilder &b, ConvValues &convValues,
                     ValueGradients &values, ConvApplyBackwardOp op)
      : b(b), t(b, convValues), values(values), rows(t, op),
        profiles(t, op.getDBasis()), exact(t, rows, values, profiles) {}

  ConvBuilder &b;
  ConvTables t;
  ValueGradients &values;
  RowGradients rows;
  ProfileGradients profiles;
  ExactRowGradients exact;
};

/// Emits the gradient with the algorithm that `allocate` makes: it adds to the
/// gradients of values, or begins them, and stores those of all profiles.
void emitConvGradient(
    ConvBuilder &b, ConvApplyBackwardOp op,
    function_ref<std::unique_ptr<ConvProduct>(ConvGradientTables &)> allocate);

void emitConvGradientToeplitz(mlir::OpBuilder &builder, ConvApplyBackwardOp op,
                              const ConvPlan &plan);
void emitConvGradientPartitioned(mlir::OpBuilder &builder,
                                 ConvApplyBackwardOp op, const ConvPlan &plan);

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVGRADIENT_H
