//===- GPUStreamTiles.cpp - Tiles that a query block reads ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// A bound of rows in 32 bits, whichever rows that there are not it names.
static Value toNearI32(GPUKernelBuilder &b, Value bound) {
  return b.toI32(b.clamp(bound, b.index(-kFar), b.index(kFar)));
}

void GPUStreamKernel::collectSegments(Value blockIndex) {
  segments.clear();
  for (auto [index, source] : llvm::enumerate(sources)) {
    auto add = [&, index = index](RangeKind, const RangeBounds &run) {
      addSegment(index, run.low, run.high);
      if (hasLocalBias)
        segments.back().biasBegin = b.toI32(run.first);
    };
    SourceView ofHead = source;
    if (rowsAreHeads && source.bias)
      ofHead.bias = b.rowView(source.bias, b.index(0));
    SmallVector<unsigned> listed =
        ranges.emitRuns(b, index, ofHead, blockIndex, numRows, add);
    if (!listed.empty())
      addTable(index, listed, blockIndex);
    if (source.list)
      addListed(index, blockIndex);
  }
  if (layout.tableRows && fillsTable)
    b.barrier();

  numTiles = b.i32(0);
  for (Segment &segment : segments) {
    segment.firstTile = numTiles;
    Value length = b.max(b.sub(segment.high, segment.low), 0);
    numTiles = b.add(numTiles, b.ceilDiv(length, keyTile));
  }
}

void GPUStreamKernel::addSegment(unsigned index, Value low, Value high) {
  const SourceView &source = sources[index];
  MaskAttr mask = source.attr.getMask();
  Segment segment;
  segment.source = index;
  segment.isTable = false;
  if (!mask.isTrivial()) {
    // Position of the block's first query; its last one is some steps further
    // on.
    Value position = b.add(getFirstPosition(), b.sub(source.tokens, numRows));
    Value last = countSteps();
    Value window = b.index(mask.getWindow());
    int64_t prefixRows = mask.getPrefix() / mask.getStride();
    if (mask.getCausal())
      segment.upper = b.add(position, 1);
    else if (mask.hasWindow())
      segment.upper = b.add(position, window);
    if (mask.hasWindow())
      segment.lower = b.add(b.sub(position, window), 1);
    // Tiles that no query of the block may read are not visited.
    if (segment.upper) {
      Value end = emitFirstRow(b, mask, b.add(segment.upper, last));
      high = b.min(high, mask.hasPrefix() ? b.max(end, prefixRows) : end);
    }
    if (mask.hasPrefix())
      segment.prefix = b.i32(std::min(prefixRows, kFar));
    if (segment.lower)
      low = b.max(low, emitFirstRow(b, mask, segment.lower));
    for (Value *bound : {&segment.lower, &segment.upper})
      if (*bound)
        *bound = toNearI32(b, *bound);
  }
  segment.low = toNearI32(b, low);
  segment.high = toNearI32(b, high);
  segments.push_back(segment);
}

void GPUStreamKernel::addTable(unsigned index, ArrayRef<unsigned> listed,
                               Value blockIndex) {
  const SourceView &source = sources[index];
  Value start = b.i32(ranges.getTableStart(index));
  // Entry `e` of the table is row `e + shift` of the source, with the shift of
  // the last range that starts at or before `e`.
  SmallVector<std::pair<Value, Value>> parts;
  Value end = start;
  for (unsigned number : listed) {
    auto [low, high, first] = emitRangeBounds(
        b, source.attr.getRanges()[number], blockIndex, source.rows, numRows);
    parts.push_back({end, b.sub(toNearI32(b, low), end)});
    end = b.add(end, b.toI32(b.max(b.sub(high, low), 0)));
  }
  Value first = b.add(start, b.thread());
  auto fill = [&](Value entry) {
    Value shift = parts.front().second;
    for (auto [begin, candidate] : ArrayRef(parts).drop_front())
      shift = b.select(b.less(entry, begin), shift, candidate);
    memref::StoreOp::create(b, b.add(entry, shift), table, b.toIndex(entry));
  };
  if (fillsTable)
    b.loop(first, end, b.getNumThreads(), fill);
  Segment segment;
  segment.source = index;
  segment.isTable = true;
  segment.low = start;
  segment.high = end;
  segments.push_back(segment);
}

