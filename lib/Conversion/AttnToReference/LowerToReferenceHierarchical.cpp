//===- LowerToReferenceHierarchical.cpp - Fast multipole as plain loops ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceWalks.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Summaries
//===----------------------------------------------------------------------===//

Value fovea::attn::isPresent(ReferenceBuilder &ref, Value mask, Value b,
                             Value t) {
  return mask ? ref.loadCondition(mask, {b, t}) : Value();
}

bool fovea::attn::mixesColumns(Value weights) {
  return cast<ShapedType>(weights.getType()).getRank() == 5;
}

SmallVector<Value> fovea::attn::getWeightIndices(Value weights,
                                                 ValueRange leading, Value from,
                                                 Value to) {
  SmallVector<Value> indices(leading);
  if (mixesColumns(weights))
    indices.push_back(from);
  indices.push_back(to);
  return indices;
}

/// Writes the summaries of all intervals of `input` to `output`.
static void emitSummaries(ReferenceBuilder &ref, Value input, Value weights,
                          Value bias, Value mask, Value output) {
  Value rank = ref.extent(weights, 1), interval = ref.extent(weights, 2);
  Value heads = ref.extent(input, 1), rows = ref.extent(input, 2);
  Value headsPerSet = ref.div(heads, ref.extent(weights, 0));
  ref.forEach(ref.extent(input, 0), [&](Value b) {
    ref.forEach(heads, [&](Value g) {
      Value set = ref.div(g, headsPerSet);
      ref.forEach(ref.extent(output, 2), [&](Value summary) {
        Value first = ref.mul(ref.div(summary, rank), interval);
        Value a = ref.sub(summary, ref.mul(ref.div(summary, rank), rank));
        // Absent tokens count as zero: the last interval ends with the rows.
        Value present = ref.min(interval, ref.sub(rows, first));
        ref.forEach(ref.extent(input, 3), [&](Value d) {
          Value start = bias ? ref.load(bias, {set, a, d}) : ref.number(0.0);
          Value sum = ref.accumulate(
              ref.index(0), present, start, [&](Value t, Value sum) {
                Value row = ref.add(first, t);
                auto addColumn = [&](Value c, Value sum) {
                  Value weight = ref.load(
                      weights, getWeightIndices(weights, {set, a, t}, c, d));
                  Value token = ref.load(input, {b, g, row, c});
                  return ref.addNumbers(sum, ref.mulNumbers(weight, token));
                };
                auto add = [&] {
                  return mixesColumns(weights)
                             ? ref.accumulate(ref.index(0),
                                              ref.extent(input, 3), sum,
                                              addColumn)
                             : addColumn(d, sum);
                };
                Value present = isPresent(ref, mask, b, row);
                return present ? ref.when(present, add, sum) : add();
              });
          ref.store(sum, output, {b, g, summary, d});
        });
      });
    });
  });
}

static void lowerSummarize(SummarizeOp op) {
  ReferenceBuilder ref(op);
  emitSummaries(ref, op.getInput(), op.getWeights(), op.getBias(),
                /*mask=*/Value(), op.getOutput());
  op.erase();
}

/// A copy of ready-made summaries, their intervals one after the other.
static Value copySummaries(ReferenceBuilder &ref, Value ready) {
  auto type = cast<MemRefType>(ready.getType());
  int64_t rank = type.getDimSize(3);
  SmallVector<int64_t> shape = {type.getDimSize(0), type.getDimSize(1),
                                type.getDimSize(2), type.getDimSize(4)};
  SmallVector<Value> dynamicExtents;
  for (int64_t dim : {0, 1, 2}) {
    if (!type.isDynamicDim(dim))
      continue;
    Value extent = ref.extent(ready, dim);
    dynamicExtents.push_back(dim == 2 ? ref.mul(extent, ref.index(rank))
                                      : extent);
  }
  if (!type.isDynamicDim(2))
    shape[2] *= rank;
  Value copy = ref.allocate(shape, dynamicExtents);
  ref.forEachElement(ready, [&](ValueRange at) {
    Value row = ref.add(ref.mul(at[2], ref.index(rank)), at[3]);
    ref.store(ref.load(ready, at), copy, {at[0], at[1], row, at[4]});
  });
  return copy;
}

