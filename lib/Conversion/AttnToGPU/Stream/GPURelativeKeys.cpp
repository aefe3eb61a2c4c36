//===- GPURelativeKeys.cpp - Relative keys on sm_90a ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The score of query i and row j of a tile has `(q_i + v) r[x + i - j]`, x the
// distance of the first query and the first row. For the 64 queries of a
// consumer and 64 rows, these are 127 relative keys, two boxes of 64. The lower
// one is the upper one of the next tile, whose rows are 64 further on: so of
// each tile a consumer multiplies one box, and finds the products of the other
// where it left them. Two consumers are 64 queries apart: what one multiplies,
// the other has multiplied a tile before.
//
//   number of the box   n - 2      n - 1        n
//   distances           x + 65 ..  x + 1 ..     x - 63 ..
//   tile n              upper of 1 lower of 1
//                                  upper of 0   lower of 0
//
// Four boxes have places, that of box n for `n % 4`: one is copied ahead, with
// the keys of its tile. Where a tile does not continue the one before, all its
// boxes are new, and consumers multiply two. They do that in a branch, ahead of
// their turn; a stream of one segment of rows has no such branch.
//
// Products pass through shared memory, in f32. A row is of four lanes of one
// warp, so they need no other barrier. Of product n, column c of row i is at
// `64 (n % 2) + c`, chunks of eight columns permuted by the row against bank
// conflicts. Entry (i, j) is column `63 + i - j` of both.
//
// `v r[d]` are products of a kernel of its own, in f32: `q + v` would have to
// be rounded.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamWarpgroups.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Boxes that have places, and columns of two products.
static constexpr int64_t kBoxes = 4, kColumns = 2 * kRelativeTile;
/// The widest heads whose sums fit the registers beside those of a box.
static constexpr int64_t kMostWidth = 128;

bool fovea::attn::multipliesRelativeKeys(StreamOp op) {
  TilesAttr tiles = *op.getTiles();
  if (op.getRelativeKeys().empty() || tiles.getLanes() != kWarpgroupRows ||
      tiles.getKey() != kRelativeTile)
    return false;
  // Relative keys of the type of sums are not rounded, and boxes have rows that
  // are known to lie 16 bytes apart. Tensors have no places yet.
  FloatType type = getProductType(op);
  auto haveBoxes = [&](Value keys) {
    return getElementTypeOrSelf(keys) == type &&
           (isa<TensorType>(keys.getType()) ||
            getCopyBytes(keys, type.getWidth() / 8) == kChunkBytes);
  };
  int64_t width = cast<ShapedType>(op.getQuery().getType()).getDimSize(3),
          valueWidth = cast<ShapedType>(op.getOutput().getType()).getDimSize(3);
  return std::max(width, valueWidth) <= kMostWidth &&
         llvm::all_of(op.getRelativeKeys(), haveBoxes);
}

void GPUStreamLayout::placeRelativeKeys(int64_t queryRows, int64_t width) {
  bytes = llvm::alignTo(bytes, 8 * kBoxBytes);
  relativeKeys = place(kBoxes * getBoxedBytes(kRelativeTile, width));
  relativeProducts = place(queryRows * kColumns * 4);
}

/// Distances that the buffer has before the first one, and with another box
/// behind the last one.
static constexpr int64_t kBefore = kRelativeTile;

Value fovea::attn::emitRelativeBiases(KernelBuilder &b, Value biases,
                                      Value keys, double factor) {
  bool isShared = getMemRefType(keys).getDimSize(0) == 1;
  Value numTerms = b.extent(keys, 1);
  Value extents[] = {b.extent(isShared ? biases : keys, 0),
                     b.add(numTerms, kBefore + kRelativeTile)};
  Value products = b.allocate(extents, {}, b.getF32Type());
  parallelLoop(b, extents, [&](ValueRange at) {
    // Entries that are read have no others.
    Value distance = b.clamp(b.sub(at[1], b.index(kBefore)), b.index(0),
                             b.sub(numTerms, b.index(1)));
    Value ofBias = b.broadcastIndex(biases, 0, at[0]),
          ofKey = b.broadcastIndex(keys, 0, at[0]);
    Value product =
        b.loop(b.index(0), b.extent(keys, 2), 1, {b.scalar(0.0)},
               [&](Value column, ValueRange sum) -> Values {
                 Value bias = b.loadScalar(biases, {ofBias, column});
                 Value key = b.loadScalar(keys, {ofKey, distance, column});
                 return {b.fma(bias, key, sum[0])};
               })[0];
    b.storeScalar(b.fmul(product, b.scalar(factor)), products, at);
  });
  return products;
}

void GPUStreamWarpgroups::placeRelativeKeys() {
  shared.relativeKeys = w.getShared(*k.layout.relativeKeys);
  shared.relativeProducts = b.sharedBuffer(
      *k.layout.relativeProducts, {k.queryTile * kColumns}, b.getF32Type());
}

