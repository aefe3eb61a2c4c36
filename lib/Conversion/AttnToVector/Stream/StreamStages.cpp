//===- StreamStages.cpp - Scores, exponentials and products ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows whose scores are turned into weights and multiplied with the values at
/// once: 64 rows of 64 queries are 16 KB, so that the weights are still in the
/// first cache level for every tile of columns. An even number, for pairs.
static constexpr int64_t kChunk = 64;

/// Value columns from which on rows are far apart.
static constexpr int64_t kLongRow = 512;

//===----------------------------------------------------------------------===//
// Passes over segments
//===----------------------------------------------------------------------===//

StreamKernel::Segment StreamKernel::slice(const Segment &segment, Value offset,
                                          int64_t size) {
  Segment part = segment;
  for (Value *start :
       {&part.base, &part.row, &part.biasColumn, &part.scoreRow, &part.table})
    if (*start)
      *start = b.add(*start, offset);
  part.count = b.min(b.sub(segment.count, offset), b.index(size));
  return part;
}

int64_t StreamKernel::getChunkRows() {
  return std::max(kChunk, tiles.getQueryLanes());
}

bool StreamKernel::startsWithDiagonal(ArrayRef<Segment> shorts) {
  return !ranges.hasLongRanges() &&
         llvm::any_of(shorts, [](const Segment &segment) {
           return segment.kind == Segment::Diagonal;
         });
}

int64_t StreamKernel::getLookupTile() {
  return std::min<int64_t>(tiles.getKey(), kChunk);
}

/// The offset of the first tile of `step` of the `count` rows from `row` on
/// that a score region may admit something of. Several tiles are passed over at
/// once.
static Value findFirstTile(KernelBuilder &b, ScoreAdmission &admission,
                           const ScoreAdmission::State &queries, Value row,
                           Value count, int64_t step) {
  constexpr int64_t kTiles = 4;
  SmallVector<Value> start = {b.index(0), b.index(kTiles * step)};
  SmallVector<Value> found = b.loopWhile(
      start,
      [&](ValueRange state) {
        return b.both(b.less(state[0], count), b.less(b.index(0), state[1]));
      },
      [&](ValueRange state) -> SmallVector<Value> {
        auto [offset, size] = std::pair(state[0], state[1]);
        Value next = b.add(offset, size);
        Value last = b.sub(b.min(next, count), b.index(1));
        Value isRead =
            admission.reads(b, queries, {b.add(row, offset), b.add(row, last)});
        Value smaller =
            b.select(b.less(b.index(step), size), b.index(step), b.index(0));
        return {b.select(isRead, offset, next),
                b.select(isRead, smaller, size)};
      });
  return found[0];
}

void StreamKernel::streamLongRanges(MutableArrayRef<Segment> segments,
                                    State &state) {
  for (Segment &segment : segments) {
    // A diagonal has at most as many rows as the block has queries. Scores that
    // are looked up cost no product that a long tile would make up for.
    int64_t step = tiles.getKey();
    if (segment.kind == Segment::Diagonal)
      step = tiles.getQueryLanes();
    else if (sources[segment.source].keyTable)
      step = getLookupTile();
    if (copiesBias(segment))
      copyBias(segment);
    Values carried = state.maximum;
    carried.append(state.sum);
    auto attend = [&](Segment tile, ValueRange values) {
      lookAhead(tile);
      State next;
      next.maximum.assign(values.begin(), values.begin() + vectors);
      next.sum.assign(values.begin() + vectors, values.end());
      attendTile(tile, next);
      Values result = next.maximum;
      result.append(next.sum);
      return result;
    };
    Value first = b.index(0);
    if (skipsLeadingTiles(segment.source) &&
        (segment.kind == Segment::Rows || segment.kind == Segment::Masked))
      first = findFirstTile(b, getScore(segment.source).admission,
                            sources[segment.source].admission, segment.row,
                            segment.count, step);
    carried = b.loop(first, segment.count, step, carried,
                     [&](Value offset, ValueRange values) {
                       return ifAdmitted(slice(segment, offset, step), values,
                                         [&](const Segment &tile) {
                                           return attend(tile, values);
                                         });
                     });
    state.maximum.assign(carried.begin(), carried.begin() + vectors);
    state.sum.assign(carried.begin() + vectors, carried.end());
  }
}

