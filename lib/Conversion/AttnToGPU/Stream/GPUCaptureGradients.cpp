//===- GPUCaptureGradients.cpp - Gradients of captures on a GPU -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each read of a region, in turn:
//
//   lines    a block of threads for 64 lines of entries that read the same
//            number (ReadLines.h), a thread for each: it adds the gradients of
//            the tiles of 64 queries by 64 rows that the lines go through
//   elements a block for all batch entries and heads that may read the same
//            element: it looks up what each line reads, and each thread adds
//            the sums for the elements that are its own
//
// Entries that are in no such lines are looked up one by one by `elements`
// itself. Rows that lists name are those of queries, and keys where they stand
// in the order of memory; other lines of theirs are none. Every sum has one
// order, and none is shared by two threads.
//
//===----------------------------------------------------------------------===//

#include "GPUCaptureGradients.h"
#include "GPUListBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "fovea/Kernels/ReadLines.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;
using Of = EntryWeigher::Of;
using Kept = SquareTile::Kept;
using Place = GradientTile::Place;

/// Diagonals of a tile, which threads number from that in the lower left on.
static constexpr int64_t kDiagonals = 2 * kGradientTile - 1;
static constexpr int64_t kNumThreads = GradientTile::kNumThreads;
static_assert(kDiagonals <= kNumThreads);

namespace {
class CaptureGradient {
public:
  CaptureGradient(RowBuilder &host, StreamBackwardOp op,
                  const StreamSource &source, const ScoreDerivatives &ofRead,
                  Value deltas, F32Math math, const ListsOfRows *listsOfRows,
                  ScoreAdmission *admission, Value sums);

  void emit();

private:
  template <typename Tile = GradientTile> Tile makeTile(GPUKernelBuilder &k) {
    return {k, op, source, deltas, &ofRead, math};
  }
  bool isListed() const { return source.rowList != nullptr; }
  void emitLines();
  void emitListLines();
  void emitElements();

  /// Adds the gradients of a tile, or nothing where its queries do not read its
  /// rows, as `add` says.
  Values addTile(GPUKernelBuilder &k, GradientTile &tile, const Place &place,
                 ValueRange running,
                 function_ref<Values(ValueRange running)> add);
  /// Keeps the gradients of a tile of listed rows.
  void keepListed(ListGradientTile &tile, Value firstReader);
  /// Sums along the rows of a tile that is kept, or along its diagonals.
  Value sumOfThread(GPUKernelBuilder &k, SquareTile &tile, Value sum);

  /// What a thread has for an element: at which place, -1 for none.
  struct Scatter {
    Value numbers, places;
  };
  /// Adds `count` numbers, each by the thread that its element belongs to.
  void scatter(GPUKernelBuilder &k, const Scatter &from, int64_t count);
  void addTo(GPUKernelBuilder &k, Value number, Value place);
  void scatterLines(GPUKernelBuilder &k, ScoreBody &body,
                    const GradientRanges &ranges, Value batch, Value head,
                    const Scatter &shared);
  void scatterEntries(GPUKernelBuilder &k, GradientTile &tile, ScoreBody &body,
                      Value batch, Value head, const Scatter &shared);
  void scatterListed(GPUKernelBuilder &k, ListGradientTile &tile,
                     ScoreBody &body, Value batch, Value head,
                     const Scatter &shared);
  /// Adds the numbers of a tile that is kept, whose entries stand where
  /// `findPositions` says.
  void scatterKept(
      GPUKernelBuilder &k, SquareTile &tile, ScoreBody &body,
      const Scatter &shared,
      function_ref<ListGradientTile::Positions(Value, Value)> findPositions);
  /// Positions of a query and a row.
  Value positionOfQuery(KernelBuilder &k, const GradientRanges &ranges,
                        Value query);
  Value loadLine(GPUKernelBuilder &k, Value batch, Value head, Value line);

  RowBuilder &b;
  StreamBackwardOp op;
  StreamSource source;
  ScoreDerivatives ofRead; // alone
  Value deltas;
  F32Math math;
  const ListsOfRows *listsOfRows; // or null
  ScoreAdmission *admission;      // or null
  Value sums;
  ReadLines lines;
  Value batches, heads, headsOfKey, numQueries, numRows, queryTiles, rowTiles;
  /// [B, H, lines], or the diagonals of tiles, [B, H, tiles, threads].
  Value lineSums;
};
} // namespace

