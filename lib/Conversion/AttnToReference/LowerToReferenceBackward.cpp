//===- LowerToReferenceBackward.cpp - Gradients as plain loops -------- -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceWalks.h"
#include "fovea/Differentiate/ScoreDerivative.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// One query row
//===----------------------------------------------------------------------===//

namespace {
/// Operands with one gradient for each, summed in f64.
struct Gradients {
  Gradients(ReferenceBuilder &ref, ValueRange operands) {
    for (Value operand : operands)
      sums.push_back(ref.allocateZeros(operand));
  }
  /// Rounds all of them to their destinations.
  void store(ReferenceBuilder &ref, ValueRange destinations) {
    for (auto [sum, destination] : llvm::zip(sums, destinations))
      ref.storeAll(sum, destination);
  }
  Value operator[](size_t index) const { return sums[index]; }

  SmallVector<Value> sums;
};

/// A query row whose gradient is being computed: `query` at `at` of `queries`,
/// and the gradient of the output at `outputAt`.
struct GradientRow {
  ReferenceBuilder &ref;
  Value queries, dQueries, dOutput;
  SmallVector<Value> at, outputAt;
  double scale;
  Value lse, delta;

  /// Sets `delta` to the sum of `d_output * output(column)`, less `dLse`, which
  /// may be null.
  void setDelta(function_ref<Value(Value column)> output, Value dLse);

  /// Adds what the entry of the row `key` passes on, and returns the gradient
  /// of its score, whose `derivative` by the scaled product is 1 if null.
  Value addEntry(Value score, Value keys, Value dKeys, Value values,
                 Value dValues, ValueRange key, Value derivative = {}) const;
};
} // namespace

static SmallVector<Value> append(ValueRange indices, Value last) {
  SmallVector<Value> result(indices);
  result.push_back(last);
  return result;
}

void GradientRow::setDelta(function_ref<Value(Value column)> output,
                           Value dLse) {
  Value zero = ref.number(0.0);
  delta = ref.accumulate(
      ref.index(0), ref.extent(dOutput, 3), zero, [&](Value c, Value sum) {
        Value gradient = ref.load(dOutput, append(outputAt, c));
        return ref.addNumbers(sum, ref.mulNumbers(gradient, output(c)));
      });
  if (dLse)
    delta = ref.subNumbers(delta, dLse);
}

Value GradientRow::addEntry(Value score, Value keys, Value dKeys, Value values,
                            Value dValues, ValueRange key,
                            Value derivative) const {
  Value zero = ref.number(0.0);
  Value p = ref.select(ref.isMinusInfinity(lse), zero,
                       ref.exp(ref.subNumbers(score, lse)));
  Value dP = ref.accumulate(
      ref.index(0), ref.extent(values, 3), zero, [&](Value c, Value sum) {
        Value gradient = ref.load(dOutput, append(outputAt, c));
        ref.addTo(dValues, append(key, c), ref.mulNumbers(p, gradient));
        Value value = ref.load(values, append(key, c));
        return ref.addNumbers(sum, ref.mulNumbers(gradient, value));
      });
  Value dScore = ref.mulNumbers(p, ref.subNumbers(dP, delta));
  Value scaled = ref.mulNumbers(ref.number(scale), dScore);
  if (derivative)
    scaled = ref.mulNumbers(scaled, derivative);
  ref.forEach(ref.extent(keys, 3), [&](Value d) {
    Value query = ref.load(queries, append(at, d));
    Value row = ref.load(keys, append(key, d));
    ref.addTo(dQueries, append(at, d), ref.mulNumbers(scaled, row));
    ref.addTo(dKeys, append(key, d), ref.mulNumbers(scaled, query));
  });
  return dScore;
}

