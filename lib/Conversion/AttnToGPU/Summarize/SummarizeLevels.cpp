//===- SummarizeLevels.cpp - Sums of several levels -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   sums   a warp for a unit and 32 columns: of its rows the sums of all
//          levels. Those of the finest level are whole; the warps of a block,
//          which have units in a row, add up the others in shared memory.
//   rest   a thread for each number of the levels whose intervals are longer
//          than the rows of a block: adds up what blocks have of it
//
//===----------------------------------------------------------------------===//

#include "SummarizeLevels.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class SummaryLevels {
public:
  SummaryLevels(OpBuilder &builder, ArrayRef<SummarizeOp> levels)
      : ops(levels), input(ops.front().getInput()),
        numWarps(
            std::min<int64_t>(int64_t(1) << (ops.size() - 1), kMostLevelWarps)),
        host(ops.back().getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
        b(ops.back().getLoc(), builder, numWarps * kWarpSize),
        of(b, input, ops.front().getWeights(), ops.front().getInterval(),
           ops.front().getRank(), ops.size()) {
    while (firstLong < ops.size() && int64_t(1) << firstLong <= numWarps)
      ++firstLong;
  }

  void emit();

private:
  void emitSums(Value blocks);
  void storeInside(size_t level, Value firstUnit);
  void emitRest(Value blocks);
  /// A sum of an interval of a level, with the bias that belongs to it.
  void store(KernelBuilder &k, Value sum, size_t level, Value number, Value a,
             Value column);
  Value addShared(Value firstWarp, int64_t count, Value sum);

  SmallVector<SummarizeOp> ops;
  Value input;
  int64_t numWarps;
  size_t firstLong = 0; // level with intervals longer than a block's rows
  RowBuilder host;
  GPUKernelBuilder b;
  LevelsOf of;
  Value parts; // [B, G, blocks of rows, sums of long levels, D]
  Value shared, batch, head;
  std::optional<LaneColumn> column;
};
} // namespace

void SummaryLevels::emit() {
  Value blocks = host.ceilDiv(of.rows, of.interval * numWarps);
  int64_t numLong = ops.size() - firstLong;
  if (numLong > 0)
    parts =
        host.allocate({of.batches, of.heads, blocks},
                      {numLong * of.rank, getWidth(input)}, host.getF32Type());
  emitSums(blocks);
  if (numLong > 0) {
    emitRest(blocks);
    memref::DeallocOp::create(host, parts);
  }
}

void SummaryLevels::store(KernelBuilder &k, Value sum, size_t level,
                          Value number, Value a, Value column) {
  SummarizeOp op = ops[level];
  if (op.getBias()) {
    Value set = k.div(head, of.headsOfSet);
    sum = k.fadd(sum, k.loadScalar(op.getBias(), {set, a, column}));
  }
  Value row = k.add(k.mul(number, of.rank), a);
  k.storeScalar(sum, op.getOutput(), {batch, head, row, column});
}

/// What `count` warps have of a sum, in order.
Value SummaryLevels::addShared(Value firstWarp, int64_t count, Value sum) {
  Value total = b.scalar(0.0);
  for (int64_t warp = 0; warp < count; ++warp) {
    Value at[] = {b.add(firstWarp, warp), sum, column->lane};
    total = b.fadd(total, memref::LoadOp::create(b, shared, at));
  }
  return total;
}

