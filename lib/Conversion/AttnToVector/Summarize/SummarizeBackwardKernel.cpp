//===- SummarizeBackwardKernel.cpp - Gradients of summaries ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeBackwardKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

/// Rows, strips and sums of a register tile: 16 accumulators and 8 operands.
static constexpr int64_t kTile = 4;
/// Rows of a chunk. All that a chunk of 32 strips and 9 levels stages for one
/// vector of columns is 0.2 MB.
static constexpr int64_t kMaxChunk = 16;
/// Strips that share the weights of a chunk, and their sums in registers.
static constexpr int64_t kMaxStrips = 32;
/// Strips whose gradients stay in the first-level cache while the weights of a
/// chunk go by.
static constexpr int64_t kGroup = 8;
/// Rows of a chunk that stay there while the gradients of all strips do.
static constexpr int64_t kCachedRows = 8;
/// Elements of the weights of a level that stay in the second-level cache while
/// a pass goes through the others.
static constexpr int64_t kCachedWeights = 1 << 16;
/// Bits of a row that a task takes at most. Rows stay whole if possible:
/// probably the hardware fetches the gaps between parts of rows, too. On one
/// core of a Zen 4, 8 heads, whole rows and halves reach 60 and 42 % of peak
/// for D = 64, 53 and 40 % for 128; whole rows, halves and quarters 51, 48 and
/// 39 % for 256.
static constexpr int64_t kRowBitsPerTask = 8192;

SummarizeBackwardKernel::SummarizeBackwardKernel(
    OpBuilder &builder, ArrayRef<SummarizeBackwardOp> ops,
    RegisterFile registers, int64_t minTasks)
    : b(SummarizeBackwardOp(ops.front()).getLoc(), builder,
        getStateType(
            getElementTypeOrSelf(SummarizeBackwardOp(ops.front()).getInput())),
        /*lanes=*/
        [&] {
          auto type = cast<MemRefType>(
              SummarizeBackwardOp(ops.front()).getInput().getType());
          int64_t lanes = registers.vectorBits /
                          getStateType(type.getElementType()).getWidth();
          // Vectors must not overlap, since sums are added to.
          while (type.getDimSize(3) % lanes != 0)
            lanes /= 2;
          return lanes;
        }()),
      levels(ops) {
  SummarizeBackwardOp first = levels.front(), last = levels.back();
  input = first.getInput();
  dInput = first.getDInput();
  rank = first.getRank();
  sets = cast<MemRefType>(first.getWeights().getType()).getDimSize(0);
  finest = first.getInterval();
  coarsest = last.getInterval();
  numSums = rank * levels.size();
  numVectors = cast<MemRefType>(input.getType()).getDimSize(3) / b.getLanes();
  divideWork(minTasks);
  rowTiles = llvm::divideCeil(chunkRows, kTile);
}

/// The largest divisor of `number` that is at most `limit`.
static int64_t getDivisor(int64_t number, int64_t limit) {
  int64_t divisor = std::clamp<int64_t>(limit, 1, number);
  while (number % divisor != 0)
    --divisor;
  return divisor;
}

/// Chooses tasks, `minTasks` of them if possible: first the finest intervals
/// are divided, by chunks, and only then the rows.
void SummarizeBackwardKernel::divideWork(int64_t minTasks) {
  auto lacksTasks = [&] {
    return sets * parts * (numVectors / vectorsPerTask) < minTasks;
  };
  vectorsPerTask =
      getDivisor(numVectors, kRowBitsPerTask /
                                 (b.getLanes() * b.getStateType().getWidth()));
  chunkRows = std::min(finest, kMaxChunk);
  parts = llvm::divideCeil(finest, chunkRows);
  while (lacksTasks() && chunkRows > kTile) {
    chunkRows = llvm::alignTo(llvm::divideCeil(chunkRows, 2), kTile);
    parts = llvm::divideCeil(finest, chunkRows);
  }
  while (lacksTasks() && vectorsPerTask > 1)
    vectorsPerTask = getDivisor(numVectors, vectorsPerTask - 1);
  // As few parts as there may be, since each packs all gradients of summaries.
  int64_t chunks = parts;
  for (parts = 1; lacksTasks() && parts < chunks;)
    parts = chunks / getDivisor(chunks, chunks / parts - 1);
  chunksPerPart = chunks / parts;
}

