//===- GPUGatheredRows.cpp - Far rows side by side ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   rows        a thread for each slot: its row, and by two searches the first
//               query that reads it and the first behind them
//   gather      a thread for each number of the slots
//   stretches   a thread for each row and range: which stretches have a slot
//               for it
//   add up      a thread for each number of a gradient
//
//===----------------------------------------------------------------------===//

#include "GPUGatheredRows.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;
using Layout = GatheredRows::Layout;

/// The kernel that adds up has code for each range.
static constexpr size_t kMostRanges = 32;
/// What a block of rows takes besides its tiles, in tiles: its rows are copied
/// twice, its sums of f32 are written and read once more.
static constexpr int64_t kTilesOfBlock = 6;
/// Tiles that are left must be fewer than one in so many.
static constexpr int64_t kLeastGain = 2;

std::optional<Layout> GatheredRows::choose(StreamBackwardOp op,
                                           const StreamSource &source,
                                           bool ofRows) {
  constexpr int64_t kTile = kWarpgroupRows, kOwn = 2 * kTile;
  ArrayRef<AffineMap> maps = source.attr.getRanges();
  MemRefType query = getMemRefType(op.getQuery()),
             keys = getMemRefType(source.keys);
  int64_t numQueries = query.getDimSize(2), block = op.getBlock();
  // Slots have no bias.
  if (source.rowList || source.bias || source.lengths || op.getQueryLengths() ||
      maps.empty() || maps.size() > kMostRanges || !llvm::all_of(maps, ascends))
    return std::nullopt;
  std::optional<StaticRanges> ranges =
      StaticRanges::get(maps, keys.getDimSize(2), numQueries, block);
  if (!ranges || block % kTile != 0)
    return std::nullopt;
  // Queries of a head that share a block's rows.
  int64_t heads = 1;
  if (ofRows && !query.isDynamicDim(1) && !keys.isDynamicDim(1))
    heads = std::max<int64_t>(
        query.getDimSize(1) / std::max<int64_t>(keys.getDimSize(1), 1), 1);

  std::optional<Layout> best;
  int64_t least = 0;
  for (int64_t chunk = 1;; chunk *= 2) {
    Layout layout;
    layout.queries = chunk * block;
    layout.numStretches = llvm::divideCeil(numQueries, layout.queries);
    layout.slots = 0;
    for (unsigned range = 0; range < maps.size(); ++range) {
      layout.firstSlots.push_back(layout.slots);
      layout.slots += ranges->getMaxRows({range}, chunk);
    }
    if (layout.slots == 0)
      return std::nullopt;
    layout.slots = llvm::alignTo(layout.slots, kTile);
    if (layout.slots > kTile)
      layout.slots = llvm::alignTo(layout.slots, kOwn);
    int64_t tiles =
        ofRows ? llvm::divideCeil(layout.slots, kOwn) *
                     (layout.queries / kTile * heads + kTilesOfBlock)
               : llvm::divideCeil(layout.queries, kOwn) * layout.slots / kTile;
    tiles *= layout.numStretches;
    // Of as many tiles, longer stretches have fewer slots.
    if (!best || tiles <= least) {
      least = tiles;
      best = layout;
    }
    if (layout.numStretches == 1)
      break;
  }
  // Today's, without those that are not read in between.
  int64_t tiles = ofRows ? ranges->countTiles(kOwn, /*areAligned=*/true) *
                               (block / kTile) * heads
                         : ranges->countTiles(kTile, /*areAligned=*/false) *
                               llvm::divideCeil(block, kOwn);
  if (tiles < least * kLeastGain)
    return std::nullopt;
  return best;
}

GatheredRows::GatheredRows(RowBuilder &host, StreamBackwardOp op,
                           const StreamSource &source, Layout layout,
                           FloatType type, bool addsUp)
    : host(host), source(source), gathered(source), layout(std::move(layout)),
      ranges(host, op, source) {
  findRows();
  gathered.keys = gather(source.keys, type);
  gathered.values = gather(source.values, type);
  if (source.logWeight)
    gathered.logWeight = gatherLogWeights();
  if (addsUp)
    findStretches();
}

void GatheredRows::free() {
  for (Value buffer : {rows, readers, stretches, gathered.keys, gathered.values,
                       source.logWeight ? gathered.logWeight : Value()})
    if (buffer)
      memref::DeallocOp::create(host, buffer);
}

