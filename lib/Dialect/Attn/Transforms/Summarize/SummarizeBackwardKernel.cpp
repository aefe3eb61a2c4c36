//===- SummarizeBackwardKernel.cpp - Gradients of summaries ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeBackwardKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Rows, strips and sums of a register tile: 16 accumulators and 8 operands.
static constexpr int64_t kTile = 4;
/// Rows of a chunk. All that a chunk of 32 strips and 9 levels packs for one
/// vector of columns is 0.3 MB.
static constexpr int64_t kMaxChunk = 16;
/// Strips that share the weights of a chunk, and their sums in registers.
static constexpr int64_t kMaxStrips = 32;
/// Elements of the weights of a level that stay in the second-level cache while
/// a pass goes through the others.
static constexpr int64_t kCachedWeights = 1 << 16;
/// Vectors of columns of a task, unless there would be too few tasks: rows are
/// read in whole pairs of cache lines.
static constexpr int64_t kVectorsPerTask = 4;

SummarizeBackwardKernel::SummarizeBackwardKernel(
    OpBuilder &builder, ArrayRef<SummarizeBackwardOp> ops,
    const SummarizeTarget &target)
    : b(SummarizeBackwardOp(ops.front()).getLoc(), builder,
        getStateType(
            getElementTypeOrSelf(SummarizeBackwardOp(ops.front()).getInput())),
        /*lanes=*/
        [&] {
          auto type = cast<MemRefType>(
              SummarizeBackwardOp(ops.front()).getInput().getType());
          int64_t lanes = target.vectorBits /
                          getStateType(type.getElementType()).getWidth();
          // Vectors must not overlap, since sums are added to.
          while (type.getDimSize(3) % lanes != 0)
            lanes /= 2;
          return lanes;
        }()),
      levels(ops) {
  SummarizeBackwardOp first = levels.front(), last = levels.back();
  input = first.getInput();
  rank = first.getRank();
  sets = cast<MemRefType>(first.getWeights().getType()).getDimSize(0);
  finest = first.getInterval();
  coarsest = last.getInterval();
  numSums = rank * levels.size();
  chunkRows = std::min(finest, kMaxChunk);
  numVectors = cast<MemRefType>(input.getType()).getDimSize(3) / b.getLanes();
  vectorsPerTask = std::min(kVectorsPerTask, numVectors);
  while (vectorsPerTask > 1 &&
         int64_t(sets * llvm::divideCeil(numVectors, vectorsPerTask)) <
             target.minTasks)
    vectorsPerTask = llvm::divideCeil(vectorsPerTask, 2);
}

void SummarizeBackwardKernel::emit() {
  rows = b.extent(input, 2);
  headsPerSet = b.div(b.extent(input, 1), sets);
  stripsPerHead = b.ceilDiv(rows, coarsest);
  numStrips = b.mul(b.mul(b.extent(input, 0), headsPerSet), stripsPerHead);
  SmallVector<OpFoldResult> bounds = {
      b.getIndexAttr(sets),
      b.getIndexAttr(llvm::divideCeil(numVectors, vectorsPerTask))};
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          emitTask(ivs[0], ivs[1]);
                          scf::InParallelOp::create(b);
                        });
}

void SummarizeBackwardKernel::forEachTile(
    Value end, int64_t size, function_ref<void(Value, int64_t)> body) {
  Value whole = b.roundDown(end, size);
  b.loop(b.index(0), whole, size, [&](Value first) { body(first, size); });
  b.loop(whole, end, 1, [&](Value first) { body(first, 1); });
}

Value SummarizeBackwardKernel::getColumn(Value vector) {
  return b.mul(b.add(firstVector, vector), b.getLanes());
}

void SummarizeBackwardKernel::addVector(Value vector, Value memref,
                                        ValueRange indices) {
  b.storeVector(b.fadd(b.loadVector(memref, indices), vector), memref, indices);
}