void StreamKernel::attendTile(Segment tile, State &state) {
  Values maximum = state.maximum, sum(vectors, b.splat(0.0)), rescale;
  auto rescaling = [&](int64_t v) {
    return isSoftmax ? softmax::exp2(b, b.fsub(state.maximum[v], maximum[v]))
                     : b.splat(1.0);
  };
  scoreSegments(tile, maximum);
  tile.weights = scores;
  tile.weightRow = tile.scoreRow;
  // Sums of a tile start from zero: many short sums lose less than a long one.
  exponentiate(tile, maximum, sum);
  for (int64_t v = 0; v < vectors; ++v) {
    rescale.push_back(rescaling(v));
    sum[v] = b.fma(state.sum[v], rescale[v], sum[v]);
  }
  accumulateColumns(tile, [&](Value old, Value total, int64_t v) {
    return b.fma(old, rescale[v], total);
  });
  state = {maximum, sum};
}

void StreamKernel::attendShortRanges(MutableArrayRef<Segment> segments,
                                     State &state) {
  Values maximum = state.maximum, sum;
  scoreSegments(segments, maximum);
  // What long ranges have left counts from their maximum.
  Values rescale;
  for (int64_t v = 0; v < vectors; ++v) {
    rescale.push_back(softmax::exp2(b, b.fsub(state.maximum[v], maximum[v])));
    sum.push_back(b.fmul(state.sum[v], rescale[v]));
  }
  if (ranges.hasLongRanges() && isSoftmax)
    b.loop(b.index(0), b.index(valueWidth), 1, [&](Value column) {
      for (int64_t v = 0; v < vectors; ++v) {
        Values at = {column, b.index(v * lanes)};
        b.storeVector(b.fmul(b.loadVector(outputs, at), rescale[v]), outputs,
                      at);
      }
    });

  auto attendChunk = [&](Segment chunk, bool isFirst) {
    chunk.weights = chunkWeights;
    chunk.weightRow = b.index(0);
    exponentiate(chunk, maximum, sum);
    accumulateColumns(chunk, [&](Value old, Value total, int64_t) {
      return isFirst ? total : b.fadd(old, total);
    });
  };
  // Diagonals first: storing the product of one spares clearing the outputs.
  bool isFirst = startsWithDiagonal(segments);
  for (const Segment &segment : segments) {
    if (segment.kind != Segment::Diagonal)
      continue;
    attendChunk(segment, isFirst);
    isFirst = false;
  }
  for (const Segment &segment : segments) {
    if (segment.kind == Segment::Diagonal)
      continue;
    sum =
        b.loop(b.index(0), segment.count, kChunk, sum,
               [&](Value offset, ValueRange running) {
                 sum.assign(running.begin(), running.end());
                 attendChunk(slice(segment, offset, kChunk), /*isFirst=*/false);
                 return sum;
               });
  }
  state = {maximum, sum};
}

/// Lays segments out one after the other in S and scores them.
void StreamKernel::scoreSegments(MutableArrayRef<Segment> segments,
                                 Values &maximum) {
  Value scoreRow = b.index(0);
  for (Segment &segment : segments) {
    // Rows before the source have no scores.
    segment.scoreRow = b.sub(scoreRow, segment.skip);
    segment = stage(segment);
    Segment rest = segment;
    if (addsBiasInSquares(segment)) {
      Value scored = lookUpWithBias(segment, maximum);
      rest = slice(segment, scored, lanes);
    }
    packBias(rest);
    packDistances(rest);
    if (arithmeticOf(segment) == Arithmetic::AMX)
      scoreByAMX(segment);
    if (!isReaderOfTable(segment))
      scoreSegment(rest, maximum);
    Value numRows = b.max(b.sub(segment.count, segment.skip), b.index(0));
    scoreRow = b.add(
        scoreRow, b.roundDown(b.add(numRows, getRowUnit() - 1), getRowUnit()));
  }
}

