//===- GPUStreamProducer.cpp - Copies of warpgroup kernels ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The producer of a block starts all copies, and says what each tile is.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamWarpgroups.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

void GPUStreamWarpgroups::produce() {
  Value first = firstTile, last = b.sub(b.add(first, numTiles), b.i32(1));
  b.ifThen(b.less(b.i32(0), numTiles), [&] {
    Values turn = startTurns();
    findRowsAhead(first);
    if (k.stays)
      awaitFree(shared.keys, first);
    // Queries arrive with the first keys.
    Value full = ofStage(shared.keys.full, getStage(first), 8);
    asLeader([&] { w.expect(full, getBoxedBytes(k.queryTile, k.width)); });
    startKeys(first, turn);
    searchBefore(first);
    // Nobody multiplies those before any more when their last keys are free.
    if (k.stays)
      awaitFree(shared.keys, b.add(first, 1));
    asLeader([&] {
      copyBoxes(shared.queries, maps.query, full, b.i32(0), k.queryTile,
                k.width);
    });
    findRowsAhead(b.add(first, 1));
    turn = b.loop(first, last, 1, turn, [&](Value number, ValueRange turn) {
      Value next = b.add(number, 1);
      awaitFree(shared.keys, next);
      Values nextTurn = takeTurn(turn);
      startKeys(next, nextTurn);
      startValues(number, turn);
      searchBefore(next);
      findRowsAhead(b.add(next, 1));
      return nextTurn;
    });
    startValues(last, turn);
  });
}

// Which tiles there are, in order: one after the other with nothing carried
// along, or those that a region leaves.
Values GPUStreamWarpgroups::startTurns() {
  return k.skipsTiles() ? k.startTurns().pack() : Values();
}
Values GPUStreamWarpgroups::takeTurn(ValueRange turn) {
  if (!k.skipsTiles())
    return {};
  return k.takeTurn({turn[0], turn[1], turn[2]}).pack();
}
GPUStreamWarpgroups::Tile GPUStreamWarpgroups::getTile(Value number,
                                                       ValueRange turn) {
  return k.getTile(k.skipsTiles() ? turn[0] : b.sub(number, firstTile));
}

/// Starts to copy the keys of a tile, and hands over what the tile is.
void GPUStreamWarpgroups::startKeys(Value number, ValueRange turn) {
  Tile tile = getTile(number, turn);
  Value slot = getSlot(number);
  if (sharesTiles)
    asLeader([&] { storeTile(tile, slot); });
  if (k.hasWeights)
    k.storeWeights(k.findWeights(tile), slot);
  if (k.hasLists && k.skipsTiles())
    findRows(tile, slot);
  startRelativeKeys(number, tile);
  startCopy(tile, number, shared.keys, &TensorMaps::Source::keys,
            &GPUStreamKernel::SourceView::keys);
}

/// Finds the listed rows of a tile, for all threads of the producer.
void GPUStreamWarpgroups::findRows(const Tile &tile, Value slot) {
  k.loadPlaces(tile, slot);
  b.barrier();
}

/// The same of a tile that may be there, ahead of its turn: who copies it
/// does not wait for its list. The place is of the tile four before, whose
/// weights had been made when keys two tiles after it were free.
void GPUStreamWarpgroups::findRowsAhead(Value number) {
  if (k.hasLists && !k.skipsTiles())
    b.ifThen(b.less(number, numTiles),
             [&] { findRows(k.getTile(number), getSlot(number)); });
}

/// Looks for what is not finite among the values of the tile before `number`,
/// if that is cut, and tells consumers.
void GPUStreamWarpgroups::searchBefore(Value number) {
  if (!k.stays)
    return;
  b.ifThen(b.less(b.i32(0), number), [&] {
    Value before = b.sub(number, b.i32(1)), stage = getStage(before);
    // What the tile is, and which of its rows are hidden, others stored.
    b.barrier();
    b.ifThen(k.isCut(getSharedTile(before), getSlot(before)), [&] {
      awaitFull(shared.values, before);
      Value isFound = b.i1(false);
      for (const SharedRows &rows : getRows(shared.values, stage))
        isFound = b.either(isFound, findByProducts(b, rows));
      isFound = b.anyThread(isFound);
      asLeader([&] {
        Value found = arith::ExtUIOp::create(b, b.getI32Type(), isFound);
        memref::StoreOp::create(b, found, shared.found, b.toIndex(stage));
      });
    });
    asLeader([&] { w.arrive(ofStage(shared.searched, stage, 8)); });
  });
}

