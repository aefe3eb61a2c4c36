//===- SummarizeBackwardLevels.cpp - Gradients of several levels ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   input    a block for a unit and 32 columns, whose gradients of all levels
//            each thread has in registers; warps share the rows
//   weights  a block for a place of a unit, or two, and 32 columns. Of the
//   units
//            of a coarsest interval a warp has each of so many. It goes through
//            them so that those at one place of an interval follow each other,
//            for all levels: so a thread has one sum for each, which it adds to
//            the gradient where another place begins. What places have in
//            several warps is added up in shared memory.
//
// No number is met by two threads, so sums have one order.
//
//===----------------------------------------------------------------------===//

#include "SummarizeLevels.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Sums of a thread that has two places of a unit, at most in each: with 32
/// ptxas spills registers.
static constexpr int64_t kMostSumsOfTwo = 24;

void fovea::attn::emitInputOfLevels(OpBuilder &builder,
                                    ArrayRef<SummarizeBackwardOp> ops,
                                    Value rounded) {
  SmallVector<SummarizeBackwardOp> levels(ops);
  SummarizeBackwardOp finest = levels.front();
  Value input = finest.getDInput(), result = rounded ? rounded : input;
  int64_t numWarps = std::clamp<int64_t>(
      llvm::divideCeil(finest.getInterval(), 4), 1, kMostLevelWarps);
  GPUKernelBuilder b(finest.getLoc(), builder, numWarps * kWarpSize);
  LevelsOf of(b, input, finest.getWeights(), finest.getInterval(),
              finest.getRank(), levels.size());
  Values at =
      beginBlocks(b, {of.batches, of.heads, b.ceilDiv(of.rows, of.interval),
                      b.ceilDiv(of.columns, kWarpSize)});
  Value unit = at[2], set = b.div(at[1], of.headsOfSet);
  LaneColumn column(b, at[3], of.columns);
  Values gradients, places;
  for (auto [level, op] : llvm::enumerate(levels)) {
    places.push_back(of.getPlace(b, unit, level));
    Value first = b.mul(b.div(unit, int64_t(1) << level), of.rank);
    for (int64_t a = 0; a < of.rank; ++a)
      gradients.push_back(b.loadScalar(
          op.getDOutput(), {at[0], at[1], b.add(first, a), column.at}));
  }
  Value firstRow = b.mul(unit, of.interval);
  Value length = b.min(b.sub(of.rows, firstRow), of.interval);
  b.loop(b.toIndex(b.warp()), length, numWarps, [&](Value row) {
    Value to[] = {at[0], at[1], b.add(firstRow, row), column.at};
    Value total = b.loadScalar(input, to);
    for (auto [level, op] : llvm::enumerate(levels))
      for (int64_t a = 0; a < of.rank; ++a) {
        Value weight = b.loadScalar(
            op.getWeights(),
            {set, b.index(a), b.add(places[level], row), column.at});
        total = b.fma(weight, gradients[level * of.rank + a], total);
      }
    b.ifThen(column.exists, [&] { b.storeScalar(total, result, to); });
  });
}

namespace {
class WeightLevels {
public:
  WeightLevels(OpBuilder &builder, ArrayRef<SummarizeBackwardOp> levels)
      : ops(levels), numLevels(ops.size()),
        logWarps(
            std::min<size_t>(numLevels - 1, llvm::Log2_64(kMostLevelWarps))),
        b(ops.back().getLoc(), builder, (kWarpSize << logWarps)),
        of(b, ops.front().getInput(), ops.front().getWeights(),
           ops.front().getInterval(), ops.front().getRank(), numLevels),
        numPlaces(of.interval % 2 == 0 &&
                          int64_t(numLevels) * of.rank <= kMostSumsOfTwo
                      ? 2
                      : 1) {}

  void emit();

private:
  /// Of a level all sums of a thread.
  int64_t getNumSums() const { return numPlaces * of.rank; }
  /// Sums of the levels below `level`, added to `running`, and of it for its
  /// place `part` in the units of a coarsest interval.
  Values addLevel(size_t level, Value part, ValueRange running);
  /// The same of the coarsest level, and of all others for what it reads.
  Values addRows(Value part, ValueRange running);
  void addToGradient(Value sum, size_t level, Value part, int64_t place,
                     Value a);
  void addShared(ValueRange sums);

  SmallVector<SummarizeBackwardOp> ops;
  size_t numLevels;
  int64_t logWarps;
  GPUKernelBuilder b;
  LevelsOf of;
  int64_t numPlaces; // of a thread
  Value set, firstPlace;
  std::optional<LaneColumn> column;
};
} // namespace

void WeightLevels::emit() {
  int64_t sharedBytes = (kWarpSize << logWarps) * logWarps * getNumSums() * 4;
  Values at = beginBlocks(b,
                          {b.extent(ops.front().getWeights(), 0),
                           b.index(of.interval / numPlaces),
                           b.ceilDiv(of.columns, kWarpSize)},
                          sharedBytes);
  set = at[0];
  firstPlace = b.mul(at[1], numPlaces);
  column.emplace(b, at[2], of.columns);
  Value warp = b.toIndex(b.warp());
  // Levels below have places in several warps.
  Values sums(logWarps * getNumSums(), b.scalar(0.0));
  sums = addLevel(logWarps, warp, sums);
  addShared(sums);
}