void StreamKernel::accumulateColumns(
    const Segment &segment,
    function_ref<Value(Value, Value, int64_t)> combine) {
  bool usesAMX = arithmeticOf(segment) == Arithmetic::AMX;
  if (usesAMX)
    accumulateByAMX(segment);
  bool looksAtMarks = mayHide(segment) && !usesAMX;
  if (looksAtMarks)
    b.ifThen(isRepeated, [&] { markHidden(segment); });
  int64_t step = tiles.getColumns(), whole = valueWidth / step * step;
  auto tile = [&](Value column, int64_t numColumns) {
    auto sum = [&](bool onlyVisible) {
      return accumulate(segment, column, numColumns, onlyVisible);
    };
    Values totals;
    if (looksAtMarks)
      totals = Values(scf::IfOp::create(
                          b, isRepeated,
                          [&](OpBuilder &, Location) {
                            scf::YieldOp::create(b, sum(true));
                          },
                          [&](OpBuilder &, Location) {
                            scf::YieldOp::create(b, sum(false));
                          })
                          .getResults());
    else
      totals = sum(false);
    for (int64_t c = 0; c < numColumns; ++c)
      for (int64_t v = 0; v < vectors; ++v) {
        Values at = {b.add(column, c), b.index(v * lanes)};
        Value old = b.loadVector(outputs, at);
        b.storeVector(combine(old, totals[c * vectors + v], v), outputs, at);
      }
  };
  b.loop(b.index(0), b.index(whole), step,
         [&](Value column) { tile(column, step); });
  if (whole != valueWidth)
    tile(b.index(whole), valueWidth - whole);
}