void GPUStreamWarpgroups::startValues(Value number, ValueRange turn) {
  awaitFree(shared.values, number);
  startCopy(getTile(number, turn), number, shared.values,
            &TensorMaps::Source::values, &GPUStreamKernel::SourceView::values);
}

/// Starts to copy keys or values of a tile, and arrives for them. A thread
/// alone arrives before.
void GPUStreamWarpgroups::startCopy(const Tile &tile, Value number,
                                    const Boxes &boxes,
                                    TensorMap TensorMaps::Source::*map,
                                    Value GPUStreamKernel::SourceView::*view) {
  Value full = ofStage(boxes.full, getStage(number), 8);
  if (isAlone)
    w.arriveExpecting(full, boxes.bytes);
  bool areValues = &boxes == &shared.values;
  for (auto [index, source] : llvm::enumerate(k.sources)) {
    auto copy = [&, index = index, &source = source] {
      copyOperand(tile, index, maps.sources[index].*map, view, boxes, number,
                  full, areValues ? source.valueBlock : Value());
    };
    if (k.sources.size() == 1)
      copy();
    else
      b.ifThen(b.equal(tile.source, b.i32(index)), copy);
  }
  if (isAlone)
    return;
  if (boxes.hasRows)
    w.arriveAfterCopies(full);
  // What all lanes wrote themselves comes before the arrival of one.
  b.warpBarrier();
  b.ifThen(b.equal(b.lane(), b.i32(0)), [&] { w.arrive(full); });
}

/// Waits until the tile that had the place of tile `number` has been read.
void GPUStreamWarpgroups::awaitFree(const Boxes &boxes, Value number) {
  Value parity = b.sub(b.i32(1), b.rem(b.div(number, 2), 2));
  w.wait(ofStage(boxes.free, getStage(number), 8), parity);
}

/// What starts copies and announces them.
void GPUStreamWarpgroups::asLeader(function_ref<void()> body) {
  if (isAlone)
    return body();
  b.ifThen(b.equal(b.thread(), b.i32(0)), body);
}

/// Copies keys or values of a tile, whose source is `index`.
void GPUStreamWarpgroups::copyOperand(const Tile &tile, unsigned index,
                                      const TensorMap &map,
                                      Value GPUStreamKernel::SourceView::*view,
                                      const Boxes &boxes, Value number,
                                      Value full, Value block) {
  Value stage = getStage(number);
  bool hasTable = false, hasRows = false;
  for (const GPUStreamKernel::Segment &segment : k.segments)
    if (segment.source == index)
      (segment.isTable ? hasTable : hasRows) = true;
  auto byRows = [&](bool isTable) {
    Tile own = tile;
    if (!isTable)
      own.isTable = Value();
    k.copyToBoxes(own, k.sources[index], view, boxes.rows, stage,
                  getSlot(number), boxes.columns, boxes.numColumns);
  };
  auto byBoxes = [&] {
    asLeader([&] {
      if (!isAlone)
        w.expect(full, boxes.bytes);
      // Copies of rows may have been there before.
      if (boxes.hasRows)
        w.publishWrites();
      Value target = ofStage(boxes.address, stage, boxes.bytes);
      Value row = tile.row;
      if (cluster > 1) {
        Value part = b.mul(w.getRank(), k.keyTile / cluster);
        target = w.advance(target, b.mul(part, kBoxBytes));
        row = b.add(row, part);
      }
      copyBoxes(target, map, full, row, k.keyTile, boxes.columns, block,
                cluster);
    });
  };
  if (!map.map || !hasRows)
    byRows(hasTable);
  else if (!hasTable)
    byBoxes();
  else
    b.ifThenElse(tile.isTable, [&] { byRows(true); }, byBoxes);
}

/// Copies rows from `row` of an operand on, to boxes of `numRows` rows in
/// `cluster` blocks; what it does not have becomes zero.
void GPUStreamWarpgroups::copyBoxes(Value target, const TensorMap &map,
                                    Value barrier, Value row, int64_t numRows,
                                    int64_t columns, Value block,
                                    int64_t cluster) {
  Values at = map.offsets;
  at[at.size() - 2] = b.add(at[at.size() - 2], row);
  if (block)
    at[at.size() - 3] = b.add(at[at.size() - 3], block);
  w.copyBoxes(target, map.map, barrier, at, numRows, columns, cluster);
}

void GPUStreamWarpgroups::storeTile(const Tile &tile, Value slot) {
  for (auto [i, field] : llvm::enumerate(k.pack(tile))) {
    Value number = field;
    if (field.getType().isInteger(1))
      number = arith::ExtUIOp::create(b, b.getI32Type(), field);
    memref::StoreOp::create(b, number, shared.tiles, getField(slot, i));
  }
}
