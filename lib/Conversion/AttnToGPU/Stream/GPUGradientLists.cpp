//===- GPUGradientLists.cpp - Listed tiles of gradients on sm_90a ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Entries name whole tiles of rows. A block of threads that has queries goes
// through the list that all of them have, one that has rows through the lists
// that name all of these (GPUListsOfRows.cpp), in order and as often as they
// do. The thread that starts copies does that, ahead of those who multiply, and
// leaves out what no query of the block or of the tile reads.
//
// Where entries name less, or rows stand where they are listed, all threads of
// the producer copy rows of entries that follow each other to a tile for
// queries. It has in shared memory where each row is stored, and where it
// stands.
//
// For rows, a block of threads has rows of entries of one list that follow each
// other, which all of its threads copy, and the queries of the list pass. What
// it sums are parts of gradients (GPUListPasses.cpp).
//
// Where lists are for few queries, the rows of tiles of queries are heads that
// share a list (getTileHeads).
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;
using Span = GradientRanges::Span;

/// Calls `body` with the tile from `tile.firstRow` on, as tile `number`, if
/// some query reads one of its rows: some query reads those of `read`, and all
/// of them those of `common`. Returns how many tiles there are then.
Value GradientBlock::addListed(Tile tile, const Span &read, const Span &common,
                               Value number,
                               function_ref<void(const Tile &)> body) {
  Value first = k.toIndex(tile.firstRow), own = k.toIndex(firstOwn),
        all = ranges->getNumQueries();
  Span rows = {first, k.add(first, kTile)};
  Value query = getQuery(ofRows ? first : own), behind = k.add(query, 1);
  if (ofRows) {
    rows = {own, k.min(k.add(own, ownRows), ranges->getLength().rows)};
    behind = k.add(query, countQueries(kTile));
  }
  Value isRead =
      k.both(k.less(query, all), k.both(k.less(read.begin, rows.end),
                                        k.less(rows.begin, read.end)));
  Value isCut = k.either(
      k.either(k.less(rows.begin, common.begin), k.less(common.end, rows.end)),
      k.less(all, behind));
  return changeIf(k, isRead, {number}, [&]() -> Values {
    tile.number = number;
    tile.isCut = isCut;
    body(tile);
    return {k.add(number, 1)};
  })[0];
}

/// Of queries: the rows of the entries of their list.
Value GradientBlock::forListedRows(Value number,
                                   function_ref<void(const Tile &)> body) {
  Value first = getQuery(k.toIndex(firstOwn)), zero = k.index(0);
  Value list = getListOf(k, op, source.rowList, batch, getFirstHead(head),
                         ranges->getBlock(first));
  int64_t unit = source.attr.getUnit(), count = countQueries(ownRows);
  auto forRange = [&](Value range, ValueRange number) -> Values {
    Span read = ranges->getRowsOfTile(range, first, count);
    Span common = ranges->getCommonRows(range, first, count);
    auto forEntry = [&](Value entry, ValueRange number) -> Values {
      Value named = k.loadIndex(list, entry);
      Value begin = k.mul(named, unit);
      Value end = k.min(k.add(begin, unit), k.extent(source.keys, 2));
      return k.loop(k.max(begin, 0), k.select(k.less(named, zero), zero, end),
                    kTile, number, [&](Value row, ValueRange number) -> Values {
                      Tile tile;
                      tile.range = range;
                      tile.firstRow = k.toI32(row);
                      return {addListed(tile, read, common, number[0], body)};
                    });
    };
    return k.loop(zero, k.extent(list, 0), 1, number, forEntry);
  };
  return k.loop(zero, ranges->getNumRanges(), 1, {number}, forRange)[0];
}