void StreamKernel::forEachTriangle(
    const Segment &segment, function_ref<void(Value, Value, unsigned)> body) {
  if (segment.kind != Segment::Diagonal)
    return body(b.index(0), segment.count, 0);
  // Row d of the diagonal is read by queries d and later: the rows of triangle
  // g need only vectors g and up. Saves 3/8 of the square's work.
  for (int64_t g = 0; g < vectors; ++g)
    body(b.max(segment.skip, b.index(g * lanes)),
         b.min(segment.count, b.index((g + 1) * lanes)), g);
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

void StreamKernel::scoreSegment(const Segment &segment, Values &maximum) {
  forEachRowTile(
      segment, [&](const RowLoop &rows) { scoreRows(segment, rows, maximum); });
}

void StreamKernel::forEachRowTile(const Segment &segment,
                                  function_ref<void(const RowLoop &)> body) {
  forEachTriangle(segment, [&](Value low, Value high, unsigned first) {
    // As many accumulators as in a whole register tile.
    int64_t step = tiles.getKeys() * vectors / (vectors - first);
    while (lanes % step != 0)
      --step;
    RowLoop rows = {low, high, step, first, isMasked(segment)};
    if (segment.kind == Segment::Table) {
      rows.step = tiles.getKeys();
      return body(rows);
    }
    auto split = [&](RowLoop rows) {
      Value end = rows.high;
      Value length = b.max(b.sub(end, rows.low), b.index(0));
      Value whole = b.add(rows.low, b.roundDown(length, step));
      rows.high = whole;
      body(rows);
      rows.low = whole;
      rows.high = end;
      rows.step = 1;
      body(rows);
    };
    if (!segment.admittedBegin)
      return split(rows);
    // Whole register tiles of the rows before and behind are one loop.
    RowLoop admitted = rows;
    admitted.low = b.max(low, segment.admittedBegin);
    admitted.high = b.min(high, segment.admittedEnd);
    admitsAll = true;
    split(admitted);
    admitsAll = false;
    rows.gapBegin = admitted.low;
    rows.gap = b.max(b.sub(admitted.high, admitted.low), b.index(0));
    rows.high = b.sub(high, rows.gap);
    split(rows);
  });
}

StreamKernel::Values
StreamKernel::loopOverRows(const RowLoop &rows, ValueRange carried,
                           function_ref<Values(Value, ValueRange)> body) {
  return b.loop(rows.low, rows.high, rows.step, carried,
                [&](Value offset, ValueRange running) {
                  if (rows.gap)
                    offset = b.select(b.less(offset, rows.gapBegin), offset,
                                      b.add(offset, rows.gap));
                  return body(offset, running);
                });
}

StreamKernel::Values StreamKernel::rowsOf(const Segment &segment, Value offset,
                                          int64_t count) {
  bool gathers = segment.kind == Segment::Table &&
                 arithmeticOf(segment) != Arithmetic::Converted &&
                 arithmeticOf(segment) != Arithmetic::AMX;
  Values rows;
  for (int64_t i = 0; i < count; ++i) {
    Value entry = b.add(offset, i);
    rows.push_back(gathers ? tableRow(segment, entry)
                           : b.add(segment.base, entry));
  }
  return rows;
}

void StreamKernel::scoreRows(const Segment &segment, const RowLoop &rows,
                             Values &maximum) {
  unsigned first = rows.firstVector;
  int64_t live = vectors - first;
  Values carried(maximum.begin() + first, maximum.end());
  carried = loopOverRows(rows, carried, [&](Value offset, ValueRange running) {
    Values next(running);
    Values found =
        scoreTile(segment, offset, rowsOf(segment, offset, rows.step), first,
                  rows.masked);
    for (int64_t i = 0; i < rows.step; ++i)
      for (int64_t v = 0; v < live; ++v) {
        Value score = found[i * live + v];
        if (!isLookedUp(segment))
          b.storeVector(score, scores,
                        {b.add(segment.scoreRow, b.add(offset, i)),
                         b.index((first + v) * lanes)});
        next[v] = b.fmax(next[v], score);
      }
    return next;
  });
  llvm::copy(carried, maximum.begin() + first);
}

StreamKernel::Values StreamKernel::scoreTile(const Segment &segment,
                                             Value offset, ValueRange rows,
                                             unsigned firstVector,
                                             bool masked) {
  const SourceView &source = sources[segment.source];
  int64_t step = rows.size(), live = vectors - firstVector;
  scoreDerivatives.clear();
  readDerivatives.clear();
  Values result = source.keyTable ? lookUp(segment, offset, step, firstVector)
                  : isOfPairs(arithmeticOf(segment))
                      ? multiplyPairs(segment, offset, rows, firstVector)
                      : multiply(segment, offset, rows, firstVector,
                                 {segment.keys, packedQueries, width});
  tileProducts = result;
  for (int64_t i = 0; i < step; ++i) {
    Value entry = b.add(offset, i), weight = weightAt(segment, entry);
    for (int64_t v = 0; v < live; ++v) {
      Value &score = result[i * live + v];
      Value bias = biasAt(segment, entry, firstVector + v), computed;
      if (hasScores())
        score = computeScore(segment, offset, i, firstVector + v, score);
      // What is removed takes one instruction where no term can raise it again.
      if (scoresRemove(segment) && !weight && !bias)
        score = b.fmax(b.splat(softmax::kMasked), score);
      else if (scoresRemove(segment))
        computed = score;
      // The log weight is added last: it is larger than the products, whose sum
      // would lose bits to it. Without a soft-max the weight takes it as a
      // factor.
      if (isSoftmax && weight)
        score = b.fadd(score, weight);
      if (bias)
        score = b.fadd(score, bias);
      // Only the first vector of a triangle has queries before its rows.
      bool cuts = masked && (segment.kind != Segment::Diagonal || v == 0);
      if (Value hidden = hides(segment, entry, firstVector + v, weight, bias,
                               computed, cuts))
        score = arith::SelectOp::create(b, hidden, b.splat(softmax::kMasked),
                                        score);
    }
  }
  return result;
}

Value StreamKernel::computeScore(const Segment &segment, Value offset,
                                 int64_t entry, unsigned vector,
                                 Value product) {
  ScoreBody::Place query = {firstPosition(sources[segment.source]), /*step=*/1,
                            vector * lanes};
  // Rows next to each other stand next to each other.
  SourceAttr attr = sources[segment.source].attr;
  bool follows = segment.kind != Segment::Table && !attr.getMask().hasStride();
  ScoreBody::Place key = {positionOf(segment, offset), /*step=*/0, entry};
  if (!follows)
    key = {positionOf(segment, b.add(offset, entry))};
  TileScore &function = getScore(segment.source);
  ScoreBody &body = admitsAll ? function.admittedBody : function.body;
  ScoreBody::Result result = body.evaluate(b, product, query, key);
  if (result.derivative)
    scoreDerivatives.push_back(result.derivative);
  readDerivatives.push_back(result.readDerivatives);
  return result.score;
}

/// The products of rows and what is packed for the queries.
StreamKernel::Values StreamKernel::multiply(const Segment &segment,
                                            Value offset, ValueRange rows,
                                            unsigned firstVector,
                                            const Factors &factors) {
  int64_t step = rows.size(), live = vectors - firstVector;
  Values initial(step * live, b.splat(0.0));
  // One cache line of each prefetched operand in every turn of the loop. The
  // rest is not worth the code.
  bool prefetches = step == tiles.getKeys() && !segment.lookahead.empty();
  int64_t unroll = prefetches ? getUnroll(segment, factors.width)
                              : (factors.width % 2 ? 1 : 2);
  return b.loop(b.index(0), b.index(factors.width), unroll, initial,
                [&](Value first, ValueRange sums) {
                  if (step == tiles.getKeys())
                    prefetch(segment, offset, first, unroll, factors.width);
                  Values next(sums);
                  for (int64_t u = 0; u < unroll; ++u) {
                    Value k = b.add(first, u);
                    Values queries;
                    for (int64_t v = firstVector; v < vectors; ++v)
                      queries.push_back(b.loadVector(factors.packed,
                                                     {k, b.index(v * lanes)}));
                    for (int64_t i = 0; i < step; ++i) {
                      Value key =
                          b.broadcast(b.loadScalar(factors.rows, {rows[i], k}));
                      for (int64_t v = 0; v < live; ++v) {
                        Value &sum = next[i * live + v];
                        sum = b.fma(key, queries[v], sum);
                      }
                    }
                  }
                  return next;
                });
}

//===----------------------------------------------------------------------===//
// Exponentials and the product with the values
//===----------------------------------------------------------------------===//

StreamKernel::Values StreamKernel::loadScores(const Segment &segment,
                                              Value offset,
                                              unsigned firstVector) {
  if (isLookedUp(segment))
    return scoreTile(segment, offset, rowsOf(segment, offset, 1), firstVector,
                     isMasked(segment));
  return loadRows(scores, b.add(segment.scoreRow, offset), 1, firstVector);
}

StreamKernel::Values StreamKernel::loadRows(Value memref, Value row,
                                            int64_t count,
                                            unsigned firstVector) {
  Values found;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t v = firstVector; v < vectors; ++v)
      found.push_back(
          b.loadVector(memref, {b.add(row, i), b.index(v * lanes)}));
  return found;
}

