//===- LowerToReferenceSoftmax.cpp - Dense and stream as plain loops ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceWalks.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

Value fovea::attn::admits(ReferenceBuilder &ref, MaskAttr mask, Value query,
                          Value key) {
  if (mask.hasPrefix())
    query = ref.max(query, ref.index(mask.getPrefix() - 1));
  if (!mask.hasWindow())
    return ref.lessOrEqual(key, query);
  Value inWindow =
      ref.less(ref.distance(query, key), ref.index(mask.getWindow()));
  if (!mask.getCausal())
    return inWindow;
  return ref.both(ref.lessOrEqual(key, query), inWindow);
}

/// The rows that a source has for a batch entry.
static Value countRows(ReferenceBuilder &ref, const StreamSource &source,
                       MaskAttr mask, Value batch) {
  if (source.lengths)
    return ref.div(ref.loadIndex(source.lengths, batch),
                   ref.index(mask.getStride()));
  if (source.attr && source.attr.getHasListedPositions())
    return ref.mul(ref.extent(source.rowList, 3),
                   ref.index(source.attr.getUnit()));
  return ref.extent(source.getRowsOperand(), 2);
}

Value fovea::attn::countTokens(ReferenceBuilder &ref, MaskAttr mask, Value rows,
                               Value numQueries) {
  Value stride = ref.index(mask.getStride());
  Value tokens = ref.mul(rows, stride);
  // As many more as there are queries for, less than make a row.
  Value most = ref.sub(ref.add(tokens, stride), ref.index(1));
  return ref.min(ref.max(numQueries, tokens), most);
}

/// The tokens that the rows of a source stand for.
static Value countTokens(ReferenceBuilder &ref, const QueryRow &at,
                         const StreamSource &source, MaskAttr mask) {
  if (source.lengths)
    return ref.loadIndex(source.lengths, at.batch);
  return countTokens(ref, mask, countRows(ref, source, mask, at.batch),
                     at.numRows);
}

Value fovea::attn::getPosition(ReferenceBuilder &ref, MaskAttr mask,
                               Value key) {
  return ref.sub(
      ref.mul(ref.add(key, ref.index(1)), ref.index(mask.getStride())),
      ref.index(1));
}

/// An element of a buffer of numbers; `isInside` says whether there is one, or
/// else it is zero.
static Value loadInside(ReferenceBuilder &ref, Value buffer, ValueRange at,
                        Value &isInside) {
  ImplicitLocOpBuilder &b = ref.getBuilder();
  isInside = arith::ConstantOp::create(b, b.getBoolAttr(true));
  for (auto [dim, index] : llvm::enumerate(at))
    isInside =
        ref.both(isInside, ref.both(ref.lessOrEqual(ref.index(0), index),
                                    ref.less(index, ref.extent(buffer, dim))));
  Type type = getElementTypeOrSelf(buffer);
  return ref.when(
      isInside, [&] { return memref::LoadOp::create(b, buffer, at); },
      arith::ConstantOp::create(b, b.getZeroAttr(type)));
}

namespace {
/// What a score region makes of a product, and the derivatives that are wanted.
struct ComputedScore {
  Value score, derivative;
  SmallVector<ReferenceRead> reads;
};
} // namespace

/// Scores and derivatives are NaN where the region reads what is not there. It
/// computes in the type of sums.
static ComputedScore computeScore(ReferenceBuilder &ref, const QueryRow &at,
                                  const ReferenceScore &score, Value product,
                                  Value query, Value key) {
  ImplicitLocOpBuilder &b = ref.getBuilder();
  Block &block = score.region->front();
  Type type = block.getArgument(score_argument::Score).getType();
  if (!type.isF64())
    product = arith::TruncFOp::create(b, type, product);
  SmallVector<Value> arguments = {product, at.batch, at.head, query, key};
  llvm::append_range(arguments, score.captures);
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  ComputedScore computed;
  llvm::DenseMap<Operation *, ReferenceRead> reads;
  Value isRead;
  for (Operation &op : block.without_terminator()) {
    auto extract = dyn_cast<tensor::ExtractOp>(op);
    if (!extract) {
      b.clone(op, mapping);
      continue;
    }
    SmallVector<Value> indices =
        llvm::map_to_vector(extract.getIndices(),
                            [&](Value index) { return mapping.lookup(index); });
    Value isInside;
    mapping.map(extract.getResult(),
                loadInside(ref, mapping.lookup(extract.getTensor()), indices,
                           isInside));
    isRead = isRead ? ref.both(isRead, isInside) : isInside;
    reads[extract] = {indices, isInside, Value(), 0};
  }
  auto finish = [&](Value value) {
    value = mapping.lookup(value);
    if (!value.getType().isF64())
      value = arith::ExtFOp::create(b, b.getF64Type(), value);
    Value nan = ref.number(std::numeric_limits<double>::quiet_NaN());
    return isRead ? ref.select(isRead, value, nan) : value;
  };
  computed.score = finish(getYieldedScore(*score.region));
  if (score.derivatives.score)
    computed.derivative = finish(score.derivatives.score);
  for (ScoreDerivatives::OfRead each : score.derivatives.reads) {
    ReferenceRead &read = computed.reads.emplace_back(reads[each.read]);
    read.derivative = each.value ? finish(each.value) : ref.number(0.0);
    read.tensor = each.getTensorNumber();
  }
  return computed;
}

