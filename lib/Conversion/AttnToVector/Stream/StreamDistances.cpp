//===- StreamDistances.cpp - Terms of scores by distance ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What relative keys and biases by distance add to the scores of a tile of rows
// goes where a bias of these rows would be packed. Keys are transposed once for
// a head, queries and their bias once for a block (see ShiftedProduct.h).
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
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
    int64_t count = terms.columns.getCount(lanes);
    if (source.relativeKeys) {
      int64_t paddedWidth = llvm::alignTo(width, lanes);
      terms.keys = b.scratch({width, count}, state);
      terms.bias = b.scratch({paddedWidth}, state);
      terms.queries = b.scratch({paddedWidth, queries}, state);
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
  for (const DistanceTerms &terms : distanceTerms) {
    if (terms.numbers)
      copyByDistance(b, viewOf(terms.distanceBias), terms.numbers,
                     isSoftmax ? softmax::kLog2E : 1.0, terms.columns);
    if (!terms.keys)
      continue;
    transposeByDistance(b, viewOf(terms.relativeKeys), terms.keys,
                        terms.columns);
    b.overVectors(llvm::alignTo(width, lanes), [&](Value column) {
      b.storeVector(b.splat(0.0), terms.bias, column);
    });
    Value bias = viewOf(terms.relativeBias);
    b.loop(b.index(0), b.index(width), 1, [&](Value k) {
      b.storeScalar(b.loadScalar(bias, k), terms.bias, k);
    });
  }
}

void StreamKernel::packDistanceQueries(Value query, Value numQueries) {
  for (const DistanceTerms &terms : distanceTerms)
    if (terms.keys)
      packRows({queryRows, stagedQueries, terms.queries, width, terms.bias},
               query, numQueries, b.splat(getScoreScale()));
}

/// Adds the terms of a segment's rows to its packed bias, or makes them one.
void StreamKernel::packDistances(const Segment &segment) {
  const SourceView &source = sources[segment.source];
  if (!source.distanceTerms)
    return;
  const DistanceTerms &terms = *source.distanceTerms;
  Value position = b.sub(b.add(firstRow, blockQuery), source.origin);
  ShiftedTile tile = {
      segment.skip, segment.count,   b.sub(position, segment.row),
      vectors,      tiles.getKeys(), terms.columns};
  emitShiftedProduct(
      b, tile, terms.keys, terms.queries, width,
      [&](Value row, int64_t v, Value column, Value total) {
        Value at[] = {b.add(segment.scoreRow, row), b.index(v * lanes)};
        if (terms.numbers)
          total = b.fadd(total, b.loadVector(terms.numbers, column));
        if (source.bias)
          total = b.fadd(total, b.loadVector(packedBias, at));
        if (hasBiasThatHides(segment))
          total = b.fmax(b.splat(softmax::kMasked), total);
        b.storeVector(total, packedBias, at);
      });
}