void StreamKernel::exponentiate(const Segment &segment, const Values &maximum,
                                Values &sum) {
  if (isOfPairs(arithmeticOf(segment)))
    return exponentiatePairs(segment, maximum, sum);
  if (!isSoftmax)
    return squarePositive(segment);
  forEachTriangle(segment, [&](Value low, Value high, unsigned first) {
    Values carried(sum.begin() + first, sum.end());
    carried =
        b.loop(low, high, 1, carried, [&](Value offset, ValueRange running) {
          Value row = b.add(segment.weightRow, offset);
          Values found = loadScores(segment, offset, first), next;
          for (int64_t v = first; v < vectors; ++v) {
            Value score = found[v - first];
            Value weight = softmax::exp2(b, b.fsub(score, maximum[v]));
            b.storeVector(weight, segment.weights, {row, b.index(v * lanes)});
            next.push_back(b.fadd(running[v - first], weight));
          }
          return next;
        });
    llvm::copy(carried, sum.begin() + first);
  });
}

/// The weights of `squared_relu`, in place of the scores. A masked score is
/// negative.
void StreamKernel::squarePositive(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  forEachTriangle(segment, [&](Value low, Value high, unsigned first) {
    b.loop(low, high, 1, [&](Value offset) {
      Value row = b.add(segment.weightRow, offset), factor;
      Values found = loadScores(segment, offset, first);
      if (segment.kind == Segment::Table)
        factor = b.loadScalar(tableWeights, b.add(segment.table, offset));
      else if (source.logWeight)
        factor = logWeightAt(source, b.add(segment.row, offset));
      if (factor)
        factor = b.broadcast(math::Exp2Op::create(b, factor));
      for (int64_t v = first; v < vectors; ++v) {
        // The second operand wins when it is NaN.
        Value positive = b.fmax(b.splat(0.0), found[v - first]);
        Value weight = b.fmul(positive, positive);
        b.storeVector(factor ? b.fmul(weight, factor) : weight, segment.weights,
                      {row, b.index(v * lanes)});
      }
    });
  });
}