void SummarizeBackwardKernel::emit() {
  rows = b.extent(input, 2);
  headsPerSet = b.div(b.extent(input, 1), sets);
  stripsPerHead = b.ceilDiv(rows, coarsest);
  numStrips = b.mul(b.mul(b.extent(input, 0), headsPerSet), stripsPerHead);
  // Few strips are one small group.
  std::optional<int64_t> known = getConstantIntValue(numStrips);
  groupStrips =
      known ? std::min<int64_t>(kGroup, llvm::alignTo(*known, kTile)) : kGroup;
  auto type = cast<MemRefType>(input.getType());
  allPresent = known && *known % kTile == 0 && !type.isDynamicDim(2) &&
               type.getDimSize(2) % coarsest == 0 && finest % chunkRows == 0 &&
               chunkRows % kTile == 0;
  SmallVector<OpFoldResult> bounds = {
      b.getIndexAttr(sets), b.getIndexAttr(parts),
      b.getIndexAttr(numVectors / vectorsPerTask)};
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          emitTask(ivs[0], ivs[1], ivs[2]);
                          scf::InParallelOp::create(b);
                        });
}

Value SummarizeBackwardKernel::getColumn(Value vector) {
  return b.mul(b.add(firstVector, vector), b.getLanes());
}

void SummarizeBackwardKernel::addVector(Value vector, Value memref,
                                        ValueRange indices) {
  b.storeVector(b.fadd(b.loadVector(memref, indices), vector), memref, indices);
}

void SummarizeBackwardKernel::emitTask(Value taskSet, Value part, Value slice) {
  set = taskSet;
  firstRow = b.mul(part, chunksPerPart * chunkRows);
  firstVector = b.mul(slice, vectorsPerTask);
  Type state = b.getStateType();
  int64_t lanes = b.getLanes();
  stagedInput = b.scratch(
      {2, vectorsPerTask, rowTiles, kMaxStrips * kTile, lanes}, state);
  packedGradients = b.scratch(
      {vectorsPerTask, kMaxStrips / kTile, numSums * kTile, lanes}, state);
  packedWeights =
      b.scratch({vectorsPerTask, rowTiles, numSums * kTile, lanes}, state);
  strips = b.scratch({kMaxStrips, 4}, b.getIndexType());
  numChunks =
      b.mul(b.ceilDiv(b.min(b.index(coarsest), rows), finest), chunksPerPart);
  b.loop(b.index(0), numStrips, kMaxStrips, [&](Value first) {
    listStrips(first);
    emitBlock();
  });
  b.ifThen(b.equal(part, b.index(0)),
           [&] { forEachVector([&](Value vector) { addToBiases(vector); }); });
  b.freeScratch();
}

void SummarizeBackwardKernel::forEachVector(function_ref<void(Value)> body) {
  b.loop(b.index(0), b.index(vectorsPerTask), 1, body);
}

/// Batch entry, head, first row and end of every strip of a block, which is
/// filled up to whole tiles with strips that have no rows.
void SummarizeBackwardKernel::listStrips(Value first) {
  Value left = b.min(b.sub(numStrips, first), kMaxStrips);
  blockStrips = b.roundDown(b.add(left, kTile - 1), kTile);
  b.loop(b.index(0), blockStrips, 1, [&](Value number) {
    Value strip = b.min(b.add(first, number), b.sub(numStrips, b.index(1)));
    Value instance = b.div(strip, stripsPerHead);
    Value row = b.mul(b.rem(strip, stripsPerHead), coarsest);
    Value end = b.select(b.less(number, left), rows, b.index(0));
    Value head = b.add(b.mul(set, headsPerSet), b.rem(instance, headsPerSet));
    for (auto [place, value] :
         llvm::enumerate(Values{b.div(instance, headsPerSet), head, row, end}))
      memref::StoreOp::create(b, value, strips, {number, b.index(place)});
  });
}

SummarizeBackwardKernel::Strip SummarizeBackwardKernel::getStrip(Value number) {
  auto load = [&](int64_t place) -> Value {
    return memref::LoadOp::create(b, strips, {number, b.index(place)});
  };
  return {load(0), load(1), load(2), load(3)};
}

