//===- SummarizeKernel.cpp - Loops of attn.summarize ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeLoops.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

using Values = SmallVector<Value>;

/// What stands for 1 in the reciprocal of a number of vectors. A task has at
/// most eight of them, and what is divided is less than 2^13.
static constexpr int64_t kReciprocalOne = 1 << 16;

/// Whether `value` is known to be a multiple of `factor`.
static bool isMultiple(Value value, Value factor) {
  std::optional<int64_t> known = getConstantIntValue(value),
                         divisor = getConstantIntValue(factor);
  return known && divisor && *known % *divisor == 0;
}

Value fovea::attn::areNotFinite(KernelBuilder &b, Value vector) {
  // The difference is zero, or NaN.
  Value rest = b.fsub(vector, vector);
  return arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, rest, rest);
}

Value fovea::attn::isAnyNotFinite(KernelBuilder &b, Value vector) {
  return vector::ReductionOp::create(b, vector::CombiningKind::OR,
                                     areNotFinite(b, vector));
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
  headsPerInstance = plan.streamsAreHeads ? plan.streams : 1;
  intervalsPerInstance = plan.streams / headsPerInstance;
  stripLength = coarsest / plan.strips;
  for (SummarizeOp op : ops)
    levels.push_back({op, op.getInterval(), op.getInterval() <= plan.chunk,
                      std::max<int64_t>(1, op.getInterval() / stripLength), 0,
                      0});
  for (const SummarizeLevel &level : levels) {
    firstLooped += level.inside;
    numLooped += !level.inside && level.strips == 1;
  }
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
    wanted = RuntimeCalls::emitLoopThreads(b, module);
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
  headGroups = b.div(headsPerSet, headsPerInstance);
  groups = b.ceilDiv(rows, intervalsPerInstance * coarsest);
  Value instances = b.mul(b.mul(b.extent(input, 0), headGroups), groups);
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
  for (SummarizeLevel &level : levels) {
    level.packedRow = numPackedRows;
    numPackedRows += level.inside ? level.interval : level.strips * plan.chunk;
    level.sumsPlace = numSums;
    numSums += level.inside ? 0 : 1;
  }
  packedWeights = b.scratch(
      {plan.getMaxVectors(), numPackedRows, rank, plan.lanes}, elementType);
  for (const SummarizeLevel &level : levels)
    if (level.inside)
      packWeights(level, b.index(0), b.index(level.interval));
  if (numSums)
    sums = b.scratch({plan.getMaxVectors(), plan.instancesPerTask * plan.strips,
                      numSums, rank, plan.streams, plan.lanes},
                     elementType);

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
    for (const SummarizeLevel &level : levels)
      if (!level.inside)
        packWeights(level, b.rem(chunk.start, level.interval), chunk.rows);
    b.loop(b.index(0), b.mul(numInstances, plan.strips), 1,
           [&](Value slot) { emitInstance(chunk, getInstance(slot)); });
  });
}

SummarizeKernel::Instance SummarizeKernel::getInstance(Value slot) {
  Value number = b.add(firstInstance, b.div(slot, plan.strips));
  Value strip = b.rem(slot, plan.strips);
  Value stream = b.mul(b.rem(number, groups), intervalsPerInstance);
  number = b.div(number, groups);
  Value head = b.add(b.mul(set, headsPerSet),
                     b.mul(b.rem(number, headGroups), headsPerInstance));
  return {slot, b.div(number, headGroups), head, stream, strip};
}