void GatheredRows::findRows() {
  Value slots = host.index(layout.slots),
        numStretches = host.index(layout.numStretches);
  rows = host.allocate({host.mul(numStretches, slots)}, {}, host.getI32Type());
  readers = host.allocate({numStretches, slots}, {2}, host.getI32Type());
  parallelLoop(host, {numStretches, slots}, [&](ValueRange at) {
    RowBuilder &b = host;
    Value range = b.index(0), first = b.index(0);
    for (auto [i, slot] : llvm::enumerate(layout.firstSlots)) {
      Value isBehind = b.less(at[1], b.index(slot));
      range = b.select(isBehind, range, b.index(i));
      first = b.select(isBehind, first, b.index(slot));
    }
    GradientRanges::Span named = ranges.getRowsOfTile(
        range, b.mul(at[0], layout.queries), layout.queries);
    Value row = b.add(named.begin, b.sub(at[1], first));
    Value exists = b.less(row, named.end);
    Value slot = b.add(b.mul(at[0], layout.slots), at[1]);
    b.storeIndex(b.select(exists, row, b.index(-1)), rows, slot);
    GradientRanges::Span queries =
        ranges.getTilesOfRows(range, {row, b.add(row, 1)}, /*count=*/1);
    Value bounds[] = {queries.begin, queries.end};
    for (auto [i, bound] : llvm::enumerate(bounds))
      b.storeIndex(b.select(exists, bound, b.index(0)), readers,
                   {at[0], at[1], b.index(i)});
  });
}

/// Rows that no slot has are zero.
Value GatheredRows::gather(Value memref, Type type) {
  Value extents[] = {host.extent(memref, 0), host.extent(memref, 1),
                     host.extent(rows, 0), host.extent(memref, 3)};
  Value target = host.allocate(ArrayRef(extents).drop_back(),
                               getMemRefType(memref).getShape().back(), type);
  parallelLoop(host, extents, [&](ValueRange at) {
    Value row = host.loadIndex(rows, at[2]);
    Value number = host.loadScalar(
        memref, {at[0], at[1], host.max(row, host.index(0)), at[3]});
    number =
        host.select(host.less(row, host.index(0)), host.scalar(0.0), number);
    host.storeScalar(number, target, at);
  });
  return target;
}

Value GatheredRows::gatherLogWeights() {
  Value weights = source.logWeight;
  Value extents[] = {host.extent(weights, 0), host.extent(weights, 1),
                     host.extent(rows, 0)};
  Value target = host.allocate(extents, {}, host.getF32Type());
  parallelLoop(host, extents, [&](ValueRange at) {
    Value row = host.max(host.loadIndex(rows, at[2]), host.index(0));
    host.storeScalar(
        host.loadScalar(weights,
                        {at[0], at[1], host.broadcastIndex(weights, 2, row)}),
        target, at);
  });
  return target;
}

void GatheredRows::findStretches() {
  Value numRanges = ranges.getNumRanges();
  Value extents[] = {host.extent(source.keys, 2), numRanges};
  stretches = host.allocate(extents, {2}, host.getI32Type());
  parallelLoop(host, extents, [&](ValueRange at) {
    GradientRanges::Span found = ranges.getTilesOfRows(
        at[1], {at[0], host.add(at[0], 1)}, layout.queries);
    Value bounds[] = {found.begin, found.end};
    for (auto [i, bound] : llvm::enumerate(bounds))
      host.storeIndex(bound, stretches, {at[0], at[1], host.index(i)});
  });
}

void GatheredRows::addUp(Value sums, Value result) const {
  Values extents;
  for (int64_t dim = 0; dim < getMemRefType(result).getRank(); ++dim)
    extents.push_back(host.extent(result, dim));
  parallelLoop(host, extents, [&](ValueRange at) {
    RowBuilder &b = host;
    Value total = b.scalar(0.0);
    for (auto [range, first] : llvm::enumerate(layout.firstSlots)) {
      Value bounds[2];
      for (auto [i, bound] : llvm::enumerate(bounds))
        bound = b.loadIndex(stretches, {at[2], b.index(range), b.index(i)});
      auto add = [&, first = first](Value stretch, ValueRange total) -> Values {
        Value slot = b.add(b.mul(stretch, layout.slots), first);
        slot = b.add(slot, b.sub(at[2], b.loadIndex(rows, slot)));
        Values from(at);
        from[2] = slot;
        return {b.fadd(total[0], b.loadScalar(sums, from))};
      };
      total = b.loop(bounds[0], bounds[1], 1, {total}, add)[0];
    }
    b.storeScalar(total, result, at);
  });
}