/// The row at `at` of an operation with the results of its forward pass.
template <typename OpTy>
static GradientRow startRow(ReferenceBuilder &ref, OpTy op, const QueryRow &at,
                            Value dQuery, double scale) {
  SmallVector<Value> to = {at.batch, at.head, at.row};
  GradientRow row = {ref,    op.getQuery(),
                     dQuery, op.getDOutput(),
                     to,     to,
                     scale,  ref.load(op.getLse(), to),
                     {}};
  row.setDelta([&](Value c) { return ref.load(op.getOutput(), append(to, c)); },
               op.getDLse() ? ref.load(op.getDLse(), to) : Value());
  return row;
}

//===----------------------------------------------------------------------===//
// Dense and stream
//===----------------------------------------------------------------------===//

/// Adds what the sink of a row passes on, if its gradient is asked for.
template <typename OpTy>
static void addSink(const GradientRow &row, const QueryRow &at, OpTy op,
                    ArrayRef<Value> sums) {
  if (sums.empty())
    return;
  ReferenceBuilder &ref = row.ref;
  Value sink = ref.loadBroadcast(op.getSink(), {at.batch, at.head});
  Value zero = ref.number(0.0);
  Value p = ref.exp(ref.subNumbers(sink, row.lse));
  Value gradient = ref.mulNumbers(ref.subNumbers(zero, p), row.delta);
  ref.addTo(sums.front(), {at.batch, at.head},
            ref.select(ref.isMinusInfinity(row.lse), zero, gradient));
}

/// What to do with the entries of `source`, whose gradients are `sums`, and
/// with what the score region reads for them, whose are `captures`.
static auto makeEntryVisitor(const GradientRow &row, const QueryRow &at,
                             const StreamSource &source,
                             const StreamSourceGradient &sums,
                             ArrayRef<Value> captures) {
  return [&, captures](const ReferenceEntry &entry, Value state) -> Value {
    ReferenceBuilder &ref = row.ref;
    Value score = entry.logWeight ? ref.addNumbers(entry.score, entry.logWeight)
                                  : entry.score;
    SmallVector<Value> key = {at.batch, at.keyHead, entry.row};
    Value dScore = row.addEntry(score, source.keys, sums.keys, source.values,
                                sums.values, key, entry.derivative);
    if (sums.logWeight)
      ref.addTo(sums.logWeight, key, dScore);
    if (sums.bias)
      ref.addTo(sums.bias, {at.batch, at.head, at.row, entry.row}, dScore);
    for (const ReferenceRead &read : entry.reads)
      ref.ifThen(read.isInside, [&] {
        ref.addTo(captures[read.tensor], read.at,
                  ref.mulNumbers(dScore, read.derivative));
      });
    return state;
  };
}

/// The score regions of `op`, with their derivatives.
template <typename OpTy>
static FailureOr<SmallVector<ReferenceScore>> getScores(OpTy op) {
  FailureOr<SmallVector<ScoreDerivatives>> derivatives = appendScoreDerivatives(
      op->getRegions(), /*ofReads=*/!op.getDCaptures().empty());
  if (failed(derivatives))
    return failure();
  SmallVector<ReferenceScore> scores;
  for (auto [region, own] : llvm::zip(op->getRegions(), *derivatives))
    scores.push_back({&region, SmallVector<Value>(op.getCaptures()), own});
  return scores;
}