/// Makes `computed` what a step behind it has computed of its score.
static void chain(ReferenceBuilder &ref, ComputedScore &computed,
                  const ComputedScore &step) {
  computed.score = step.score;
  if (!step.derivative)
    return;
  for (ReferenceRead &read : computed.reads)
    read.derivative = ref.mulNumbers(read.derivative, step.derivative);
  computed.derivative =
      computed.derivative ? ref.mulNumbers(computed.derivative, step.derivative)
                          : step.derivative;
  computed.reads.append(step.reads);
}

Value DistanceTerms::load(ReferenceBuilder &ref, Value queries, Value batch,
                          Value head, Value row, Value distance) const {
  Value term;
  if (relativeKeys) {
    term = ref.accumulate(
        ref.index(0), ref.extent(queries, 3), ref.number(0.0),
        [&](Value d, Value sum) {
          Value query =
              ref.addNumbers(ref.load(queries, {batch, head, row, d}),
                             ref.loadBroadcast(relativeBias, {head, d}));
          Value key = ref.loadBroadcast(relativeKeys, {head, distance, d});
          return ref.addNumbers(sum, ref.mulNumbers(query, key));
        });
    term = ref.mulNumbers(ref.number(scale), term);
  }
  if (distanceBias) {
    Value bias = ref.loadBroadcast(distanceBias, {head, distance});
    term = term ? ref.addNumbers(term, bias) : bias;
  }
  return term;
}

/// What a source adds to the score of row `key` by its distance from the query;
/// null if nothing.
static Value distanceTerm(ReferenceBuilder &ref, const QueryRow &at,
                          const StreamOp::Source &source, double scale,
                          Value key) {
  if (!source.attr || !source.attr.hasDistances())
    return Value();
  Value origin = (*affine::expandAffineMap(
      ref.getBuilder(), ref.getBuilder().getLoc(),
      AffineMap::get(/*dimCount=*/0, /*symbolCount=*/2,
                     source.attr.getOriginExpr()),
      {ref.extent(source.getRowsOperand(), 2), at.numRows}))[0];
  Value distance = ref.sub(ref.sub(at.position, origin), key);
  return DistanceTerms{source.relativeKeys, source.relativeBias,
                       source.distanceBias, scale}
      .load(ref, at.query, at.batch, at.head, at.row, distance);
}

/// Visits the entries of key rows `begin <= j < end` of a source. Row j takes
/// column `j - biasBegin` of the bias, and stands at position `j + shift`, or
/// at `j` where that is null.
static Value walkRows(ReferenceBuilder &ref, const QueryRow &at,
                      const StreamOp::Source &source, MaskAttr mask,
                      double scale, Value begin, Value end, Value biasBegin,
                      Value first, EntryVisitor visit, Value shift = {}) {
  if (at.exists)
    end = ref.select(at.exists, end, begin);
  Value query = ref.sub(
      ref.add(at.position, countTokens(ref, at, source, mask)), at.numRows);
  return ref.accumulate(begin, end, first, [&](Value key, Value state) {
    Value keyPosition =
        getPosition(ref, mask, shift ? ref.add(key, shift) : key);
    auto visitPresent = [&](Value bias, Value logWeight) {
      Value row = key;
      if (source.codes)
        row = ref.loadIndex(source.codes, {at.batch, at.keyHead, key});
      Value product = ref.dot(
          at.query, {at.batch, at.head, at.row}, source.keys,
          ref.broadcastIndices(source.keys, {at.batch, at.keyHead, row}));
      ComputedScore computed;
      computed.score = ref.mulNumbers(ref.number(scale), product);
      auto value = [&](Value column) {
        if (source.hasValueBlocks())
          return ref.load(source.values,
                          {at.batch, at.keyHead, at.block, key, column});
        if (shift)
          return ref.loadBroadcast(source.values,
                                   {at.batch, at.keyHead, key, column});
        return ref.load(source.values, {at.batch, at.keyHead, key, column});
      };
      auto visitScore = [&]() -> Value {
        Value score = computed.score;
        if (bias)
          score = ref.addNumbers(score, bias);
        return visit(
            {score, logWeight, value, key, computed.derivative, computed.reads},
            state);
      };
      std::function<Value(ArrayRef<const ReferenceScore *>)> take =
          [&](ArrayRef<const ReferenceScore *> steps) -> Value {
        if (steps.empty())
          return visitScore();
        chain(ref, computed,
              computeScore(ref, at, *steps.front(), computed.score, query,
                           keyPosition));
        return ref.when(
            ref.isNotMinusInfinity(computed.score),
            [&] { return take(steps.drop_front()); }, state);
      };
      return take(at.scores);
    };

    // A term of minus infinity removes the entry, as a mask does.
    auto visitAdmitted = [&]() -> Value {
      Value bias, logWeight, isPresent;
      if (source.hasLogWeightBlocks())
        logWeight = ref.loadBroadcast(source.logWeight,
                                      {at.batch, at.keyHead, at.block, key});
      else if (source.logWeight)
        logWeight =
            ref.loadBroadcast(source.logWeight, {at.batch, at.keyHead, key});
      if (source.bias)
        bias = ref.loadBroadcast(
            source.bias, {at.batch, at.head, at.row, ref.sub(key, biasBegin)});
      if (Value term = distanceTerm(ref, at, source, scale, key))
        bias = bias ? ref.addNumbers(bias, term) : term;
      for (Value term : {logWeight, bias}) {
        if (!term)
          continue;
        Value counts = ref.isNotMinusInfinity(term);
        isPresent = isPresent ? ref.both(isPresent, counts) : counts;
      }
      if (!isPresent)
        return visitPresent(bias, logWeight);
      return ref.when(
          isPresent, [&] { return visitPresent(bias, logWeight); }, state);
    };

    if (mask.isTrivial())
      return visitAdmitted();
    return ref.when(admits(ref, mask, query, keyPosition), visitAdmitted,
                    state);
  });
}

