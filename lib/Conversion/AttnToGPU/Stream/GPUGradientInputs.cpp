//===- GPUGradientInputs.cpp - What gradients on sm_90a take --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUGradientBlock.h"
#include "GPUGradientWarpgroups.h"
#include "GPUListBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPU/SharedRows.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr int64_t kTile = GradientBlock::kTile;

FloatType fovea::attn::getProductType(StreamBackwardOp op) {
  return cast<FloatType>(getMemRefType(op.getQuery()).getElementType());
}

bool fovea::attn::namesTiles(const StreamSource &source) {
  return source.attr.getUnit() % kTile == 0 &&
         !source.attr.getHasListedPositions();
}

bool fovea::attn::fillsTiles(StreamBackwardOp op, int64_t tileHeads,
                             int64_t rows) {
  // Boxes are of whole queries, or of one.
  bool hasBoxes = tileHeads % rows == 0 || rows % tileHeads == 0;
  return hasBoxes && op.getBlock() * tileHeads % rows == 0;
}

int64_t fovea::attn::getTileHeads(StreamBackwardOp op,
                                  const StreamSource &source) {
  if (fillsTiles(op, 1, kTile))
    return 1;
  int64_t heads = getMemRefType(op.getQuery()).getDimSize(1);
  int64_t keyHeads = getMemRefType(source.keys).getDimSize(1);
  if (!source.rowList || !ListGradientTile::canShareHeads(op, source) ||
      ShapedType::isDynamic(heads) || ShapedType::isDynamic(keyHeads) ||
      keyHeads == 0 || heads < keyHeads)
    return 0;
  int64_t tileHeads = heads / keyHeads;
  return fillsTiles(op, tileHeads, kTile) ? tileHeads : 0;
}

bool fovea::attn::canUseWarpgroups(StreamBackwardOp op,
                                   const StreamSource &source, bool ofRows) {
  FloatType type = getProductType(op);
  ArrayRef<AffineMap> ranges = source.attr.getRanges();
  if (type.getWidth() != 16 || ranges.empty() ||
      ranges.size() > GradientBlock::kMostRanges ||
      !llvm::all_of(ranges, ascends))
    return false;
  if (source.rowList && (source.bias || !op.getScores().empty()))
    return false;
  // The queries of a warpgroup have one block.
  int64_t tileHeads = getTileHeads(op, source);
  if (tileHeads == 0)
    return false;
  // Squares say which terms to look at, tile by tile of the queries of a head.
  if (tileHeads > 1 && source.logWeight && namesTiles(source))
    return false;
  // A few queries would leave most of a warpgroup idle.
  int64_t queries = getMemRefType(op.getQuery()).getDimSize(2);
  if (!ShapedType::isDynamic(queries) &&
      queries * tileHeads <= kWarpgroupRows / 2)
    return false;
  // Terms and rows that are gathered take registers and places.
  bool isPlain = !source.rowList && !source.logWeight && !source.bias &&
                 op.getScores().empty() && ranges.size() == 1;
  int64_t most = isPlain ? kMostColumnsAlone : kMostGradientColumns;
  auto hasBoxes = [&](Value operand) {
    return fitsGradientBoxes(operand, type, most);
  };
  // Rows of f32 are rounded to buffers of their own.
  auto canBeRounded = [&](Value operand) {
    int64_t width = getWidth(operand);
    return getMemRefType(operand).getElementType().isF32() && width > 0 &&
           width % 8 == 0 && width <= most;
  };
  return hasBoxes(op.getQuery()) && hasBoxes(op.getDOutput()) &&
         (hasBoxes(source.keys) || canBeRounded(source.keys)) &&
         (hasBoxes(source.values) || canBeRounded(source.values));
}

