//===- GPUVQTile.cpp - Tiles of gradients of attn.vq on a GPU -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUVQTile.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

VQTile::Query VQTile::loadQuery(const Place &place, Value number) {
  Query query;
  const VQWindow &window = problem.window;
  Value row = b.add(place.firstQuery, b.toIndex(number));
  query.exists = b.less(row, place.endQuery);
  // Threads without a query repeat the last one.
  query.row = b.min(row, b.sub(window.length, b.index(1)));
  query.token = b.add(query.row, window.numBefore);
  if (op.hasDistances()) {
    int64_t block = problem.getBlock();
    query.memoryBegin = b.sub(b.mul(b.div(query.token, block), block),
                              b.index(problem.getMemory() * block));
  }
  if (op.getPadded())
    query.exists = b.both(query.exists, isPresent(place, query.token));
  if (!problem.isSoftmax())
    return query;
  Value at[] = {place.batch, place.head, query.row};
  Value lse = b.loadScalar(op.getLse(), at);
  // A row that read nothing passes nothing on.
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, lse,
                            b.scalar(-std::numeric_limits<double>::infinity()));
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  query.exists = b.select(isEmpty, no, query.exists);
  query.offset = b.fmul(lse, b.scalar(-softmax::kLog2E));
  query.delta = b.loadScalar(problem.deltas, at);
  return query;
}

Value VQTile::existsRow(const Place &place, Value row) {
  if (place.isCache)
    return b.less(row, b.index(problem.getNumCodes()));
  return b.both(b.less(b.index(-1), row),
                b.less(row, problem.window.numTokens));
}

Value VQTile::isPresent(const Place &place, Value token) {
  Value at[] = {place.batch, place.keyHead, token};
  return b.less(b.index(-1), b.loadIndex(problem.window.codes, at));
}

VQTile::Row VQTile::loadRow(const Place &place, Value number) {
  Row row;
  row.index = b.add(place.firstRow, b.toIndex(number));
  row.exists = existsRow(place, row.index);
  if (op.getPadded() && !place.isCache) {
    Value last = b.sub(problem.window.numTokens, b.index(1));
    Value token = b.clamp(row.index, b.index(0), last);
    row.exists = b.both(row.exists, isPresent(place, token));
  }
  if (place.isCache)
    row.count = loadOr0(row.exists, [&]() -> Value {
      Value count = memref::LoadOp::create(b, problem.window.counts,
                                           ofCache(place, row.index));
      return arith::SIToFPOp::create(b, b.getF32Type(), count);
    });
  return row;
}

Value VQTile::loadQueryElement(const Place &place, Value memref, Value number,
                               Value column) {
  Value query = b.add(place.firstQuery, number);
  Value exists = b.both(b.less(query, place.endQuery),
                        b.less(column, b.index(getWidth(memref))));
  return loadOr0(exists, [&] {
    return b.loadScalar(memref, {place.batch, place.head, query, column});
  });
}

Value VQTile::loadKey(const Place &place, Value number, Value column) {
  Value row = b.add(place.firstRow, number), table = op.getCodebook();
  Value exists =
      b.both(existsRow(place, row), b.less(column, b.index(getWidth(table))));
  return loadOr0(exists, [&] {
    Value at[] = {place.batch, place.keyHead, row};
    Value code = place.isCache ? row : b.loadIndex(problem.window.codes, at);
    // Scores of absent tokens are those of any codeword, which nobody reads.
    if (op.getPadded())
      code = b.max(code, 0);
    Value word = b.broadcastIndex(table, 0, place.keyHead);
    return b.loadScalar(table, {word, code, column});
  });
}

Value VQTile::loadValue(const Place &place, Value number, Value column) {
  Value row = b.add(place.firstRow, number);
  return loadOr0(existsRow(place, row), [&] {
    if (!place.isCache)
      return b.loadScalar(problem.window.values,
                          {place.batch, place.keyHead, row, column});
    Values at = ofCache(place, row);
    at.push_back(column);
    return b.loadScalar(problem.window.means, at);
  });
}

