//===- SummarizeBackwardProducts.cpp - Register tiles of its loops --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Rows of a chunk that stay in the first-level cache while the gradients of
/// all strips do.
static constexpr int64_t kCachedRows = 8;
/// Elements of the weights of a level that stay in the second-level cache while
/// a pass goes through the others.
static constexpr int64_t kCachedWeights = 1 << 16;

/// The gradients of the rows of a group, while the next group is staged.
void SummarizeBackwardKernel::addToInput(const Group &group, int64_t tiles,
                                         const Group &next, Value vector) {
  // Sums of one turn, and rows that are staged with it.
  int64_t step = 1;
  while (step < kTile && numSums % (2 * step) == 0)
    step *= 2;
  int64_t turns = numSums / step;
  int64_t share = llvm::divideCeil(groupStrips * chunkRows,
                                   vectorsPerTask * rowTiles * tiles);
  int64_t perTurn = llvm::divideCeil(share, turns);
  int64_t stagingTurns = llvm::divideCeil(share, perTurn);
  int64_t lastRow = groupStrips * chunkRows - 1;
  b.loop(b.index(0), b.index(rowTiles), 1, [&](Value rowTile) {
    b.loop(b.index(0), b.index(tiles), 1, [&](Value stripTile) {
      Value rowNumber = b.add(b.mul(vector, rowTiles), rowTile);
      Value tile = b.add(b.mul(rowNumber, tiles), stripTile);
      Value gradients = b.add(b.div(group.firstStrip, kTile), stripTile);
      auto multiply = [&](Value turn, ValueRange running) {
        Values sums(running);
        for (int64_t i = 0; i < step; ++i) {
          Value place = b.mul(b.add(b.mul(turn, step), i), kTile);
          multiplyTile(packedWeights,
                       Values{vector, rowTile, place, b.index(0)},
                       packedGradients,
                       Values{vector, gradients, place, b.index(0)}, kTile,
                       /*stride=*/1, sums);
        }
        return sums;
      };
      Values sums(kTile * kTile, b.splat(0.0));
      sums = b.loop(
          b.index(0), b.index(stagingTurns), 1, sums,
          [&](Value turn, ValueRange running) {
            Value first = b.add(b.mul(tile, share), b.mul(turn, perTurn));
            b.loop(b.index(0), b.index(perTurn), 1, [&](Value i) {
              stageRow(next, b.min(b.add(first, i), lastRow));
            });
            prefetchTile(group, next, b.add(rowNumber, 1), stripTile, turn,
                         llvm::divideCeil(kTile * kTile, stagingTurns));
            return multiply(turn, running);
          });
      sums = b.loop(b.index(stagingTurns), b.index(turns), 1, sums, multiply);
      addInputTile(group, vector, rowTile, stripTile, sums);
    });
  });
}

/// Adds the products of four vectors of `left` from `leftAt` on and `count` of
/// `right`, `stride` apart, to the sums of a tile.
void SummarizeBackwardKernel::multiplyTile(Value left, ValueRange leftAt,
                                           Value right, ValueRange rightAt,
                                           int64_t count, int64_t stride,
                                           Values &sums) {
  auto load = [&](Value memref, Values at, int64_t offset) {
    at[at.size() - 2] = b.add(at[at.size() - 2], offset);
    return b.loadVector(memref, at);
  };
  Values vectors;
  for (int64_t i = 0; i < kTile; ++i)
    vectors.push_back(load(left, Values(leftAt), i));
  for (int64_t j = 0; j < count; ++j) {
    Value factor = load(right, Values(rightAt), j * stride);
    for (int64_t i = 0; i < kTile; ++i) {
      Value &sum = sums[j * kTile + i];
      sum = b.fma(vectors[i], factor, sum);
    }
  }
}

