//===- ConvKernel.cpp - Loops of sums of convolutions ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/SumLanes.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Numbers of the values and profiles of a head that a thread can have tables
/// for.
static constexpr int64_t kSmallHead = 1 << 19;
/// Lags whose weights are computed at a time.
static constexpr int64_t kLags = 64;

void ConvTables::prepare() {
  segments.prepare();
  profiles.prepare();
  normalisers.prepare();
  profiles.clean();
}

//===----------------------------------------------------------------------===//
// Heads
//===----------------------------------------------------------------------===//

static void emitHeads(ConvBuilder &b, ConvKernel &kernel, Value batch,
                      Value first, Value end) {
  // Without heads there are no groups to divide by.
  Value shared =
      b.div(b.extent(b.basis, 1), b.max(b.extent(b.value, 1), b.index(1)));
  b.loop(first, end, 1, [&](Value head) {
    b.batch = batch;
    b.head = head;
    b.group = b.div(head, b.max(shared, b.index(1)));
    kernel.emitHead();
  });
}

void fovea::attn::conv::emitConvHeads(
    ConvBuilder &b, Value headsOfTask,
    function_ref<std::unique_ptr<ConvKernel>()> allocate) {
  size_t numShared = b.getNumBuffers();
  Value batches = b.extent(b.basis, 0), heads = b.extent(b.basis, 1);
  auto emitOneByOne = [&] {
    std::unique_ptr<ConvKernel> kernel = allocate();
    b.loop(b.index(0), batches, 1, [&](Value batch) {
      emitHeads(b, *kernel, batch, b.index(0), heads);
    });
    b.freeBuffers(numShared);
  };
  Value groups = b.div(heads, headsOfTask);
  auto emitTasks = [&] {
    // Loops inside of a task are not parallel.
    b.forAll({batches, groups}, [&](ValueRange task) {
      std::unique_ptr<ConvKernel> kernel = allocate();
      Value first = b.mul(task[1], headsOfTask);
      emitHeads(b, *kernel, task[0], first, b.add(first, headsOfTask));
      b.freeBuffers(numShared);
    });
  };
  // With extents that are known at run time only, both are there.
  Value isFew = b.less(b.mul(batches, groups), b.index(kManyTasks));
  Value numbers = b.mul(b.numTokens, b.add(b.mul(b.numBases, 4), b.width));
  Value isLarge = b.less(b.index(kSmallHead), numbers);
  b.ifThenElse(b.either(isFew, isLarge), emitOneByOne, emitTasks);
}

//===----------------------------------------------------------------------===//
// Single rows
//===----------------------------------------------------------------------===//

RowWeights::RowWeights(ConvTables &tables)
    : t(tables), b(tables.b), weights(b.scratch({kLags}, b.getStateType())) {}

/// Visits the segments of a row: `[low, high)` are the lags it reads of one.
Values RowWeights::forEachSegment(
    Value row, ValueRange inits,
    function_ref<Values(Value, Value, Value, ValueRange)> body) {
  return b.loop(b.index(0), b.add(t.segments.of(row), 1), 1, inits,
                [&](Value segment, ValueRange carried) {
                  Value end = t.segments.end(segment);
                  Lags lags = getLags(b, row, t.segments.first(segment), end);
                  return body(segment, lags.low, lags.high, carried);
                });
}

Value RowWeights::findTop(Value row) {
  int64_t lanes = b.getLanes();
  auto visit = [&](Value segment, Value low, Value high, ValueRange carried) {
    return b.loop(low, high, lanes, carried, [&](Value lag, ValueRange tops) {
      Value score =
          b.loadMasked(t.profiles.scores, t.profiles.scoreAt(segment, lag),
                       b.firstLanes(b.sub(high, lag)), -kInfinity);
      return Values{b.fmax(score, tops[0])};
    });
  };
  Value top = b.reduce(vector::CombiningKind::MAXNUMF,
                       forEachSegment(row, b.splat(-kInfinity), visit)[0]);
  return zeroIfNone(b, top);
}

/// Stores the weights of at most `kLags` lags from `first` on. Returns `sum`
/// with them added.
Value RowWeights::storeRun(Value segment, Value first, Value count, Value top,
                           Value sum) {
  for (int64_t at = 0; at < kLags; at += b.getLanes()) {
    Value place = t.profiles.scoreAt(segment, b.add(first, at));
    Value mask = b.firstLanes(b.sub(count, b.index(at)));
    Value score = b.loadMasked(t.profiles.scores, place, mask, -kInfinity);
    Value weight = getWeight(b, score, top);
    sum = b.fadd(sum, weight);
    b.storeVector(weight, weights, b.index(at));
  }
  return sum;
}

Value RowWeights::sum(Value row, Value top,
                      function_ref<void(Value, Value)> visitRun) {
  auto visit = [&](Value segment, Value low, Value high, ValueRange carried) {
    return b.loop(low, high, kLags, carried, [&](Value first, ValueRange sum) {
      Value count = b.min(b.sub(high, first), b.index(kLags));
      Value next = storeRun(segment, first, count, top, sum[0]);
      visitRun(first, count);
      return Values{next};
    });
  };
  return sumLanes(b, forEachSegment(row, b.splat(0.0), visit)[0]);
}

void RowWeights::forEachEntry(Value row, Value top, Value firstLag,
                              Value endLag,
                              function_ref<void(Value, Value, Value)> body) {
  auto visit = [&](Value segment, Value low, Value high, ValueRange) {
    low = b.max(low, firstLag);
    high = b.min(high, endLag);
    b.loop(low, high, kLags, [&](Value first) {
      Value count = b.min(b.sub(high, first), b.index(kLags));
      storeRun(segment, first, count, top, b.splat(0.0));
      b.loop(b.index(0), count, 1, [&](Value at) {
        Value lag = b.add(first, at);
        b.ifThen(t.profiles.isRead(segment, lag),
                 [&] { body(segment, lag, load(at)); });
      });
    });
    return Values();
  };
  forEachSegment(row, /*inits=*/{}, visit);
}
