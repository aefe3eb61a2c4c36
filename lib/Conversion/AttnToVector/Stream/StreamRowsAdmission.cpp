//===- StreamRowsAdmission.cpp - Keys that few rows do not read -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys before the first and behind the last one that a score region leaves are
// not divided among parts: a window takes as many parts as it has keys for. Of
// what lies between, tiles are skipped as blocks of queries skip them.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// `count` numbers from `first` on; of a single one both ends are the same.
static ScoreAdmission::Interval makeInterval(KernelBuilder &b, Value first,
                                             Value count) {
  if (getConstantIntValue(count) == 1)
    return {first, first};
  return {first, b.sub(b.add(first, count), b.index(1))};
}

/// Keys of lists and those with a stride stand apart.
bool StreamRowsKernel::skipsTiles(unsigned source) {
  SourceAttr attr = op.getSourceList()[source].attr;
  return !scoreFunctions.empty() &&
         getOfSource(scoreFunctions, source)->admission &&
         !attr.getMask().hasStride() && !op.getSourceList()[source].rowList;
}

/// As masks count: the last query stands at the last key.
ScoreAdmission::Interval
StreamRowsKernel::getQueryPositions(const StreamSource &source,
                                    Value firstQuery, Value numQueries) {
  Value shift = b.add(firstRow, b.sub(getLength(source).tokens, sequenceRows));
  return makeInterval(b, b.add(firstQuery, shift), numQueries);
}

/// Before there are sets. Where what they read differs, tiles alone tell.
void StreamRowsKernel::encloseKeys() {
  enclosed.resize(op.getSourceList().size());
  if (op.getBlock() != 0 || op->getParentOfType<scf::ForallOp>())
    return;
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    if (!skipsTiles(index) || source.lengths)
      continue;
    ScoreAdmission &admission = getOfSource(scoreFunctions, index)->admission;
    Value zero = b.index(0);
    admission.enterHeads(makeInterval(b, zero, b.extent(op.getQuery(), 0)),
                         makeInterval(b, zero, b.extent(op.getQuery(), 1)));
    ScoreAdmission::State known =
        admission.enterQueries(b, getQueryPositions(source, zero, numQueries));
    for (const Interval &interval : getIntervals(source, zero, numQueries))
      enclosed[index].push_back(
          admission.enclose(b, known, interval.low, interval.high));
  }
}

void StreamRowsKernel::enclose(unsigned source,
                               MutableArrayRef<Interval> intervals) {
  if (enclosed[source].empty())
    return;
  for (auto [interval, keys] : llvm::zip_equal(intervals, enclosed[source])) {
    interval.low = b.max(interval.low, keys.first);
    interval.high = b.min(interval.high, keys.second);
  }
}

/// Bounds what the region of a source removes for the rows of the set.
void StreamRowsKernel::enterAdmission(unsigned source, SourceView &view) {
  if (scoreFunctions.empty())
    return;
  view.score = getOfSource(scoreFunctions, source).get();
  if (!skipsTiles(source))
    return;
  Value first = b.mul(setHead, group), low = first, high = first;
  if (getConstantIntValue(group) != 1) {
    Value lastRow = b.sub(b.add(setBegin, setRows), b.index(1));
    low = b.add(first, b.div(setBegin, setQueries));
    high = b.add(first, b.div(lastRow, setQueries));
  }
  ScoreAdmission &admission = view.score->admission;
  admission.enterHeads({batch, batch}, {low, high});
  view.admission = admission.enterQueries(
      b, getQueryPositions(op.getSourceList()[source], firstQuery, setQueries));
}

/// Attends to the part of a tile of consecutive keys that the region admits.
void StreamRowsKernel::attendAdmitted(Tile tile) {
  if (!tile.source.admission)
    return attendTile(tile);
  ScoreAdmission::Part part = tile.source.score->admission.trim(
      b, *tile.source.admission, tile.low, tile.count, /*unit=*/lanes);
  b.ifThen(b.less(part.begin, part.end), [&] {
    tile.low = b.add(tile.low, part.begin);
    tile.count = b.sub(part.end, part.begin);
    tile.admitsAll = part.admitsAll;
    attendTile(tile);
  });
}
