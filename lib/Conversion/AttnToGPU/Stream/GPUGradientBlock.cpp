//===- GPUGradientBlock.cpp - Tiles of gradients on sm_90a ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "GPUGradientWarpgroups.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"
#include <algorithm>
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
/// The tiles of one range, counted from the first one.
enum Field { FirstRow, NumTiles, WholeBegin, WholeEnd, NumFields };

/// What those who multiply a tile know of it.
enum TileField { State, TileRow, TileRange, TileHead, NumTileFields };
enum { IsEnd, IsWhole, IsCut };

/// What a block is for. Sums leave no registers for it.
enum BlockNumber {
  NumQueries,
  NumRows,
  NumTokens,
  Batch,
  Head,
  KeyHead,
  Part,
  NumBlockNumbers
};
} // namespace

/// Consumers of a block: one or two where more would have nothing, or no place
/// in shared memory beside two tiles. Sums of a few columns leave registers for
/// a third, without which the latency of their short products shows; sums for
/// keys and for values together do not.
static int64_t getNumConsumers(StreamBackwardOp op, const StreamSource &source,
                               bool ofRows, int64_t numOwn, int64_t tileHeads,
                               const GatheredRows *gathered) {
  constexpr int64_t kMostColumns = 64;
  int64_t columns = std::max(getWidth(source.keys), getWidth(source.values));
  bool isScattered = source.rowList && !namesTiles(source);
  int64_t most = !ofRows && !isScattered && columns <= kMostColumns ? 3 : 2;
  bool hasListRows = ofRows && isScattered;
  // What a block of threads has, the same lists name or are for, or it is of
  // one stretch.
  auto areTogether = [&](int64_t rows) {
    if (!ofRows && !gathered)
      return fillsTiles(op, tileHeads, rows);
    int64_t together = !gathered ? source.attr.getUnit()
                       : ofRows  ? gathered->getLayout().slots
                                 : gathered->getLayout().queries;
    return together % rows == 0;
  };
  auto isTooMuch = [&](int64_t rows) {
    int64_t widths[] = {getWidth(source.keys), getWidth(source.values)};
    int64_t bytes = 0;
    for (auto [i, width] : llvm::enumerate(widths))
      bytes += 2 * getBoxedBytes(GradientBlock::kTile, width) +
               (int64_t(i) < numOwn ? getBoxedBytes(rows, width) : 0);
    return bytes > GradientBlock::kMostOperandBytes;
  };
  while (isTooMuch(most * kWarpgroupRows) ||
         ((source.rowList || gathered) && !hasListRows &&
          !areTogether(most * kWarpgroupRows)))
    --most;
  Value own = ofRows ? source.keys : op.getQuery();
  int64_t rows = getMemRefType(own).getDimSize(2);
  if (hasListRows)
    rows = getMemRefType(source.rowList).getDimSize(3);
  if (ShapedType::isDynamic(rows))
    return most;
  if (!ofRows)
    rows *= tileHeads;
  if (hasListRows)
    rows *= source.attr.getUnit();
  int64_t groups = llvm::divideCeil(rows, kWarpgroupRows);
  // Two blocks of two are better than three and one.
  return std::clamp<int64_t>(groups == 4 ? 2 : groups, 1, most);
}

/// Parts of the queries, each for a block of its own. Where there are many more
/// queries than rows, such as summaries, one block after the other would go
/// through nearly all of them while most multiprocessors wait. Sums of parts
/// are written and read once more: so there are no more than needed.
static int64_t getNumParts(StreamBackwardOp op, const StreamSource &source,
                           bool ofRows) {
  int64_t queries = getMemRefType(op.getQuery()).getDimSize(2);
  int64_t rows = getMemRefType(source.keys).getDimSize(2);
  if (!ofRows || source.rowList || rows == 0 ||
      ShapedType::isDynamic(queries) || ShapedType::isDynamic(rows))
    return 1;
  return std::clamp<int64_t>(queries / rows / 2, 1, GradientBlock::kMostParts);
}

GradientBlock::GradientBlock(RowBuilder &host, StreamBackwardOp op,
                             const StreamSource &source, bool ofRows,
                             int64_t numOwn, const ListsOfRows *listsOfRows,
                             const GatheredRows *gathered,
                             const GatheredRows *joined)
    : host(host), op(op), source(source), ofRows(ofRows),
      tileHeads(getTileHeads(op, source)),
      numConsumers(getNumConsumers(op, source, ofRows, numOwn, tileHeads,
                                   joined ? joined : gathered)),
      ownRows(numConsumers * kWarpgroupRows),
      numParts(gathered ? 1 : getNumParts(op, source, ofRows)),
      k(op.getLoc(), host, (numConsumers + 1) * kWarpgroupSize), w(k),
      isScattered(source.rowList && !namesTiles(source)), gathered(gathered),
      joined(joined), joinedRange(getNumRanges()), listsOfRows(listsOfRows) {
  if (hasListRows())
    passes.emplace(host, op, source, *listsOfRows);
}