void SummarizeKernel::packWeights(const SummarizeLevel &level, Value firstRow,
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
  ArrayRef<SummarizeLevel> carried = ArrayRef(levels).drop_front(firstLooped);
  b.loop(b.index(0), numVectors, 1, [&](Value vector) {
    chunk.vector = vector;
    chunk.column = getColumn(b.add(firstVector, vector));
    for (const SummarizeLevel &level : carried)
      b.ifThen(isEdge(level, chunk, instance, /*end=*/false),
               [&] { resetSums(level, chunk, instance); });
    forEachSums([&](Value firstSum, int64_t numSums) {
      for (const SummarizeLevel &level :
           ArrayRef(levels).take_front(firstLooped))
        emitInside(level, chunk, instance, firstSum, numSums);
      // These differ in nothing but their places.
      if (numLooped)
        b.loop(b.index(0), b.index(numLooped), 1, [&](Value number) {
          Value packedRow =
              b.add(b.mul(number, plan.chunk), levels[firstLooped].packedRow);
          PrefetchFn prefetch;
          if (numSums == plan.rankBlock)
            prefetch = prefetchNext(chunk, instance, number);
          addToSums(chunk, instance.slot, number, packedRow, firstSum, numSums,
                    prefetch);
        });
      for (const SummarizeLevel &level : carried.drop_front(numLooped))
        addToSums(chunk, getSlot(level, instance), b.index(level.sumsPlace),
                  b.add(b.mul(b.rem(instance.strip, level.strips), plan.chunk),
                        level.packedRow),
                  firstSum, numSums, nullptr);
    });
    for (const SummarizeLevel &level : carried)
      b.ifThen(isEdge(level, chunk, instance, /*end=*/true),
               [&] { storeSums(level, chunk, instance); });
  });
}

/// Copies the rows of all streams side by side: rows of one stream are a power
/// of two apart and would fall into a few sets of the first-level cache
/// (measured: 24 % of peak in place, 52 % packed). Rows past the end are zero.
void SummarizeKernel::pack(const Chunk &chunk, const Instance &instance) {
  Values first, valid;
  // Levels inside the chunk always read whole intervals.
  Value end = firstLooped ? b.index(plan.chunk) : chunk.rows;
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
    Value value =
        b.loadVector(input, {instance.batch, getHead(instance, b.index(stream)),
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

/// Rows of the next instance are asked for one cache line at a time, spread
/// over the register tiles of level `number` of the loop and the others, since
/// a burst of prefetches stalls the loads; and line after line, whatever the
/// vector being computed, so that the hardware follows and fetches the rest.
/// Worth 2 to 6 points of peak.
SummarizeKernel::PrefetchFn
SummarizeKernel::prefetchNext(const Chunk &chunk, const Instance &instance,
                              Value number) {
  if (levels.size() < 2 || !staticRows || *staticRows < 2 * plan.chunk ||
      plan.streamsAreHeads)
    return nullptr;
  Value next = b.add(instance.slot, 1);
  Value wraps = b.equal(next, b.mul(numInstances, plan.strips));
  Instance target = getInstance(b.select(wraps, b.index(0), next));
  Chunk ahead = chunk;
  ahead.start =
      b.add(chunk.start, b.select(wraps, b.index(plan.chunk), b.index(0)));
  // The lines of all streams are divided among the vectors and levels.
  Value firstLine = b.mul(chunk.vector, plan.streams * plan.chunk);
  Value firstTurn = b.mul(number, plan.chunk);
  return [=](Value row) {
    Value turn = b.mul(b.add(firstTurn, row), plan.streams);
    Value turnLine = b.add(firstLine, b.div(turn, numLooped));
    int64_t perTurn = llvm::divideCeil(plan.streams, numLooped);
    for (int64_t i = 0; i < perTurn; ++i) {
      Value line = b.add(turnLine, i);
      Value place = divideByVectors(line);
      Value vector = b.add(firstVector, b.sub(line, b.mul(place, numVectors)));
      Value streamRow =
          b.add(b.mul(b.add(target.stream, b.div(place, plan.chunk)), coarsest),
                getPlace(ahead, target));
      b.prefetch(input,
                 {target.batch, target.head,
                  b.add(b.min(streamRow, *staticRows - plan.chunk),
                        b.rem(place, plan.chunk)),
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
/// `weightShift` rows behind that `numSums` sums give to them, added to
/// `initial`.
Values SummarizeKernel::emitTile(const Chunk &chunk, Value firstSum,
                                 int64_t numSums, Value from, Value to,
                                 Value weightShift, ValueRange initial,
                                 PrefetchFn prefetch) {
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

void fovea::attn::emitSummaries(OpBuilder &builder,
                                ArrayRef<SummarizeOp> levels,
                                const SummarizePlan &plan) {
  SummarizeKernel(builder, levels, plan).emit();
}
