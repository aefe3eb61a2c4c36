//===- GPUStreamParts.cpp - Several blocks of threads for a query ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Few queries have fewer blocks of threads than a GPU has multiprocessors. The
// tiles that the rows of a block read are then cut to parts, each of which has
// a block of its own. It leaves its sums, and a second kernel adds them up,
// always in the same order. How many parts there are follows from the extents
// of the operands and from how many tiles the packed queries read, never from
// the device or from other queries.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/HeadRows.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows that are worth a part of their own: what a part leaves is a few percent
/// of what it reads.
static constexpr int64_t kPartRows = 256;
/// Parts at most, and parts of all queries and of all tiles of rows: with 8 key
/// heads, as many blocks of threads as a GPU runs at once, and not more memory
/// than the parts of two queries take.
static constexpr int64_t kMostParts = 128, kMostOfAll = 2 * kMostParts;

/// How many rows a source has, at most: where a view of fewer rows than a
/// constant is read, the constant, which a graph knows when it is captured.
static Value boundRows(KernelBuilder &b, Value memref) {
  auto view = memref.getDefiningOp<memref::SubViewOp>();
  if (!view || view.getDroppedDims().any())
    return b.extent(memref, 2);
  auto size = dyn_cast<Value>(view.getMixedSizes()[2]);
  auto least = size ? size.getDefiningOp<affine::AffineMinOp>() : nullptr;
  if (least)
    for (AffineExpr expr : least.getMap().getResults())
      if (auto constant = dyn_cast<AffineConstantExpr>(expr))
        return b.index(constant.getValue());
  return b.extent(memref, 2);
}

/// How many rows a query reads, at most.
static Value countRows(KernelBuilder &b, StreamOp op,
                       const RangeAnalysis &ranges) {
  Value total = b.index(0);
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    if (source.rowList) {
      Value entries = b.extent(source.rowList, 3);
      total = b.add(total, b.mul(entries, source.attr.getUnit()));
      continue;
    }
    Value extent = boundRows(b, source.getRowsOperand());
    MaskAttr mask = source.attr.getMask();
    for (size_t range = 0; range < source.attr.getRanges().size(); ++range) {
      std::optional<int64_t> length = ranges.getMaxLength(index, range);
      Value rows = length ? b.index(*length) : extent;
      if (mask.hasWindow() && !mask.hasPrefix())
        rows = b.min(rows, mask.getWindow() * (mask.getCausal() ? 1 : 2));
      total = b.add(total, rows);
    }
  }
  return total;
}

/// Decides on parts, and allocates what they leave.
void GPUStreamKernel::allocateParts() {
  if (!hasFewQueryRows(op))
    return;
  int64_t tiles = llvm::divideCeil(packedQueries * getKeyGroup(op), queryTile);
  Value count = b.ceilDiv(countRows(b, op, ranges), kPartRows);
  Value query = op.getQuery(), batches = b.extent(query, 0),
        queries = b.extent(query, 2);
  int64_t numQueries = cast<MemRefType>(query.getType()).getDimSize(2);
  int64_t most = kMostOfAll / std::max({numQueries, tiles, int64_t(2)});
  count = b.clamp(count, b.index(1), b.index(std::max<int64_t>(most, 1)));
  if (getConstantIntValue(count) == 1)
    return;
  Value rows[] = {batches, b.extent(query, 1), queries, count};
  parts.count = count;
  parts.sums = b.allocate(rows, {valueWidth}, b.getF32Type());
  parts.statistics = b.allocate(rows, {2}, b.getF32Type());
  parts.used = b.allocate({batches, b.extent(op.getValues().front(), 1),
                           b.ceilDiv(queries, packedQueries)},
                          {tiles}, b.getI32Type());
}

/// Emits `body` for part `part` of what the rows of the block read, which are
/// tile `tile` of those of packed queries `pack`. Parts that have nothing come
/// last and leave nothing, unless they are the first.
void GPUStreamKernel::takePart(Value part, Value pack, Value tile,
                               function_ref<void()> body) {
  Value zero = b.i32(0), one = b.i32(1), number = b.toI32(part);
  Value count = b.toI32(parts.count);
  Value share = b.div(b.sub(b.add(numTiles, count), one), count);
  share = b.max(share, std::max<int64_t>(kPartRows / keyTile, 1));
  beginTile = b.mul(number, share);
  endTile = b.min(b.add(beginTile, share), numTiles);
  parts.part = number;
  parts.sumRows = viewHeads(parts.sums);
  parts.statisticRows = viewHeads(parts.statistics);
  Value isFirst = b.equal(number, zero);
  b.ifThen(b.both(isFirst, b.equal(b.thread(), zero)), [&] {
    Value used = b.max(b.div(b.sub(b.add(numTiles, share), one), share), one);
    Value keyHead = b.div(head, getKeyGroup(op));
    memref::StoreOp::create(b, used, parts.used,
                            ValueRange{batch, keyHead, pack, tile});
  });
  b.ifThen(b.either(isFirst, b.less(beginTile, numTiles)), body);
}