int64_t GradientBlock::place(int64_t bytes) {
  int64_t offset = sharedBytes;
  sharedBytes += llvm::alignTo(bytes, 128);
  return offset;
}

SmallVector<SharedRows> GradientBlock::getBoxes(int64_t place, FloatType type,
                                                int64_t columns, Value stage) {
  int64_t perBox = kBoxBytes / 2;
  int64_t rows = getBoxedBytes(kTile, columns) / kBoxBytes;
  SharedMatrix matrix = k.sharedMatrix(place, numStages * rows, perBox, type);
  Value row = k.mul(stage, rows);
  SmallVector<SharedRows> boxes;
  for (int64_t first = 0; first < columns; first += perBox) {
    boxes.push_back({matrix, row, kTile, std::min(perBox, columns - first)});
    row = k.add(row, kTile);
  }
  return boxes;
}

SmallVector<SharedRows>
GradientBlock::getOwnBoxes(int64_t place, FloatType type, int64_t columns) {
  int64_t perBox = kBoxBytes / 2;
  SharedMatrix matrix = k.sharedMatrix(
      place, getBoxedBytes(ownRows, columns) / kBoxBytes, perBox, type);
  SmallVector<SharedRows> boxes;
  for (int64_t first = 0; first < columns; first += perBox)
    boxes.push_back({matrix, k.i32(first / perBox * ownRows), ownRows,
                     std::min(perBox, columns - first)});
  return boxes;
}

void GradientBlock::begin() {
  k.restoreInsertionPoint(host.saveInsertionPoint());
  int64_t numRanges = joinedRange + (joined ? 1 : 0);
  int64_t tablePlace = needsEnd() ? 0 : place(numRanges * NumFields * 4),
          numbersPlace = place(NumBlockNumbers * 4);
  Value own = ofRows ? source.keys : op.getQuery();
  Value batches = host.extent(op.getQuery(), 0),
        heads = host.div(host.extent(op.getQuery(), 1), host.index(tileHeads)),
        keyHeads = host.extent(source.keys, 1), blocks = host.extent(own, 2);
  blocks = host.ceilDiv(ofRows ? blocks : host.mul(blocks, tileHeads), ownRows);
  // Without heads there are no key heads to divide by.
  Value headsOfKey = host.max(host.div(heads, host.max(keyHeads, 1)), 1);
  Values extents = {batches, ofRows ? keyHeads : heads, blocks,
                    host.index(numParts)};
  Value headsOfOwn = headsOfKey;
  if (passes) {
    blocks = host.ceilDiv(passes->getListRows(), ownRows);
    headsOfOwn = host.div(passes->getHeadsOfList(), host.index(tileHeads));
    extents = {batches, passes->getListHeads(), blocks, passes->getNumLists()};
    // The rows of a list one after the other, whose queries are the same.
    std::swap(extents[2], extents[3]);
  }
  // Blocks that share queries take very different times: the longest ones of
  // all heads go first. Others go head by head, which read the same rows.
  Value *goesFirst = extents.begin() + 2;
  if (numParts > 1)
    std::rotate(extents.begin(), goesFirst, goesFirst + 1);
  Values at = beginBlocks(k, extents, sharedBytes);
  if (numParts > 1)
    std::rotate(at.begin(), at.begin() + 1, at.begin() + 3);
  if (passes)
    std::swap(at[2], at[3]);
  part = at[3];
  batch = at[0];
  head = at[1];
  keyHead = !ofRows  ? k.div(at[1], headsOfKey)
            : passes ? k.div(at[1], passes->getListHeadsOfKey())
                     : at[1];
  if (ofRows) {
    Value first = k.mul(head, headsOfOwn);
    firstHead = k.toI32(first);
    endHead = k.toI32(k.min(k.add(first, headsOfOwn), heads));
  }
  // Under a causal mask the last queries take the longest, and of summaries the
  // last rows, those of the longest intervals.
  if (!ofRows || numParts > 1)
    at[2] = k.sub(k.sub(blocks, k.index(1)), at[2]);
  firstOwn = k.toI32(k.mul(at[2], ownRows));
  ranges.emplace(k, op, gathered ? gathered->getOriginal() : source);
  ranges->setBatch(batch);
  numbers = k.sharedBuffer(numbersPlace, {NumBlockNumbers}, k.getI32Type());
  tiles = k.sharedBuffer(tilesPlace, {numTileFields}, k.getI32Type());
  if (isScattered)
    listedRows = k.sharedBuffer(listedPlace, {numListed, NumListedFields},
                                k.getI32Type());
  if (gathered || joined)
    readers = k.sharedBuffer(readersPlace, {numReaders, 2}, k.getI32Type());
  if (ofRows && source.logWeight)
    ownNumbers = k.sharedBuffer(
        ownNumbersPlace, {2 * ownRows, 2 * NumOwnNumbers}, k.getF32Type());
  if (!needsEnd())
    table = k.sharedBuffer(tablePlace, {numRanges, NumFields}, k.getI32Type());
  if (hasListRows())
    findListRows();
  else if (!needsEnd())
    findSpans();
  keepNumbers();
}