SummarizeBackwardKernel::Chunk SummarizeBackwardKernel::getChunk(Value number) {
  number = b.min(number, b.sub(numChunks, b.index(1)));
  Value offset =
      b.add(firstRow, b.mul(b.rem(number, chunksPerPart), chunkRows));
  Value start = b.add(b.mul(b.div(number, chunksPerPart), finest), offset);
  Value count = b.index(chunkRows);
  if (finest % chunkRows != 0)
    count = b.min(b.sub(b.index(finest), offset), chunkRows);
  return {number, start, count, b.rem(number, 2)};
}

void SummarizeBackwardKernel::emitBlock() {
  Chunk first = getChunk(b.index(0));
  for (size_t level = 0; level < levels.size(); ++level)
    b.loop(b.index(0), b.index(rank * chunkRows), 1,
           [&](Value number) { packWeights(level, first, number); });
  b.loop(b.index(0), b.index(groupStrips * chunkRows), 1,
         [&](Value number) { stageRow({first, b.index(0)}, number); });
  b.loop(b.index(0), numChunks, 1, [&](Value number) {
    Chunk chunk = getChunk(number), next = getChunk(b.add(number, 1));
    packGradients(chunk);
    auto emitGroup = [&](Value firstStrip, int64_t tiles) {
      Group group = {chunk, firstStrip};
      // The next one is the first of the next chunk, behind the last.
      Value after = b.add(firstStrip, groupStrips);
      Value inside = b.less(after, blockStrips);
      auto either = [&](Value a, Value c) { return b.select(inside, a, c); };
      Group following = {{Value(), either(chunk.start, next.start),
                          either(chunk.rows, next.rows),
                          either(chunk.parity, next.parity)},
                         either(after, b.index(0))};
      forEachVector(
          [&](Value vector) { addToInput(group, tiles, following, vector); });
    };
    Value whole = b.roundDown(blockStrips, groupStrips);
    b.loop(b.index(0), whole, groupStrips, [&](Value firstStrip) {
      emitGroup(firstStrip, groupStrips / kTile);
    });
    if (groupStrips > kTile)
      b.ifThen(b.less(whole, blockStrips), [&] { emitGroup(whole, 1); });
    Value isCut = cutsStrip(chunk);
    forEachVector(
        [&](Value vector) { addToWeights(chunk, next, isCut, vector); });
  });
}

//===----------------------------------------------------------------------===//
// Staging
//===----------------------------------------------------------------------===//

/// Packs row `number` of those that all sums of a level have in a chunk.
void SummarizeBackwardKernel::packWeights(size_t level, const Chunk &chunk,
                                          Value number) {
  SummarizeBackwardOp op = levels[level];
  Value sum = b.div(number, chunkRows), row = b.rem(number, chunkRows);
  Value from = b.add(b.rem(chunk.start, op.getInterval()),
                     b.min(row, b.sub(chunk.rows, b.index(1))));
  Value place =
      b.add(b.mul(b.add(sum, level * rank), kTile), b.rem(row, kTile));
  for (int64_t v = 0; v < vectorsPerTask; ++v) {
    Value vector = b.index(v);
    b.storeVector(
        b.loadVector(op.getWeights(), {set, sum, from, getColumn(vector)}),
        packedWeights, {vector, b.div(row, kTile), place, b.index(0)});
  }
}

/// Packs the gradients of the summaries that the strips of the block belong to
/// at a chunk, where they are others than at the chunk before. Zeros where
/// there are none.
void SummarizeBackwardKernel::packGradients(const Chunk &chunk) {
  for (auto [place, level] : llvm::enumerate(levels)) {
    SummarizeBackwardOp op = level;
    Value isNew = b.equal(b.rem(chunk.start, op.getInterval()), firstRow);
    b.ifThen(isNew, [&, place = place] {
      b.loop(b.index(0), blockStrips, 1, [&](Value number) {
        Strip strip = getStrip(number);
        Value row = b.add(strip.row, chunk.start);
        Value first = b.mul(b.div(row, op.getInterval()), rank);
        auto pack = [&](function_ref<Value(Values)> gradientAt) {
          b.loop(b.index(0), b.index(rank), 1, [&](Value sum) {
            Value at = b.add(b.mul(b.add(sum, place * rank), kTile),
                             b.rem(number, kTile));
            for (int64_t v = 0; v < vectorsPerTask; ++v)
              b.storeVector(
                  gradientAt({strip.batch, strip.head, b.add(first, sum),
                              getColumn(b.index(v))}),
                  packedGradients,
                  {b.index(v), b.div(number, kTile), at, b.index(0)});
          });
        };
        b.ifThenElse(
            isPresent(strip, row),
            [&] {
              pack(
                  [&](Values at) { return b.loadVector(op.getDOutput(), at); });
            },
            [&] { pack([&](Values) { return b.splat(0.0); }); });
      });
    });
  }
}