StreamSource fovea::attn::emitNarrowSource(RowBuilder &b, StreamBackwardOp op,
                                           const StreamSource &source,
                                           Values &buffers) {
  StreamSource narrowed = source;
  FloatType type = getProductType(op);
  for (Value *operand : {&narrowed.keys, &narrowed.values}) {
    Value wide = *operand;
    if (!getMemRefType(wide).getElementType().isF32())
      continue;
    buffers.push_back(*operand = b.allocateLike(wide, type));
    Values extents;
    for (int64_t dim = 0; dim < 4; ++dim)
      extents.push_back(b.extent(wide, dim));
    parallelLoop(b, extents, [&](ValueRange at) {
      b.storeScalar(b.loadScalar(wide, at), *operand, at);
    });
  }
  return narrowed;
}

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value fovea::attn::emitQueryStatistics(RowBuilder &b, StreamBackwardOp op,
                                       Value deltas, int64_t tileHeads) {
  Value lse = op.getLse();
  Value batches = b.extent(lse, 0),
        heads = b.div(b.extent(lse, 1), b.index(tileHeads)),
        numQueries = b.extent(lse, 2);
  Value tiles = b.ceilDiv(b.mul(numQueries, tileHeads), kTile);
  Value statistics =
      b.allocate({batches, heads, tiles}, {GradientBlock::kStatistics, kTile},
                 b.getF32Type());
  Value extents[] = {batches, heads, b.mul(tiles, kTile)};
  parallelLoop(b, extents, [&](ValueRange at) {
    Value query = b.div(at[2], tileHeads);
    Value isQuery = b.less(query, numQueries);
    query = b.min(query, b.sub(numQueries, b.index(1)));
    Value head = b.add(b.mul(at[1], tileHeads), b.rem(at[2], tileHeads));
    Value from[] = {at[0], head, query};
    Value sum = b.loadScalar(lse, from);
    Value readsSome = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, sum,
                                            b.scalar(-kInfinity));
    Value exists = b.both(isQuery, readsSome);
    Value shift = b.select(exists, b.fmul(sum, b.scalar(-softmax::kLog2E)),
                           b.scalar(-kInfinity));
    Value delta = b.select(exists, b.loadScalar(deltas, from), b.scalar(0.0));
    for (auto [i, number] : llvm::enumerate(Values{shift, delta}))
      b.storeScalar(
          number, statistics,
          {at[0], at[1], b.div(at[2], kTile), b.index(i), b.rem(at[2], kTile)});
  });
  return statistics;
}

/// Of products of two rows with squares below this, none is more than 2^120.
static constexpr double kBounded = 0x1p120;

Value fovea::attn::emitSquaresOfTiles(RowBuilder &b, ValueRange operands,
                                      ValueRange numbers) {
  Value extents[3];
  for (auto [dim, extent] : llvm::enumerate(extents))
    extent = b.extent(operands.front(), dim);
  Value squares = b.allocate(extents, {}, b.getF32Type());
  emitRowSquares(b, operands, squares, [&](KernelBuilder &k, ValueRange at) {
    Value sum = k.scalar(0.0);
    for (Value number : numbers) {
      Value loaded = k.loadScalar(number, at);
      Value isNone = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, loaded,
                                           k.scalar(-kInfinity));
      loaded = k.select(isNone, k.scalar(0.0), loaded);
      sum = k.fma(loaded, loaded, sum);
    }
    return sum;
  });
  Value rows = extents[2];
  extents[2] = b.ceilDiv(rows, kTile);
  Value tiles = b.allocate(extents, {}, b.getF32Type());
  auto part = [&](GPUKernelBuilder &k, ValueRange at, Value lane) {
    Value first = k.mul(at[2], kTile), end = k.min(k.add(first, kTile), rows);
    return k.loop(
        k.add(first, lane), end, kWarpSize, {k.scalar(0.0)},
        [&](Value row, ValueRange sum) -> Values {
          return {k.fadd(k.loadScalar(squares, {at[0], at[1], row}), sum[0])};
        })[0];
  };
  auto combine = [](GPUKernelBuilder &k, Value left, Value right) {
    return k.fadd(left, right);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value total) {
    k.storeScalar(total, tiles, at);
  };
  launchSharedRows(b, extents, kWarpSize, {part, combine, store});
  memref::DeallocOp::create(b, squares);
  return tiles;
}

Value fovea::attn::isUnbounded(KernelBuilder &b, Value squares) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::UGE, squares,
                               b.scalar(kBounded));
}
