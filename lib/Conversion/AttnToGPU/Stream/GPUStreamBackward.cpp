//===- GPUStreamBackward.cpp - Tiles of gradients of attn.stream on a GPU -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamBackward.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "fovea/Kernels/StreamRanges.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

GradientTile::GradientTile(GPUKernelBuilder &builder, StreamBackwardOp op,
                           const StreamSource &source, Value deltas,
                           Value derivative, F32Math math)
    : SquareTile(builder, math), op(op), source(source), deltas(deltas),
      numQueries(b.extent(op.getQuery(), 2)),
      length(emitLength(b, source, /*batch=*/Value(), numQueries)),
      scoreBody(op.getScore(), op.getCaptures()) {
  scoreBody.setDerivatives({derivative, {}});
}

//===----------------------------------------------------------------------===//
// Queries and rows
//===----------------------------------------------------------------------===//

void GradientTile::setBatch(Value batch) {
  numQueries = b.lengthOf(op.getQueryLengths(), batch, numQueries);
  length = emitLength(b, source, batch, numQueries);
}

static Value blockOf(KernelBuilder &b, StreamBackwardOp op, Value query) {
  int64_t block = op.getBlock();
  return block ? b.div(query, block) : b.index(0);
}

std::pair<Value, Value> GradientTile::findRows(Value firstQuery) {
  Value lastQuery =
      b.sub(b.min(b.add(firstQuery, kGradientTile), numQueries), b.index(1));
  if (op.getQueryLengths())
    lastQuery = b.max(lastQuery, 0);
  Value begin = blockOf(b, op, firstQuery), end = blockOf(b, op, lastQuery);
  Values rows =
      b.loop(begin, b.add(end, 1), 1, {length.rows, b.index(0)},
             [&](Value block, ValueRange rows) -> Values {
               Value low = rows[0], high = rows[1];
               for (AffineMap range : source.attr.getRanges()) {
                 RangeBounds bounds =
                     emitRangeBounds(b, range, block, length.rows, numQueries);
                 Value exists = b.less(bounds.low, bounds.high);
                 low = b.select(exists, b.min(low, bounds.low), low);
                 high = b.select(exists, b.max(high, bounds.high), high);
               }
               return {low, high};
             });
  MaskAttr mask = source.attr.getMask();
  Value low = emitAdmittedRows(b, mask, firstQuery, numQueries, length).first;
  Value high = emitAdmittedRows(b, mask, lastQuery, numQueries, length).second;
  return {b.max(rows[0], low), b.min(rows[1], high)};
}

GradientTile::Query GradientTile::loadQuery(const Place &place, Value number) {
  Query query;
  Value index = b.add(place.firstQuery, b.toIndex(number));
  query.exists = b.less(index, numQueries);
  // Threads without a query repeat the last one.
  index = b.min(index, b.sub(numQueries, b.index(1)));
  query.index = index = op.getQueryLengths() ? b.max(index, 0) : index;
  Value at[] = {place.batch, place.head, index};
  query.lse = b.loadScalar(op.getLse(), at);
  query.delta = b.loadScalar(deltas, at);
  auto [low, high] =
      emitAdmittedRows(b, source.attr.getMask(), index, numQueries, length);
  for (AffineMap range : source.attr.getRanges()) {
    RangeBounds bounds = emitRangeBounds(b, range, blockOf(b, op, index),
                                         length.rows, numQueries);
    query.ranges.push_back({b.max(bounds.low, low), b.min(bounds.high, high)});
  }
  return query;
}

GradientTile::Row GradientTile::loadRow(const Place &place, Value number) {
  Row row;
  Value index = b.add(place.firstRow, b.toIndex(number));
  row.exists = b.less(index, length.rows);
  index = b.min(index, b.sub(length.rows, b.index(1)));
  row.index = index = source.lengths ? b.max(index, 0) : index;
  if (Value weight = source.logWeight)
    row.logWeight =
        b.loadScalar(weight, {b.broadcastIndex(weight, 0, place.batch),
                              b.broadcastIndex(weight, 1, place.keyHead),
                              b.broadcastIndex(weight, 2, index)});
  return row;
}

Value GradientTile::loadElement(Value memref, Value batch, Value head,
                                Value row, Value column) {
  Value exists = b.both(b.less(row, b.extent(memref, 2)),
                        b.less(column, b.index(getWidth(memref))));
  return loadOr0(
      exists, [&] { return b.loadScalar(memref, {batch, head, row, column}); });
}