Values WeightLevels::addLevel(size_t level, Value part, ValueRange running) {
  Values sums = llvm::to_vector(running);
  sums.append(getNumSums(), b.scalar(0.0));
  if (level + 1 == numLevels)
    sums = addRows(part, sums);
  else
    sums = b.loop(b.index(0), b.index(2), 1, sums,
                  [&](Value half, ValueRange running) {
                    Value next = b.add(part, b.mul(half, int64_t(1) << level));
                    return addLevel(level + 1, next, running);
                  });
  for (int64_t sum = 0; sum < getNumSums(); ++sum)
    addToGradient(sums[running.size() + sum], level, part, sum / of.rank,
                  b.index(sum % of.rank));
  sums.resize(running.size());
  return sums;
}

Values WeightLevels::addRows(Value part, ValueRange running) {
  Value batches = of.batches, firstHead = b.mul(set, of.headsOfSet);
  int64_t units = int64_t(1) << (numLevels - 1), rows = units * of.interval;
  Value firstRow = b.add(b.mul(part, of.interval), firstPlace);
  // Adds the place of a thread in units `part`, from interval to interval.
  auto addPlace = [&](int64_t place, Value batch, Value head, Value interval,
                      ArrayRef<Value> gradients, MutableArrayRef<Value> sums) {
    Value row = b.add(b.add(b.mul(interval, rows), firstRow), place);
    Value x =
        b.loadScalar(ops.front().getInput(), {batch, head, row, column->at});
    for (size_t level = 0; level < numLevels; ++level)
      for (int64_t a = 0; a < of.rank; ++a) {
        Value &sum = sums[level * getNumSums() + place * of.rank + a];
        sum = b.fma(x, gradients[level * of.rank + a], sum);
      }
  };
  // Intervals that have the place: all but the last one have all.
  auto addIntervals = [&](Value batch, Value head, Value first, Value behind,
                          int64_t count, ValueRange running) {
    return b.loop(
        first, behind, 1, running,
        [&](Value interval, ValueRange running) -> Values {
          Values gradients, sums = llvm::to_vector(running);
          for (auto [level, op] : llvm::enumerate(ops)) {
            Value number = b.add(b.mul(interval, units >> level),
                                 b.div(part, int64_t(1) << level));
            for (int64_t a = 0; a < of.rank; ++a)
              gradients.push_back(b.loadScalar(
                  op.getDOutput(),
                  {batch, head, b.add(b.mul(number, of.rank), a), column->at}));
          }
          for (int64_t place = 0; place < count; ++place)
            addPlace(place, batch, head, interval, gradients, sums);
          return sums;
        });
  };
  auto countIntervals = [&](int64_t place) {
    Value left = b.sub(of.rows, b.add(firstRow, place));
    return b.max(b.ceilDiv(b.max(left, 0), rows), 0);
  };
  Value few = countIntervals(numPlaces - 1), all = countIntervals(0);
  return b.loop(
      b.index(0), batches, 1, running, [&](Value batch, ValueRange running) {
        return b.loop(firstHead, b.add(firstHead, of.headsOfSet), 1, running,
                      [&](Value head, ValueRange running) {
                        Values sums = addIntervals(batch, head, b.index(0), few,
                                                   numPlaces, running);
                        if (numPlaces == 1)
                          return sums;
                        return addIntervals(batch, head, few, all, 1, sums);
                      });
      });
}

void WeightLevels::addToGradient(Value sum, size_t level, Value part,
                                 int64_t place, Value a) {
  Value row = b.add(b.add(b.mul(part, of.interval), firstPlace), place);
  SummarizeBackwardOp op = ops[level];
  Value to[] = {set, a, row, column->at};
  b.ifThen(column->exists, [&] {
    b.storeScalar(b.fadd(b.loadScalar(op.getDWeights(), to), sum),
                  op.getDWeights(), to);
  });
}

void WeightLevels::addShared(ValueRange sums) {
  if (sums.empty())
    return;
  int64_t numWarps = int64_t(1) << logWarps, numSums = sums.size();
  Value shared =
      b.sharedBuffer(0, {numWarps, numSums, kWarpSize}, b.getF32Type());
  Value warp = b.toIndex(b.warp());
  for (int64_t sum = 0; sum < numSums; ++sum)
    memref::StoreOp::create(b, sums[sum], shared,
                            ValueRange{warp, b.index(sum), column->lane});
  b.barrier();
  for (size_t level = 0; level < size_t(logWarps); ++level) {
    int64_t parts = int64_t(1) << level;
    for (int64_t place = 0; place < numPlaces; ++place)
      b.loop(warp, b.index(parts * of.rank), numWarps, [&](Value i) {
        Value part = b.div(i, of.rank), a = b.rem(i, of.rank);
        Value sum = b.add(a, level * getNumSums() + place * of.rank);
        Value total = b.scalar(0.0);
        for (int64_t other = 0; other < numWarps; other += parts) {
          Value at[] = {b.add(part, other), sum, column->lane};
          total = b.fadd(total, memref::LoadOp::create(b, shared, at));
        }
        addToGradient(total, level, part, place, a);
      });
  }
}

void fovea::attn::emitWeightsOfLevels(OpBuilder &builder,
                                      ArrayRef<SummarizeBackwardOp> levels) {
  WeightLevels(builder, levels).emit();
}
