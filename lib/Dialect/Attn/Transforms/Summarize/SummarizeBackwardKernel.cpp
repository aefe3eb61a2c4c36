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

/// Rows, strips and sums of a register tile: 16 accumulators and 8 operands.
static constexpr int64_t kTile = 4;
/// Rows of a chunk. All that a chunk of 32 strips and 9 levels packs for one
/// vector of columns is 0.3 MB.
static constexpr int64_t kMaxChunk = 16;
/// Strips that share the weights of a chunk, and their sums in registers.
static constexpr int64_t kMaxStrips = 32;
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
         sets * llvm::divideCeil(numVectors, vectorsPerTask) < target.minTasks)
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
  taskVectors = b.min(b.sub(b.index(numVectors), firstVector), vectorsPerTask);
  Type state = b.getStateType();
  int64_t lanes = b.getLanes();
  packedInput =
      b.scratch({vectorsPerTask, kMaxStrips, chunkRows, lanes}, state);
  packedGradients =
      b.scratch({vectorsPerTask, numSums, kMaxStrips, lanes}, state);
  packedWeights = b.scratch({vectorsPerTask, numSums, chunkRows, lanes}, state);
  present = b.scratch({kMaxStrips}, b.getIndexType());
  // Chunks do not cross the ends of finest intervals.
  b.loop(b.index(0), b.index(coarsest), finest, [&](Value interval) {
    b.loop(b.index(0), b.index(finest), chunkRows, [&](Value offset) {
      Chunk chunk = {b.add(interval, offset),
                     b.min(b.sub(b.index(finest), offset), chunkRows)};
      // Behind the last row of the only interval there is nothing.
      b.ifThen(b.less(chunk.start, rows), [&] {
        packWeights(chunk);
        b.loop(b.index(0), numStrips, kMaxStrips, [&](Value first) {
          firstStrip = first;
          blockStrips = b.min(b.sub(numStrips, first), kMaxStrips);
          emitBlock(chunk);
        });
      });
    });
  });
  b.loop(b.index(0), taskVectors, 1,
         [&](Value vector) { addToBiases(vector); });
  b.freeScratch();
}

void SummarizeBackwardKernel::emitBlock(const Chunk &chunk) {
  pack(chunk);
  b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
    addToInput(chunk, vector);
    addToWeights(chunk, vector);
  });
}

SummarizeBackwardKernel::Strip
SummarizeBackwardKernel::getStrip(Value number, const Chunk &chunk) {
  Value strip = b.add(firstStrip, number);
  Value instance = b.div(strip, stripsPerHead);
  Value row = b.add(b.mul(b.rem(strip, stripsPerHead), coarsest), chunk.start);
  return {b.div(instance, headsPerSet),
          b.add(b.mul(set, headsPerSet), b.rem(instance, headsPerSet)), row,
          b.clamp(b.sub(rows, row), b.index(0), chunk.rows)};
}

void SummarizeBackwardKernel::packWeights(const Chunk &chunk) {
  for (auto [number, level] : llvm::enumerate(levels)) {
    SummarizeBackwardOp op = level;
    Value first = b.rem(chunk.start, op.getInterval());
    b.loop(b.index(0), b.index(rank), 1, [&](Value sum) {
      b.loop(b.index(0), chunk.rows, 1, [&](Value row) {
        b.loop(b.index(0), taskVectors, 1, [&](Value vector) {
          Value weight =
              b.loadVector(op.getWeights(),
                           {set, sum, b.add(first, row), getColumn(vector)});
          b.storeVector(weight, packedWeights,
                        {vector, b.add(sum, number * rank), row, b.index(0)});
        });
      });
    });
  }
}

/// Packs the rows and the gradients of the block's strips, zeros where there
/// are none.
void SummarizeBackwardKernel::pack(const Chunk &chunk) {
  b.loop(b.index(0), blockStrips, 1, [&](Value number) {
    Strip strip = getStrip(number, chunk);
    memref::StoreOp::create(b, strip.present, present, number);
    auto forEachVector = [&](Value low, Value high,
                             function_ref<void(Value, Value)> body) {
      b.loop(low, high, 1, [&](Value row) {
        b.loop(b.index(0), taskVectors, 1,
               [&](Value vector) { body(row, vector); });
      });
    };
    forEachVector(b.index(0), strip.present, [&](Value row, Value vector) {
      Value data =
          b.loadVector(input, {strip.batch, strip.head, b.add(strip.row, row),
                               getColumn(vector)});
      b.storeVector(data, packedInput, {vector, number, row, b.index(0)});
    });
    forEachVector(strip.present, chunk.rows, [&](Value row, Value vector) {
      b.storeVector(b.splat(0.0), packedInput,
                    {vector, number, row, b.index(0)});
    });
    Value isPresent = b.less(b.index(0), strip.present);
    for (auto [place, level] : llvm::enumerate(levels)) {
      SummarizeBackwardOp op = level;
      Value first = b.mul(b.div(strip.row, op.getInterval()), rank);
      forEachVector(b.index(0), b.index(rank), [&](Value sum, Value vector) {
        Values to = {vector, b.add(sum, place * rank), number, b.index(0)};
        b.ifThenElse(
            isPresent,
            [&] {
              b.storeVector(
                  b.loadVector(op.getDOutput(),
                               {strip.batch, strip.head, b.add(first, sum),
                                getColumn(vector)}),
                  packedGradients, to);
            },
            [&] { b.storeVector(b.splat(0.0), packedGradients, to); });
      });
    }
  });
}

void SummarizeBackwardKernel::addToInput(const Chunk &chunk, Value vector) {
  Value target = SummarizeBackwardOp(levels.front()).getDInput(),
        column = getColumn(vector);
  forEachTile(blockStrips, kTile, [&](Value firstNumber, int64_t numbers) {
    forEachTile(chunk.rows, kTile, [&](Value firstRow, int64_t count) {
      Values sums =
          b.loop(b.index(0), b.index(numSums), 1,
                 Values(count * numbers, b.splat(0.0)),
                 [&](Value sum, ValueRange running) {
                   Values weights, next;
                   for (int64_t i = 0; i < count; ++i)
                     weights.push_back(b.loadVector(
                         packedWeights,
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
        Strip strip = getStrip(number, chunk);
        Value rowsLeft = memref::LoadOp::create(b, present, number);
        for (int64_t i = 0; i < count; ++i) {
          Value row = b.add(firstRow, i);
          b.ifThen(b.less(row, rowsLeft), [&] {
            addVector(sums[s * count + i], target,
                      {strip.batch, strip.head, b.add(strip.row, row), column});
          });
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
    forEachTile(b.index(rank), kTile, [&](Value firstSum, int64_t numSums) {
      forEachTile(chunk.rows, kTile, [&](Value firstRow, int64_t count) {
        Values sums = b.loop(
            b.index(0), blockStrips, 1, Values(count * numSums, b.splat(0.0)),
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
                      {set, b.add(firstSum, a),
                       b.add(firstTarget, b.add(firstRow, i)), column});
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