static LogicalResult lowerDenseBackward(DenseBackwardOp op) {
  FailureOr<SmallVector<ReferenceScore>> scores = getScores(op);
  if (failed(scores))
    return failure();
  ReferenceBuilder ref(op);
  double scale = op.getScaleOrDefault();
  StreamSource source = {op.getKey(),    op.getValue(),     op.getLogWeight(),
                         op.getBias(),   /*codes=*/Value(), SourceAttr(),
                         op.getLengths()};
  SmallVector<Value> destinations(op.getDpsInits());
  Gradients gradients(ref, destinations);
  StreamSourceGradient sums = {source, gradients[1], gradients[2], {}, {}};
  if (op.getDLogWeight())
    sums.logWeight = gradients[3];
  if (op.getDBias())
    sums.bias = gradients[op.getDLogWeight() ? 4 : 3];
  ArrayRef<Value> sink(gradients.sums);
  ArrayRef<Value> captures = sink.take_back(op.getDCaptures().size());
  sink = sink.drop_back(captures.size()).take_back(op.getDSink() ? 1 : 0);
  forEachQueryRow(
      ref, op.getQuery(), op.getKey(), /*firstRow=*/Value(),
      /*numRows=*/Value(), /*block=*/0,
      [&](const QueryRow &at) {
        GradientRow row = startRow(ref, op, at, gradients[0], scale);
        walkAllRows(ref, at, source, op.getMaskOrNone(), scale, ref.number(0.0),
                    makeEntryVisitor(row, at, source, sums, captures));
        addSink(row, at, op, sink);
      },
      op.getQueryLengths(),
      scores->empty() ? ScoreSteps() : ScoreSteps{&scores->front()});
  gradients.store(ref, destinations);
  op.erase();
  return success();
}