void fovea::attn::forEachQueryRow(
    ReferenceBuilder &ref, Value query, Value key, Value firstRow,
    Value numRows, int64_t block,
    llvm::function_ref<void(const QueryRow &)> body, Value queryLengths,
    const ScoreSteps &scores) {
  if (!numRows)
    numRows = ref.extent(query, 2);
  ref.forEach(ref.extent(query, 0), [&](Value b) {
    if (queryLengths)
      numRows = ref.loadIndex(queryLengths, b);
    ref.forEach(ref.extent(query, 1), [&](Value h) {
      Value g = ref.keyHead(query, key, h);
      ref.forEach(ref.extent(query, 2), [&](Value i) {
        Value position = firstRow ? ref.add(firstRow, i) : i;
        Value blockIndex =
            block == 0 ? ref.index(0) : ref.div(position, ref.index(block));
        Value exists = queryLengths ? ref.less(position, numRows) : Value();
        body(
            {query, b, h, g, i, position, numRows, blockIndex, exists, scores});
      });
    });
  });
}

Value fovea::attn::walkAllRows(ReferenceBuilder &ref, const QueryRow &at,
                               const StreamSource &source, MaskAttr mask,
                               double scale, Value first, EntryVisitor visit) {
  return walkRows(ref, at, source, mask, scale, ref.index(0),
                  countRows(ref, source, mask, at.batch), ref.index(0), first,
                  visit);
}

/// Visits the entries of positions `begin <= p < end` of a source that the list
/// of the row names.
static Value walkList(ReferenceBuilder &ref, const QueryRow &at,
                      const StreamSource &source, double scale, Value begin,
                      Value end, Value first, EntryVisitor visit) {
  Value list = source.rowList, zero = ref.index(0),
        unit = ref.index(source.attr.getUnit());
  // One for all heads, for each key head or for each query head.
  Value head =
      ref.div(ref.mul(at.head, ref.extent(list, 1)), ref.extent(at.query, 1));
  return ref.accumulate(
      zero, ref.extent(list, 3), first, [&](Value number, Value state) {
        Value listed = ref.loadIndex(
            list,
            ref.broadcastIndices(list, {at.batch, head, at.block, number}));
        auto walk = [&]() -> Value {
          Value row = ref.mul(listed, unit);
          Value rowsEnd =
              ref.min(ref.add(row, unit), ref.extent(source.keys, 2));
          if (!source.attr.getHasListedPositions())
            return walkRows(ref, at, source, source.attr.getMask(), scale,
                            ref.max(begin, row), ref.min(end, rowsEnd), zero,
                            state, visit);
          Value shift = ref.sub(ref.mul(number, unit), row);
          return walkRows(ref, at, source, source.attr.getMask(), scale,
                          ref.max(ref.sub(begin, shift), row),
                          ref.min(ref.sub(end, shift), rowsEnd), zero, state,
                          visit, shift);
        };
        return ref.when(ref.lessOrEqual(zero, listed), walk, state);
      });
}