//===----------------------------------------------------------------------===//
// Weights and their gradients
//===----------------------------------------------------------------------===//

Value GradientTile::countRanges(const Query &query, const Row &row) {
  Value count = b.scalar(0.0);
  Value exists = b.both(query.exists, row.exists);
  for (auto [low, high] : query.ranges) {
    Value isIn = b.both(b.less(b.sub(low, b.index(1)), row.index),
                        b.less(row.index, high));
    count = b.fadd(
        count, b.select(b.both(exists, isIn), b.scalar(1.0), b.scalar(0.0)));
  }
  return count;
}

void GradientTile::weigh(const Place &place, const Query &query, const Row &row,
                         Value score, Value product, Of gradients,
                         Entries &entries) {
  auto isMinusInfinity = [&](Value number) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, number,
                                 b.scalar(-kInfinity));
  };
  Value count = countRanges(query, row), hidden = getHiddenWeight(b);
  // A query that reads nothing has no finite sum, and nothing else is admitted
  // where nothing is.
  Value isNone = b.either(isMinusInfinity(query.lse),
                          arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                count, b.scalar(0.0)));
  score = b.fmul(score, b.scalar(op.getScale().convertToDouble()));
  Value derivative;
  if (scoreBody) {
    Value position = b.add(query.index, b.sub(length.tokens, numQueries));
    Value key = emitPosition(b, source.attr.getMask(), row.index);
    ScoreBody::Result result = scoreBody.evaluate(b, score, {position}, {key});
    score = result.score;
    derivative = result.derivative;
    isNone = b.either(isNone, isMinusInfinity(score));
  }
  auto addTerm = [&](Value term) {
    isNone = b.either(isNone, isMinusInfinity(term));
    score = b.fadd(score, term);
  };
  if (row.logWeight)
    addTerm(row.logWeight);
  if (Value bias = source.bias)
    addTerm(b.loadScalar(bias, {b.broadcastIndex(bias, 0, place.batch),
                                b.broadcastIndex(bias, 1, place.head),
                                b.broadcastIndex(bias, 2, query.index),
                                b.broadcastIndex(bias, 3, row.index)}));
  score = b.fmul(b.fsub(score, query.lse), b.scalar(softmax::kLog2E));
  Value weight =
      math::Exp2Op::create(b, b.fmax(b.scalar(softmax::kMasked), score));
  weight = b.select(isNone, hidden, b.fmul(weight, count));
  entries.weights.push_back(weight);
  if (!product)
    return;
  Value gradient = b.fmul(weight, b.fsub(product, query.delta));
  if (derivative && gradients == Of::Products)
    gradient = b.fmul(gradient, derivative);
  entries.gradients.push_back(b.select(isNone, hidden, makeRead(b, gradient)));
}

GradientTile::Entries GradientTile::compute(const Place &place,
                                            bool rowsAreQueries, Of gradients) {
  if (scoreBody)
    scoreBody.enterHead(b, place.batch, place.head);
  auto queryElement = [&](Value memref) {
    return [&, memref](Value number, Value k) {
      return loadElement(memref, place.batch, place.head,
                         b.add(place.firstQuery, number), k);
    };
  };
  auto rowElement = [&](Value memref) {
    return [&, memref](Value number, Value k) {
      return loadElement(memref, place.batch, place.keyHead,
                         b.add(place.firstRow, number), k);
    };
  };
  auto multiply = [&](Value ofQueries, Value ofRows) {
    return multiplyPairs(rowsAreQueries, getWidth(ofRows),
                         queryElement(ofQueries), rowElement(ofRows));
  };
  Values scores = multiply(op.getQuery(), source.keys);
  Values products(scores.size());
  if (gradients != Of::Nothing)
    products = multiply(op.getDOutput(), source.values);
  Entries entries;
  forEachPair(
      rowsAreQueries, [&](Value number) { return loadQuery(place, number); },
      [&](Value number) { return loadRow(place, number); },
      [&](const Query &query, const Row &row, int64_t i) {
        weigh(place, query, row, scores[i], products[i], gradients, entries);
      });
  return entries;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Values GradientTile::addKept(ValueRange sums, Value memref, Value batch,
                             Value head, Value first, Value column) {
  return SquareTile::addKept(sums, [&](Value number, Value k) {
    return loadElement(memref, batch, head, b.add(first, k),
                       b.add(number, column));
  });
}