CaptureGradient::CaptureGradient(RowBuilder &host, StreamBackwardOp op,
                                 const StreamSource &source,
                                 const ScoreDerivatives &ofRead, Value deltas,
                                 F32Math math, const ListsOfRows *listsOfRows,
                                 ScoreAdmission *admission, Value sums)
    : b(host), op(op), source(source), ofRead(ofRead), deltas(deltas),
      math(math), listsOfRows(listsOfRows), admission(admission), sums(sums),
      lines(findReadLines(ofRead.reads.front().read)),
      batches(b.extent(op.getQuery(), 0)), heads(b.extent(op.getQuery(), 1)),
      headsOfKey(b.max(b.div(heads, b.max(b.extent(source.keys, 1), 1)), 1)),
      numQueries(b.extent(op.getQuery(), 2)), numRows(b.extent(source.keys, 2)),
      queryTiles(b.ceilDiv(numQueries, kGradientTile)),
      rowTiles(b.ceilDiv(numRows, kGradientTile)) {
  // Summaries do not move on with the queries.
  if (lines == ReadLines::Diagonal && source.attr.getMask().hasStride())
    lines = ReadLines::None;
  // Listed rows are side by side in no order.
  if (isListed() &&
      (lines == ReadLines::Diagonal ||
       (lines == ReadLines::Key && source.attr.getHasListedPositions())))
    lines = ReadLines::None;
}

void CaptureGradient::emit() {
  if (lines == ReadLines::None)
    return emitElements();
  if (lines == ReadLines::Diagonal)
    lineSums = b.allocate({batches, heads, b.add(queryTiles, rowTiles)},
                          {kNumThreads}, b.getF32Type());
  else
    lineSums = b.allocate(
        {batches, heads, lines == ReadLines::Key ? numRows : numQueries}, {},
        b.getF32Type());
  if (isListed())
    emitListLines();
  else
    emitLines();
  emitElements();
  memref::DeallocOp::create(b, lineSums);
}

//===----------------------------------------------------------------------===//
// Lines
//===----------------------------------------------------------------------===//

Values CaptureGradient::addTile(GPUKernelBuilder &k, GradientTile &tile,
                                const Place &place, ValueRange running,
                                function_ref<Values(ValueRange)> add) {
  Place own = place;
  return k.loop(
      k.index(0), tile.ranges.getNumRanges(), 1, running,
      [&](Value range, ValueRange running) -> Values {
        own.range = range;
        GradientRanges::Span read =
            tile.ranges.getRowsOfTile(range, place.firstQuery, kGradientTile);
        Value isRead =
            k.both(k.less(read.begin, k.add(place.firstRow, kGradientTile)),
                   k.less(place.firstRow, read.end));
        isRead = k.both(isRead,
                        k.less(place.firstQuery, tile.ranges.getNumQueries()));
        auto addRead = [&] {
          tile.compute(own, /*rowsAreQueries=*/lines != ReadLines::Key,
                       Of::Read);
          return add(running);
        };
        return changeIf(k, isRead, running, [&] {
          if (!admission)
            return addRead();
          return changeIf(k, tile.isRead(*admission, own), running, addRead);
        });
      });
}

void CaptureGradient::keepListed(ListGradientTile &tile, Value firstReader) {
  tile.compute(firstReader, /*rowsAreQueries=*/lines != ReadLines::Key,
               Of::Read);
}

Value CaptureGradient::sumOfThread(GPUKernelBuilder &k, SquareTile &tile,
                                   Value sum) {
  Value thread = k.toIndex(k.thread()), size = k.index(kGradientTile);
  if (lines != ReadLines::Diagonal)
    return k.loop(k.index(0), k.select(k.less(thread, size), size, k.index(0)),
                  1, {sum}, [&](Value column, ValueRange sum) -> Values {
                    return {k.fadd(sum[0], tile.loadKept(Kept::Gradients,
                                                         thread, column))};
                  })[0];
  // How far the diagonal is to the right of the tile's own.
  Value shift = k.sub(thread, k.index(kGradientTile - 1));
  return k.loop(k.max(k.sub(k.index(0), shift), 0),
                k.min(k.sub(size, shift), size), 1, {sum},
                [&](Value row, ValueRange sum) -> Values {
                  return {k.fadd(sum[0], tile.loadKept(Kept::Gradients, row,
                                                       k.add(row, shift)))};
                })[0];
}