/// What is added to the score of a token. Columns of a bias count from the
/// first block of the query's memory.
Value VQTile::loadBias(const Place &place, const Query &query, Value row) {
  Value bias = op.getBias(), byDistance;
  if (Value terms = op.getDistanceBias())
    byDistance = b.loadScalar(terms, {b.broadcastIndex(terms, 0, place.head),
                                      b.sub(query.token, row)});
  if (!bias)
    return byDistance;
  int64_t block = problem.getBlock();
  Value begin = b.mul(b.div(query.token, block), block);
  Value column = b.add(b.sub(row, begin), problem.getMemory() * block);
  Value term =
      b.loadScalar(bias, {b.broadcastIndex(bias, 0, place.batch),
                          b.broadcastIndex(bias, 1, place.head),
                          b.broadcastIndex(bias, 2, query.row), column});
  return byDistance ? b.fadd(term, byDistance) : term;
}

WeighedEntry VQTile::weigh(const Place &place, const Query &query,
                           const Row &row, Value score, Value product) {
  bool isSoftmax = problem.isSoftmax(), isCache = place.isCache;
  Value zero = b.scalar(0.0), hidden = getHiddenWeight(b);
  auto isAbove = [&](Value number, double bound) {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, number,
                                 b.scalar(bound));
  };
  // Nobody reads a codeword that no token has, nor what a bias removes.
  Value exists = b.both(query.exists, row.exists);
  exists = b.both(exists, isCache ? isAbove(row.count, 0.0)
                                  : b.less(row.index, b.add(query.token, 1)));
  if (op.hasDistances() && !isCache)
    exists = b.both(exists, b.less(query.memoryBegin, b.add(row.index, 1)));
  // Scores are in base 2 for the exponential.
  double base = isSoftmax ? softmax::kLog2E : 1.0;
  score = b.fmul(score, b.scalar(op.getScale().convertToDouble() * base));
  if ((op.getBias() || op.getDistanceBias()) && !isCache) {
    Value bias =
        loadOr0(exists, [&] { return loadBias(place, query, row.index); });
    exists =
        b.both(exists, isAbove(bias, -std::numeric_limits<double>::infinity()));
    score = b.fma(bias, b.scalar(base), score);
  }
  Value factor, weight;
  if (isSoftmax) {
    // No score is above its row's lse, except that of a codeword that no token
    // has; its count is 0.
    score = b.fadd(score, query.offset);
    Value isPositive =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, score, zero);
    score =
        b.fmax(b.scalar(softmax::kMasked), b.select(isPositive, zero, score));
    factor = weight = math::Exp2Op::create(b, score);
  } else {
    Value positive = b.fmax(zero, score);
    factor = b.fadd(positive, positive);
    weight = b.fmul(positive, positive);
  }
  weight = b.select(exists, weight, hidden);
  if (!product)
    return {weight, Value()};
  if (isSoftmax)
    product = b.fsub(product, query.delta);
  if (isCache)
    factor = b.fmul(factor, row.count);
  return {weight, b.fmul(factor, product)};
}

void VQTile::compute(const Place &place, bool rowsAreQueries, bool hasGradients,
                     double factor) {
  auto multiplyBy = [&](Value memref,
                        Value (VQTile::*load)(const Place &, Value, Value)) {
    auto queries = [&](Value number, Value column) {
      return loadQueryElement(place, memref, number, column);
    };
    auto rows = [&](Value number, Value column) {
      return (this->*load)(place, number, column);
    };
    return multiplyPairs(rowsAreQueries, getWidth(memref), queries, rows);
  };
  put(Kept::Weights, multiplyBy(problem.window.queries, &VQTile::loadKey));
  if (op.getRelativeKeys() && !place.isCache)
    addDistanceScores(place, rowsAreQueries);
  if (hasGradients)
    put(Kept::Gradients,
        multiplyBy(problem.window.dOutputs, &VQTile::loadValue));
  weighPairs(
      rowsAreQueries, hasGradients, factor,
      [&](Value number) { return loadQuery(place, number); },
      [&](Value number) { return loadRow(place, number); },
      [&](const Query &query, const Row &row, Value score, Value product) {
        return weigh(place, query, row, score, product);
      });
}

Values VQTile::addKeys(const Place &place, ValueRange sums, Value column) {
  return addKept(Kept::Gradients, sums, [&](Value number, Value row) {
    return loadKey(place, row, b.add(number, column));
  });
}