/// Whether every tile but the first one continues the one before.
bool GPUStreamWarpgroups::isOneRun() {
  return k.segments.size() == 1 && k.sources.size() == 1;
}

/// Whether a tile is the one ahead of the loop over the others.
static bool isFirst(Value number) {
  return isa_and_present<arith::ConstantOp>(number.getDefiningOp());
}

/// Whether a tile does not continue the one before.
Value GPUStreamWarpgroups::startsAnew(const Tile &tile, const Tile &previous) {
  auto differs = [&](Value a, Value b) {
    return this->b.equal(this->b.equal(a, b), this->b.i1(false));
  };
  Value isNew = differs(tile.row, b.add(previous.row, kRelativeTile));
  if (tile.source)
    isNew = b.either(isNew, differs(tile.source, previous.source));
  return isNew;
}

/// Runs `body` where the source of a tile has relative keys, with its number.
void GPUStreamWarpgroups::whereRelative(
    const Tile &tile, function_ref<void(unsigned index)> body) {
  if (!k.layout.relativeKeys)
    return;
  for (auto [index, source] : llvm::enumerate(k.sources)) {
    if (!source.relativeKeys)
      continue;
    auto ofSource = [&, index = index] { body(index); };
    if (k.sources.size() == 1)
      ofSource();
    else
      b.ifThen(b.equal(tile.source, b.i32(index)), ofSource);
  }
}

/// The distance of the first query of the block and the first row of a tile.
Value GPUStreamWarpgroups::getFirstDistance(const Tile &tile, unsigned index) {
  Value position =
      b.sub(b.add(b.toI32(k.firstRow), k.blockQuery), k.sources[index].origin);
  return b.sub(position, tile.row);
}

Value GPUStreamWarpgroups::getRelativeBox(Value number) {
  int64_t bytes = getBoxedBytes(kRelativeTile, k.width);
  return ofStage(shared.relativeKeys, b.rem(b.add(number, kBoxes), kBoxes),
                 bytes);
}

//===----------------------------------------------------------------------===//
// Producer
//===----------------------------------------------------------------------===//