/// Adds the sums of a tile to the gradients of its rows.
void SummarizeBackwardKernel::addInputTile(const Group &group, Value vector,
                                           Value rowTile, Value stripTile,
                                           ValueRange sums) {
  for (int64_t s = 0; s < kTile; ++s) {
    Strip strip =
        getStrip(b.add(group.firstStrip, b.add(b.mul(stripTile, kTile), s)));
    for (int64_t i = 0; i < kTile; ++i) {
      Value inChunk = b.add(b.mul(rowTile, kTile), i);
      Value row = b.add(strip.row, b.add(group.chunk.start, inChunk));
      Value live = isPresent(strip, row);
      if (!allPresent)
        live = b.both(live, b.less(inChunk, group.chunk.rows));
      b.ifThen(live, [&] {
        addVector(sums[s * kTile + i], dInput,
                  {strip.batch, strip.head, row, getColumn(vector)});
      });
    }
  }
}

/// Whether a strip lacks rows of a chunk.
Value SummarizeBackwardKernel::cutsStrip(const Chunk &chunk) {
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  if (allPresent)
    return no;
  return b
      .loop(b.index(0), blockStrips, 1, no,
            [&](Value number, ValueRange found) -> Values {
              Strip strip = getStrip(number);
              Value end = b.add(strip.row, b.add(chunk.start, chunk.rows));
              // Strips that only fill a block have no gradients either.
              Value isReal = b.less(b.index(0), strip.end);
              return {b.either(found.front(),
                               b.both(isReal, b.less(strip.end, end)))};
            })
      .front();
}

/// Zeros stand for absent rows, but times a gradient that is no finite number
/// they are none. So such sums of a tile are those of the present rows once
/// more.
Values SummarizeBackwardKernel::sumPresent(const WeightTile &tile,
                                           const Chunk &chunk, Value isCut,
                                           ValueRange sums) {
  // A loop of one turn or none.
  auto sumIf = [&](Value condition, ValueRange sums,
                   function_ref<Values(ValueRange)> body) {
    return b.loop(b.index(0), b.select(condition, b.index(1), b.index(0)), 1,
                  sums, [&](Value, ValueRange sums) { return body(sums); });
  };
  auto addStrip = [&](Value number, ValueRange running) {
    Strip strip = getStrip(number);
    Values results;
    for (int64_t a = 0; a < tile.count; ++a) {
      Value place =
          b.add(b.index((tile.level * rank + tile.firstSum + a) * kTile),
                b.rem(number, kTile));
      Value gradient =
          b.loadVector(packedGradients,
                       {tile.vector, b.div(number, kTile), place, b.index(0)});
      for (int64_t i = 0; i < kTile; ++i) {
        Value row = b.add(tile.firstRow, i);
        Value data = b.loadVector(stagedInput,
                                  {chunk.parity, tile.vector,
                                   b.div(tile.firstRow, kTile),
                                   b.add(b.mul(number, kTile), i), b.index(0)});
        Value sum = running[results.size()];
        results.push_back(b.select(
            isPresent(strip, b.add(strip.row, b.add(chunk.start, row))),
            b.fma(data, gradient, sum), sum));
      }
    }
    return results;
  };
  return sumIf(isCut, sums, [&](ValueRange sums) {
    Value rests = b.splat(0.0);
    for (Value sum : sums)
      rests = b.fadd(rests, b.fsub(sum, sum));
    return sumIf(isAnyNotFinite(b, rests), sums, [&](ValueRange sums) {
      Values zeros(sums.size(), b.splat(0.0));
      Values exact = b.loop(b.index(0), blockStrips, 1, zeros, addStrip);
      for (auto [one, sum] : llvm::zip(exact, sums))
        one = arith::SelectOp::create(b, areNotFinite(b, sum), one, sum);
      return exact;
    });
  });
}