void SummarizeBackwardKernel::emitTask(Value taskSet, Value slice) {
  set = taskSet;
  firstVector = b.mul(slice, vectorsPerTask);
  taskVectors = b.index(vectorsPerTask);
  if (numVectors % vectorsPerTask != 0)
    taskVectors =
        b.min(b.sub(b.index(numVectors), firstVector), vectorsPerTask);
  Type state = b.getStateType();
  int64_t lanes = b.getLanes();
  packedInput =
      b.scratch({vectorsPerTask, kMaxStrips, chunkRows, lanes}, state);
  packedGradients =
      b.scratch({vectorsPerTask, numSums, kMaxStrips, lanes}, state);
  packedWeights = b.scratch({vectorsPerTask, numSums, chunkRows, lanes}, state);
  strips = b.scratch({kMaxStrips, 4}, b.getIndexType());
  // Gradients change with the finest interval, rows with every chunk.
  b.loop(b.index(0), b.min(b.index(coarsest), rows), finest,
         [&](Value interval) {
           b.loop(b.index(0), numStrips, kMaxStrips, [&](Value first) {
             firstStrip = first;
             blockStrips = b.min(b.sub(numStrips, first), kMaxStrips);
             emitBlock(interval);
           });
         });
  b.loop(b.index(0), taskVectors, 1,
         [&](Value vector) { addToBiases(vector); });
  b.freeScratch();
}

void SummarizeBackwardKernel::emitBlock(Value interval) {
  packGradients(interval);
  b.loop(b.index(0), b.index(finest), chunkRows, [&](Value offset) {
    Chunk chunk = {b.add(interval, offset), b.index(chunkRows)};
    if (finest % chunkRows != 0)
      chunk.rows = b.min(b.sub(b.index(finest), offset), chunkRows);
    packWeights(chunk);
    packRows(chunk);
    b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
      addToInput(chunk, vector);
      addToWeights(chunk, vector);
    });
  });
}

/// Batch entry, head and first row of a strip of the block.
SummarizeBackwardKernel::Strip SummarizeBackwardKernel::getStrip(Value number) {
  Value strip = b.add(firstStrip, number);
  Value instance = b.div(strip, stripsPerHead);
  return {b.div(instance, headsPerSet),
          b.add(b.mul(set, headsPerSet), b.rem(instance, headsPerSet)),
          b.mul(b.rem(strip, stripsPerHead), coarsest)};
}

void SummarizeBackwardKernel::packWeights(const Chunk &chunk) {
  for (auto [number, level] : llvm::enumerate(levels)) {
    SummarizeBackwardOp op = level;
    int64_t firstSum = number * rank;
    Value first = b.rem(chunk.start, op.getInterval());
    b.loop(b.index(0), b.index(rank), 1, [&](Value sum) {
      b.loop(b.index(0), chunk.rows, 1, [&](Value row) {
        b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
          Value weight =
              b.loadVector(op.getWeights(),
                           {set, sum, b.add(first, row), getColumn(vector)});
          b.storeVector(weight, packedWeights,
                        {vector, b.add(sum, firstSum), row, b.index(0)});
        });
      });
    });
  }
}

/// Packs the gradients of the summaries that `interval` of every strip of the
/// block belongs to, zeros where there are none.
void SummarizeBackwardKernel::packGradients(Value interval) {
  b.loop(b.index(0), blockStrips, 1, [&](Value number) {
    Strip strip = getStrip(number);
    Value row = b.add(strip.row, interval);
    auto forEachPlace =
        [&](function_ref<Value(SummarizeBackwardOp &, Value, Value)>
                gradientOf) {
          for (auto [place, level] : llvm::enumerate(levels))
            b.loop(b.index(0), b.index(rank), 1, [&, &op = level](Value sum) {
              b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
                b.storeVector(
                    gradientOf(op, sum, vector), packedGradients,
                    {vector, b.add(sum, place * rank), number, b.index(0)});
              });
            });
        };
    b.ifThenElse(
        b.less(row, rows),
        [&] {
          forEachPlace([&](SummarizeBackwardOp &op, Value sum, Value vector) {
            Value first = b.mul(b.div(row, op.getInterval()), rank);
            return b.loadVector(op.getDOutput(),
                                {strip.batch, strip.head, b.add(first, sum),
                                 getColumn(vector)});
          });
        },
        [&] {
          forEachPlace([&](SummarizeBackwardOp &, Value, Value) {
            return b.splat(0.0);
          });
        });
  });
}

