//===- GPUListPasses.cpp - Sums of listed rows, some lists at a time ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUListPasses.h"
#include "GPUListBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Parts of a pass take as many bytes as dQ in f32 at most, and no more than
/// these, unless blocks of threads would be fewer than keep a GPU busy.
static constexpr int64_t kMostBytes = int64_t(1) << 30;
static constexpr int64_t kFewestBlocks = 256;
/// Threads that add up, each of which has a column of 64 rows.
static constexpr int64_t kNumThreads = kMostGradientColumns;
/// Parts that a thread loads before it adds them.
static constexpr int64_t kAtOnce = 4;

ListPasses::ListPasses(RowBuilder &host, StreamBackwardOp op,
                       const StreamSource &source, const ListsOfRows &entries)
    : host(host), op(op), source(source), entries(entries),
      batches(host.extent(op.getQuery(), 0)),
      lists(ListGradientTile::countBlocks(host, op)) {
  Value heads = host.extent(op.getQuery(), 1),
        keyHeads = host.extent(source.keys, 1);
  Value headsOfKey = host.max(host.div(heads, host.max(keyHeads, 1)), 1);
  bool sharesHeads = ListGradientTile::canShareHeads(op, source);
  listHeads = sharesHeads ? keyHeads : heads;
  headsOfList = sharesHeads ? headsOfKey : host.index(1);
  listHeadsOfKey = sharesHeads ? host.index(1) : headsOfKey;
  listRows = host.mul(host.extent(source.rowList, 3), source.attr.getUnit());
  Value ofChunk = host.mul(host.mul(batches, listHeads),
                           host.mul(listRows, entries.getChunk()));
  int64_t columns = getWidth(source.keys) + getWidth(source.values);
  Value queries =
      host.mul(host.mul(batches, heads), host.extent(op.getQuery(), 2));
  Value bytes =
      host.min(host.mul(queries, getWidth(op.getQuery()) * 4), kMostBytes);
  Value blocks = host.max(host.ceilDiv(ofChunk, 2 * kWarpgroupRows), 1);
  Value busy = host.div(host.add(blocks, kFewestBlocks - 1), blocks);
  chunksOfPass = host.div(bytes, host.max(host.mul(ofChunk, columns * 4), 1));
  chunksOfPass = host.clamp(host.max(chunksOfPass, busy), host.index(1),
                            host.max(entries.getNumChunks(), 1));
  mostLists = host.mul(chunksOfPass, entries.getChunk());
}

void ListPasses::forEach(function_ref<void()> body) {
  Value one = host.index(1), all = entries.getNumChunks();
  Value behind = host.sub(host.add(all, chunksOfPass), one);
  Value count = host.max(host.div(behind, chunksOfPass), one);
  host.loop(host.index(0), count, 1, [&](Value number) {
    firstChunk = host.mul(number, chunksOfPass);
    endChunk = host.min(host.add(firstChunk, chunksOfPass), all);
    firstList = host.mul(firstChunk, entries.getChunk());
    numLists = host.min(host.sub(lists, firstList), mostLists);
    body();
  });
}

Value ListPasses::allocateParts(Value result) {
  return host.allocate({host.mul(batches, mostLists), listHeads, listRows},
                       getMemRefType(result).getShape().drop_front(3),
                       host.getF32Type());
}