/// Of rows: the queries of a head whose lists name them. The producer has few
/// registers: loops count with 32 bits.
Value GradientBlock::forListedQueries(Value head, Value number,
                                      function_ref<void(const Tile &)> body) {
  int64_t size = op.getBlock();
  Value firstOfHead = getFirstHead(k.toIndex(head));
  auto forRange = [&](Value range, ValueRange number) -> Values {
    auto forQuery = [&](Value query, ValueRange number) -> Values {
      Tile tile;
      tile.head = head;
      tile.range = k.toIndex(range);
      tile.firstRow = query;
      query = getQuery(k.toIndex(query));
      int64_t count = countQueries(kTile);
      return {addListed(tile, ranges->getRowsOfTile(tile.range, query, count),
                        ranges->getCommonRows(tile.range, query, count),
                        number[0], body)};
    };
    auto forNumber = [&](Value i, ValueRange number) {
      Value block = listsOfRows->loadBlock(k, batch, firstOfHead, k.toIndex(i));
      Value first = k.mul(k.toI32(block), size * tileHeads);
      Value end = countRows(k.toI32(ranges->getNumQueries()));
      if (size)
        end = k.min(k.add(first, size * tileHeads), end);
      return k.loop(first, end, kTile, number, forQuery);
    };
    auto [begin, end] =
        listsOfRows->getNumbers(k, batch, firstOfHead, k.toIndex(firstOwn));
    return k.loop(k.toI32(begin), k.toI32(end), 1, number, forNumber);
  };
  Value numRanges = k.i32(source.attr.getRanges().size());
  return k.loop(k.i32(0), numRanges, 1, {number}, forRange)[0];
}

//===----------------------------------------------------------------------===//
// Rows one by one
//===----------------------------------------------------------------------===//

/// Where no mask admits a row.
static constexpr int64_t kNowhere = -1;

void GradientBlock::placeListedRows(int64_t numStages) {
  if (!isScattered)
    return;
  numListed = ofRows ? ownRows : numStages * kTile;
  listedPlace = place(numListed * NumListedFields * 4);
}

Value GradientBlock::loadListed(Value first, Value row, ListedField field) {
  return memref::LoadOp::create(
      k, listedRows, ValueRange{k.toIndex(k.add(first, row)), k.index(field)});
}

Value GradientBlock::findListedRows(function_ref<void(const Tile &)> await,
                                    function_ref<void(const Tile &)> body) {
  Value first = getQuery(k.toIndex(firstOwn)), zero = k.index(0),
        none = k.index(-1);
  Value list = getListOf(k, op, source.rowList, batch, getFirstHead(head),
                         ranges->getBlock(first));
  Value stored = k.extent(source.keys, 2), all = ranges->getNumQueries();
  Value thread = k.toIndex(k.thread());
  Value isOfTile = k.less(thread, k.index(kTile));
  int64_t unit = source.attr.getUnit(), count = countQueries(ownRows);
  bool hasListedPositions = source.attr.getHasListedPositions();
  auto forRange = [&](Value range, ValueRange number) -> Values {
    Span read = ranges->getRowsOfTile(range, first, count);
    Span common = ranges->getCommonRows(range, first, count);
    auto isIn = [&](const Span &span, Value position) {
      return k.both(k.less(k.sub(span.begin, k.index(1)), position),
                    k.less(position, span.end));
    };
    Value low = zero, high = k.mul(k.extent(list, 0), unit);
    if (hasListedPositions) {
      low = k.max(read.begin, zero);
      high = k.min(high, read.end);
    }
    high = k.select(k.less(first, all), high, low);
    auto forTile = [&](Value begin, ValueRange number) -> Values {
      Tile tile;
      tile.number = number[0];
      tile.range = range;
      tile.firstRow = k.toI32(begin);
      await(tile);
      Value entry = k.add(begin, thread);
      Value row = k.select(
          k.both(isOfTile, k.less(entry, high)), k.getIndexType(),
          [&] {
            Value listed = k.loadIndex(list, k.div(entry, unit));
            Value row = k.add(k.mul(listed, unit), k.rem(entry, unit));
            Value isRow = k.both(k.less(none, listed), k.less(row, stored));
            Value position = hasListedPositions ? entry : row;
            return k.select(k.both(isRow, isIn(read, position)), row, none);
          },
          [&] { return none; });
      Value isRow = k.less(none, row);
      Value position =
          k.select(isRow, hasListedPositions ? entry : row, k.index(kNowhere));
      k.ifThen(isOfTile, [&] {
        Value place = k.add(k.mul(getStage(tile), kTile), k.thread());
        for (auto [field, found] : llvm::enumerate(Values{row, position}))
          k.storeIndex(found, listedRows, {k.toIndex(place), k.index(field)});
      });
      Value isWhole = k.both(isRow, isIn(common, position));
      Value isCut =
          k.anyThread(k.both(isOfTile, k.equal(isWhole, k.i1(false))));
      tile.isCut = k.either(isCut, k.less(all, k.add(first, count)));
      return changeIf(k, k.anyThread(isRow), number, [&]() -> Values {
        body(tile);
        return {k.add(tile.number, 1)};
      });
    };
    return k.loop(low, high, kTile, number, forTile);
  };
  return k.loop(zero, ranges->getNumRanges(), 1, {k.i32(0)}, forRange)[0];
}

