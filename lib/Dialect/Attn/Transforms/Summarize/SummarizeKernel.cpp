//===- SummarizeKernel.cpp - Loops of attn.summarize ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeKernel.h"
#include "KernelBuilder.h"
#include "RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = SmallVector<Value>;

/// What stands for 1 in the reciprocal of a number of vectors. A task has at
/// most eight of them, and what is divided is less than 2^13.
static constexpr int64_t kReciprocalOne = 1 << 16;

namespace {
/// One operation of the nest.
struct Level {
  SummarizeOp op;
  int64_t interval;
  /// Whole intervals lie inside a chunk; otherwise their sums are carried from
  /// chunk to chunk.
  bool inside;
  /// Strips that belong to one interval; 1 when an interval fits in a strip.
  int64_t strips;
  /// Whether all rows of the weights are packed, or those of a chunk.
  bool packedWhole;
  /// First row of the packed weights, and place among the levels with sums.
  int64_t packedRow, sumsPlace;
};

class SummarizeKernel {
public:
  SummarizeKernel(OpBuilder &builder, ArrayRef<SummarizeOp> ops,
                  const SummarizePlan &plan);
  void emit();

private:
  /// Where the current chunk lies.
  struct Chunk {
    /// First row inside a coarsest interval, number of rows, and whether it is
    /// the last chunk.
    Value start, rows, last;
    /// Number of the vector of columns inside the task, and its first column.
    Value vector, column;
  };
  /// `plan.streams` neighbouring coarsest intervals of one head of one batch
  /// entry; `slot` is its place in the task.
  struct Instance {
    Value slot, batch, head;
    /// Number of the first of its coarsest intervals, and of the strip.
    Value stream, strip;
  };

  void divideWork(Value instances);
  void emitTask(Value slice);
  void emitChunks();
  void emitInstance(Chunk chunk, const Instance &instance);
  void packWeights(const Level &level, Value firstRow, Value numRows);
  void pack(const Chunk &chunk, const Instance &instance);
  void emitInside(const Level &level, const Chunk &chunk,
                  const Instance &instance, Value firstSum, int64_t numSums);
  void emitAcross(const Level &level, const Chunk &chunk,
                  const Instance &instance, Value firstSum, int64_t numSums);
  Values emitTile(const Level &level, const Chunk &chunk,
                  const Instance &instance, Value firstSum, int64_t numSums,
                  Value from, Value to, Value weightShift, ValueRange initial);
  using PrefetchFn = std::function<void(Value)>;
  PrefetchFn prefetchNext(const Level &level, const Chunk &chunk,
                          const Instance &instance);
  Value divideByVectors(Value value);
  void storeSums(const Level &level, const Chunk &chunk,
                 const Instance &instance, Value firstSum, ValueRange sums,
                 Value firstInterval);
  Values initialSums(const Level &level, Value column, Value firstSum,
                     int64_t numSums);
  void forEachSums(llvm::function_ref<void(Value, int64_t)> body);

  Instance getInstance(Value slot);
  /// Row of the chunk inside a coarsest interval.
  Value getPlace(const Chunk &chunk, const Instance &instance) {
    return b.add(chunk.start, b.mul(instance.strip, stripLength));
  }
  Value getRow(const Chunk &chunk, const Instance &instance, int64_t stream) {
    return b.add(b.mul(b.add(instance.stream, stream), coarsest),
                 getPlace(chunk, instance));
  }
  Value getColumn(Value vector) {
    // The last vector ends at the last column.
    Value column = b.mul(vector, plan.lanes);
    return width % plan.lanes ? b.min(column, width - plan.lanes) : column;
  }
  /// No chunk has fewer rows than `plan.chunk`, and no stream ends early.
  bool isRegular() const {
    return staticRows && *staticRows % (plan.streams * coarsest) == 0 &&
           plan.unit % plan.chunk == 0;
  }

  KernelBuilder b;
  const SummarizePlan &plan;
  SmallVector<Level> levels;
  Value input;
  int64_t width, rank, sets, coarsest, stripLength;
  std::optional<int64_t> staticRows;
  bool anyInside;
  // Values of the enclosing function.
  Value rows, headsPerSet, groups, instancesPerTask, vectorsPerTask, numSlices;
  // Values of the task.
  Value set, firstInstance, numInstances, firstVector, numVectors,
      vectorReciprocal, packed, packedWeights, sums;
};
} // namespace