StreamKernel::Values StreamKernel::accumulate(const Segment &segment,
                                              Value column, int64_t numColumns,
                                              bool onlyVisible) {
  if (arithmeticOf(segment) == Arithmetic::AMX)
    return loadRows(amxSums, column, numColumns, /*firstVector=*/0);
  if (arithmeticOf(segment) == Arithmetic::Pairs)
    return accumulatePairs(segment, column, numColumns, onlyVisible);
  Values accumulators(numColumns * vectors, b.splat(0.0));
  forEachTriangle(segment, [&](Value low, Value high, unsigned first) {
    int64_t live = vectors - first;
    Values carried;
    for (int64_t c = 0; c < numColumns; ++c)
      for (int64_t v = first; v < vectors; ++v)
        carried.push_back(accumulators[c * vectors + v]);
    bool gathers = segment.kind == Segment::Table &&
                   arithmeticOf(segment) == Arithmetic::InPlace;
    auto multiply = [&](Value offset, ValueRange sums) {
      Value row =
          gathers ? tableRow(segment, offset) : b.add(segment.base, offset);
      Value weightRow = b.add(segment.weightRow, offset);
      Values weights, next;
      for (int64_t v = first; v < vectors; ++v)
        weights.push_back(
            b.loadVector(segment.weights, {weightRow, b.index(v * lanes)}));
      // Rows too long for the CPU to see columns as streams: the next line of
      // each, once for every vector of columns or more often.
      if (manageCache && valueWidth >= kLongRow &&
          segment.values != stagedValues)
        b.prefetch(segment.values, {row, b.add(column, lanes)}, 3);
      for (int64_t c = 0; c < numColumns; ++c) {
        Value value =
            b.broadcast(b.loadScalar(segment.values, {row, b.add(column, c)}));
        for (int64_t v = 0; v < live; ++v) {
          Value sum = sums[c * live + v];
          next.push_back(onlyVisible
                             ? softmax::addVisible(b, weights[v], value, sum)
                             : b.fma(value, weights[v], sum));
        }
      }
      return next;
    };
    bool copies = segment.nextBias && numColumns == tiles.getColumns();
    if (onlyVisible && !copies)
      carried = b.loop(low, high, 1, carried, multiply);
    else
      carried = b.unrolledLoop(low, high, kProductUnroll, carried, multiply,
                               [&](Value offset) {
                                 if (copies)
                                   copyNextBias(segment, column, offset);
                               });
    for (int64_t c = 0; c < numColumns; ++c)
      for (int64_t v = 0; v < live; ++v)
        accumulators[c * vectors + first + v] = carried[c * live + v];
  });
  return accumulators;
}