/// Of rows: those of a list from `firstOwn` on, and which of its queries read
/// them. Masks compare positions of all queries alike: tiles are whole if all
/// queries of the list read all rows.
void GradientBlock::findListRows() {
  int64_t size = op.getBlock(), unit = source.attr.getUnit();
  // More than there are stands for all.
  int64_t count = size ? size : std::numeric_limits<int32_t>::max();
  Value block = k.add(passes->getFirstList(), part), none = k.index(-1);
  Value list = getListOf(k, op, source.rowList, batch,
                         getFirstHead(k.toIndex(firstHead)), block);
  Value first = k.mul(block, size), all = ranges->getNumQueries();
  Value queries =
      k.max(k.sub(size ? k.min(all, k.add(first, size)) : all, first), 0);
  Value thread = k.toIndex(k.thread());
  Value entry = k.add(k.toIndex(firstOwn), thread);
  Value isOwn = k.less(k.thread(), k.i32(ownRows));
  Value exists = k.both(isOwn, k.less(entry, passes->getListRows()));
  bool hasListedPositions = source.attr.getHasListedPositions();
  Value row = k.select(
      exists, k.getIndexType(),
      [&] {
        Value listed = k.loadIndex(list, k.div(entry, unit));
        Value row = k.add(k.mul(listed, unit), k.rem(entry, unit));
        Value isRow =
            k.both(k.less(none, listed), k.less(row, k.extent(source.keys, 2)));
        return k.select(isRow, row, none);
      },
      [&] { return none; });
  Value isRow = k.less(none, row);
  Value position =
      k.select(isRow, hasListedPositions ? entry : row, k.index(kNowhere));
  k.ifThen(isOwn, [&] {
    for (auto [field, found] : llvm::enumerate(Values{row, position}))
      k.storeIndex(found, listedRows, {thread, k.index(field)});
  });
  auto isIn = [&](const Span &span) {
    return k.both(isRow, k.both(k.less(k.sub(span.begin, k.index(1)), position),
                                k.less(position, span.end)));
  };
  k.loop(k.index(0), ranges->getNumRanges(), 1, [&](Value range) {
    Value isRead = isIn(ranges->getRowsOfTile(range, first, count));
    Value isWhole = isIn(ranges->getCommonRows(range, first, count));
    Value isAny = k.anyThread(isRead);
    Value isCut = k.anyThread(k.both(isOwn, k.equal(isWhole, k.i1(false))));
    Value zero = k.index(0), passing = countRows(queries);
    storeSpan(range, {countRows(first),
                      k.select(isAny, k.ceilDiv(passing, kTile), zero), zero,
                      k.select(isCut, zero, k.div(passing, kTile))});
  });
}

/// The depth of products is a multiple of 16 columns.
void GradientBlock::copyListedRows(Value memref, ArrayRef<SharedRows> boxes,
                                   Value listed) {
  Value rows = k.rowView(memref, {k.broadcastIndex(memref, 0, batch), keyHead});
  int64_t first = 0, width = getWidth(memref), depth = llvm::alignTo(width, 16);
  for (const SharedRows &box : boxes) {
    int64_t count = std::min(box.getWidth(), depth - first);
    copyRows(k, rows, box.matrix, box.row, box.rows,
             {k.i32(first), count, width}, kChunkBytes, [&](Value row) {
               Value stored = loadListed(listed, row, StoredRow);
               return std::pair(Values{k.max(stored, 0)},
                                Value(k.less(k.i32(-1), stored)));
             });
    first += count;
  }
}
