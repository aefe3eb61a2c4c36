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
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

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
  Value first = k.toIndex(tile.firstRow), all = ranges->getNumQueries();
  Span rows = {first, k.add(first, kTile)};
  Value query = k.toIndex(firstOwn), behind = k.add(query, 1);
  if (ofRows) {
    rows = {query, k.min(k.add(query, ownRows), ranges->getLength().rows)};
    query = first;
    behind = k.add(first, kTile);
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
  Value first = k.toIndex(firstOwn), zero = k.index(0);
  Value list =
      getListOf(k, op, source.rowList, batch, head, ranges->getBlock(first));
  int64_t unit = source.attr.getUnit();
  auto forRange = [&](Value range, ValueRange number) -> Values {
    Span read = ranges->getRowsOfTile(range, first, ownRows);
    Span common = ranges->getCommonRows(range, first, ownRows);
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
  auto forRange = [&](Value range, ValueRange number) -> Values {
    auto forQuery = [&](Value query, ValueRange number) -> Values {
      Tile tile;
      tile.head = head;
      tile.range = k.toIndex(range);
      tile.firstRow = query;
      query = k.toIndex(query);
      return {addListed(tile, ranges->getRowsOfTile(tile.range, query, kTile),
                        ranges->getCommonRows(tile.range, query, kTile),
                        number[0], body)};
    };
    auto forNumber = [&](Value i, ValueRange number) {
      Value block =
          listsOfRows->loadBlock(k, batch, k.toIndex(head), k.toIndex(i));
      Value first = k.mul(k.toI32(block), size);
      Value end = k.toI32(ranges->getNumQueries());
      if (size)
        end = k.min(k.add(first, size), end);
      return k.loop(first, end, kTile, number, forQuery);
    };
    auto [begin, end] =
        listsOfRows->getNumbers(k, batch, k.toIndex(head), k.toIndex(firstOwn));
    return k.loop(k.toI32(begin), k.toI32(end), 1, number, forNumber);
  };
  Value numRanges = k.i32(source.attr.getRanges().size());
  return k.loop(k.i32(0), numRanges, 1, {number}, forRange)[0];
}