/// The gradients of the weights of a chunk, while those of the next one are
/// packed.
void SummarizeBackwardKernel::addToWeights(const Chunk &chunk,
                                           const Chunk &next, Value isCut,
                                           Value vector) {
  int64_t sumTiles = llvm::divideCeil(rank, kTile);
  int64_t share =
      llvm::divideCeil(rank * chunkRows, vectorsPerTask * rowTiles * sumTiles);
  Value stripTiles = b.div(blockStrips, kTile), tiles = b.index(rowTiles);
  auto emitTile = [&](size_t level, int64_t firstSum, Value rowTile) {
    Value number = b.add(b.mul(vector, rowTiles), rowTile);
    stageWeights(level, next, b.add(b.mul(number, sumTiles), firstSum / kTile),
                 share);
    int64_t count = std::min(kTile, rank - firstSum);
    WeightTile tile = {level, firstSum, count, b.mul(rowTile, kTile), vector};
    // The next level of the same rows.
    if (level + 1 < levels.size() && isLong(level + 1))
      forEachWeight({level + 1, firstSum, count, tile.firstRow, vector}, chunk,
                    [&](int64_t, Value memref, ValueRange at) {
                      b.prefetch(memref, at, /*locality=*/2);
                    });
    Values zeros(kTile * count, b.splat(0.0));
    Values sums = b.loop(
        b.index(0), stripTiles, 1, zeros,
        [&](Value stripTile, ValueRange running) {
          Values result(running);
          for (int64_t s = 0; s < kTile; ++s) {
            Value strip = b.add(b.mul(stripTile, kTile), s);
            int64_t place = (level * rank + firstSum) * kTile + s;
            multiplyTile(stagedInput,
                         Values{chunk.parity, vector, rowTile,
                                b.mul(strip, kTile), b.index(0)},
                         packedGradients,
                         Values{vector, stripTile, b.index(place), b.index(0)},
                         count, /*stride=*/kTile, result);
          }
          return result;
        });
    if (!allPresent)
      sums = sumPresent(tile, chunk, isCut, sums);
    forEachWeight(tile, chunk, [&](int64_t i, Value memref, ValueRange at) {
      addVector(sums[i], memref, at);
    });
  };
  b.loop(b.index(0), tiles, kCachedRows / kTile, [&](Value firstTile) {
    Value lastTile = b.min(b.add(firstTile, kCachedRows / kTile), tiles);
    for (size_t level = 0; level < levels.size(); ++level)
      for (int64_t firstSum = 0; firstSum < rank; firstSum += kTile)
        b.loop(firstTile, lastTile, 1,
               [&](Value rowTile) { emitTile(level, firstSum, rowTile); });
  });
}

/// Calls `body(number, gradient, indices)` for the gradients of the weights of
/// a tile, as far as they exist.
void SummarizeBackwardKernel::forEachWeight(
    const WeightTile &tile, const Chunk &chunk,
    function_ref<void(int64_t, Value, ValueRange)> body) {
  SummarizeBackwardOp op = levels[tile.level];
  Value first = b.rem(chunk.start, op.getInterval());
  for (int64_t a = 0; a < tile.count; ++a)
    for (int64_t i = 0; i < kTile; ++i) {
      Value row = b.add(tile.firstRow, i);
      b.ifThen(allPresent ? b.equal(b.index(0), b.index(0))
                          : b.less(row, chunk.rows),
               [&] {
                 body(a * kTile + i, op.getDWeights(),
                      {set, b.index(tile.firstSum + a), b.add(first, row),
                       getColumn(tile.vector)});
               });
    }
}

/// Whether the weights of a level are gone from the caches when they come
/// again.
bool SummarizeBackwardKernel::isLong(size_t level) {
  return rank * levels[level].getInterval() * numVectors * b.getLanes() >
         kCachedWeights;
}

/// Packs a share of the rows of a level for the next chunk, and asks for the
/// same rows of the level behind.
void SummarizeBackwardKernel::stageWeights(size_t level, const Chunk &next,
                                           Value number, int64_t share) {
  int64_t lastRow = rank * chunkRows - 1;
  size_t behind = (level + 1) % levels.size();
  b.loop(b.index(0), b.index(share), 1, [&](Value i) {
    Value row = b.min(b.add(b.mul(number, share), i), lastRow);
    packWeights(level, next, row);
    if (!isLong(behind))
      return;
    SummarizeBackwardOp op = levels[behind];
    Value first = b.rem(next.start, op.getInterval());
    forEachVector([&](Value vector) {
      b.prefetch(op.getWeights(),
                 {set, b.div(row, chunkRows),
                  b.add(first, b.rem(row, chunkRows)), getColumn(vector)},
                 /*locality=*/2);
    });
  });
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
