//===- GPUListsOfRows.cpp - Which lists name rows on a GPU ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A counting sort of lists by the tiles of rows that they name:
//
//   count   a block of threads for a chunk of lists: each thread counts those
//           that name tiles of its own, which are each kNumThreads apart
//   chunks  a thread for each tile: how many lists of earlier chunks name it
//   tiles   a block for each head: where the lists of a tile begin
//   sort    as `count`: each thread puts the lists there, or their entries
//
// Threads take lists in order, and no two write to the same place: so the order
// is always the same, without atomic operations.
//
//===----------------------------------------------------------------------===//

#include "GPUListsOfRows.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr int64_t kTile = SquareTile::kSize;
static constexpr int64_t kNumThreads = 128;
/// There are as many chunks, of no fewer lists, as keep a GPU busy; each takes
/// memory for all tiles.
static constexpr int64_t kMostChunks = 256, kFewestLists = 4;
/// Who goes through chunks takes memory for the lists of each.
static constexpr int64_t kMostPassed = 1024, kFewestPassed = 1;

static Value getListHead(KernelBuilder &b, StreamBackwardOp op, Value lists,
                         Value head) {
  return emitListHead(b, lists, head, b.extent(op.getQuery(), 1));
}

Value fovea::attn::getListOf(KernelBuilder &b, StreamBackwardOp op, Value lists,
                             Value batch, Value head, Value block) {
  return b.rowView(lists, {b.broadcastIndex(lists, 0, batch),
                           getListHead(b, op, lists, head),
                           b.broadcastIndex(lists, 2, block)});
}

/// The most tiles that an entry names rows of.
int64_t ListsOfRows::getMostTiles() {
  int64_t unit = source.attr.getUnit();
  if (kTile % unit == 0)
    return 1;
  return unit % kTile == 0 ? unit / kTile : (unit - 1) / kTile + 2;
}

ListsOfRows::ListsOfRows(RowBuilder &host, StreamBackwardOp op,
                         const StreamSource &source, Of what)
    : b(host), op(op), source(source), what(what), lists(source.rowList),
      batches(b.extent(lists, 0)), heads(b.extent(lists, 1)),
      tiles(b.ceilDiv(b.extent(source.keys, 2), kTile)) {
  int64_t block = op.getBlock();
  blocks = block ? b.ceilDiv(b.extent(op.getQuery(), 2), block) : b.index(1);
  bool hasPasses = what == Of::Entries;
  chunk = b.max(b.ceilDiv(blocks, hasPasses ? kMostPassed : kMostChunks),
                hasPasses ? kFewestPassed : kFewestLists);
  numChunks = b.div(b.add(blocks, b.sub(chunk, b.index(1))), chunk);
  counts = b.allocate({batches, heads, numChunks, tiles}, {}, b.getI32Type());
  last = b.allocate({batches, heads, numChunks, tiles}, {}, b.getI32Type());
  ends = b.allocate({batches, heads, b.add(tiles, 1)}, {}, b.getI64Type());
  Value mostTiles = b.mul(b.extent(lists, 3), getMostTiles());
  if (what == Of::Blocks)
    mostTiles = b.min(mostTiles, tiles);
  Type type = what == Of::Entries ? b.getI64Type() : b.getI32Type();
  sorted = b.allocate({batches, heads, b.mul(blocks, mostTiles)}, {}, type);
  countLists();
  addUpChunks();
  addUpTiles();
  sortLists();
}

void ListsOfRows::free() {
  for (Value buffer : {counts, last, ends, sorted})
    memref::DeallocOp::create(b, buffer);
}

void ListsOfRows::forChunks(
    function_ref<void(GPUKernelBuilder &, ValueRange, Value, Value, Value)>
        body,
    bool clears) {
  GPUKernelBuilder k(op.getLoc(), b, kNumThreads);
  Values at = beginBlocks(k, {batches, heads, numChunks}, /*sharedBytes=*/0);
  Value thread = k.toIndex(k.thread()), zero = k.index(0);
  auto placeOf = [&](Value tile) { return Values{at[0], at[1], at[2], tile}; };
  k.loop(thread, tiles, kNumThreads, [&](Value tile) {
    k.storeIndex(k.index(-1), last, placeOf(tile));
    if (clears)
      k.storeIndex(zero, counts, placeOf(tile));
  });
  Value first = k.mul(at[2], chunk), numThreads = k.index(kNumThreads);
  Value rows = k.extent(source.keys, 2), tile = k.index(kTile);
  int64_t unit = source.attr.getUnit();
  k.loop(first, k.min(k.add(first, chunk), blocks), 1, [&](Value block) {
    Value list =
        k.rowView(lists, {at[0], at[1], k.broadcastIndex(lists, 2, block)});
    k.loop(zero, k.extent(lists, 3), 1, [&](Value number) {
      Value listed = k.loadIndex(list, number);
      Value row = k.mul(k.max(listed, 0), unit);
      Value isRow = k.both(k.less(k.index(-1), listed), k.less(row, rows));
      Value begin = k.div(row, tile);
      Value end = k.ceilDiv(k.min(k.add(row, unit), rows), kTile);
      // The first tile from there on that is the thread's.
      Value behind = k.sub(k.add(thread, numThreads), k.rem(begin, numThreads));
      k.loop(k.add(begin, k.rem(behind, numThreads)),
             k.select(isRow, end, zero), kNumThreads, [&](Value tile) {
               Values place = placeOf(tile);
               Value isKnown = what == Of::Blocks
                                   ? k.equal(k.loadIndex(last, place), block)
                                   : k.i1(false);
               k.ifThen(k.equal(isKnown, k.i1(false)), [&] {
                 Value count = k.loadIndex(counts, place);
                 k.storeIndex(block, last, place);
                 k.storeIndex(k.add(count, 1), counts, place);
                 Value sorted = block;
                 if (what == Of::Entries)
                   sorted = k.add(k.mul(block, k.extent(lists, 3)), number);
                 body(k, at, sorted, tile, count);
               });
             });
    });
  });
}

