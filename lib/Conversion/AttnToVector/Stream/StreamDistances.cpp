//===- StreamDistances.cpp - Terms of scores by distance ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What relative keys and biases by distance add to the scores of a tile of rows
// goes where a bias of these rows would be packed. Products with relative keys
// are computed once for a block of queries and all distances that it needs, and
// skewed for each tile (see SkewedRows.h).
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

void StreamKernel::allocateDistanceTerms() {
  Type state = b.getStateType();
  int64_t queries = tiles.getQueryLanes();
  for (const StreamOp::Source &source : op.getSourceList()) {
    if (!source.attr.hasDistances() || findDistanceTerms(source))
      continue;
    Value any = source.relativeKeys ? source.relativeKeys : source.distanceBias;
    DistanceTerms terms = {
        source.relativeKeys,
        source.relativeBias,
        source.distanceBias,
        {cast<MemRefType>(any.getType()).getDimSize(1), queries}};
    const DistanceRows &distances = terms.distances;
    int64_t count = distances.getCount(), padding = distances.padding;
    if (source.relativeKeys) {
      int64_t paddedWidth = llvm::alignTo(width, lanes);
      if (getElementTypeOrSelf(source.relativeKeys) != state)
        terms.staged = b.scratch({distances.numTerms, width}, state);
      terms.bias = b.scratch({paddedWidth}, state);
      terms.queries = b.scratch({paddedWidth, queries}, state);
      terms.products = b.scratch({count, queries}, state);
      fillRows(b, terms.products, b.index(0), b.index(padding), 0.0);
      fillRows(b, terms.products, b.index(count - padding), b.index(count),
               0.0);
    }
    if (source.distanceBias)
      terms.numbers = b.scratch({count}, state);
    distanceTerms.push_back(terms);
  }
}

const StreamKernel::DistanceTerms *
StreamKernel::findDistanceTerms(const StreamOp::Source &source) {
  if (!source.attr.hasDistances())
    return nullptr;
  auto *found = llvm::find_if(distanceTerms, [&](const DistanceTerms &terms) {
    return terms.relativeKeys == source.relativeKeys &&
           terms.relativeBias == source.relativeBias &&
           terms.distanceBias == source.distanceBias;
  });
  return found == distanceTerms.end() ? nullptr : found;
}

void StreamKernel::layOutDistanceTerms(Value head) {
  auto viewOf = [&](Value operand) {
    return b.rowView(operand, b.broadcastIndex(operand, 0, head));
  };
  for (DistanceTerms &terms : distanceTerms) {
    if (terms.numbers)
      copyByDistance(b, viewOf(terms.distanceBias), terms.numbers,
                     isSoftmax ? softmax::kLog2E : 1.0, terms.distances);
    if (!terms.products)
      continue;
    terms.keys = viewOf(terms.relativeKeys);
    if (terms.staged) {
      b.loop(b.index(0), b.index(terms.distances.numTerms), 1, [&](Value row) {
        b.copyRow(terms.keys, row, terms.staged, row, width);
      });
      terms.keys = terms.staged;
    }
    b.overVectors(llvm::alignTo(width, lanes), [&](Value column) {
      b.storeVector(b.splat(0.0), terms.bias, column);
    });
    Value bias = viewOf(terms.relativeBias);
    b.loop(b.index(0), b.index(width), 1, [&](Value k) {
      b.storeScalar(b.loadScalar(bias, k), terms.bias, k);
    });
  }
}

/// The distance of the block's query 0 from row 0 of a segment.
Value StreamKernel::getDistance(const Segment &segment) {
  Value position = b.add(firstRow, blockQuery);
  return b.sub(b.sub(position, sources[segment.source].origin), segment.row);
}

/// The products of the block's queries and relative keys, for the distances
/// from rows of `segments`.
void StreamKernel::multiplyDistances(Value query, Value numQueries,
                                     ArrayRef<Segment> segments) {
  for (const DistanceTerms &terms : distanceTerms) {
    if (!terms.products)
      continue;
    packRows({queryRows, stagedQueries, terms.queries, width, terms.bias},
             query, numQueries, b.splat(getScoreScale()));
    auto multiplyKeys = [&](Value low, Value high, int64_t step) {
      b.loop(low, high, step, [&](Value distance) {
        Values keys;
        for (int64_t i = 0; i < step; ++i)
          keys.push_back(b.add(distance, i));
        Values products = multiply(Segment(), distance, keys, /*firstVector=*/0,
                                   {terms.keys, terms.queries, width});
        for (int64_t i = 0; i < step; ++i)
          for (int64_t v = 0; v < vectors; ++v)
            b.storeVector(
                products[i * vectors + v], terms.products,
                {terms.distances.getRow(b, keys[i]), b.index(v * lanes)});
      });
    };
    // A segment whose rows follow those of another shares distances with it.
    Value numTerms = b.index(terms.distances.numTerms);
    Value doneLow = b.index(0), doneHigh = b.index(0);
    for (const Segment &segment : segments) {
      if (sources[segment.source].distanceTerms != &terms)
        continue;
      Value nearest = b.sub(getDistance(segment), segment.skip);
      Value high =
          b.clamp(b.add(nearest, tiles.getQueryLanes()), b.index(0), numTerms);
      Value low = b.add(b.sub(getDistance(segment), segment.count), 1);
      low = b.select(b.less(segment.skip, segment.count),
                     b.clamp(low, b.index(0), high), high);
      Value follows =
          b.both(b.both(b.less(low, doneLow), b.less(doneLow, b.add(high, 1))),
                 b.less(high, b.add(doneHigh, 1)));
      Value end = b.select(follows, doneLow, high);
      Value length = b.sub(end, low);
      Value whole = b.add(low, b.roundDown(length, tiles.getKeys()));
      multiplyKeys(low, whole, tiles.getKeys());
      multiplyKeys(whole, end, 1);
      doneHigh = b.select(follows, doneHigh, high);
      doneLow = low;
    }
  }
}

/// Adds the terms of a segment's rows to its packed bias, or makes them one.
void StreamKernel::packDistances(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  if (!source.distanceTerms)
    return;
  const DistanceTerms &terms = *source.distanceTerms;
  SkewedTile tile = {segment.skip, segment.count, getDistance(segment),
                     tiles.getQueryLanes(), terms.distances};
  tile.forEachVector(
      b, terms.products, [&](Value row, Value query, Value place, Value total) {
        Value at[] = {b.add(segment.scoreRow, row), query};
        if (terms.numbers)
          total = b.fadd(total, b.loadVector(terms.numbers, place));
        if (source.bias)
          total = b.fadd(total, b.loadVector(packedBias, at));
        if (hasBiasThatHides(segment))
          total = b.fmax(b.splat(softmax::kMasked), total);
        b.storeVector(total, packedBias, at);
      });
}