SmallVector<Value> fovea::attn::allocateLevels(ReferenceBuilder &ref,
                                               Value input, ValueRange weights,
                                               ValueRange biases,
                                               ValueRange ready, Value mask) {
  SmallVector<Value> levels = {input};
  for (Value summaries : ready)
    levels.push_back(copySummaries(ref, summaries));
  auto type = cast<MemRefType>(input.getType());
  for (unsigned level = 0; level < weights.size(); ++level) {
    auto weightsType = cast<MemRefType>(weights[level].getType());
    int64_t interval = weightsType.getDimSize(2);
    int64_t rank = weightsType.getDimSize(1);
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<Value> dynamicExtents;
    for (int64_t dim : {0, 1})
      if (type.isDynamicDim(dim))
        dynamicExtents.push_back(ref.extent(input, dim));
    if (!type.isDynamicDim(2)) {
      shape[2] = llvm::divideCeil(shape[2], interval) * rank;
    } else {
      Value rows = ref.add(ref.extent(input, 2), ref.index(interval - 1));
      dynamicExtents.push_back(
          ref.mul(ref.div(rows, ref.index(interval)), ref.index(rank)));
    }
    Value summaries = ref.allocate(shape, dynamicExtents);
    emitSummaries(ref, input, weights[level],
                  biases.empty() ? Value() : biases[level], mask, summaries);
    levels.push_back(summaries);
  }
  return levels;
}

//===----------------------------------------------------------------------===//
// Which level owns an entry
//===----------------------------------------------------------------------===//

Value Multipole::score(Value queries, ValueRange query, Value keys,
                       ValueRange key, Value logWeight) const {
  Value score =
      ref.mulNumbers(ref.number(scale), ref.dot(queries, query, keys, key));
  return logWeight ? ref.addNumbers(score, logWeight) : score;
}

Value Multipole::visitEntry(Value queries, ValueRange query, Value keys,
                            Value values, ValueRange key, Value logWeight,
                            Value state, EntryVisitor visit) const {
  auto value = [&](Value column) {
    SmallVector<Value> position(key);
    position.push_back(column);
    return ref.load(values, position);
  };
  return visit({score(queries, query, keys, key, logWeight),
                /*logWeight=*/Value(), value},
               state);
}

Value Multipole::queryRow(Value i, int64_t level) const {
  if (level == 0)
    return i;
  return ref.div(ref.mul(i, ref.index(rank)), ref.index(interval(level)));
}

Value Multipole::walkLevel(const QueryRow &at, int64_t level, Value first,
                           RowVisitor visit) const {
  return level == 0 ? walkTokens(at, first, visit)
                    : walkSummaries(at, level, first, visit);
}

Value Multipole::walkTokens(const QueryRow &at, Value first,
                            RowVisitor visit) const {
  Value i = at.row;
  return ref.accumulate(ref.index(0), rows, first, [&](Value j, Value state) {
    Value own = ref.lessOrEqual(
        distance(i, ref.div(j, ref.index(group)), /*level=*/0), ref.index(1));
    if (causal)
      own = ref.both(own, ref.lessOrEqual(j, i));
    if (mask)
      own = ref.both(own, ref.both(isPresent(ref, mask, at.batch, i),
                                   isPresent(ref, mask, at.batch, j)));
    return ref.when(
        own, [&] { return visit(j, /*logWeight=*/Value(), state); }, state);
  });
}

Value Multipole::countTokens(Value b, Value begin, int64_t part) const {
  Value left = ref.max(ref.sub(rows, begin), ref.index(0));
  Value length = ref.min(left, ref.index(part));
  if (!mask)
    return length;
  return ref.accumulate(
      ref.index(0), length, ref.index(0), [&](Value t, Value count) {
        return ref.when(
            isPresent(ref, mask, b, ref.add(begin, t)),
            [&] { return ref.add(count, ref.index(1)); }, count);
      });
}

Value Multipole::walkSummaries(const QueryRow &at, int64_t level, Value first,
                               RowVisitor visit) const {
  Value i = at.row;
  int64_t part = interval(level) / rank;
  Value numSummaries =
      ref.mul(ref.div(ref.add(rows, ref.index(interval(level) - 1)),
                      ref.index(interval(level))),
              ref.index(rank));
  return ref.accumulate(
      ref.index(0), numSummaries, first, [&](Value s, Value state) {
        Value u = ref.div(s, ref.index(rank));
        Value own = ref.lessOrEqual(ref.index(2), distance(i, u, level));
        if (level < numLevels)
          own = ref.both(
              own,
              ref.lessOrEqual(distance(i, ref.div(u, ref.index(2)), level + 1),
                              ref.index(1)));
        // An interval that is not the row's own lies wholly before or behind.
        if (causal)
          own = ref.both(own,
                         ref.less(u, ref.div(i, ref.index(interval(level)))));
        Value count = countTokens(at.batch, ref.mul(s, ref.index(part)), part);
        own = ref.both(own, ref.less(ref.index(0), count));
        if (mask)
          own = ref.both(own, isPresent(ref, mask, at.batch, i));
        return ref.when(
            own,
            [&] {
              Value logWeight = multiplicity ? ref.log(count) : ref.number(0.0);
              return visit(s, logWeight, state);
            },
            state);
      });
}