/// Whether `value` is known to be a multiple of `factor`.
static bool isMultiple(Value value, Value factor) {
  std::optional<int64_t> known = getConstantIntValue(value),
                         divisor = getConstantIntValue(factor);
  return known && divisor && *known % *divisor == 0;
}

SummarizeKernel::SummarizeKernel(OpBuilder &builder, ArrayRef<SummarizeOp> ops,
                                 const SummarizePlan &plan)
    : b(SummarizeOp(ops.front()).getLoc(), builder,
        getStateType(getElementTypeOrSelf(SummarizeOp(ops.front()).getInput())),
        plan.lanes),
      plan(plan) {
  SummarizeOp finest = ops.front();
  input = finest.getInput();
  auto type = cast<MemRefType>(input.getType());
  width = type.getDimSize(3);
  rank = finest.getRank();
  sets = cast<MemRefType>(finest.getWeights().getType()).getDimSize(0);
  if (!type.isDynamicDim(2))
    staticRows = type.getDimSize(2);
  coarsest = SummarizeOp(ops.back()).getInterval();
  stripLength = coarsest / plan.strips;
  for (SummarizeOp op : ops)
    levels.push_back({op, op.getInterval(), op.getInterval() <= plan.chunk,
                      std::max<int64_t>(1, op.getInterval() / stripLength),
                      false, 0, 0});
  anyInside = levels.front().inside;
}

/// Tasks for all threads of this run, as wide as possible: few instances read
/// the weights more often, and narrow slices fetch parts of rows. Neither
/// changes a result.
void SummarizeKernel::divideWork(Value instances) {
  auto ceilDiv = [&](Value a, Value c) {
    return b.div(b.sub(b.add(a, c), b.index(1)), c);
  };
  auto clamp = [&](Value value, Value low, Value high) {
    return isEqualConstantIntOrValue(low, high) ? low
                                                : b.clamp(value, low, high);
  };
  Value one = b.index(1), minSlices = b.index(plan.slices);
  Value maxSlices = b.index(std::max<int64_t>(1, plan.wholeVectors));
  Value minTasks = b.max(b.ceilDiv(instances, plan.instancesPerTask), one);
  Value maxTasks = b.max(instances, one);
  bool isFixed = isEqualConstantIntOrValue(minSlices, maxSlices) &&
                 isEqualConstantIntOrValue(minTasks, maxTasks);
  Value wanted = one;
  if (!isFixed) {
    auto module = SummarizeOp(levels.front().op)->getParentOfType<ModuleOp>();
    wanted = arith::IndexCastOp::create(
        b, b.getIndexType(),
        RuntimeCalls::emitCall(b, module, "fovea_rt_loop_threads",
                               b.getI64Type(), {}));
    wanted = ceilDiv(wanted, b.index(sets));
  }
  // Pairs of instances first, then slices of rows, single instances last.
  Value tasks = clamp(ceilDiv(wanted, minSlices), minTasks,
                      b.max(minTasks, b.div(maxTasks, 2)));
  Value slices = clamp(ceilDiv(wanted, tasks), minSlices, maxSlices);
  tasks = clamp(ceilDiv(wanted, slices), tasks, maxTasks);
  instancesPerTask = ceilDiv(maxTasks, tasks);
  vectorsPerTask = ceilDiv(maxSlices, slices);
  numSlices = ceilDiv(maxSlices, vectorsPerTask);
}

void SummarizeKernel::emit() {
  rows = b.extent(input, 2);
  headsPerSet = b.div(b.extent(input, 1), sets);
  groups = b.ceilDiv(rows, plan.streams * coarsest);
  Value instances = b.mul(b.mul(b.extent(input, 0), headsPerSet), groups);
  divideWork(instances);
  Value tasks = b.div(b.sub(b.add(instances, instancesPerTask), b.index(1)),
                      instancesPerTask);
  SmallVector<OpFoldResult> bounds = {b.getIndexAttr(sets),
                                      getAsOpFoldResult(tasks),
                                      getAsOpFoldResult(numSlices)};
  scf::ForallOp::create(
      b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        set = ivs[0];
        firstInstance = b.mul(ivs[1], instancesPerTask);
        numInstances =
            isMultiple(instances, instancesPerTask)
                ? instancesPerTask
                : b.min(b.sub(instances, firstInstance), instancesPerTask);
        emitTask(ivs[2]);
        scf::InParallelOp::create(b);
      });
}

