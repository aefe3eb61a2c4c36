//===- ConvProfiles.h - Weights of sums of convolutions ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPROFILES_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPROFILES_H

#include "ConvBuilder.h"

namespace fovea::attn::conv {

/// The segments of a head: the columns between the first of a basis and that of
/// the next.
class ConvSegments {
public:
  explicit ConvSegments(ConvBuilder &b);
  /// Reads the sizes of the present head.
  void prepare();
  /// Makes `of` known for columns `[first, end)`.
  void list(Value first, Value end);

  Value first(Value segment) { return b.loadIndex(bounds, segment); }
  /// The first column of all.
  Value first() { return first(b.index(0)); }
  Value end(Value segment) { return first(b.add(segment, 1)); }
  Value length(Value segment) { return b.sub(end(segment), first(segment)); }
  Value numLags(Value segment) { return b.sub(b.numTokens, first(segment)); }
  Value of(Value column) { return b.loadIndex(segments, column); }

private:
  ConvBuilder &b;
  /// First columns [R + 1], and the segment of every column [N].
  Value bounds, segments;
};

/// The weights of each segment by lag, the distance of query and key, from
/// score sums in f64, about the greatest taken off. And scores themselves, for
/// rows that are computed without what others share.
class ConvProfiles {
public:
  ConvProfiles(ConvBuilder &b, ConvSegments &segments);
  /// Computes the weights of the present head.
  void prepare();
  /// Stores zeros for weights that are NaN, as those of plus infinity are, too.
  /// The rows that read one have a normaliser that is NaN, and are marked.
  void clean();
  /// Stores what rows before `end` need if they are marked: scores, and the
  /// segments of columns.
  void prepareScores(Value end);

  /// Where the weight and the score of a lag are. Segment R has zeros.
  Value weightAt(Value segment, Value lag) {
    return b.add(b.add(b.mul(segment, weightRow), lag), b.plan.front);
  }
  Value scoreAt(Value segment, Value lag) {
    return b.add(b.mul(segment, scoreRow), lag);
  }
  Value loadWeights(Value segment, Value lag) {
    return b.loadVector(weights, weightAt(segment, lag));
  }
  /// Whether an entry counts: its score is not minus infinity.
  Value isRead(Value segment, Value lag);
  /// Adds the weights of lags `[low, high)` to a vector, and those of whole
  /// chunks to a number, both in f64.
  Values addLags(Value segment, Value low, Value high, ValueRange sums);
  /// A parallel loop over chunks of lags.
  void forAllLagChunks(function_ref<void(Value firstLag, Value count)> body);

  /// The binary logarithm of the greatest weight that there may be.
  static constexpr int kLogMostWeight = 8;

  /// Profiles, one row for each segment, and one of zeros. Lag 0 is entry
  /// `plan.front` of a row of weights and entry 0 of a row of scores, which
  /// are binary logarithms of weights.
  Value weights, scores, weightRow, scoreRow;

private:
  using ScoreVisitor =
      function_ref<Values(Value segment, Value lag, Value sum, ValueRange)>;
  Values
  forEachScoreSum(Value first, Value count, ValueRange inits,
                  ScoreVisitor visit,
                  function_ref<Values(Value segment, ValueRange)> finish = {});
  void storeTop(Value tops, Value first);
  void clearZeros();
  void storeFirstTop();
  void storeWeights();
  void padWeights(Value first, Value count);
  void cleanChunk(Value first, Value count);

  ConvBuilder &b;
  ConvSegments &segments;
  /// The greatest score of every chunk of lags; sums of the weights of a
  /// segment [R, chunks]; what is added to scores, in binary logarithms.
  Value partialTops, chunkSums, shift;
};

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVPROFILES_H