/// A thread for each range finds its tiles.
void GradientBlock::findSpans() {
  auto findBy = [&](Value isOwn, function_ref<void(Value, Value *)> find) {
    k.ifThen(isOwn, [&] {
      Value range = k.toIndex(k.thread()), fields[NumFields];
      find(range, fields);
      for (auto [i, field] : llvm::enumerate(fields))
        k.storeIndex(field, table, {range, k.index(i)});
    });
  };
  findBy(k.less(k.thread(), k.i32(joinedRange)),
         [&](Value range, Value *fields) {
           if (gathered)
             findGatheredSpan(*gathered, fields);
           else
             findSpan(range, fields);
         });
  if (joined)
    findBy(k.equal(k.thread(), k.i32(joinedRange)),
           [&](Value, Value *fields) { findGatheredSpan(*joined, fields); });
}

/// Hardly a query reads all slots: all tiles are cut.
void GradientBlock::findGatheredSpan(const GatheredRows &rows, Value *fields) {
  const GatheredRows::Layout &layout = rows.getLayout();
  Value first = k.toIndex(firstOwn), queries = ranges->getNumQueries(), count;
  if (ofRows) {
    Value begin = k.mul(k.div(first, layout.slots), layout.queries);
    fields[FirstRow] = begin;
    count = k.min(k.sub(queries, begin), layout.queries);
  } else {
    fields[FirstRow] = k.mul(k.div(first, layout.queries), layout.slots);
    count = k.select(k.less(first, queries), k.index(layout.slots), k.index(0));
  }
  fields[NumTiles] = k.ceilDiv(count, kTile);
  fields[WholeBegin] = fields[WholeEnd] = k.index(0);
}

void GradientBlock::findSpan(Value range, Value *fields) {
  Value first = k.toIndex(firstOwn);
  if (ofRows) {
    GradientRanges::Span rows = {
        first, k.min(k.add(first, ownRows), ranges->getLength().rows)};
    GradientRanges::Span tiles = ranges->getTilesOfRows(range, rows, kTile);
    if (numParts > 1) {
      Value begin = tiles.begin;
      Value count = k.max(k.sub(tiles.end, begin), 0);
      auto endOf = [&](Value parts) {
        return k.add(begin, k.div(k.mul(count, parts), k.index(numParts)));
      };
      tiles = {endOf(part), endOf(k.add(part, 1))};
    }
    GradientRanges::Span whole = ranges->getWholeTiles(range, rows, kTile);
    fields[FirstRow] = k.mul(tiles.begin, kTile);
    fields[NumTiles] = k.max(k.sub(tiles.end, tiles.begin), 0);
    fields[WholeBegin] = k.sub(whole.begin, tiles.begin);
    fields[WholeEnd] = k.sub(whole.end, tiles.begin);
    return;
  }
  GradientRanges::Span rows = ranges->getRowsOfTile(range, first, ownRows);
  GradientRanges::Span common = ranges->getCommonRows(range, first, ownRows);
  auto count = [&](Value end) {
    Value rowsBefore = k.max(k.sub(end, rows.begin), 0);
    return k.select(k.less(first, ranges->getNumQueries()), rowsBefore,
                    k.index(0));
  };
  fields[FirstRow] = rows.begin;
  fields[NumTiles] = k.ceilDiv(count(rows.end), kTile);
  fields[WholeBegin] = k.ceilDiv(count(common.begin), kTile);
  fields[WholeEnd] = k.div(count(common.end), kTile);
}