void CaptureGradient::emitLines() {
  bool areDiagonals = lines == ReadLines::Diagonal,
       areKeys = lines == ReadLines::Key;
  GPUKernelBuilder k(op.getLoc(), b, kNumThreads);
  Value numBlocks = areDiagonals ? b.add(queryTiles, rowTiles)
                    : areKeys    ? rowTiles
                                 : queryTiles;
  Values at = beginBlocks(k, {batches, heads, numBlocks},
                          GradientTile::getSharedBytes());
  GradientTile tile = makeTile(k);
  Place place;
  place.batch = at[0];
  place.head = at[1];
  place.keyHead = k.div(at[1], headsOfKey);
  tile.ranges.setBatch(place.batch);
  // Tiles (query, row): of diagonals those as far apart.
  Value apart = k.sub(at[2], queryTiles);
  Value begin = k.index(0), end = areKeys ? queryTiles : rowTiles;
  if (areDiagonals) {
    begin = k.max(k.sub(k.index(0), apart), 0);
    end = k.min(queryTiles, k.sub(rowTiles, apart));
  }
  Value sum = k.loop(begin, end, 1, {k.scalar(0.0)},
                     [&](Value number, ValueRange sum) -> Values {
                       Value query = areDiagonals || areKeys ? number : at[2];
                       Value row = areDiagonals ? k.add(number, apart)
                                   : areKeys    ? at[2]
                                                : number;
                       place.firstQuery = k.mul(query, kGradientTile);
                       place.firstRow = k.mul(row, kGradientTile);
                       return addTile(k, tile, place, sum,
                                      [&](ValueRange sum) -> Values {
                                        return {sumOfThread(k, tile, sum[0])};
                                      });
                     })[0];
  Value thread = k.toIndex(k.thread());
  if (areDiagonals)
    return k.storeScalar(sum, lineSums, {at[0], at[1], at[2], thread});
  Value line = k.add(k.mul(at[2], kGradientTile), thread);
  Value exists = k.both(k.less(thread, k.index(kGradientTile)),
                        k.less(line, k.extent(lineSums, 2)));
  k.ifThen(exists, [&] { k.storeScalar(sum, lineSums, {at[0], at[1], line}); });
}

