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

/// Rows of a chunk. All that a chunk of 32 strips and 9 levels stages for one
/// vector of columns is 0.2 MB.
static constexpr int64_t kMaxChunk = 16;
/// Strips that share the weights of a chunk, and their sums in registers.
static constexpr int64_t kMaxStrips = 32;
/// Strips whose gradients stay in the first-level cache while the weights of a
/// chunk go by.
static constexpr int64_t kGroup = 8;
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