void ListsOfRows::countLists() {
  forChunks([](GPUKernelBuilder &, ValueRange, Value, Value, Value) {},
            /*clears=*/true);
}

void ListsOfRows::addUpChunks() {
  parallelLoop(b, {batches, heads, tiles}, [&](ValueRange at) {
    Value sum = b.loop(b.index(0), numChunks, 1, {b.index(0)},
                       [&](Value chunk, ValueRange sum) -> Values {
                         Value place[] = {at[0], at[1], chunk, at[2]};
                         Value count = b.loadIndex(counts, place);
                         b.storeIndex(sum[0], counts, place);
                         return {b.add(sum[0], count)};
                       })[0];
    b.storeIndex(sum, ends, {at[0], at[1], b.add(at[2], 1)});
  });
}

/// Each thread adds up tiles that follow each other, and then what those before
/// have.
void ListsOfRows::addUpTiles() {
  GPUKernelBuilder k(op.getLoc(), b, kNumThreads);
  Values at = beginBlocks(k, {batches, heads}, kNumThreads * 8);
  Value sums = k.sharedBuffer(0, {kNumThreads}, k.getI64Type());
  Value thread = k.toIndex(k.thread()), zero = k.index(0);
  Value count = k.ceilDiv(tiles, kNumThreads), begin = k.mul(thread, count);
  Value end = k.min(k.add(begin, count), tiles);
  auto endOf = [&](Value tile) { return Values{at[0], at[1], k.add(tile, 1)}; };
  Value own =
      k.loop(begin, end, 1, {zero}, [&](Value tile, ValueRange sum) -> Values {
        return {k.add(sum[0], k.loadIndex(ends, endOf(tile)))};
      })[0];
  k.storeIndex(own, sums, thread);
  k.barrier();
  Value before = k.loop(zero, thread, 1, {zero},
                        [&](Value other, ValueRange sum) -> Values {
                          return {k.add(sum[0], k.loadIndex(sums, other))};
                        })[0];
  k.ifThen(k.equal(thread, zero),
           [&] { k.storeIndex(zero, ends, {at[0], at[1], zero}); });
  k.loop(begin, end, 1, {before}, [&](Value tile, ValueRange sum) -> Values {
    Values place = endOf(tile);
    Value next = k.add(sum[0], k.loadIndex(ends, place));
    k.storeIndex(next, ends, place);
    return {next};
  });
}

void ListsOfRows::sortLists() {
  forChunks(
      [&](GPUKernelBuilder &k, ValueRange at, Value number, Value tile,
          Value count) {
        Value begin = k.loadIndex(ends, {at[0], at[1], tile});
        k.storeIndex(number, sorted, {at[0], at[1], k.add(begin, count)});
      },
      /*clears=*/false);
}

std::pair<Value, Value> ListsOfRows::getListPlace(KernelBuilder &k, Value batch,
                                                  Value head) const {
  return {k.broadcastIndex(lists, 0, batch), getListHead(k, op, lists, head)};
}

std::pair<Value, Value> ListsOfRows::getNumbers(KernelBuilder &k, Value batch,
                                                Value head,
                                                Value firstRow) const {
  Value tile = k.div(firstRow, k.index(kTile));
  auto [ofBatch, ofHead] = getListPlace(k, batch, head);
  return {k.loadIndex(ends, {ofBatch, ofHead, tile}),
          k.loadIndex(ends, {ofBatch, ofHead, k.add(tile, 1)})};
}

Value ListsOfRows::loadBlock(KernelBuilder &k, Value batch, Value head,
                             Value number) const {
  auto [ofBatch, ofHead] = getListPlace(k, batch, head);
  return k.loadIndex(sorted, {ofBatch, ofHead, number});
}

std::pair<Value, Value> ListsOfRows::getNumbersOfChunks(KernelBuilder &k,
                                                        Value batch, Value head,
                                                        Value firstRow,
                                                        Value firstChunk,
                                                        Value endChunk) const {
  Value tile = k.div(firstRow, k.index(kTile));
  auto [ofBatch, ofHead] = getListPlace(k, batch, head);
  Value begin = k.loadIndex(ends, {ofBatch, ofHead, tile});
  // Once sorted, each chunk has counted its own and those before.
  auto countBefore = [&, ofBatch = ofBatch, ofHead = ofHead](Value chunk) {
    return k.select(
        k.less(k.index(0), chunk), k.getIndexType(),
        [&] {
          return k.loadIndex(counts,
                             {ofBatch, ofHead, k.sub(chunk, k.index(1)), tile});
        },
        [&] { return k.index(0); });
  };
  return {k.add(begin, countBefore(firstChunk)),
          k.add(begin, countBefore(endChunk))};
}

Values
ListsOfRows::forBlocks(KernelBuilder &k, Value batch, Value head,
                       Value firstRow, ValueRange sums,
                       function_ref<Values(Value, ValueRange)> body) const {
  auto [begin, end] = getNumbers(k, batch, head, firstRow);
  return k.loop(begin, end, 1, sums, [&](Value i, ValueRange sums) {
    return body(loadBlock(k, batch, head, i), sums);
  });
}