/// Calls `body(first, count)` for every block of sums of an interval.
void SummarizeKernel::forEachSums(
    llvm::function_ref<void(Value, int64_t)> body) {
  int64_t whole = rank / plan.rankBlock * plan.rankBlock;
  if (whole == plan.rankBlock)
    body(b.index(0), whole);
  else
    b.loop(b.index(0), b.index(whole), plan.rankBlock,
           [&](Value first) { body(first, plan.rankBlock); });
  if (whole < rank)
    body(b.index(whole), rank - whole);
}

void SummarizeKernel::emitTask(Value slice) {
  Type elementType = b.getStateType();
  packed =
      b.scratch({plan.getMaxVectors(), plan.chunk, plan.streams, plan.lanes},
                elementType);
  firstVector = b.mul(slice, vectorsPerTask);
  numVectors =
      b.select(b.equal(slice, b.sub(numSlices, b.index(1))),
               b.sub(b.index(plan.vectors), firstVector), vectorsPerTask);
  vectorReciprocal = b.div(b.add(numVectors, kReciprocalOne - 1), numVectors);

  int64_t numPackedRows = 0, numSums = 0;
  for (Level &level : levels) {
    level.packedWhole =
        level.inside || (level.strips == 1 && level.interval <= 2 * plan.chunk);
    level.packedRow = numPackedRows;
    numPackedRows +=
        level.packedWhole ? level.interval : level.strips * plan.chunk;
    level.sumsPlace = numSums;
    numSums += level.inside ? 0 : 1;
  }
  if (numSums)
    sums = b.scratch({plan.getMaxVectors(), plan.instancesPerTask * plan.strips,
                      numSums, rank, plan.streams, plan.lanes},
                     elementType);
  packedWeights = b.scratch(
      {plan.getMaxVectors(), numPackedRows, rank, plan.lanes}, elementType);

  for (const Level &level : levels)
    if (level.packedWhole)
      packWeights(level, b.index(0), b.index(level.interval));

  // Carried sums start from the bias; from then on whoever stores an interval
  // resets its sums.
  for (const Level &level : levels) {
    if (level.inside)
      continue;
    b.loop(b.index(0), numVectors, 1, [&](Value vector) {
      Value column = getColumn(b.add(firstVector, vector));
      forEachSums([&](Value first, int64_t count) {
        Values initial = initialSums(level, column, first, count);
        b.loop(b.index(0), b.mul(numInstances, plan.strips / level.strips), 1,
               [&](Value slot) {
                 for (int64_t i = 0, n = initial.size(); i < n; ++i)
                   b.storeVector(initial[i], sums,
                                 {vector, b.mul(slot, level.strips),
                                  b.index(level.sumsPlace),
                                  b.add(first, i / plan.streams),
                                  b.index(i % plan.streams), b.index(0)});
               });
      });
    });
  }

  emitChunks();
  b.freeScratch();
}

/// All chunks of the coarsest intervals.
void SummarizeKernel::emitChunks() {
  Chunk chunk;
  // No stream is longer than the first one.
  Value length = b.min(rows, stripLength);
  int64_t chunksPerUnit = plan.getChunksPerUnit();
  Value numChunks = b.add(b.mul(b.div(length, plan.unit), chunksPerUnit),
                          b.ceilDiv(b.rem(length, plan.unit), plan.chunk));
  b.loop(b.index(0), numChunks, 1, [&](Value number) {
    Value rest = b.mul(b.rem(number, chunksPerUnit), plan.chunk);
    chunk.start = b.add(b.mul(b.div(number, chunksPerUnit), plan.unit), rest);
    chunk.last = b.equal(number, b.sub(numChunks, b.index(1)));
    chunk.rows = b.index(plan.chunk);
    if (plan.unit % plan.chunk != 0)
      chunk.rows = b.min(chunk.rows, b.sub(b.index(plan.unit), rest));
    if (!isRegular())
      chunk.rows = b.min(chunk.rows, b.sub(length, chunk.start));
    for (const Level &level : levels)
      if (!level.packedWhole)
        packWeights(level, b.rem(chunk.start, level.interval), chunk.rows);
    b.loop(b.index(0), b.mul(numInstances, plan.strips), 1,
           [&](Value slot) { emitInstance(chunk, getInstance(slot)); });
  });
}