/// Leaves the sums of a part, which stand for weights over that of its maximum.
void GPUStreamKernel::storePart(const State &state, Value firstColumn) {
  for (int64_t half : {0, 1}) {
    Value sum = sumOfRow(state, half), row = getOwnRow(half);
    b.ifThen(b.less(row, blockQueries), [&] {
      Values target = locateRow(row);
      target.push_back(parts.part);
      storeColumns(state, half, firstColumn, parts.sumRows, target,
                   [](Value total) { return total; });
      b.ifThen(isRowWriter(firstColumn), [&] {
        for (auto [i, value] :
             llvm::enumerate(Values{state.maximum[half], sum})) {
          Values at(target);
          at.push_back(b.i32(i));
          b.storeScalar(value, parts.statisticRows, b.toIndices(at));
        }
      });
    });
  }
}

/// A kernel with a thread for each element of the results. It takes a few parts
/// at once, whose loads do not wait for each other.
void GPUStreamKernel::mergeParts() {
  if (!parts.count)
    return;
  constexpr int64_t kAtOnce = 8;
  Value query = op.getQuery(), zero = b.scalar(0.0);
  Value keyGroup = b.index(getKeyGroup(op));
  // What sums over the weight of `maximum` are multiplied by to be over that of
  // a greater one.
  auto getFactor = [&](Value maximum, Value top) -> Value {
    if (isSoftmax)
      return b.exp2(b.fsub(maximum, top));
    Value share = arith::DivFOp::create(b, maximum, top);
    return b.fmul(share, share);
  };
  Value extents[] = {b.extent(query, 0), b.extent(query, 1), b.extent(query, 2),
                     b.index(valueWidth)};
  parallelLoop(b, extents, [&](ValueRange at) {
    Value row = b.add(b.mul(b.rem(at[2], packedQueries), keyGroup),
                      b.rem(at[1], keyGroup));
    Value ofTile[] = {at[0], b.div(at[1], keyGroup),
                      b.div(at[2], packedQueries), b.div(row, queryTile)};
    Value used = b.toIndex(memref::LoadOp::create(b, parts.used, ofTile));
    Value last = b.sub(used, b.index(1));
    Values start = {b.scalar(softmax::kMasked), zero, zero};
    if (!isSoftmax)
      start[0] = b.scalar(kLeastPeak);
    auto addParts = [&](Value first, ValueRange before) -> Values {
      Values maxima, sums, totals, exists;
      Value top = before[0];
      for (int64_t i = 0; i < kAtOnce; ++i) {
        Value part = b.add(first, i), near = b.min(part, last);
        Value ofPart[] = {at[0], at[1], at[2], near};
        auto load = [&](Value from, Value column) {
          return b.loadScalar(
              from, {ofPart[0], ofPart[1], ofPart[2], ofPart[3], column});
        };
        maxima.push_back(load(parts.statistics, b.index(0)));
        sums.push_back(load(parts.statistics, b.index(1)));
        totals.push_back(load(parts.sums, at[3]));
        exists.push_back(b.less(part, used));
        top = b.maxNum(top, maxima.back());
      }
      Value factor = getFactor(before[0], top);
      Value sum = b.fmul(before[1], factor), total = b.fmul(before[2], factor);
      for (int64_t i = 0; i < kAtOnce; ++i) {
        factor = getFactor(maxima[i], top);
        sum = b.select(exists[i], b.fma(sums[i], factor, sum), sum);
        total = b.select(exists[i], b.fma(totals[i], factor, total), total);
      }
      return {top, sum, total};
    };
    Values merged = b.loop(b.index(0), used, kAtOnce, start, addParts);
    Value maximum = merged[0], sum = merged[1];
    b.storeScalar(getMean(merged[2], getFinalFactor(maximum, sum)),
                  op.getOutput(), at);
    if (Value lse = op.getLse())
      b.ifThen(b.equal(at[3], b.index(0)), [&] {
        b.storeScalar(softmax::logSumExp(b, maximum, sum), lse,
                      at.take_front(3));
      });
  });
  for (Value buffer : {parts.sums, parts.statistics, parts.used})
    memref::DeallocOp::create(b, buffer);
}