Values VQTile::addQueries(Kept kept, const Place &place, ValueRange sums,
                          Value memref, Value column) {
  return addKept(kept, sums, [&](Value number, Value query) {
    return loadQueryElement(place, memref, query, b.add(number, column));
  });
}

//===----------------------------------------------------------------------===//
// Terms by distance
//===----------------------------------------------------------------------===//

Value VQTile::loadRelativeKey(const Place &place, Value distance,
                              Value column) {
  Value keys = op.getRelativeKeys();
  auto shape = getMemRefType(keys).getShape();
  Value exists = b.both(b.less(b.index(-1), distance),
                        b.less(distance, b.index(shape[1])));
  exists = b.both(exists, b.less(column, b.index(shape[2])));
  return loadOr0(exists, [&] {
    Value set = b.broadcastIndex(keys, 0, place.head);
    return b.loadScalar(keys, {set, distance, column});
  });
}

Value VQTile::loadRelativeQuery(const Place &place, Value number,
                                Value column) {
  Value queries = problem.window.queries, bias = op.getRelativeBias();
  Value exists = b.less(column, b.index(getWidth(queries)));
  return loadOr0(exists, [&] {
    Value set = b.broadcastIndex(bias, 0, place.head);
    return b.fadd(loadQueryElement(place, queries, number, column),
                  b.loadScalar(bias, {set, column}));
  });
}

/// Adds the products of queries and relative keys, of two tiles of distances,
/// to the scores.
void VQTile::addDistanceScores(const Place &place, bool rowsAreQueries) {
  for (bool isOwn : {false, true}) {
    Value first = b.sub(getFirstToken(place), place.firstRow);
    if (!isOwn)
      first = b.sub(first, b.index(kSize));
    Values products = multiply(
        getWidth(op.getQuery()),
        [&](Value number, Value k) {
          return loadRelativeQuery(place, number, k);
        },
        [&](Value number, Value k) {
          return loadRelativeKey(place, b.add(first, number), k);
        });
    put(Kept::Gradients, products);
    overEntries({}, [&](Value own, ValueRange columns, ValueRange) -> Values {
      for (Value column : columns) {
        Value query = rowsAreQueries ? own : column;
        Value row = rowsAreQueries ? column : own;
        Value number = b.rem(b.add(b.sub(query, row), kSize), kSize);
        Value term = loadKept(Kept::Gradients, query, number);
        Value score = loadKept(Kept::Weights, own, column);
        Value sum = b.fadd(score, term), isEarlier = b.less(query, row);
        storeKept(Kept::Weights, own, column,
                  isOwn ? b.select(isEarlier, score, sum)
                        : b.select(isEarlier, sum, score));
      }
      return {};
    });
  }
}

void VQTile::keepByDistance(Place place, Value firstDistance,
                            bool rowsAreDistances, double factor) {
  auto computeGradients = [&](Value distance) {
    place.firstRow = b.sub(getFirstToken(place), distance);
    compute(place, /*rowsAreQueries=*/true, /*hasGradients=*/true);
    return loadKept(Kept::Gradients);
  };
  Values before = computeGradients(b.add(firstDistance, kSize));
  Values gradients = computeGradients(firstDistance), both;
  forEach(gradients, [&](Value query, Value row, Value gradient) {
    Value earlier = before[both.size()];
    both.push_back(b.select(b.less(query, row), earlier, gradient));
  });
  keepAt(Kept::Gradients, both, factor, [&](Value query, Value row) {
    Value number = b.rem(b.add(b.sub(query, row), kSize), kSize);
    return rowsAreDistances ? std::pair(number, query)
                            : std::pair(query, number);
  });
}

Values VQTile::addRelativeKeys(const Place &place, ValueRange sums,
                               Value firstDistance, Value column) {
  return addKept(Kept::Gradients, sums, [&](Value number, Value distance) {
    return loadRelativeKey(place, b.add(firstDistance, distance),
                           b.add(number, column));
  });
}

Values VQTile::addRelativeQueries(const Place &place, ValueRange sums,
                                  Value column) {
  return addKept(Kept::Gradients, sums, [&](Value number, Value query) {
    return loadRelativeQuery(place, query, b.add(number, column));
  });
}