SummarizeKernel::Instance SummarizeKernel::getInstance(Value slot) {
  Value number = b.add(firstInstance, b.div(slot, plan.strips));
  Value strip = b.rem(slot, plan.strips);
  Value stream = b.mul(b.rem(number, groups), plan.streams);
  number = b.div(number, groups);
  Value head = b.add(b.mul(set, headsPerSet), b.rem(number, headsPerSet));
  return {slot, b.div(number, headsPerSet), head, stream, strip};
}

void SummarizeKernel::packWeights(const Level &level, Value firstRow,
                                  Value numRows) {
  Value weights = SummarizeOp(level.op).getWeights();
  for (int64_t strip = 0; strip < level.strips; ++strip)
    forEachSums([&](Value first, int64_t count) {
      b.loop(b.index(0), numRows, 1, [&](Value row) {
        b.loop(b.index(0), numVectors, 1, [&](Value vector) {
          Value column = getColumn(b.add(firstVector, vector));
          for (int64_t i = 0; i < count; ++i) {
            Value sum = b.add(first, i);
            b.storeVector(
                b.loadVector(weights,
                             {set, sum,
                              b.add(b.add(firstRow, strip * stripLength), row),
                              column}),
                packedWeights,
                {vector, b.add(row, level.packedRow + strip * plan.chunk), sum,
                 b.index(0)});
          }
        });
      });
    });
}

/// One chunk of one instance.
void SummarizeKernel::emitInstance(Chunk chunk, const Instance &instance) {
  pack(chunk, instance);
  b.loop(b.index(0), numVectors, 1, [&](Value vector) {
    chunk.vector = vector;
    chunk.column = getColumn(b.add(firstVector, vector));
    for (const Level &level : levels)
      forEachSums([&](Value firstSum, int64_t numSums) {
        if (level.inside)
          emitInside(level, chunk, instance, firstSum, numSums);
        else
          emitAcross(level, chunk, instance, firstSum, numSums);
      });
  });
}

/// Copies the rows of all streams side by side: rows of one stream are a power
/// of two apart and would fall into a few sets of the first-level cache
/// (measured: 24 % of peak in place, 52 % packed). Rows past the end are zero.
void SummarizeKernel::pack(const Chunk &chunk, const Instance &instance) {
  Values first, valid;
  // Levels inside the chunk always read whole intervals.
  Value end = anyInside ? b.index(plan.chunk) : chunk.rows;
  for (int64_t stream = 0; stream < plan.streams; ++stream) {
    first.push_back(getRow(chunk, instance, stream));
    valid.push_back(
        isRegular() ? end
                    : b.max(b.min(b.sub(rows, first.back()), chunk.rows), 0));
  }
  // Along the rows, which are contiguous, so that the hardware can follow.
  auto forEachVector = [&](Value from, Value to,
                           llvm::function_ref<void(Value, Value)> body) {
    b.loop(from, to, 1, [&](Value row) {
      b.loop(b.index(0), numVectors, 1,
             [&](Value vector) { body(row, vector); });
    });
  };
  auto copy = [&](Value row, Value vector, int64_t stream) {
    Value value = b.loadVector(input, {instance.batch, instance.head,
                                       b.add(first[stream], row),
                                       getColumn(b.add(firstVector, vector))});
    b.storeVector(value, packed, {vector, row, b.index(stream), b.index(0)});
  };
  // The last stream is the shortest.
  forEachVector(b.index(0), valid.back(), [&](Value row, Value vector) {
    for (int64_t stream = 0; stream < plan.streams; ++stream)
      copy(row, vector, stream);
  });
  if (isRegular())
    return;
  for (int64_t stream = 0; stream < plan.streams; ++stream) {
    if (stream + 1 < plan.streams)
      forEachVector(valid.back(), valid[stream], [&](Value row, Value vector) {
        copy(row, vector, stream);
      });
    forEachVector(valid[stream], end, [&](Value row, Value vector) {
      b.storeVector(b.splat(0.0), packed,
                    {vector, row, b.index(stream), b.index(0)});
    });
  }
}