/// One thread does, of a range that all threads have looked at.
void GradientBlock::storeSpan(Value range, ValueRange fields) {
  k.ifThen(k.equal(k.thread(), k.i32(0)), [&] {
    for (auto [i, field] : llvm::enumerate(fields))
      k.storeIndex(field, table, {range, k.index(i)});
  });
}

/// Leaves the numbers of the block in shared memory.
void GradientBlock::keepNumbers() {
  const SourceLength &length = ranges->getLength();
  Value all[NumBlockNumbers] = {ranges->getNumQueries(),
                                length.rows,
                                length.tokens,
                                batch,
                                head,
                                keyHead,
                                part};
  k.ifThen(k.equal(k.thread(), k.i32(0)), [&] {
    for (auto [i, number] : llvm::enumerate(all))
      k.storeIndex(number, numbers, k.index(i));
  });
}

void GradientBlock::withKeptNumbers(function_ref<void()> body) {
  Value all[NumBlockNumbers];
  for (auto [i, number] : llvm::enumerate(all))
    number = k.loadIndex(numbers, k.index(i));
  llvm::SaveAndRestore ownBatch(batch, all[Batch]), ownHead(head, all[Head]),
      ownKeyHead(keyHead, all[KeyHead]), ownPart(part, all[Part]);
  Value numQueries = ranges->getNumQueries();
  SourceLength length = ranges->getLength();
  ranges->setNumbers(all[NumQueries], {all[NumRows], all[NumTokens]});
  body();
  ranges->setNumbers(numQueries, length);
}

void GradientBlock::placeReaders(int64_t numStages) {
  if (!gathered && !joined)
    return;
  numReaders = ofRows ? ownRows : numStages * kTile;
  readersPlace = place(getBytesOfReaders(numReaders));
}

void GradientBlock::copyReaders(Value target, Value barrier, Value row,
                                int64_t rows) {
  Value slots = k.index(gathered->getLayout().slots), slot = k.toIndex(row);
  w.copyBytes(target, gathered->getReaders(),
              {k.div(slot, slots), k.rem(slot, slots), k.index(0)}, barrier,
              getBytesOfReaders(rows));
}

void GradientBlock::placeTiles(int64_t numStages) {
  numTileFields = numStages * NumTileFields;
  tilesPlace = place(numTileFields * 4);
}

void GradientBlock::storeField(Value stage, int64_t field, Value number) {
  Value at = k.toIndex(k.add(k.mul(stage, NumTileFields), field));
  memref::StoreOp::create(k, number, tiles, at);
}

Value GradientBlock::loadField(Value stage, int64_t field) {
  Value at = k.toIndex(k.add(k.mul(stage, NumTileFields), field));
  return memref::LoadOp::create(k, tiles, at);
}

void GradientBlock::storeTile(const Tile &tile, Value stage) {
  storeField(stage, State, k.select(tile.isCut, k.i32(IsCut), k.i32(IsWhole)));
  storeField(stage, TileRow, tile.firstRow);
  storeField(stage, TileRange, k.toI32(tile.range));
  if (needsHead())
    storeField(stage, TileHead, tile.head);
}

void GradientBlock::storeEnd(Value stage) {
  storeField(stage, State, k.i32(IsEnd));
}

Value GradientBlock::isTile(Value stage) {
  return k.less(k.i32(IsEnd), loadField(stage, State));
}

Value GradientBlock::isCut(Value stage) {
  return k.equal(loadField(stage, State), k.i32(IsCut));
}

GradientBlock::Tile GradientBlock::loadPlace(const Tile &tile, Value stage) {
  Tile place = tile;
  place.range = k.toIndex(loadField(stage, TileRange));
  place.firstRow = loadField(stage, TileRow);
  place.firstReaders = k.mul(stage, kTile);
  if (needsHead())
    place.head = loadField(stage, TileHead);
  return place;
}

Value GradientBlock::loadNumTiles(Value range) {
  Value at[] = {k.toIndex(range), k.index(NumTiles)};
  return memref::LoadOp::create(k, table, at);
}

Value GradientBlock::countTiles() {
  Value count = k.loop(k.i32(0), k.i32(getNumRanges()), 1, {k.i32(0)},
                       [&](Value range, ValueRange count) -> Values {
                         return {k.add(count[0], loadNumTiles(range))};
                       })[0];
  return ofRows ? k.mul(count, k.max(k.sub(endHead, firstHead), 0)) : count;
}