/// Packs the rows of a chunk of the block's strips, zeros where there are none,
/// and writes down where they lie and how many there are.
void SummarizeBackwardKernel::packRows(const Chunk &chunk) {
  b.loop(b.index(0), blockStrips, 1, [&](Value number) {
    Strip strip = getStrip(number);
    Value first = b.add(strip.row, chunk.start);
    Value present = chunk.rows;
    if (!hasWholeStrips())
      present = b.clamp(b.sub(rows, first), b.index(0), present);
    for (auto [place, value] :
         llvm::enumerate(Values{strip.batch, strip.head, first, present}))
      memref::StoreOp::create(b, value, strips, {number, b.index(place)});
    auto forEachVector = [&](Value low, Value high,
                             function_ref<Value(Value, Value)> dataOf) {
      b.loop(low, high, 1, [&](Value row) {
        b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
          b.storeVector(dataOf(row, vector), packedInput,
                        {vector, number, row, b.index(0)});
        });
      });
    };
    forEachVector(b.index(0), present, [&](Value row, Value vector) {
      return b.loadVector(input, {strip.batch, strip.head, b.add(first, row),
                                  getColumn(vector)});
    });
    forEachVector(present, chunk.rows,
                  [&](Value, Value) { return b.splat(0.0); });
  });
}

/// Where row `row` of the chunk of a packed strip lies in the input.
Values SummarizeBackwardKernel::rowOfStrip(Value number, Value row,
                                           Value column) {
  auto load = [&](int64_t place) -> Value {
    return memref::LoadOp::create(b, strips, {number, b.index(place)});
  };
  return {load(0), load(1), b.add(load(2), row), column};
}

/// A loop over `[0, end)` in whose first turns `prefetch(turn)` is called for
/// each of the rows of a register tile: one after the other, since a burst
/// stalls the loads.
Values SummarizeBackwardKernel::loopWithPrefetch(
    Value end, int64_t accumulators, bool prefetches,
    function_ref<void(Value)> prefetch,
    function_ref<Values(Value, ValueRange)> body) {
  Values sums(accumulators, b.splat(0.0));
  Value begin = b.index(0);
  if (prefetches) {
    Value middle = b.min(end, kTile * kTile);
    sums = b.loop(begin, middle, 1, sums, [&](Value turn, ValueRange running) {
      prefetch(turn);
      return body(turn, running);
    });
    begin = middle;
  }
  return b.loop(begin, end, 1, sums, body);
}

void SummarizeBackwardKernel::addToInput(const Chunk &chunk, Value vector) {
  Value target = SummarizeBackwardOp(levels.front()).getDInput(),
        column = getColumn(vector);
  forEachTile(blockStrips, kTile, [&](Value firstNumber, int64_t numbers) {
    forEachTile(chunk.rows, kTile, [&](Value firstRow, int64_t count) {
      // The same rows of the next chunk.
      auto prefetch = [&](Value turn) {
        Value row = b.add(b.add(firstRow, b.rem(turn, kTile)), chunkRows);
        Values at =
            rowOfStrip(b.add(firstNumber, b.div(turn, kTile)), row, column);
        b.prefetch(input, at, /*locality=*/2);
        b.prefetch(target, at, /*locality=*/2);
      };
      Values sums = loopWithPrefetch(
          b.index(numSums), count * numbers, count == kTile && numbers == kTile,
          prefetch, [&](Value sum, ValueRange running) {
            Values weights, next;
            for (int64_t i = 0; i < count; ++i)
              weights.push_back(
                  b.loadVector(packedWeights,
                               {vector, sum, b.add(firstRow, i), b.index(0)}));
            for (int64_t s = 0; s < numbers; ++s) {
              Value gradient = b.loadVector(
                  packedGradients,
                  {vector, sum, b.add(firstNumber, s), b.index(0)});
              for (int64_t i = 0; i < count; ++i)
                next.push_back(
                    b.fma(weights[i], gradient, running[next.size()]));
            }
            return next;
          });
      for (int64_t s = 0; s < numbers; ++s) {
        Value number = b.add(firstNumber, s);
        Values at = rowOfStrip(number, firstRow, column);
        Value first = at[2],
              present = memref::LoadOp::create(b, strips, {number, b.index(3)});
        for (int64_t i = 0; i < count; ++i) {
          Value isPresent = hasWholeStrips()
                                ? b.equal(b.index(0), b.index(0))
                                : b.less(b.add(firstRow, i), present);
          at[2] = b.add(first, i);
          b.ifThen(isPresent,
                   [&] { addVector(sums[s * count + i], target, at); });
        }
      }
    });
  });
}