void SummaryLevels::emitSums(Value blocks) {
  int64_t numShared = (ops.size() - 1) * of.rank;
  Value numParts = b.ceilDiv(of.columns, kWarpSize);
  Values at = beginBlocks(b, {of.batches, of.heads, blocks, numParts},
                          numWarps * numShared * kWarpSize * 4);
  batch = at[0];
  head = at[1];
  column.emplace(b, at[3], of.columns);
  shared = b.sharedBuffer(0, {numWarps, numShared, kWarpSize}, b.getF32Type());
  Value warp = b.toIndex(b.warp());
  Value firstUnit = b.mul(at[2], numWarps), unit = b.add(firstUnit, warp);
  Value firstRow = b.mul(unit, of.interval);
  Value length = b.min(b.sub(of.rows, firstRow), of.interval);
  Value set = b.div(head, of.headsOfSet);
  Values places;
  for (size_t level = 0; level < ops.size(); ++level)
    places.push_back(of.getPlace(b, unit, level));
  Values sums(ops.size() * of.rank, b.scalar(0.0));
  sums =
      b.loop(b.index(0), length, 1, sums, [&](Value row, ValueRange running) {
        Value x = b.loadScalar(input,
                               {batch, head, b.add(firstRow, row), column->at});
        Values next;
        for (auto [level, op] : llvm::enumerate(ops))
          for (int64_t a = 0; a < of.rank; ++a) {
            Value weight = b.loadScalar(
                op.getWeights(),
                {set, b.index(a), b.add(places[level], row), column->at});
            next.push_back(b.fma(weight, x, running[next.size()]));
          }
        return next;
      });
  b.ifThen(b.both(column->exists, b.less(firstRow, of.rows)), [&] {
    for (int64_t a = 0; a < of.rank; ++a)
      store(b, sums[a], /*level=*/0, unit, b.index(a), column->at);
  });
  for (int64_t sum = 0; sum < numShared; ++sum) {
    Value at[] = {warp, b.index(sum), column->lane};
    memref::StoreOp::create(b, sums[of.rank + sum], shared, at);
  }
  b.barrier();
  for (size_t level = 1; level < firstLong; ++level)
    storeInside(level, firstUnit);
  int64_t firstSum = (firstLong - 1) * of.rank;
  if (firstSum < numShared)
    b.loop(warp, b.index(numShared - firstSum), numWarps, [&](Value sum) {
      Value total = addShared(b.index(0), numWarps, b.add(sum, firstSum));
      b.ifThen(column->exists, [&] {
        b.storeScalar(total, parts, {batch, head, at[2], sum, column->at});
      });
    });
}

/// A level whose intervals lie in the rows of a block: a warp for each sum.
void SummaryLevels::storeInside(size_t level, Value firstUnit) {
  int64_t units = int64_t(1) << level;
  int64_t count = numWarps / units * of.rank;
  b.loop(b.toIndex(b.warp()), b.index(count), numWarps, [&](Value i) {
    Value interval = b.div(i, of.rank), a = b.rem(i, of.rank);
    Value first = b.mul(interval, units);
    Value total = addShared(first, units, b.add(a, (level - 1) * of.rank));
    Value unit = b.add(firstUnit, first);
    Value exists = b.less(b.mul(unit, of.interval), of.rows);
    b.ifThen(b.both(column->exists, exists), [&] {
      store(b, total, level, b.div(unit, units), a, column->at);
    });
  });
}

void SummaryLevels::emitRest(Value blocks) {
  // The numbers of all long levels, one level behind the other.
  Value numRows = host.index(0);
  Values ends;
  for (SummarizeOp op : llvm::drop_begin(ops, firstLong)) {
    numRows = host.add(numRows, host.extent(op.getOutput(), 2));
    ends.push_back(numRows);
  }
  parallelLoop(
      host, {of.batches, of.heads, numRows, of.columns}, [&](ValueRange at) {
        batch = at[0];
        head = at[1];
        Value begin = host.index(0);
        for (auto [i, end] : llvm::enumerate(ends)) {
          size_t level = firstLong + i;
          Value isLevel = host.both(host.less(at[2], end),
                                    host.less(begin, host.add(at[2], 1)));
          host.ifThen(isLevel, [&, begin = begin, i = i] {
            Value row = host.sub(at[2], begin);
            Value number = host.div(row, of.rank), a = host.rem(row, of.rank);
            int64_t blocksOfInterval = (int64_t(1) << level) / numWarps;
            Value first = host.mul(number, blocksOfInterval);
            Value behind = host.min(host.add(first, blocksOfInterval), blocks);
            Value total = host.loop(
                first, behind, 1, {host.scalar(0.0)},
                [&](Value block, ValueRange sum) -> Values {
                  Value from[] = {batch, head, block, host.add(a, i * of.rank),
                                  at[3]};
                  return {host.fadd(sum[0], host.loadScalar(parts, from))};
                })[0];
            store(host, total, level, number, a, at[3]);
          });
          begin = end;
        }
      });
}

void fovea::attn::emitSummaryLevels(OpBuilder &builder,
                                    ArrayRef<SummarizeOp> levels) {
  SummaryLevels(builder, levels).emit();
}