Value GradientBlock::findTiles(function_ref<void(const Tile &)> body) {
  Value none = k.i32(0);
  if (!ofRows)
    return needsEnd() ? forListedRows(none, body)
                      : forSpans(k.toI32(head), none, body);
  return k.loop(firstHead, endHead, 1, {none},
                [&](Value head, ValueRange number) -> Values {
                  return {needsEnd() ? forListedQueries(head, number[0], body)
                                     : forSpans(head, number[0], body)};
                })[0];
}

Value GradientBlock::forSpans(Value head, Value number,
                              function_ref<void(const Tile &)> body) {
  return k.loop(k.i32(0), k.i32(getNumRanges()), 1, {number},
                [&](Value range, ValueRange number) -> Values {
                  return {forSpan(range, head, number[0], body)};
                })[0];
}

Value GradientBlock::forSpan(Value range, Value head, Value number,
                             function_ref<void(const Tile &)> body) {
  Value fields[NumFields];
  for (auto [i, field] : llvm::enumerate(fields))
    field = memref::LoadOp::create(k, table,
                                   ValueRange{k.toIndex(range), k.index(i)});
  return k.loop(k.i32(0), fields[NumTiles], 1, {number},
                [&](Value index, ValueRange number) -> Values {
                  Tile tile;
                  tile.number = number.front();
                  tile.head = head;
                  tile.range = k.toIndex(range);
                  tile.firstRow = k.add(fields[FirstRow], k.mul(index, kTile));
                  tile.isCut = k.either(
                      k.less(index, fields[WholeBegin]),
                      k.less(k.sub(fields[WholeEnd], k.i32(1)), index));
                  body(tile);
                  return {k.add(tile.number, 1)};
                })[0];
}

Value GradientBlock::loadLogWeight(Value row) {
  Value weight = source.logWeight;
  Value last = k.sub(k.extent(source.keys, 2), k.index(1));
  Value at[] = {k.broadcastIndex(weight, 0, batch),
                k.broadcastIndex(weight, 1, keyHead),
                k.broadcastIndex(weight, 2, k.min(k.toIndex(row), last))};
  return k.fmul(k.loadScalar(weight, at), k.scalar(softmax::kLog2E));
}

Value GradientBlock::isMinusInfinity(Value number) {
  return arith::CmpFOp::create(
      k, arith::CmpFPredicate::OEQ, number,
      k.scalar(-std::numeric_limits<double>::infinity()));
}

Value GradientBlock::readsByRange(const Tile &tile, Value query, Value row) {
  // Of a tile, or of a warpgroup.
  Value first = ofRows ? tile.firstRow
                       : k.add(firstOwn, k.mul(getGroup(), kWarpgroupRows));
  GradientRanges::Span block = ranges->getRowsOfBlock(
      tile.range, ranges->getBlock(k.toIndex(getQuery(first))));
  GradientRanges::Span admitted = ranges->getAdmitted(k.toIndex(query));
  Value begin = k.toI32(k.max(block.begin, admitted.begin));
  Value end = k.toI32(k.min(block.end, admitted.end));
  Value isRead = k.both(k.less(row, end), k.less(k.sub(begin, k.i32(1)), row));
  return k.both(isRead, k.less(query, k.toI32(ranges->getNumQueries())));
}

Value GradientBlock::reads(const Tile &tile, int64_t half, Value offset) {
  Value ownRow = getOwnRow(half), other = k.add(tile.firstRow, offset);
  Value query = getQuery(ofRows ? other : ownRow),
        row = ofRows ? ownRow : other;
  Value isRead;
  if (gathered) {
    Value slot =
        ofRows ? k.sub(ownRow, firstOwn) : k.add(tile.firstReaders, offset);
    Value bounds[2];
    for (auto [i, bound] : llvm::enumerate(bounds))
      bound = memref::LoadOp::create(k, readers,
                                     ValueRange{k.toIndex(slot), k.index(i)});
    isRead = k.both(k.less(query, bounds[1]),
                    k.less(k.sub(bounds[0], k.i32(1)), query));
  } else if (hasListRows()) {
    isRead = readsByRange(tile, query, loadOwnListed(row, Position));
  } else if (isScattered) {
    row = loadListed(tile.firstReaders, offset, StoredRow);
    Value position = loadListed(tile.firstReaders, offset, Position);
    isRead = readsByRange(tile, query, position);
  } else {
    isRead = readsByRange(tile, query, row);
  }
  auto leaveOut = [&](Value term) {
    isRead = k.both(isRead, k.equal(isMinusInfinity(term), k.i1(false)));
  };
  if (source.logWeight)
    leaveOut(ofRows ? loadOwn(LogWeight)[half] : loadLogWeight(row));
  if (source.bias)
    leaveOut(loadBias(tile, half, offset));
  return isRead;
}