/// The bias (or zero) for sums `firstSum...` of every stream.
Values SummarizeKernel::initialSums(const Level &level, Value column,
                                    Value firstSum, int64_t numSums) {
  Values sums;
  Value bias = SummarizeOp(level.op).getBias();
  for (int64_t sum = 0; sum < numSums; ++sum) {
    Value value = bias ? b.loadVector(bias, {set, b.add(firstSum, sum), column})
                       : b.splat(0.0);
    sums.append(plan.streams, value);
  }
  return sums;
}

/// Whole intervals inside a chunk.
void SummarizeKernel::emitInside(const Level &level, const Chunk &chunk,
                                 const Instance &instance, Value firstSum,
                                 int64_t numSums) {
  Values initial = initialSums(level, chunk.column, firstSum, numSums);
  Value firstInterval = b.div(getPlace(chunk, instance), level.interval);
  auto body = [&](Value number) {
    Value from = b.mul(number, level.interval);
    Values sums =
        emitTile(level, chunk, instance, firstSum, numSums, from,
                 b.add(from, level.interval), b.sub(b.index(0), from), initial);
    storeSums(level, chunk, instance, firstSum, sums,
              b.add(firstInterval, number));
  };
  if (level.interval == plan.chunk)
    return body(b.index(0));
  b.loop(b.index(0), b.ceilDiv(chunk.rows, level.interval), 1, body);
}

/// A part of an interval that is longer than a chunk.
void SummarizeKernel::emitAcross(const Level &level, const Chunk &chunk,
                                 const Instance &instance, Value firstSum,
                                 int64_t numSums) {
  auto place = [&](int64_t i) -> Values {
    return {chunk.vector,
            b.mul(b.div(instance.slot, level.strips), level.strips),
            b.index(level.sumsPlace),
            b.add(firstSum, i / plan.streams),
            b.index(i % plan.streams),
            b.index(0)};
  };
  int64_t numTile = numSums * plan.streams;
  Value shift = level.strips == 1
                    ? b.rem(chunk.start, level.interval)
                    : b.rem(getPlace(chunk, instance), level.interval);
  Value ends;
  if (level.strips == 1)
    ends = b.either(chunk.last,
                    b.equal(b.add(shift, chunk.rows), b.index(level.interval)));
  else
    ends = b.both(chunk.last, b.equal(b.rem(instance.strip, level.strips),
                                      b.index(level.strips - 1)));
  // Sums of a chunk start from zero: many short sums lose less than a long one.
  Values tile = emitTile(level, chunk, instance, firstSum, numSums, b.index(0),
                         chunk.rows, shift, Values(numTile, b.splat(0.0)));
  for (int64_t i = 0; i < numTile; ++i)
    tile[i] = b.fadd(b.loadVector(sums, place(i)), tile[i]);
  b.ifThenElse(
      ends,
      [&] {
        storeSums(level, chunk, instance, firstSum, tile,
                  b.div(getPlace(chunk, instance), level.interval));
        Values initial = initialSums(level, chunk.column, firstSum, numSums);
        for (int64_t i = 0; i < numTile; ++i)
          b.storeVector(initial[i], sums, place(i));
      },
      [&] {
        for (int64_t i = 0; i < numTile; ++i)
          b.storeVector(tile[i], sums, place(i));
      });
}