//===----------------------------------------------------------------------===//
// The operations
//===----------------------------------------------------------------------===//

static void lowerFastMultipole(FastMultipoleOp op) {
  ReferenceBuilder ref(op);
  Value q = op.getQuery(), k = op.getKey(), v = op.getValue();
  SmallVector<Value> keys =
      allocateLevels(ref, k, op.getKeyWeights(), op.getKeyBiases(),
                     op.getKeySummaries(), op.getMask());
  SmallVector<Value> values =
      allocateLevels(ref, v, op.getValueWeights(), op.getValueBiases(),
                     op.getValueSummaries(), op.getMask());
  Value row =
      ref.allocate({cast<ShapedType>(op.getOutput().getType()).getDimSize(3)});
  Multipole pattern(ref, op, op.getMultiplicity());
  forEachQueryRow(
      ref, q, k, /*firstRow=*/Value(), /*numRows=*/Value(), /*block=*/0,
      [&](const QueryRow &at) {
        SmallVector<Value> to = {at.batch, at.head, at.row};
        auto walk = [&](Value state, EntryVisitor visit) {
          for (int64_t level = 0; level <= pattern.numLevels; ++level)
            state = pattern.walkLevel(
                at, level, state, [&](Value j, Value logWeight, Value state) {
                  return pattern.visitEntry(q, to, keys[level], values[level],
                                            {at.batch, at.keyHead, j},
                                            logWeight, state, visit);
                });
          return state;
        };
        Value lse = emitSoftmaxRow(ref, walk, row);
        ref.storeRow(row, op.getOutput(), to);
        if (op.getLse())
          ref.store(lse, op.getLse(), to);
      });
  op.erase();
}

static void lowerFastMultipoleLinear(FastMultipoleLinearOp op) {
  ReferenceBuilder ref(op);
  Value q = op.getQuery(), k = op.getKey(), v = op.getValue();
  SmallVector<Value> queries =
      allocateLevels(ref, q, op.getQueryWeights(), op.getQueryBiases(),
                     op.getQuerySummaries(), op.getMask());
  SmallVector<Value> keys =
      allocateLevels(ref, k, op.getKeyWeights(), op.getKeyBiases(),
                     op.getKeySummaries(), op.getMask());
  SmallVector<Value> values =
      allocateLevels(ref, v, op.getValueWeights(), op.getValueBiases(),
                     op.getValueSummaries(), op.getMask());
  int64_t width = cast<ShapedType>(op.getOutput().getType()).getDimSize(3);
  Value row = ref.allocate({width}), total = ref.allocate({width});
  // Each level's soft-max runs over tokens, so a summary always counts as often
  // as it stands for one.
  Multipole pattern(ref, op, /*multiplicity=*/true);
  forEachQueryRow(
      ref, q, k, /*firstRow=*/Value(), /*numRows=*/Value(), /*block=*/0,
      [&](const QueryRow &at) {
        ref.forEach(ref.extent(total, 0), [&](Value column) {
          ref.store(ref.number(0.0), total, column);
        });
        for (int64_t level = 0; level <= pattern.numLevels; ++level) {
          SmallVector<Value> query = {at.batch, at.head,
                                      pattern.queryRow(at.row, level)};
          auto walk = [&](Value state, EntryVisitor visit) {
            return pattern.walkLevel(
                at, level, state, [&](Value j, Value logWeight, Value state) {
                  return pattern.visitEntry(
                      queries[level], query, keys[level], values[level],
                      {at.batch, at.keyHead, j}, logWeight, state, visit);
                });
          };
          emitSoftmaxRow(ref, walk, row);
          ref.storeAll(row, total, /*adds=*/true);
        }
        ref.storeRow(total, op.getOutput(), {at.batch, at.head, at.row});
      });
  op.erase();
}

void fovea::attn::attachHierarchicalToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerSummarize, lowerFastMultipole,
                  lowerFastMultipoleLinear>(context);
}