/// Starts to copy the relative keys of a tile that have not been copied for the
/// one before: they are full and free with its keys.
void GPUStreamWarpgroups::startRelativeKeys(Value number, const Tile &tile) {
  whereRelative(tile, [&](unsigned index) {
    Value full = ofStage(shared.keys.full, getStage(number), 8);
    Value lowest =
        b.sub(getFirstDistance(tile, index), b.i32(kRelativeTile - 1));
    auto copy = [&](int64_t box) {
      w.expect(full, getBoxedBytes(kRelativeTile, k.width));
      copyBoxes(getRelativeBox(b.sub(number, b.i32(box))),
                maps.sources[index].relativeKeys, full,
                b.add(lowest, box * kRelativeTile), kRelativeTile, k.width);
    };
    auto copyOthers = [&] {
      for (int64_t box = 1; box <= numConsumers; ++box)
        copy(box);
    };
    asLeader([&] {
      copy(0);
      if (isFirst(number))
        return copyOthers();
      if (isOneRun())
        return;
      Value isNew = startsAnew(tile, k.getTile(b.sub(number, b.i32(1))));
      b.ifThen(isNew, [&] {
        // Not before the tile before has been read.
        awaitFree(shared.keys, b.add(number, 1));
        copyOthers();
      });
    });
  });
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

/// What the bias of queries adds to products of the thread: of its 16 columns
/// of the lower or upper box.
Values GPUStreamWarpgroups::loadRelativeBiases(const Tile &tile, unsigned index,
                                               bool isUpper) {
  const TensorMaps::Source &source = maps.sources[index];
  Value row = b.rowView(source.relativeBiases, source.relativeHead);
  // Whatever is read has a distance; a box may begin anywhere.
  Value distance = b.add(getFirstDistance(tile, index),
                         b.mul(b.recompute(group), kRelativeTile));
  distance = b.add(distance, isUpper ? 1 : 1 - kRelativeTile);
  distance = b.add(distance, source.relativeKeys.offsets[1]);
  Value last =
      b.toI32(b.sub(b.extent(row, 0), b.index(kBefore + kRelativeTile)));
  distance = b.clamp(distance, b.i32(-kBefore), last);
  Value first = b.toIndex(b.add(b.add(distance, kBefore), k.pairColumn));
  Values biases;
  for (int64_t column = 0; column < kRelativeTile; column += 8)
    for (int64_t i : {0, 1})
      biases.push_back(b.loadScalar(row, b.add(first, column + i)));
  return biases;
}

/// Starts the products of a consumer's queries and one of its boxes.
Values GPUStreamWarpgroups::multiplyRelativeKeys(Value number, bool isUpper) {
  Value ownGroup = b.recompute(group);
  Value queries =
      w.advance(shared.queries, b.mul(ownGroup, kWarpgroupRows * kBoxBytes));
  Value box = b.sub(number, ownGroup);
  if (isUpper)
    box = b.sub(box, b.i32(1));
  Value left = b.recompute(w.getDescriptor(queries, kChunkBytes));
  Value right = w.getDescriptor(getRelativeBox(box), kChunkBytes);
  return w.multiplyRows(k.type, left, k.queryTile, right, kRelativeTile,
                        k.width);
}

/// Where the products of one of the thread's rows begin.
Value GPUStreamWarpgroups::getProductRow(int64_t half) {
  return b.mul(k.getOwnRow(half), kColumns);
}

/// What columns are XORed with in the rows of the thread.
Value GPUStreamWarpgroups::getProductSwizzle() {
  return b.mul(b.rem(k.group, 4), 8);
}

/// Leaves products for the lanes that have their entries.
void GPUStreamWarpgroups::storeRelative(Value number, bool isUpper,
                                        ValueRange products,
                                        ValueRange biases) {
  Value parity = b.rem(b.add(number, isUpper ? 1 : 0), 2);
  Value begin = b.add(b.mul(parity, kRelativeTile), k.pairColumn);
  Value swizzle = getProductSwizzle();
  auto pair = VectorType::get({2}, b.getF32Type());
  for (int64_t half : {0, 1}) {
    Value row = b.add(getProductRow(half), begin);
    for (int64_t column = 0; column < kRelativeTile; column += 8) {
      Values numbers;
      for (int64_t i : {0, 1})
        numbers.push_back(b.fma(products[column / 2 + 2 * half + i],
                                b.scalar(k.scoreScale),
                                biases[column / 4 + i]));
      Value both = vector::FromElementsOp::create(b, pair, numbers);
      // Two bits change; the rest is the same offset for all.
      Value place =
          b.add(b.add(row, b.bitXor(swizzle, column % 32)), column / 32 * 32);
      auto store = vector::StoreOp::create(b, both, shared.relativeProducts,
                                           b.toIndex(place));
      store.setAlignment(8);
    }
  }
}

/// What relative keys add to the thread's scores of 8 columns of a tile.
Values GPUStreamWarpgroups::loadRelative(Value number, int64_t columns) {
  Value parity = b.mul(b.rem(number, 2), kRelativeTile);
  Values products;
  for (int64_t half : {0, 1}) {
    // All bits of the column are those of one row.
    Value row = b.add(getProductRow(half), getProductSwizzle());
    Value first = b.sub(
        b.add(b.rem(k.getOwnRow(half), kWarpgroupRows), kRelativeTile - 1),
        k.pairColumn);
    for (int64_t i : {0, 1}) {
      Value column = b.sub(first, b.i32(8 * columns + i));
      Value place = b.bitXor(b.bitXor(column, row), parity);
      products.push_back(
          memref::LoadOp::create(b, shared.relativeProducts, b.toIndex(place)));
    }
  }
  return products;
}

/// Multiplies what is not multiplied beside the scores of a tile: of the first
/// tile, or of tiles that may be the first of their segments.
void GPUStreamWarpgroups::prepareRelative(Value number) {
  if (!k.layout.relativeKeys || (isOneRun() && !isFirst(number)))
    return;
  Tile tile = getSharedTile(number);
  auto multiply = [&](unsigned index, bool isUpper) {
    w.beginProducts();
    Values products = multiplyRelativeKeys(number, isUpper);
    w.commitProducts();
    Values biases = loadRelativeBiases(tile, index, isUpper);
    products = w.waitProducts(0, products);
    storeRelative(number, isUpper, products, biases);
  };
  whereRelative(tile, [&](unsigned index) {
    // What other lanes had of the tile before.
    b.warpBarrier();
    Value isNew = b.i1(true);
    if (!isFirst(number))
      isNew = startsAnew(tile, getSharedTile(b.sub(number, b.i32(1))));
    b.ifThen(isNew, [&] { multiply(index, /*isUpper=*/true); });
    if (!isOneRun())
      multiply(index, /*isUpper=*/false);
    b.warpBarrier();
  });
}

/// Starts the products that a tile adds, beside its scores.
Values GPUStreamWarpgroups::startRelative(Value number) {
  if (!k.layout.relativeKeys || !isOneRun())
    return {};
  return multiplyRelativeKeys(number, /*isUpper=*/false);
}

/// Of products that are there, takes those that startRelative has started.
/// Returns the others.
Values GPUStreamWarpgroups::takeScores(Value number, ValueRange products,
                                       Terms &terms) {
  if (!k.layout.relativeKeys)
    return Values(products);
  if (isOneRun()) {
    size_t count = kRelativeTile / 2;
    b.warpBarrier();
    storeRelative(number, /*isUpper=*/false, products.take_front(count),
                  terms.relativeBiases);
    b.warpBarrier();
    products = products.drop_front(count);
  }
  terms.relative = [this, number](int64_t columns) {
    return loadRelative(number, columns);
  };
  return Values(products);
}