void ListPasses::addUp(Value parts, Value sums) {
  constexpr int64_t kTile = kWarpgroupRows;
  enum { FirstRow, List, ListRow, NumFields };
  int64_t unit = source.attr.getUnit();
  bool hasColumns = getMemRefType(sums).getRank() == 4;
  int64_t width = hasColumns ? getWidth(sums) : 1;
  GPUKernelBuilder k(op.getLoc(), host, kNumThreads);
  Values at = beginBlocks(k,
                          {host.extent(sums, 0), host.extent(sums, 1),
                           host.ceilDiv(host.extent(sums, 2), kTile)},
                          (kTile * kNumThreads + kNumThreads * NumFields) * 4);
  Value running = k.sharedBuffer(0, {kTile, kNumThreads}, k.getF32Type());
  Value named = k.sharedBuffer(kTile * kNumThreads * 4,
                               {kNumThreads, NumFields}, k.getI32Type());
  Value thread = k.toIndex(k.thread()), zero = k.index(0);
  Value firstRow = k.mul(at[2], kTile);
  Value column = k.min(thread, k.index(width - 1));
  auto placeOf = [&](Value first, Value second, Value row) {
    Values place = {first, second, row};
    if (hasColumns)
      place.push_back(column);
    return place;
  };
  Value rows = k.min(k.sub(k.extent(sums, 2), firstRow), k.index(kTile));
  Value isFirst = k.equal(firstList, zero);
  k.loop(zero, rows, 1, [&](Value row) {
    Value before = k.select(
        isFirst, k.getF32Type(), [&] { return k.scalar(0.0); },
        [&] {
          return k.loadScalar(sums,
                              placeOf(at[0], at[1], k.add(firstRow, row)));
        });
    k.storeScalar(before, running, {row, thread});
  });
  Value entriesOfList = k.max(k.extent(source.rowList, 3), 1);
  Value firstHead = k.mul(at[1], listHeadsOfKey);
  auto addHead = [&](Value listHead) {
    Value head = k.mul(listHead, headsOfList);
    auto [begin, end] = entries.getNumbersOfChunks(k, at[0], head, firstRow,
                                                   firstChunk, endChunk);
    auto addSome = [&, end = end](Value begin) {
      Value own = k.add(begin, thread);
      k.barrier();
      k.ifThen(k.less(own, end), [&] {
        Value number = entries.loadBlock(k, at[0], head, own);
        Value block = k.div(number, entriesOfList);
        Value entry = k.rem(number, entriesOfList);
        Value list = getListOf(k, op, source.rowList, at[0], head, block);
        Value row = k.mul(k.loadIndex(list, entry), unit);
        Value fields[] = {k.sub(row, firstRow), k.sub(block, firstList),
                          k.mul(entry, unit)};
        for (auto [i, field] : llvm::enumerate(fields))
          k.storeIndex(field, named, {thread, k.index(i)});
      });
      k.barrier();
      Value count = k.min(k.sub(end, begin), k.index(kNumThreads));
      // Rows of an entry one after the other: each of the tile has all of its
      // parts in order.
      k.loop(zero, k.index(unit), 1, [&](Value offset) {
        k.loop(zero, count, kAtOnce, [&](Value first) {
          Value places[kAtOnce], loaded[kAtOnce];
          for (int64_t i = 0; i < kAtOnce; ++i) {
            Value number = k.add(first, i);
            Value known = k.min(number, k.sub(count, k.index(1)));
            auto load = [&](int64_t field) {
              return k.loadIndex(named, {known, k.index(field)});
            };
            Value row = k.add(load(FirstRow), offset);
            Value part = k.loadScalar(
                parts, placeOf(getPlace(k, at[0], load(List)), listHead,
                               k.add(load(ListRow), offset)));
            Value isOfTile =
                k.both(k.less(k.index(-1), row), k.less(row, k.index(kTile)));
            loaded[i] = k.select(k.both(isOfTile, k.less(number, count)), part,
                                 k.scalar(0.0));
            places[i] = k.clamp(row, zero, k.index(kTile - 1));
          }
          for (auto [place, part] : llvm::zip(places, loaded)) {
            Value sum = k.loadScalar(running, {place, thread});
            k.storeScalar(k.fadd(sum, part), running, {place, thread});
          }
        });
      });
    };
    k.loop(begin, end, kNumThreads, addSome);
  };
  k.loop(firstHead, k.add(firstHead, listHeadsOfKey), 1, addHead);
  k.ifThen(k.less(thread, k.index(width)), [&] {
    k.loop(zero, rows, 1, [&](Value row) {
      k.storeScalar(k.loadScalar(running, {row, thread}), sums,
                    placeOf(at[0], at[1], k.add(firstRow, row)));
    });
  });
}