static LogicalResult lowerStreamBackward(StreamBackwardOp op) {
  FailureOr<SmallVector<ReferenceScore>> scores = getScores(op);
  if (failed(scores))
    return failure();
  ReferenceBuilder ref(op);
  double scale = op.getScale().convertToDouble();
  Gradients dQuery(ref, op.getDQuery()), dKeys(ref, op.getDKeys()),
      dValues(ref, op.getDValues()), dLogWeights(ref, op.getDLogWeights()),
      dBiases(ref, op.getDBiases()),
      dSink(ref, OperandRange(op.getDSinkMutable())),
      dCaptures(ref, op.getDCaptures());
  SmallVector<ScoreSteps> steps = getScoreSteps(op, *scores);
  SmallVector<StreamSourceGradient> sources = op.getSourceList();
  unsigned nextWeight = 0, nextBias = 0;
  for (auto [index, source] : llvm::enumerate(sources)) {
    source.keys = dKeys[index];
    source.values = dValues[index];
    if (source.logWeight)
      source.logWeight = dLogWeights[nextWeight++];
    if (source.bias)
      source.bias = dBiases[nextBias++];
  }
  forEachQueryRow(
      ref, op.getQuery(), op.getKeys().front(),
      /*firstRow=*/Value(), /*numRows=*/Value(), op.getBlock(),
      [&](const QueryRow &at) {
        GradientRow row = startRow(ref, op, at, dQuery[0], scale);
        QueryRow own = at;
        for (auto [source, ofSource] : llvm::zip(sources, steps)) {
          own.scores = ofSource;
          walkRanges(ref, own, source.forward, scale, ref.number(0.0),
                     makeEntryVisitor(row, own, source.forward, source,
                                      dCaptures.sums));
        }
        addSink(row, at, op, dSink.sums);
      },
      op.getQueryLengths());
  dQuery.store(ref, op.getDQuery());
  dKeys.store(ref, op.getDKeys());
  dValues.store(ref, op.getDValues());
  dLogWeights.store(ref, op.getDLogWeights());
  dBiases.store(ref, op.getDBiases());
  dSink.store(ref, OperandRange(op.getDSinkMutable()));
  dCaptures.store(ref, op.getDCaptures());
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

/// Adds what gradients of summaries pass on to the input, the weights and the
/// bias, which may be null.
static void emitSummariesBackward(ReferenceBuilder &ref, Value input,
                                  Value weights, Value mask, Value dSummaries,
                                  Value dInput, Value dWeights, Value dBias) {
  Value rank = ref.extent(weights, 1), interval = ref.extent(weights, 2);
  Value heads = ref.extent(input, 1), rows = ref.extent(input, 2);
  Value headsPerSet = ref.div(heads, ref.extent(weights, 0));
  ref.forEachElement(dSummaries, [&](ValueRange at) {
    Value b = at[0], g = at[1], summary = at[2], d = at[3];
    Value set = ref.div(g, headsPerSet);
    Value first = ref.mul(ref.div(summary, rank), interval);
    Value a = ref.sub(summary, ref.mul(ref.div(summary, rank), rank));
    Value gradient = ref.load(dSummaries, at);
    if (dBias)
      ref.addTo(dBias, {set, a, d}, gradient);
    Value present = ref.min(interval, ref.sub(rows, first));
    ref.forEach(present, [&](Value t) {
      Value row = ref.add(first, t);
      auto addColumn = [&](Value c) {
        SmallVector<Value> token = {b, g, row, c},
                           weight =
                               getWeightIndices(weights, {set, a, t}, c, d);
        ref.addTo(dInput, token,
                  ref.mulNumbers(ref.load(weights, weight), gradient));
        ref.addTo(dWeights, weight,
                  ref.mulNumbers(ref.load(input, token), gradient));
      };
      auto add = [&] {
        if (mixesColumns(weights))
          ref.forEach(ref.extent(input, 3), addColumn);
        else
          addColumn(d);
      };
      if (Value present = isPresent(ref, mask, b, row))
        ref.ifThen(present, add);
      else
        add();
    });
  });
}

static void lowerSummarizeBackward(SummarizeBackwardOp op) {
  ReferenceBuilder ref(op);
  SmallVector<Value> destinations(op.getDpsInits());
  Gradients gradients(ref, destinations);
  emitSummariesBackward(ref, op.getInput(), op.getWeights(),
                        /*mask=*/Value(), op.getDOutput(), gradients[0],
                        gradients[1], op.getDBias() ? gradients[2] : Value());
  for (auto [sum, destination] : llvm::zip(gradients.sums, destinations))
    ref.storeAll(sum, destination, /*adds=*/true);
  op.erase();
}

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

namespace {
/// The rows of one of query, key and value at all levels, level 0 first, and
/// their gradients.
struct Levels {
  Levels(ReferenceBuilder &ref, Value input, OperandRange weights,
         OperandRange biases, OperandRange ready, Value mask)
      : ref(ref), weights(weights), mask(mask),
        rows(allocateLevels(ref, input, weights, biases, ready, mask)),
        sums(ref, rows) {}

  /// Passes the gradients of summaries on, and stores all that are wanted.
  void store(Value dInput, OperandRange dWeights, OperandRange dBiases,
             OperandRange dReady) {
    Gradients weightSums(ref, dWeights), biasSums(ref, dBiases);
    for (unsigned level = 0; level < weights.size(); ++level)
      emitSummariesBackward(ref, rows[0], weights[level], mask, sums[level + 1],
                            sums[0], weightSums[level],
                            dBiases.empty() ? Value() : biasSums[level]);
    ref.storeAll(sums[0], dInput);
    weightSums.store(ref, dWeights);
    biasSums.store(ref, dBiases);
    for (unsigned level = 0; level < dReady.size(); ++level)
      storeReady(sums[level + 1], dReady[level]);
  }

  /// The gradients of the summaries of a level, its intervals apart.
  void storeReady(Value rows, Value dReady) const {
    ref.forEachElement(dReady, [&](ValueRange at) {
      Value row = ref.add(ref.mul(at[2], ref.extent(dReady, 3)), at[3]);
      ref.store(ref.load(rows, {at[0], at[1], row, at[4]}), dReady, at);
    });
  }

  ReferenceBuilder &ref;
  OperandRange weights;
  Value mask;
  SmallVector<Value> rows;
  Gradients sums;
};
} // namespace

/// Adds what the entries of a level pass on.
static void addLevel(const Multipole &pattern, const GradientRow &row,
                     const QueryRow &at, int64_t level, const Levels &keys,
                     const Levels &values) {
  ReferenceBuilder &ref = row.ref;
  pattern.walkLevel(
      at, level, ref.number(0.0), [&](Value j, Value logWeight, Value state) {
        SmallVector<Value> key = {at.batch, at.keyHead, j};
        Value score = pattern.score(row.queries, row.at, keys.rows[level], key,
                                    logWeight);
        row.addEntry(score, keys.rows[level], keys.sums[level],
                     values.rows[level], values.sums[level], key);
        return state;
      });
}

static void lowerFastMultipoleBackward(FastMultipoleBackwardOp op) {
  ReferenceBuilder ref(op);
  Levels keys(ref, op.getKey(), op.getKeyWeights(), op.getKeyBiases(),
              op.getKeySummaries(), op.getMask()),
      values(ref, op.getValue(), op.getValueWeights(), op.getValueBiases(),
             op.getValueSummaries(), op.getMask());
  Gradients dQuery(ref, op.getQuery());
  Multipole pattern(ref, op, op.getMultiplicity());
  forEachQueryRow(ref, op.getQuery(), op.getKey(), /*firstRow=*/Value(),
                  /*numRows=*/Value(), /*block=*/0, [&](const QueryRow &at) {
                    GradientRow row =
                        startRow(ref, op, at, dQuery[0], pattern.scale);
                    for (int64_t level = 0; level <= pattern.numLevels; ++level)
                      addLevel(pattern, row, at, level, keys, values);
                  });
  dQuery.store(ref, op.getDQuery());
  keys.store(op.getDKey(), op.getDKeyWeights(), op.getDKeyBiases(),
             op.getDKeySummaries());
  values.store(op.getDValue(), op.getDValueWeights(), op.getDValueBiases(),
               op.getDValueSummaries());
  op.erase();
}

static void lowerFastMultipoleLinearBackward(FastMultipoleLinearBackwardOp op) {
  ReferenceBuilder ref(op);
  Levels queries(ref, op.getQuery(), op.getQueryWeights(), op.getQueryBiases(),
                 op.getQuerySummaries(), op.getMask()),
      keys(ref, op.getKey(), op.getKeyWeights(), op.getKeyBiases(),
           op.getKeySummaries(), op.getMask()),
      values(ref, op.getValue(), op.getValueWeights(), op.getValueBiases(),
             op.getValueSummaries(), op.getMask());
  Multipole pattern(ref, op, /*multiplicity=*/true);
  Value part =
      ref.allocate({cast<ShapedType>(op.getDOutput().getType()).getDimSize(3)});
  forEachQueryRow(
      ref, op.getQuery(), op.getKey(), /*firstRow=*/Value(),
      /*numRows=*/Value(), /*block=*/0, [&](const QueryRow &at) {
        for (int64_t level = 0; level <= pattern.numLevels; ++level) {
          SmallVector<Value> token = {at.batch, at.head, at.row};
          GradientRow row = {
              ref,
              queries.rows[level],
              queries.sums[level],
              op.getDOutput(),
              {at.batch, at.head, pattern.queryRow(at.row, level)},
              token,
              pattern.scale,
              {},
              {}};
          // The level's part of the output and its normaliser.
          auto walk = [&](Value state, EntryVisitor visit) {
            return pattern.walkLevel(
                at, level, state, [&](Value j, Value logWeight, Value state) {
                  return pattern.visitEntry(
                      row.queries, row.at, keys.rows[level], values.rows[level],
                      {at.batch, at.keyHead, j}, logWeight, state, visit);
                });
          };
          row.lse = emitSoftmaxRow(ref, walk, part);
          row.setDelta([&](Value c) { return ref.load(part, c); },
                       /*dLse=*/Value());
          addLevel(pattern, row, at, level, keys, values);
        }
      });
  queries.store(op.getDQuery(), op.getDQueryWeights(), op.getDQueryBiases(),
                op.getDQuerySummaries());
  keys.store(op.getDKey(), op.getDKeyWeights(), op.getDKeyBiases(),
             op.getDKeySummaries());
  values.store(op.getDValue(), op.getDValueWeights(), op.getDValueBiases(),
               op.getDValueSummaries());
  op.erase();
}

void fovea::attn::attachBackwardToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerDenseBackward, lowerStreamBackward,
                  lowerSummarizeBackward, lowerFastMultipoleBackward,
                  lowerFastMultipoleLinearBackward>(context);
}