/// Rows of the next instance are asked for one cache line at a time, spread
/// over the register tiles, since a burst of prefetches stalls the loads; and
/// line after line, whatever the vector being computed, so that the hardware
/// follows and fetches the rest. Worth 2 to 6 points of peak.
SummarizeKernel::PrefetchFn
SummarizeKernel::prefetchNext(const Level &level, const Chunk &chunk,
                              const Instance &instance) {
  if (levels.size() < 2 || !staticRows || *staticRows < 2 * plan.chunk)
    return nullptr;
  Value next = b.add(instance.slot, 1);
  Value wraps = b.equal(next, b.mul(numInstances, plan.strips));
  Instance target = getInstance(b.select(wraps, b.index(0), next));
  Chunk ahead = chunk;
  ahead.start =
      b.add(chunk.start, b.select(wraps, b.index(plan.chunk), b.index(0)));
  // The lines of all streams, divided among the vectors; for one vector, the
  // lines of one stream are the share of one level.
  int64_t number = &level - levels.data(), numLevels = levels.size();
  SmallVector<std::pair<Value, Value>> shares;
  for (int64_t share = 0; share < plan.streams; ++share) {
    if (share * numLevels / plan.streams != number)
      continue;
    Value place = b.add(b.mul(chunk.vector, plan.streams), share);
    Value stream = divideByVectors(place);
    Value firstLine =
        b.mul(b.sub(place, b.mul(stream, numVectors)), plan.chunk);
    Value row = b.add(b.mul(b.add(target.stream, stream), coarsest),
                      getPlace(ahead, target));
    shares.push_back({b.min(row, *staticRows - plan.chunk), firstLine});
  }
  return [this, target, shares](Value number) {
    for (auto [firstRow, firstLine] : shares) {
      Value line = b.add(firstLine, number);
      Value row = divideByVectors(line);
      Value vector = b.add(firstVector, b.sub(line, b.mul(row, numVectors)));
      b.prefetch(input,
                 {target.batch, target.head, b.add(firstRow, row),
                  b.mul(vector, plan.lanes)},
                 /*locality=*/2);
    }
  };
}

/// `value / numVectors`, of a value so small that a product and a shift are
/// exact: a division in the loop of a register tile would take as long as it.
Value SummarizeKernel::divideByVectors(Value value) {
  return b.div(b.mul(value, vectorReciprocal), kReciprocalOne);
}

/// The register tile: packed rows `[from, to)` of all streams times the weights
/// `numSums` sums give to them, added to `initial`.
Values SummarizeKernel::emitTile(const Level &level, const Chunk &chunk,
                                 const Instance &instance, Value firstSum,
                                 int64_t numSums, Value from, Value to,
                                 Value weightShift, ValueRange initial) {
  if (!level.packedWhole)
    weightShift = b.mul(b.rem(instance.strip, level.strips), plan.chunk);
  weightShift = b.add(weightShift, level.packedRow);
  PrefetchFn prefetch;
  if (numSums == plan.rankBlock)
    prefetch = prefetchNext(level, chunk, instance);
  return b.loop(
      from, to, 1, initial, [&](Value row, ValueRange sums) -> Values {
        if (prefetch)
          prefetch(row);
        Values data, results;
        for (int64_t stream = 0; stream < plan.streams; ++stream)
          data.push_back(b.loadVector(
              packed, {chunk.vector, row, b.index(stream), b.index(0)}));
        Value weightRow = b.add(row, weightShift);
        for (int64_t sum = 0; sum < numSums; ++sum) {
          Value weight =
              b.loadVector(packedWeights, {chunk.vector, weightRow,
                                           b.add(firstSum, sum), b.index(0)});
          for (int64_t stream = 0; stream < plan.streams; ++stream)
            results.push_back(
                b.fma(data[stream], weight, sums[results.size()]));
        }
        return results;
      });
}

/// Stores the sums of one interval of every stream. `firstInterval` is its
/// number inside a coarsest interval.
void SummarizeKernel::storeSums(const Level &level, const Chunk &chunk,
                                const Instance &instance, Value firstSum,
                                ValueRange sums, Value firstInterval) {
  Value output = SummarizeOp(level.op).getOutput();
  int64_t intervalsPerStream = coarsest / level.interval;
  Value numIntervals = b.ceilDiv(rows, level.interval);
  for (int64_t stream = 0; stream < plan.streams; ++stream) {
    Value interval =
        b.add(b.mul(b.add(instance.stream, stream), intervalsPerStream),
              firstInterval);
    Value present = isRegular() ? b.equal(b.index(0), b.index(0))
                                : b.less(interval, numIntervals);
    b.ifThen(present, [&] {
      Value firstRow = b.add(b.mul(interval, rank), firstSum);
      for (int64_t i = stream, n = sums.size(); i < n; i += plan.streams)
        b.storeVector(sums[i], output,
                      {instance.batch, instance.head,
                       b.add(firstRow, i / plan.streams), chunk.column});
    });
  }
}

void fovea::attn::emitSummaries(OpBuilder &builder,
                                ArrayRef<SummarizeOp> levels,
                                const SummarizePlan &plan) {
  SummarizeKernel(builder, levels, plan).emit();
}