/// A block for 64 queries that one list is for, or for 64 rows and the lists
/// that name them.
void CaptureGradient::emitListLines() {
  bool areKeys = lines == ReadLines::Key;
  Value lists = ListGradientTile::countBlocks(b, op),
        listQueries = ListGradientTile::getBlockQueries(b, op);
  GPUKernelBuilder k(op.getLoc(), b, kNumThreads);
  Values at =
      beginBlocks(k,
                  {batches, heads, areKeys ? b.index(1) : lists,
                   b.ceilDiv(areKeys ? numRows : listQueries, kGradientTile)},
                  ListGradientTile::getSharedBytes());
  auto tile = makeTile<ListGradientTile>(k);
  Value first = k.mul(at[3], kGradientTile), sum = k.scalar(0.0);
  auto addTile = [&](Value firstReader, ValueRange sum) -> Values {
    keepListed(tile, firstReader);
    return {sumOfThread(k, tile, sum[0])};
  };
  if (areKeys) {
    sum =
        tile.overReaders(*listsOfRows, at[0], at[1], first, {sum}, addTile)[0];
  } else {
    tile.enter(at[0], at[1], at[2]);
    sum = tile.overEntries(
        {sum}, [&](ValueRange sum) { return addTile(first, sum); })[0];
  }
  Value thread = k.toIndex(k.thread()), number = k.add(first, thread);
  Value line = areKeys ? number : k.add(k.mul(at[2], op.getBlock()), number);
  Value exists = k.both(k.less(thread, k.index(kGradientTile)),
                        k.less(line, k.extent(lineSums, 2)));
  if (!areKeys)
    exists = k.both(exists, k.less(number, listQueries));
  k.ifThen(exists, [&] { k.storeScalar(sum, lineSums, {at[0], at[1], line}); });
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

Value CaptureGradient::positionOfQuery(KernelBuilder &k,
                                       const GradientRanges &ranges,
                                       Value query) {
  return k.add(query, k.sub(ranges.getLength().tokens, ranges.getNumQueries()));
}

void CaptureGradient::addTo(GPUKernelBuilder &k, Value number, Value place) {
  Values extents;
  for (int64_t dim = 0; dim < getMemRefType(sums).getRank(); ++dim)
    extents.push_back(k.extent(sums, dim));
  Values to = splitNumber(k, place, extents);
  Value old = memref::LoadOp::create(k, sums, to);
  if (old.getType() != number.getType())
    number = arith::ExtFOp::create(k, old.getType(), number);
  memref::StoreOp::create(k, arith::AddFOp::create(k, old, number), sums, to);
}

void CaptureGradient::scatter(GPUKernelBuilder &k, const Scatter &from,
                              int64_t count) {
  k.barrier();
  Value thread = k.toIndex(k.thread());
  k.loop(k.index(0), k.index(count), 1, [&](Value i) {
    Value place = k.loadIndex(from.places, i);
    Value isOwn = k.both(k.less(k.index(-1), place),
                         k.equal(k.rem(place, k.index(kNumThreads)), thread));
    k.ifThen(isOwn, [&] { addTo(k, k.loadScalar(from.numbers, i), place); });
  });
  k.barrier();
}

Value CaptureGradient::loadLine(GPUKernelBuilder &k, Value batch, Value head,
                                Value line) {
  if (lines != ReadLines::Diagonal)
    return k.loadScalar(lineSums, {batch, head, line});
  // Two tiles side by side have parts of a diagonal: one has it right of its
  // own, and the next one, unless it is that, left.
  Value tile = k.div(line, k.index(kGradientTile));
  Value shift = k.rem(line, k.index(kGradientTile));
  auto load = [&](Value tile, Value shift) {
    return k.loadScalar(lineSums, {batch, head, tile,
                                   k.add(shift, k.index(kGradientTile - 1))});
  };
  Value sum = load(tile, shift), next = k.add(tile, 1);
  Value hasLeft =
      k.both(k.less(k.index(0), shift), k.less(next, k.extent(lineSums, 2)));
  Value left = k.select(
      hasLeft, k.getF32Type(),
      [&] { return load(next, k.sub(shift, k.index(kGradientTile))); },
      [&] { return k.scalar(0.0); });
  return k.fadd(sum, left);
}

void CaptureGradient::scatterLines(GPUKernelBuilder &k, ScoreBody &body,
                                   const GradientRanges &ranges, Value batch,
                                   Value head, const Scatter &shared) {
  bool areDiagonals = lines == ReadLines::Diagonal;
  Value numLines = areDiagonals ? k.mul(k.extent(lineSums, 2), kGradientTile)
                                : k.extent(lineSums, 2);
  Value thread = k.toIndex(k.thread());
  /// Leaves the number of a line for its element.
  auto put = [&](Value number, Value line) {
    Value query = k.index(0), row = k.index(0);
    if (lines == ReadLines::Query)
      query = line;
    if (lines == ReadLines::Key)
      row = line;
    if (areDiagonals) {
      // Rows less queries: its first entry.
      Value apart = k.sub(line, k.mul(queryTiles, kGradientTile));
      query = k.max(k.sub(k.index(0), apart), 0);
      row = k.max(apart, 0);
    }
    auto [place, isInside] =
        body.placeRead(k, 0, positionOfQuery(k, ranges, query),
                       emitPosition(k, source.attr.getMask(), row));
    k.storeScalar(number, shared.numbers, thread);
    k.storeIndex(k.select(isInside, place, k.index(-1)), shared.places, thread);
  };
  if (lines == ReadLines::Head) {
    Value sum =
        k.loop(thread, numLines, kNumThreads, {k.scalar(0.0)},
               [&](Value line, ValueRange sum) -> Values {
                 return {k.fadd(sum[0], loadLine(k, batch, head, line))};
               })[0];
    put(sum, k.index(0));
    return scatter(k, shared, kNumThreads);
  }
  k.loop(k.index(0), numLines, kNumThreads, [&](Value first) {
    Value line = k.add(first, thread), exists = k.less(line, numLines);
    line = k.min(line, k.sub(numLines, k.index(1)));
    put(k.select(exists, loadLine(k, batch, head, line), k.scalar(0.0)), line);
    scatter(k, shared, kNumThreads);
  });
}

void CaptureGradient::scatterKept(
    GPUKernelBuilder &k, SquareTile &tile, ScoreBody &body,
    const Scatter &shared,
    function_ref<ListGradientTile::Positions(Value, Value)> findPositions) {
  k.loop(k.toIndex(k.thread()), k.index(kGradientTile * kGradientTile),
         kNumThreads, [&](Value i) {
           Value query = k.div(i, k.index(kGradientTile));
           Value row = k.rem(i, k.index(kGradientTile));
           ListGradientTile::Positions stand = findPositions(query, row);
           auto [at, isInside] = body.placeRead(k, 0, stand.query, stand.key);
           if (stand.exist)
             isInside = k.both(isInside, stand.exist);
           k.storeScalar(tile.loadKept(Kept::Gradients, query, row),
                         shared.numbers, i);
           k.storeIndex(k.select(isInside, at, k.index(-1)), shared.places, i);
         });
  scatter(k, shared, kGradientTile * kGradientTile);
}

void CaptureGradient::scatterEntries(GPUKernelBuilder &k, GradientTile &tile,
                                     ScoreBody &body, Value batch, Value head,
                                     const Scatter &shared) {
  Place place;
  place.batch = batch;
  place.head = head;
  place.keyHead = k.div(head, headsOfKey);
  k.loop(k.index(0), queryTiles, 1, [&](Value queryTile) {
    place.firstQuery = k.mul(queryTile, kGradientTile);
    k.loop(k.index(0), rowTiles, 1, [&](Value rowTile) {
      place.firstRow = k.mul(rowTile, kGradientTile);
      addTile(k, tile, place, {}, [&](ValueRange) -> Values {
        scatterKept(k, tile, body, shared, [&](Value query, Value row) {
          return ListGradientTile::Positions{
              positionOfQuery(k, tile.ranges, k.add(place.firstQuery, query)),
              emitPosition(k, source.attr.getMask(),
                           k.add(place.firstRow, row)),
              Value()};
        });
        return {};
      });
    });
  });
}

void CaptureGradient::scatterListed(GPUKernelBuilder &k, ListGradientTile &tile,
                                    ScoreBody &body, Value batch, Value head,
                                    const Scatter &shared) {
  k.loop(k.index(0), ListGradientTile::countBlocks(k, op), 1, [&](Value block) {
    tile.enter(batch, head, block);
    k.loop(k.index(0), tile.getNumReaders(), kGradientTile,
           [&](Value firstReader) {
             tile.overEntries({}, [&](ValueRange) -> Values {
               keepListed(tile, firstReader);
               scatterKept(k, tile, body, shared, [&](Value reader, Value row) {
                 return tile.findPositions(firstReader, reader, row);
               });
               return {};
             });
           });
  });
}

void CaptureGradient::emitElements() {
  bool areEntries = lines == ReadLines::None;
  tensor::ExtractOp read = ofRead.reads.front().read;
  // Others have elements of their own.
  bool hasOwnBatches = isIndexedBy(read, score_argument::Batch),
       hasOwnHeads = isIndexedBy(read, score_argument::Head);
  int64_t count = areEntries ? kGradientTile * kGradientTile : kNumThreads;
  int64_t tileBytes = isListed() ? ListGradientTile::getSharedBytes()
                                 : GradientTile::getSharedBytes();
  int64_t offset = areEntries ? tileBytes : 0;
  GPUKernelBuilder k(op.getLoc(), b, kNumThreads);
  Value one = b.index(1);
  Values at =
      beginBlocks(k, {hasOwnBatches ? batches : one, hasOwnHeads ? heads : one},
                  offset + count * (4 + 8));
  Scatter shared = {k.sharedBuffer(offset + count * 8, {count}, k.getF32Type()),
                    k.sharedBuffer(offset, {count}, k.getI64Type())};
  ScoreBody body(ofRead, op.getCaptures());
  auto forOwn = [&](bool hasOwn, Value own, Value all,
                    function_ref<void(Value)> then) {
    Value begin = hasOwn ? own : k.index(0);
    k.loop(begin, hasOwn ? k.add(own, 1) : all, 1, then);
  };
  forOwn(hasOwnBatches, at[0], batches, [&](Value batch) {
    forOwn(hasOwnHeads, at[1], heads, [&](Value head) {
      body.enterHead(k, batch, head);
      if (areEntries && isListed()) {
        auto tile = makeTile<ListGradientTile>(k);
        return scatterListed(k, tile, body, batch, head, shared);
      }
      if (areEntries) {
        GradientTile tile = makeTile(k);
        tile.setBatch(batch);
        return scatterEntries(k, tile, body, batch, head, shared);
      }
      GradientRanges ranges(k, op, source);
      ranges.setBatch(batch);
      scatterLines(k, body, ranges, batch, head, shared);
    });
  });
}

void fovea::attn::emitCaptureGradients(RowBuilder &host, StreamBackwardOp op,
                                       const StreamSource &source,
                                       const ScoreDerivatives &score,
                                       Value deltas, F32Math math,
                                       const ListsOfRows *listsOfRows,
                                       ScoreAdmission *admission,
                                       ValueRange sums) {
  for (const ScoreDerivatives::OfRead &read : score.reads)
    if (read.value && sums[read.getTensorNumber()])
      CaptureGradient(host, op, source, {score.score, {read}}, deltas, math,
                      listsOfRows, admission, sums[read.getTensorNumber()])
          .emit();
}
