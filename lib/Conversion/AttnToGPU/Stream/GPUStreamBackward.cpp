//===- GPUStreamBackward.cpp - Tiles of gradients of attn.stream on a GPU -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamBackward.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Two numbers of 32 bits for each query, behind what a SquareTile has.
int64_t GradientTile::getSharedBytes() {
  return SquareTile::getSharedBytes() + kSize * 2 * 4;
}

GradientTile::GradientTile(GPUKernelBuilder &builder, StreamBackwardOp op,
                           const StreamSource &source, Value deltas,
                           const ScoreDerivatives *score, F32Math math)
    : SquareTile(builder, math), op(op), source(source), deltas(deltas),
      weigher(builder, op, source, score), ranges(b, op, source) {
  bounds =
      b.sharedBuffer(SquareTile::getSharedBytes(), {kSize, 2}, b.getI32Type());
}

//===----------------------------------------------------------------------===//
// Queries and rows
//===----------------------------------------------------------------------===//

// Products have barriers before these are read, and after those of the tile
// before were.
void GradientTile::findBounds(const Place &place) {
  Value number = b.toIndex(b.thread()), numQueries = ranges.getNumQueries();
  b.ifThen(b.less(number, b.index(kSize)), [&] {
    Value query = b.add(place.firstQuery, number), none = b.index(0);
    Value exists = b.less(query, numQueries);
    GradientRanges::Span rows =
        ranges.getRows(place.range, b.select(exists, query, none));
    for (auto [i, row] : llvm::enumerate(Values{rows.begin, rows.end}))
      b.storeIndex(b.select(exists, row, none), bounds, {number, b.index(i)});
  });
}

GradientTile::Query GradientTile::loadQuery(const Place &place, Value number) {
  Query query;
  Value index = b.add(place.firstQuery, b.toIndex(number));
  // Threads without a query repeat the last one.
  index = b.min(index, b.sub(ranges.getNumQueries(), b.index(1)));
  query.index = index = op.getQueryLengths() ? b.max(index, 0) : index;
  Value at[] = {place.batch, place.head, index};
  query.lse = b.loadScalar(op.getLse(), at);
  query.delta = b.loadScalar(deltas, at);
  query.beginRow = b.loadIndex(bounds, {b.toIndex(number), b.index(0)});
  query.endRow = b.loadIndex(bounds, {b.toIndex(number), b.index(1)});
  return query;
}

