//===- ConvNormalisers.h - Sums of weights of rows --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVNORMALISERS_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVNORMALISERS_H

#include "ConvProfiles.h"

namespace fovea::attn::conv {

/// Sums, in f64, of windows that move one element with each number: those of
/// one task, in its scratch memory.
class WindowSums {
public:
  /// Room for the sums of `room` numbers, and those of a vector more.
  WindowSums(ConvBuilder &b, int64_t room);

  /// Makes the sums of `[0, count)` zero.
  void clear(Value count);
  /// Adds windows of `length` elements to those of `[first, end)`, which begins
  /// with a whole vector. The first window begins at element `start`, every
  /// other one element after the one before. `load` gives the vector of
  /// elements from one on, also of some that no window has; elements out of
  /// `[0, size)` are zeros.
  void add(Value first, Value end, Value start, Value length, Value size,
           function_ref<Value(Value element)> load);
  /// `store` takes vectors of the sums of `[0, count)`, of which the last one
  /// may not be whole.
  void finish(Value count, function_ref<void(Value at, Value sums)> store);

  /// A parallel loop over the tokens, `size` of them a task, whole vectors.
  static void forAllTasks(ConvBuilder &b, Value size,
                          function_ref<void(Value first, Value end)> body);

private:
  void addRun(Value at, Value size, Value count, ValueRange shared,
              function_ref<Value(Value index)> load);

  ConvBuilder &b;
  Value strides, suffixes, rests;
};

/// Sums of the weights of every row, without subtraction.
class ConvNormalisers {
public:
  ConvNormalisers(ConvBuilder &b, ConvSegments &segments,
                  ConvProfiles &profiles);
  /// Computes those of the present head.
  void prepare();

  Value loadReciprocal(Value row) { return b.loadScalar(reciprocals, row); }

  /// Reciprocals [N], up to a whole vector, 0 for rows without columns.
  Value reciprocals;

private:
  ConvBuilder &b;
  ConvSegments &segments;
  ConvProfiles &profiles;
};

/// Rows that are computed again: their weights are next to nothing, or rounding
/// may have spoilt them.
class ConvMarks {
public:
  ConvMarks(ConvBuilder &b, ConvSegments &segments,
            const ConvNormalisers &normalisers);

  /// How many rows are marked, and before which row all of them are.
  struct Marked {
    Value count, end;
  };
  /// Marks rows `[first, end)` of a task; returns how many.
  using MarkTask = function_ref<Value(Value task, Value first, Value end)>;
  /// A parallel loop over tasks of `size` rows.
  Marked forAllTasks(int64_t size, MarkTask mark);
  /// The same over blocks, or as many rows as are judged together without.
  Marked judge(MarkTask judgeBlock);
  /// Marks rows of `[first, end)` unless `noise` is small next to `value` times
  /// their normalisers, and clears the marks of others. Returns how many.
  Value mark(Value first, Value end, Value noise = Value(),
             Value value = Value());
  Value isMarked(Value row);
  void set(Value row, Value isMarked);

private:
  Value greatestReciprocal(Value noise, Value value);

  ConvBuilder &b;
  ConvSegments &segments;
  const ConvNormalisers &normalisers;
  /// Marks [N]; how many rows every task has marked.
  Value marks, markedOfTask;
};

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVNORMALISERS_H
