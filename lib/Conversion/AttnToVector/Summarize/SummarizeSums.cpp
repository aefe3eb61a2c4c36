//===- SummarizeSums.cpp - Sums of intervals of attn.summarize ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fovea::attn;

using Values = SmallVector<Value>;

/// The bias (or zero) of a sum.
Value SummarizeKernel::getBias(const SummarizeLevel &level, const Chunk &chunk,
                               Value sum) {
  Value bias = SummarizeOp(level.op).getBias();
  return bias ? b.loadVector(bias, {set, sum, chunk.column}) : b.splat(0.0);
}

/// Whole intervals inside a chunk.
void SummarizeKernel::emitInside(const SummarizeLevel &level,
                                 const Chunk &chunk, const Instance &instance,
                                 Value firstSum, int64_t numSums) {
  Values initial;
  for (int64_t sum = 0; sum < numSums; ++sum)
    initial.append(plan.streams, getBias(level, chunk, b.add(firstSum, sum)));
  auto body = [&](Value number) {
    Value from = b.mul(number, level.interval);
    Values tile =
        emitTile(chunk, firstSum, numSums, from, b.add(from, level.interval),
                 b.sub(b.index(level.packedRow), from), initial);
    for (int64_t stream = 0; stream < plan.streams; ++stream) {
      Value head = getHead(instance, b.index(stream));
      Value interval =
          b.add(getInterval(level, chunk, instance, b.index(stream)), number);
      b.ifThen(isPresent(level, interval), [&] {
        Value firstRow = b.add(b.mul(interval, rank), firstSum);
        for (int64_t i = stream, n = tile.size(); i < n; i += plan.streams)
          b.storeVector(tile[i], SummarizeOp(level.op).getOutput(),
                        {instance.batch, head,
                         b.add(firstRow, i / plan.streams), chunk.column});
        sumPresent(level, chunk, {instance.batch, head}, interval, firstSum,
                   numSums);
      });
    }
  };
  if (level.interval == plan.chunk)
    return body(b.index(0));
  b.loop(b.index(0), b.ceilDiv(chunk.rows, level.interval), 1, body);
}

/// Adds what a chunk gives to intervals that are longer. Its own sums start
/// from zero: many short sums lose less than a long one.
void SummarizeKernel::addToSums(const Chunk &chunk, Value slot, Value place,
                                Value packedRow, Value firstSum,
                                int64_t numSums, PrefetchFn prefetch) {
  Values zeros(numSums * plan.streams, b.splat(0.0));
  Values tile = emitTile(chunk, firstSum, numSums, b.index(0), chunk.rows,
                         packedRow, zeros, prefetch);
  for (int64_t i = 0, n = tile.size(); i < n; ++i) {
    Values at = {chunk.vector,
                 slot,
                 place,
                 b.add(firstSum, i / plan.streams),
                 b.index(i % plan.streams),
                 b.index(0)};
    b.storeVector(b.fadd(b.loadVector(sums, at), tile[i]), sums, at);
  }
}

/// Whether a chunk is the first or the last one of an interval that is longer.
Value SummarizeKernel::isEdge(const SummarizeLevel &level, const Chunk &chunk,
                              const Instance &instance, bool end) {
  Value start = b.rem(chunk.start, level.interval);
  Value edge = end ? b.either(chunk.last, b.equal(b.add(start, chunk.rows),
                                                  b.index(level.interval)))
                   : b.equal(start, b.index(0));
  return b.both(edge, b.equal(b.rem(instance.strip, level.strips),
                              b.index(end ? level.strips - 1 : 0)));
}

void SummarizeKernel::resetSums(const SummarizeLevel &level, const Chunk &chunk,
                                const Instance &instance) {
  b.loop(b.index(0), b.index(rank), 1, [&](Value sum) {
    Value bias = getBias(level, chunk, sum);
    for (int64_t stream = 0; stream < plan.streams; ++stream)
      b.storeVector(bias, sums,
                    {chunk.vector, getSlot(level, instance),
                     b.index(level.sumsPlace), sum, b.index(stream),
                     b.index(0)});
  });
}

void SummarizeKernel::storeSums(const SummarizeLevel &level, const Chunk &chunk,
                                const Instance &instance) {
  b.loop(b.index(0), b.index(plan.streams), 1, [&](Value stream) {
    Value head = getHead(instance, stream);
    Value interval = getInterval(level, chunk, instance, stream);
    b.ifThen(isPresent(level, interval), [&] {
      b.loop(b.index(0), b.index(rank), 1, [&](Value sum) {
        b.storeVector(
            b.loadVector(sums,
                         {chunk.vector, getSlot(level, instance),
                          b.index(level.sumsPlace), sum, stream, b.index(0)}),
            SummarizeOp(level.op).getOutput(),
            {instance.batch, head, b.add(b.mul(interval, rank), sum),
             chunk.column});
      });
      sumPresent(level, chunk, {instance.batch, head}, interval, b.index(0),
                 rank);
    });
  });
}

/// Zeros stand for absent tokens, but times a weight that is no finite number
/// they are none. So sums of an interval with absent tokens that are no finite
/// numbers are those of the present tokens once more.
void SummarizeKernel::sumPresent(const SummarizeLevel &level,
                                 const Chunk &chunk,
                                 std::pair<Value, Value> batchAndHead,
                                 Value interval, Value firstSum,
                                 int64_t numSums) {
  if (staticRows && *staticRows % level.interval == 0)
    return;
  SummarizeOp op = level.op;
  auto [batch, head] = batchAndHead;
  Value first = b.mul(interval, level.interval), present = b.sub(rows, first);
  auto sumTokens = [&, batch = batch, head = head](Value sum) {
    return b
        .loop(b.index(0), present, 1, getBias(level, chunk, sum),
              [&](Value token, ValueRange running) -> Values {
                Value data = b.loadVector(
                    input, {batch, head, b.add(first, token), chunk.column});
                Value weight = b.loadVector(op.getWeights(),
                                            {set, sum, token, chunk.column});
                return {b.fma(data, weight, running.front())};
              })
        .front();
  };
  b.ifThen(b.less(present, b.index(level.interval)),
           [&, batch = batch, head = head] {
             b.loop(b.index(0), b.index(numSums), 1, [&](Value i) {
               Value sum = b.add(firstSum, i);
               Value at[] = {batch, head, b.add(b.mul(interval, rank), sum),
                             chunk.column};
               Value stored = b.loadVector(op.getOutput(), at);
               b.ifThen(isAnyNotFinite(b, stored), [&] {
                 Value exact = arith::SelectOp::create(
                     b, areNotFinite(b, stored), sumTokens(sum), stored);
                 b.storeVector(exact, op.getOutput(), at);
               });
             });
           });
}

/// The interval of a stream that the chunk lies in, or the first one.
Value SummarizeKernel::getInterval(const SummarizeLevel &level,
                                   const Chunk &chunk, const Instance &instance,
                                   Value stream) {
  return b.add(b.mul(getNumber(instance, stream), coarsest / level.interval),
               b.div(getPlace(chunk, instance), level.interval));
}

Value SummarizeKernel::isPresent(const SummarizeLevel &level, Value interval) {
  return isRegular() ? b.equal(b.index(0), b.index(0))
                     : b.less(interval, b.ceilDiv(rows, level.interval));
}