GPUStreamKernel::Tile GPUStreamKernel::getTile(Value number) {
  auto toTile = [&](const Segment &segment) {
    Tile tile;
    if (sources.size() > 1)
      tile.source = b.i32(segment.source);
    if (layout.tableRows)
      tile.isTable =
          arith::ConstantOp::create(b, b.getBoolAttr(segment.isTable));
    tile.row =
        b.add(segment.low, b.mul(b.sub(number, segment.firstTile), keyTile));
    int64_t stride = getStride(segment);
    bool isListed = sources[segment.source].list != nullptr;
    auto relative = [&](Value bound, int64_t none, int64_t stride = 1) {
      if (!bound)
        return b.i32(none);
      return isListed ? bound : b.sub(bound, b.mul(tile.row, stride));
    };
    tile.count = b.min(b.sub(segment.high, tile.row), keyTile);
    tile.upper = relative(segment.upper, kFar, stride);
    tile.lower = relative(segment.lower, -kFar, stride);
    if (hasLocalBias)
      tile.biasColumn =
          segment.biasBegin ? b.sub(tile.row, segment.biasBegin) : b.i32(0);
    if (hasPrefix)
      tile.prefix = relative(segment.prefix, -kFar);
    if (hasStride)
      tile.stride = b.i32(stride);
    if (hasLists) {
      tile.begin = isListed ? segment.begin : b.i32(0);
      tile.end = isListed ? segment.end : b.i32(0);
    }
    return pack(tile);
  };
  if (segments.empty()) {
    Segment none = {};
    none.low = none.high = none.firstTile = b.i32(0);
    return unpack(toTile(none));
  }
  Values fields = toTile(segments.front());
  for (const Segment &segment : ArrayRef(segments).drop_front()) {
    Value isLater = b.less(number, segment.firstTile);
    for (auto [field, other] : llvm::zip(fields, toTile(segment)))
      field = b.select(isLater, field, other);
  }
  return unpack(fields);
}

GPUStreamKernel::Values GPUStreamKernel::pack(const Tile &tile) {
  Values values = {tile.row, tile.count, tile.lower, tile.upper};
  if (tile.source)
    values.push_back(tile.source);
  if (tile.isTable)
    values.push_back(tile.isTable);
  if (tile.biasColumn)
    values.push_back(tile.biasColumn);
  if (tile.prefix)
    values.push_back(tile.prefix);
  if (tile.stride)
    values.push_back(tile.stride);
  if (tile.begin)
    values.append({tile.begin, tile.end});
  return values;
}

SmallVector<Type> GPUStreamKernel::getTileTypes() {
  SmallVector<Type> types(4, b.getI32Type());
  if (sources.size() > 1)
    types.push_back(b.getI32Type());
  if (layout.tableRows)
    types.push_back(b.getI1Type());
  types.append(hasLocalBias + hasPrefix + hasStride + 2 * hasLists,
               b.getI32Type());
  return types;
}

GPUStreamKernel::Tile GPUStreamKernel::unpack(ValueRange values) {
  Tile tile;
  tile.row = values[0];
  tile.count = values[1];
  tile.lower = values[2];
  tile.upper = values[3];
  values = values.drop_front(4);
  if (sources.size() > 1) {
    tile.source = values.front();
    values = values.drop_front();
  }
  if (layout.tableRows) {
    tile.isTable = values.front();
    values = values.drop_front();
  }
  if (hasLocalBias) {
    tile.biasColumn = values.front();
    values = values.drop_front();
  }
  if (hasPrefix) {
    tile.prefix = values.front();
    values = values.drop_front();
  }
  if (hasStride) {
    tile.stride = values.front();
    values = values.drop_front();
  }
  if (hasLists) {
    tile.begin = values[0];
    tile.end = values[1];
  }
  return tile;
}

Value GPUStreamKernel::getRow(const Tile &tile, Value offset) {
  Value number = b.add(tile.row, offset), row = number;
  if (tile.isTable)
    row = b.select(
        tile.isTable, row.getType(),
        [&]() -> Value {
          return memref::LoadOp::create(b, table, b.toIndex(number));
        },
        [&] { return number; });
  for (auto [index, source] : llvm::enumerate(sources))
    if (source.list)
      row = whereSource(tile, index, row, [&, &source = source] {
        return findListed(source, number).row;
      });
  return row;
}

Value GPUStreamKernel::whereSource(const Tile &tile, unsigned index,
                                   Value otherwise,
                                   function_ref<Value()> then) {
  if (sources.size() == 1)
    return then();
  return b.select(b.equal(tile.source, b.i32(index)), otherwise.getType(), then,
                  [&] { return otherwise; });
}

Value GPUStreamKernel::selectBySource(
    const Tile &tile, function_ref<Value(const SourceView &)> view) {
  Value selected = view(sources.front());
  for (unsigned index = 1; index < sources.size(); ++index) {
    Value isThis = b.equal(tile.source, b.i32(index));
    selected = b.select(isThis, view(sources[index]), selected);
  }
  return selected;
}