void SummarizeBackwardKernel::addToWeights(const Chunk &chunk, Value vector) {
  Value column = getColumn(vector);
  for (auto [place, level] : llvm::enumerate(levels)) {
    SummarizeBackwardOp op = level;
    Value firstTarget = b.rem(chunk.start, op.getInterval());
    auto targetOf = [&](Value sum, Value row) -> Values {
      return {set, sum, b.add(firstTarget, row), column};
    };
    // Short intervals come again before the caches forget them.
    int64_t elements = rank * op.getInterval() * numVectors * b.getLanes();
    bool isLong = elements > kCachedWeights;
    forEachTile(b.index(rank), kTile, [&](Value firstSum, int64_t numSums) {
      forEachTile(chunk.rows, kTile, [&](Value firstRow, int64_t count) {
        auto prefetch = [&](Value turn) {
          Values at =
              targetOf(b.add(firstSum, b.div(turn, kTile)),
                       b.add(b.add(firstRow, b.rem(turn, kTile)), chunkRows));
          b.prefetch(op.getWeights(), at, /*locality=*/2);
          b.prefetch(op.getDWeights(), at, /*locality=*/2);
        };
        Values sums = loopWithPrefetch(
            blockStrips, count * numSums,
            isLong && count == kTile && numSums == kTile, prefetch,
            [&](Value number, ValueRange running) {
              Values data, next;
              for (int64_t i = 0; i < count; ++i)
                data.push_back(b.loadVector(
                    packedInput,
                    {vector, number, b.add(firstRow, i), b.index(0)}));
              for (int64_t a = 0; a < numSums; ++a) {
                Value gradient = b.loadVector(
                    packedGradients, {vector, b.add(firstSum, place * rank + a),
                                      number, b.index(0)});
                for (int64_t i = 0; i < count; ++i)
                  next.push_back(
                      b.fma(data[i], gradient, running[next.size()]));
              }
              return next;
            });
        for (int64_t a = 0; a < numSums; ++a)
          for (int64_t i = 0; i < count; ++i)
            addVector(sums[a * count + i], op.getDWeights(),
                      targetOf(b.add(firstSum, a), b.add(firstRow, i)));
      });
    });
  }
}

/// The gradients of the biases are sums of those of the summaries.
void SummarizeBackwardKernel::addToBiases(Value vector) {
  Value column = getColumn(vector), zero = b.index(0);
  for (SummarizeBackwardOp op : levels) {
    if (!op.getDBias())
      continue;
    Value numIntervals = b.ceilDiv(rows, op.getInterval());
    b.loop(zero, b.index(rank), 1, [&](Value sum) {
      b.loop(zero, b.extent(input, 0), 1, [&](Value batch) {
        b.loop(zero, headsPerSet, 1, [&](Value number) {
          Value head = b.add(b.mul(set, headsPerSet), number);
          Values total = b.loop(
              zero, numIntervals, 1, Values{b.splat(0.0)},
              [&](Value interval, ValueRange running) -> Values {
                Value row = b.add(b.mul(interval, rank), sum);
                return {b.fadd(
                    running[0],
                    b.loadVector(op.getDOutput(), {batch, head, row, column}))};
              });
          addVector(total[0], op.getDBias(), {set, sum, column});
        });
      });
    });
  }
}