Value fovea::attn::walkRanges(ReferenceBuilder &ref, const QueryRow &at,
                              const StreamSource &source, double scale,
                              Value first, EntryVisitor visit) {
  Value rows = countRows(ref, source, source.attr.getMask(), at.batch),
        state = first;
  for (AffineMap range : source.attr.getRanges()) {
    SmallVector<Value, 8> bounds =
        *affine::expandAffineMap(ref.getBuilder(), ref.getBuilder().getLoc(),
                                 range, {at.block, rows, at.numRows});
    Value begin = ref.max(bounds[0], ref.index(0));
    Value end = ref.min(bounds[1], rows);
    if (bounds.size() == 4) {
      begin = ref.max(begin, bounds[2]);
      end = ref.min(end, bounds[3]);
    }
    if (source.rowList) {
      state = walkList(ref, at, source, scale, begin, end, state, visit);
      continue;
    }
    Value biasBegin = ref.index(0);
    if (source.attr.getHasLocalBias()) {
      biasBegin = bounds[0];
      end = ref.min(end, ref.add(biasBegin, ref.extent(source.bias, 3)));
    }
    state = walkRows(ref, at, source, source.attr.getMask(), scale, begin, end,
                     biasBegin, state, visit);
  }
  return state;
}

/// Stores the row of the output, and its `lse` unless that is null; `sinks` may
/// be null, too.
static void emitRow(ReferenceBuilder &ref, const QueryRow &at,
                    Weighting weighting, Value row, Value sinks, Value output,
                    Value lse, EntryWalker walk) {
  SmallVector<Value> to = {at.batch, at.head, at.row};
  if (weighting == Weighting::SquaredRelu) {
    emitSquaredReluRow(ref, walk, row);
    return ref.storeRow(row, output, to);
  }
  Value sink;
  if (sinks)
    sink = ref.loadBroadcast(sinks, {at.batch, at.head});
  if (sink && at.exists)
    sink = ref.select(at.exists, sink, ref.minusInfinity());
  Value sum = emitSoftmaxRow(ref, walk, row, sink);
  ref.storeRow(row, output, to);
  if (lse)
    ref.store(sum, lse, to);
}

/// What the regions of `op` do.
template <typename OpTy> static SmallVector<ReferenceScore> getScores(OpTy op) {
  SmallVector<ReferenceScore> scores;
  for (Region &region : op->getRegions())
    scores.push_back({&region, SmallVector<Value>(op.getCaptures())});
  return scores;
}

static void lowerDense(DenseOp op) {
  ReferenceBuilder ref(op);
  StreamSource source = {op.getKey(),    op.getValue(),     op.getLogWeight(),
                         op.getBias(),   /*codes=*/Value(), SourceAttr(),
                         op.getLengths()};
  Value row =
      ref.allocate({cast<ShapedType>(op.getOutput().getType()).getDimSize(3)});
  SmallVector<ReferenceScore> scores = getScores(op);
  forEachQueryRow(
      ref, op.getQuery(), op.getKey(), /*firstRow=*/Value(),
      /*numRows=*/Value(), /*block=*/0,
      [&](const QueryRow &at) {
        emitRow(ref, at, Weighting::Softmax, row, op.getSink(), op.getOutput(),
                op.getLse(), [&](Value state, EntryVisitor visit) {
                  return walkAllRows(ref, at, source, op.getMaskOrNone(),
                                     op.getScaleOrDefault(), state, visit);
                });
      },
      op.getQueryLengths(),
      scores.empty() ? ScoreSteps() : ScoreSteps{&scores.front()});
  op.erase();
}

static void lowerStream(StreamOp op) {
  ReferenceBuilder ref(op);
  double scale = op.getScale().convertToDouble();
  SmallVector<StreamSource> sources = op.getSourceList();
  SmallVector<ReferenceScore> scores = getScores(op);
  SmallVector<ScoreSteps> steps = getScoreSteps(op, scores);
  Value row =
      ref.allocate({cast<ShapedType>(op.getOutput().getType()).getDimSize(3)});
  forEachQueryRow(
      ref, op.getQuery(), op.getValues().front(), op.getFirstRow(),
      op.getNumRows(), op.getBlock(),
      [&](const QueryRow &at) {
        emitRow(ref, at, op.getWeighting(), row, op.getSink(), op.getOutput(),
                op.getLse(), [&](Value state, EntryVisitor visit) {
                  QueryRow own = at;
                  for (auto [source, ofSource] : llvm::zip(sources, steps)) {
                    own.scores = ofSource;
                    state = walkRanges(ref, own, source, scale, state, visit);
                  }
                  return state;
                });
      },
      op.getQueryLengths());
  op.erase();
}

void fovea::attn::attachSoftmaxToReference(MLIRContext &context) {
  attachLowerings<ReferenceModel, lowerDense, lowerStream>(context);
}