GradientTile::Row GradientTile::loadRow(const Place &place, Value number) {
  Row row;
  Value index = row.number = b.add(place.firstRow, b.toIndex(number));
  index = b.min(index, b.sub(ranges.getLength().rows, b.index(1)));
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

EntryWeigher::Entry GradientTile::makeEntry(const Place &place,
                                            const Query &query,
                                            const Row &row) {
  EntryWeigher::Entry entry;
  entry.batch = place.batch;
  entry.head = place.head;
  entry.query = query.index;
  entry.row = row.index;
  entry.queryPosition = b.add(
      query.index, b.sub(ranges.getLength().tokens, ranges.getNumQueries()));
  entry.keyPosition = emitPosition(b, source.attr.getMask(), row.index);
  entry.lse = query.lse;
  entry.delta = query.delta;
  entry.logWeight = row.logWeight;
  // Nothing else is admitted where nothing is.
  entry.isNone = b.either(b.less(row.number, query.beginRow),
                          b.less(b.sub(query.endRow, b.index(1)), row.number));
  return entry;
}

EntryWeigher::EntryWeigher(GPUKernelBuilder &builder, StreamBackwardOp op,
                           const StreamSource &source,
                           const ScoreDerivatives *score)
    : b(builder), op(op), source(source) {
  if (score)
    scoreBody.emplace(*score, op.getCaptures());
}

void EntryWeigher::enterHead(Value batch, Value head) {
  if (scoreBody)
    scoreBody->enterHead(b, batch, head);
}

WeighedEntry EntryWeigher::weigh(const Entry &entry, Value score, Value product,
                                 Of gradients) {
  auto isMinusInfinity = [&](Value number) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, number,
                                 b.scalar(-kInfinity));
  };
  Value hidden = getHiddenWeight(b);
  // A query that reads nothing has no finite sum.
  Value isNone = b.either(isMinusInfinity(entry.lse), entry.isNone);
  score = b.fmul(score, b.scalar(op.getScale().convertToDouble()));
  Value derivative, ofRead;
  if (scoreBody) {
    ScoreBody::Result result = scoreBody->evaluate(
        b, score, {entry.queryPosition}, {entry.keyPosition});
    score = result.score;
    derivative = result.derivative;
    if (gradients == Of::Read)
      ofRead = result.readDerivatives.front();
    isNone = b.either(isNone, isMinusInfinity(score));
  }
  auto addTerm = [&](Value term) {
    isNone = b.either(isNone, isMinusInfinity(term));
    score = b.fadd(score, term);
  };
  if (entry.logWeight)
    addTerm(entry.logWeight);
  if (Value bias = source.bias)
    addTerm(b.loadScalar(bias, {b.broadcastIndex(bias, 0, entry.batch),
                                b.broadcastIndex(bias, 1, entry.head),
                                b.broadcastIndex(bias, 2, entry.query),
                                b.broadcastIndex(bias, 3, entry.row)}));
  score = b.fmul(b.fsub(score, entry.lse), b.scalar(softmax::kLog2E));
  Value weight =
      math::Exp2Op::create(b, b.fmax(b.scalar(softmax::kMasked), score));
  weight = b.select(isNone, hidden, weight);
  if (!product)
    return {weight, Value()};
  Value gradient = b.fmul(weight, b.fsub(product, entry.delta));
  if (derivative && gradients == Of::Products)
    gradient = b.fmul(gradient, derivative);
  if (ofRead)
    gradient = b.fmul(gradient, ofRead);
  return {weight, gradient};
}

Value GradientTile::isRead(ScoreAdmission &admission, const Place &place) {
  const SourceLength &length = ranges.getLength();
  Value numQueries = ranges.getNumQueries(), one = b.index(1);
  auto positionOf = [&](Value query) {
    return b.add(query, b.sub(length.tokens, numQueries));
  };
  Value endQuery = b.min(b.add(place.firstQuery, kSize), numQueries);
  Value endRow = b.min(b.add(place.firstRow, kSize), length.rows);
  MaskAttr mask = source.attr.getMask();
  admission.enterHead(place.batch, place.head);
  return admission.reads(
      b,
      admission.enterQueries(
          b, {positionOf(place.firstQuery), positionOf(b.sub(endQuery, one))}),
      {emitPosition(b, mask, place.firstRow),
       emitPosition(b, mask, b.sub(endRow, one))});
}

void GradientTile::compute(const Place &place, bool rowsAreQueries,
                           Of gradients, double factor) {
  weigher.enterHead(place.batch, place.head);
  findBounds(place);
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
  put(Kept::Weights, multiply(op.getQuery(), source.keys));
  bool hasGradients = gradients != Of::Nothing;
  if (hasGradients)
    put(Kept::Gradients, multiply(op.getDOutput(), source.values));
  weighPairs(
      rowsAreQueries, hasGradients, factor,
      [&](Value number) { return loadQuery(place, number); },
      [&](Value number) { return loadRow(place, number); },
      [&](const Query &query, const Row &row, Value score, Value product) {
        return weigher.weigh(makeEntry(place, query, row), score, product,
                             gradients);
      });
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Values GradientTile::addScores(Place place, ValueRange sums) {
  return b.loop(b.index(0), ranges.getNumRanges(), 1, sums,
                [&](Value range, ValueRange sums) {
                  place.range = range;
                  compute(place, /*rowsAreQueries=*/true, Of::Scores);
                  return addAll(b, sums, loadKept(Kept::Gradients));
                });
}

Values GradientTile::addKept(Kept kept, ValueRange sums, Value memref,
                             Value batch, Value head, Value first,
                             Value column) {
  return SquareTile::addKept(kept, sums, [&](Value number, Value k) {
    return loadElement(memref, batch, head, b.add(first, k),
                       b.add(number, column));
  });
}
