//===- NamedRows.cpp - Rows that ranges and lists name --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NamedRows.h"

using namespace mlir;
using namespace fovea;

/// The rows that the ranges of a source of `m` rows name for block `b`.
static RowRanges evaluateRanges(attn::SourceAttr source, int64_t b, int64_t m,
                                int64_t n) {
  RowRanges rows;
  Builder builder(source.getContext());
  for (AffineMap map : source.getRanges()) {
    SmallVector<Attribute> results;
    // Maps divide by positive constants only: they always fold.
    if (failed(
            map.constantFold({builder.getIndexAttr(b), builder.getIndexAttr(m),
                              builder.getIndexAttr(n)},
                             results)))
      continue;
    auto rowOf = [&](unsigned i) {
      return cast<IntegerAttr>(results[i]).getInt();
    };
    // A level of a pool has rows of its own.
    bool hasBounds = map.getNumResults() == 4;
    int64_t lower = hasBounds ? std::max<int64_t>(rowOf(2), 0) : 0;
    int64_t upper = hasBounds ? std::min(rowOf(3), m) : m;
    rows.push_back({std::max(rowOf(0), lower), std::min(rowOf(1), upper)});
  }
  return rows;
}

SourceRows fovea::getSourceRows(const attn::StreamSource &source,
                                const KnownData &data, int64_t numRows,
                                std::optional<int64_t> numPositions,
                                int64_t rowsPerBlock, int64_t numQueries,
                                int64_t numHeads) {
  SourceRows found;
  attn::SourceAttr attr = source.attr;
  DenseIntElementsAttr lists;
  int64_t numEntries = 0, numLists = 0, firstList = 0, allPositions = numRows;
  if (source.rowList) {
    lists = dyn_cast_or_null<DenseIntElementsAttr>(data.lookup(source.rowList));
    found.hasUnknownLists = !lists;
  }
  if (lists) {
    ArrayRef<int64_t> shape = lists.getType().getShape();
    numLists = shape[2], numEntries = shape[3];
    if (lists.empty())
      numEntries = 0;
    found.isOfOneHead = shape[0] != 1 || shape[1] != 1;
    firstList = shape[0] == 1 ? 0 : data.batch * shape[1];
    firstList += data.head * shape[1] / std::max<int64_t>(numHeads, 1);
    if (attr.getHasListedPositions())
      allPositions = numEntries * attr.getUnit();
  }
  found.numPositions =
      std::min(numPositions.value_or(allPositions), allPositions);
  // Rows behind these do not exist, but a pool has rows of other sequences.
  int64_t endRow = attr.getHasListedPositions() ? numRows : found.numPositions;
  for (int64_t b = 0; b * rowsPerBlock < numQueries; ++b) {
    RowRanges ranges = evaluateRanges(attr, b, found.numPositions, numQueries);
    SmallVector<NamedRows> &rows = found.blocks.emplace_back();
    if (!lists) {
      for (const RowRange &range : ranges)
        rows.push_back({range});
      continue;
    }
    int64_t first =
        (firstList * numLists + (numLists == 1 ? 0 : b)) * numEntries;
    for (int64_t entry = 0; entry < numEntries; ++entry) {
      int64_t unit = attr.getUnit(),
              row =
                  unit * lists.getValues<APInt>()[first + entry].getSExtValue();
      if (row < 0 || row >= endRow)
        continue;
      int64_t position = attr.getHasListedPositions() ? unit * entry : row;
      int64_t end = position + std::min(unit, endRow - row);
      for (const RowRange &range : ranges)
        rows.push_back(
            {{std::max(range.begin, position), std::min(range.end, end)},
             row - position});
    }
  }
  return found;
}
