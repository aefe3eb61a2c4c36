//===- GPUGradientProducer.cpp - Copies of gradients on sm_90a ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUGradientKernel.h"

using namespace mlir;
using namespace fovea::attn;

void GradientWarpgroups::copy(const Operands &operands, int64_t i, Value target,
                              Value barrier, Value head, Value row,
                              int64_t rows) {
  Value at[] = {k.toI32(batch), head, row, k.i32(0)};
  if (!operands.areRows && tileHeads > 1) {
    at[1] = getQuery(row);
    at[2] = getHeadOfRow(head, row);
  }
  w.copyBoxes(target, operands.maps[i], barrier, at, rows, operands.columns[i]);
}

void GradientWarpgroups::copyOwn() {
  bool hasReaders = ofRows && gathered;
  int64_t bytes = hasReaders ? getBytesOfReaders(ownRows) : 0;
  for (int64_t i = 0; i < getNumOwn(); ++i)
    bytes += getBoxedBytes(ownRows, own.columns[i]);
  w.arriveExpecting(loaded, bytes);
  for (int64_t i = 0; i < getNumOwn(); ++i)
    copy(own, i, own.addresses[i], loaded, k.toI32(getOwnHead()), firstOwn,
         ownRows);
  if (hasReaders)
    copyReaders(w.getShared(readersPlace), loaded, firstOwn, ownRows);
}

/// By all threads of the block, which wait for it: the producer alone has no
/// registers for that beside two consumers. They have voted since it is known
/// which rows these are.
void GradientWarpgroups::copyOwnListed() {
  for (int64_t i = 0; i < getNumOwn(); ++i)
    copyListedRows(own.memrefs[i],
                   getOwnBoxes(own.places[i], type, own.columns[i]), k.i32(0));
  k.commitCopies();
  k.waitCopies(0);
  w.publishWrites();
}

void GradientWarpgroups::produce() {
  if (!hasListRows())
    copyOwn();
  auto awaitFree = [&](const Tile &tile) {
    w.wait(getBarrier(free, getStage(tile)), k.sub(k.i32(1), getParity(tile)));
  };
  Value squares;
  if (hidesByTerm())
    squares = addSquares(ownSquares, getOwnHead(), firstOwn, ownRows);
  auto startTile = [&](Tile tile) {
    if (hidesByTerm())
      tile.isCut = isCutByTerm(tile, squares);
    awaitFree(tile);
    storeTile(tile, getStage(tile));
    copyTile(tile);
  };
  Tile end;
  end.number = findTiles(startTile);
  if (joined)
    withJoined([&] { findJoinedTiles(end.number, startTile); });
  if (!needsEnd())
    return;
  awaitFree(end);
  storeEnd(getStage(end));
  w.arrive(getBarrier(full, getStage(end)));
}

/// The same of rows that lists name one by one, by all threads.
void GradientWarpgroups::produceRows() {
  auto asLeader = [&](function_ref<void()> body) {
    k.ifThen(k.equal(k.thread(), k.i32(0)), body);
  };
  asLeader([&] {
    w.arriveExpecting(loaded, own.getBytes(ownRows));
    for (int64_t i : {0, 1})
      copy(own, i, own.addresses[i], loaded, k.toI32(head), firstOwn, ownRows);
  });
  auto awaitFree = [&](const Tile &tile) {
    w.wait(getBarrier(free, getStage(tile)), k.sub(k.i32(1), getParity(tile)));
  };
  auto arrive = [&](Value stage) {
    Value barrier = getBarrier(full, stage);
    w.arriveAfterCopies(barrier);
    // What all lanes wrote themselves comes before the arrival of one.
    k.warpBarrier();
    k.ifThen(k.equal(k.lane(), k.i32(0)), [&] { w.arrive(barrier); });
  };
  Tile end;
  end.number = findListedRows(awaitFree, [&](const Tile &tile) {
    Value stage = getStage(tile);
    asLeader([&] { storeTile(tile, stage); });
    for (int64_t i : {0, 1})
      copyListedRows(passing.memrefs[i], getPassingBoxes(i, stage),
                     k.mul(stage, kTile));
    arrive(stage);
  });
  awaitFree(end);
  asLeader([&] { storeEnd(getStage(end)); });
  arrive(getStage(end));
}

void GradientWarpgroups::copyTile(const Tile &tile) {
  int64_t statisticsBytes = kTile * kStatistics * 4,
          readersBytes = getBytesOfReaders(kTile);
  Value stage = getStage(tile), barrier = getBarrier(full, stage);
  w.arriveExpecting(barrier,
                    passing.getBytes(kTile) + (ofRows     ? statisticsBytes
                                               : gathered ? readersBytes
                                                          : 0));
  for (int64_t i : {0, 1})
    copy(passing, i, getAddress(i, stage), barrier,
         ofRows ? tile.head : k.toI32(keyHead), tile.firstRow, kTile);
  if (!ofRows && gathered)
    copyReaders(
        w.advance(w.getShared(readersPlace), k.mul(stage, readersBytes)),
        barrier, tile.firstRow, kTile);
  if (ofRows)
    w.copyBytes(
        w.advance(w.getShared(statisticsPlace), k.mul(stage, statisticsBytes)),
        statistics,
        {batch, k.toIndex(tile.head), k.toIndex(k.div(tile.firstRow, kTile)),
         k.index(0), k.index(0)},
        barrier, statisticsBytes);
}