/// Whether a strip has `row`, a row of its head.
Value SummarizeBackwardKernel::isPresent(const Strip &strip, Value row) {
  return allPresent ? b.equal(b.index(0), b.index(0)) : b.less(row, strip.end);
}

/// Where row `row` of a chunk of a strip lies.
Values SummarizeBackwardKernel::rowOf(const Strip &strip, Value start,
                                      Value row, Value vector) {
  Value at = b.add(strip.row, b.add(start, row));
  if (!allPresent)
    at = b.min(at, b.sub(rows, b.index(1)));
  return {strip.batch, strip.head, at, getColumn(vector)};
}

/// Copies row `number` of a group, zeros where there is none, and asks for the
/// same row of the strip behind: rows and their strips are powers of two apart,
/// and what is asked for long before is gone from the few sets of the caches
/// where all of them lie.
void SummarizeBackwardKernel::stageRow(const Group &group, Value number) {
  Value slot = b.div(number, chunkRows), row = b.rem(number, chunkRows);
  Value inChunk = b.min(row, b.sub(group.chunk.rows, b.index(1)));
  Value last = b.sub(blockStrips, b.index(1));
  Value strip = b.add(group.firstStrip, slot), wraps = b.equal(strip, last);
  Strip here = getStrip(b.min(strip, last));
  Strip behind =
      getStrip(b.select(wraps, b.index(0), b.min(b.add(strip, 1), last)));
  Value nextStart =
      b.add(group.chunk.start, b.select(wraps, b.index(chunkRows), b.index(0)));
  Value present =
      isPresent(here, b.add(here.row, b.add(group.chunk.start, inChunk)));
  // Strips behind the last one have places of their own, which nobody reads.
  Value place = b.add(b.mul(strip, kTile), b.rem(row, kTile));
  for (int64_t v = 0; v < vectorsPerTask; ++v) {
    Value vector = b.index(v);
    b.prefetch(input, rowOf(behind, nextStart, inChunk, vector),
               /*locality=*/2);
    Value data =
        b.loadVector(input, rowOf(here, group.chunk.start, inChunk, vector));
    if (!allPresent)
      data = arith::SelectOp::create(b, present, data, b.splat(0.0));
    b.storeVector(
        data, stagedInput,
        {group.chunk.parity, vector, b.div(row, kTile), place, b.index(0)});
  }
}

/// Asks for some of the gradients that tile `number` of the vectors and rows of
/// a group adds to, or the first one of the next group behind the last.
void SummarizeBackwardKernel::prefetchTile(const Group &group,
                                           const Group &next, Value number,
                                           Value stripTile, Value turn,
                                           int64_t perTurn) {
  Value ends = b.equal(number, b.index(vectorsPerTask * rowTiles));
  auto either = [&](Value a, Value c) { return b.select(ends, a, c); };
  number = either(b.index(0), number);
  Value start = either(next.chunk.start, group.chunk.start);
  Value first =
      b.add(either(next.firstStrip, group.firstStrip), b.mul(stripTile, kTile));
  Value firstRow = b.mul(b.rem(number, rowTiles), kTile);
  // A loop, since LLVM would load what the tile multiplies among all of these.
  b.loop(b.index(0), b.index(perTurn), 1, [&](Value i) {
    Value line = b.add(b.mul(turn, perTurn), i);
    Value strip =
        b.min(b.add(first, b.div(line, kTile)), b.sub(blockStrips, b.index(1)));
    b.prefetch(dInput,
               rowOf(getStrip(strip), start,
                     b.add(firstRow, b.rem(line, kTile)),
                     b.div(number, rowTiles)),
               /*locality=*/2);
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

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
