//===- ConvNormalisers.cpp - Sums of windows of weights -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace fovea::attn;

/// Rows that a sequence has at most, for bounds of sums.
static constexpr int kLogMaxRows = 20;
/// Rows whose normalisers are a task: their parts lie in the first-level cache.
static constexpr int64_t kLeastRows = 128, kMostRows = 1024, kFewTasks = 8;
/// Segments whose weights are added up before they are widened.
static constexpr int64_t kSegments = 4;
/// Rows that are judged together where there are no blocks.
static constexpr int64_t kJudgedRows = 1024;

//===----------------------------------------------------------------------===//
// Sums of windows
//===----------------------------------------------------------------------===//
//
// A window is as many whole vectors as fit, and the rest. Whole vectors are
// added up lane by lane, so that sums of windows that begin a vector apart can
// share what they have in common; those of a window itself come last:
//
//   strides[k] = x[k] + x[k + lanes] + ..      as many as there are vectors
//   sums[k]    = strides[k] + .. + strides[k + lanes - 1] + rests[k]
//
// Nothing is ever subtracted, and no sum waits for that of another lane.
//
//===----------------------------------------------------------------------===//

void ConvKernel::forAllWindowTasks(Value size, int64_t most,
                                   function_ref<void(Value, Value)> body) {
  Value behind = b.add(numTokens, b.sub(size, b.index(1)));
  forAll({b.div(behind, size)}, [&](ValueRange task) {
    // The last windows need the strides of a vector more.
    int64_t room = getConstantIntValue(size).value_or(most) + lanes;
    for (Value *buffer :
         {&strides, &suffixes, &rests, &entering, &leaving, &shortSums})
      *buffer = b.scratch({room}, b.getF64Type());
    Value first = b.mul(task[0], size);
    body(first, b.min(b.add(first, size), numTokens));
  });
}

void ConvKernel::clearWindows(Value count) {
  for (Value buffer : {strides, rests})
    b.loop(b.index(0), b.add(count, lanes), lanes, [&](Value at) {
      vector::StoreOp::create(b, splatWide(0.0), buffer, at);
    });
}

void ConvKernel::addToWindows(Value at, Value sums, Value buffer) {
  Value old = vector::LoadOp::create(b, getWideType(), buffer, at);
  vector::StoreOp::create(b, b.fadd(old, sums), buffer, at);
}

void ConvKernel::addWindows(Value first, Value end, Value start, Value length,
                            Value size, function_ref<Value(Value)> load) {
  Value whole = b.div(length, lanes), rest = b.rem(length, lanes);
  Value vectors = b.ceilDiv(b.sub(end, first), lanes);
  auto loadVector = [&](Value index) {
    return widen(load(b.add(start, b.mul(index, lanes))));
  };
  // Of all vectors, those that are not zeros.
  Value low = b.div(b.max(b.sub(b.index(0), start), 0), lanes);
  Value high = b.ceilDiv(b.max(b.sub(size, start), 0), lanes);
  b.ifThen(b.less(b.index(0), whole), [&] {
    Value more = b.add(vectors, 1);
    Value runs = b.div(b.add(more, b.sub(whole, b.index(1))), whole);
    b.loop(b.index(0), runs, 1, [&](Value run) {
      Value begin = b.mul(run, whole);
      Value count = b.min(whole, b.sub(more, begin));
      Value sharedEnd = b.min(whole, b.sub(high, begin));
      Value shared[] = {b.max(count, b.sub(low, begin)), sharedEnd};
      addRun(b.add(first, b.mul(begin, lanes)), whole, count, shared,
             [&](Value index) { return loadVector(b.add(begin, index)); });
    });
  });
  b.ifThen(b.less(b.index(0), rest), [&] {
    Value behind = b.add(start, b.mul(whole, lanes));
    b.loop(b.index(0), vectors, 1, [&](Value index) {
      Value at = b.mul(index, lanes), origin = b.add(behind, at);
      Value sums = b.loop(b.index(0), rest, 1, splatWide(0.0),
                          [&](Value place, ValueRange carried) {
                            Value numbers = widen(load(b.add(origin, place)));
                            return Values{b.fadd(numbers, carried[0])};
                          })[0];
      addToWindows(b.add(first, at), sums, rests);
    });
  });
}

/// At most as many windows as each has vectors, one vector apart. All have the
/// vectors from the first one of the last window to the last one of the first
/// window, of which `shared` may have numbers that are not zero; the sum of a
/// window is that of these, of those before them from its own first on, and of
/// those behind them up to its own last.
void ConvKernel::addRun(Value at, Value size, Value count, ValueRange shared,
                        function_ref<Value(Value)> load) {
  Value zeros = splatWide(0.0);
  auto placeOf = [&](Value index) { return b.add(at, b.mul(index, lanes)); };
  b.loop(b.index(0), count, 1, zeros, [&](Value done, ValueRange carried) {
    Value index = b.sub(b.sub(count, b.index(1)), done);
    Value sums = b.fadd(load(index), carried[0]);
    vector::StoreOp::create(b, sums, suffixes, placeOf(index));
    return Values{sums};
  });
  auto add = [&](Value index, ValueRange carried) {
    return Values{b.fadd(load(index), carried[0])};
  };
  Value sum = b.loop(shared[0], shared[1], 1, zeros, add)[0];
  b.loop(b.index(0), count, 1, sum, [&](Value index, ValueRange carried) {
    Value suffix =
        vector::LoadOp::create(b, getWideType(), suffixes, placeOf(index));
    addToWindows(placeOf(index), b.fadd(suffix, carried[0]), strides);
    return add(b.add(size, index), carried);
  });
}

/// Adds to each lane the `lanes - 1` behind it, or before it, some of which are
/// those of a neighbour: at half a vector's distance, a quarter's and so on.
/// Returns what every step started from, which is what the next vector needs of
/// its `neighbour`, and the sums.
ConvKernel::Values ConvKernel::addNeighbours(Value sums, ValueRange neighbour,
                                             bool isBehind) {
  Values found;
  for (auto [step, other] : llvm::enumerate(neighbour)) {
    int64_t distance = lanes >> (step + 1);
    SmallVector<int64_t> moved(lanes);
    std::iota(moved.begin(), moved.end(),
              isBehind ? distance : lanes - distance);
    found.push_back(sums);
    Value first = isBehind ? sums : other, second = isBehind ? other : sums;
    sums = b.fadd(sums, vector::ShuffleOp::create(b, first, second, moved));
  }
  found.push_back(sums);
  return found;
}

void ConvKernel::finishWindows(Value count,
                               function_ref<void(Value, Value)> store) {
  auto join = [&](Value at, ValueRange behind) {
    Value sums = vector::LoadOp::create(b, getWideType(), strides, at);
    return addNeighbours(sums, behind, /*isBehind=*/true);
  };
  Value vectors = b.ceilDiv(count, lanes);
  Values unknown(llvm::Log2_64(lanes), splatWide(0.0));
  Values behind = join(b.mul(vectors, lanes), unknown);
  b.loop(b.index(0), vectors, 1, ValueRange(behind).drop_back(),
         [&](Value done, ValueRange behind) {
           Value index = b.sub(b.sub(vectors, b.index(1)), done);
           Value at = b.mul(index, lanes);
           Values found = join(at, behind);
           Value rest = vector::LoadOp::create(b, getWideType(), rests, at);
           store(at, b.fadd(found.pop_back_val(), rest));
           return found;
         });
}

//===----------------------------------------------------------------------===//
// Normalisers
//===----------------------------------------------------------------------===//
//
// Row i adds up, of every segment, the weights of the lags from i - (its last
// column) to i - (its first column): a window that moves with i. In a task with
// rows [a, b) all windows of a segment of b - a columns or more have some lags
// in common. Of the others, those that have entered the window of row i and
// those that have yet to leave it are added up over segments before they are
// over rows:
//
//   entering(t) = sum_s w_s[t - (first column)]
//   leaving(t)  = sum_s w_s[t - (end column)]
//   normaliser(i) = common + entering(a) + .. + entering(i)
//                   + leaving(i + 1) + .. + leaving(b - 1)
//
// Windows of shorter segments are added up as above.
//
//===----------------------------------------------------------------------===//

Value ConvKernel::lengthOf(Value segment) {
  return b.sub(firstColumn(b.add(segment, 1)), firstColumn(segment));
}

void ConvKernel::prepareNormalisers() {
  // As many as the columns of segments of one length, or a few tasks.
  Value share =
      b.min(b.div(numTokens, b.max(numBases, 1)), b.div(numTokens, kFewTasks));
  Value size = b.clamp(b.roundDown(share, lanes), b.index(kLeastRows),
                       b.index(kMostRows));
  forAllWindowTasks(size, kMostRows, [&](Value firstRow, Value endRow) {
    Value count = b.mul(b.ceilDiv(b.sub(endRow, firstRow), lanes), lanes);
    for (Value buffer : {entering, leaving, shortSums})
      b.loop(b.index(0), b.add(count, lanes), lanes, [&](Value at) {
        vector::StoreOp::create(b, splatWide(0.0), buffer, at);
      });
    sumShortSegments(firstRow, count);
    Value common = sumLongSegments(firstRow, count);
    sumRows(firstRow, count, common);
  });
}

void ConvKernel::sumShortSegments(Value firstRow, Value count) {
  auto isShort = [&](Value segment) {
    Value columns = lengthOf(segment);
    return b.both(b.less(b.index(0), columns), b.less(columns, count));
  };
  auto addSegment = [&](Value segment) {
    Value begin = firstColumn(segment);
    Value end = firstColumn(b.add(segment, 1));
    // Whole vectors, in some of whose rows the segment has no columns yet.
    Value first = b.roundDown(b.max(b.sub(begin, firstRow), 0), lanes);
    Value lag = b.sub(b.add(b.add(firstRow, first), 1), end);
    auto load = [&](Value lag) {
      // Before lag 0 is a vector of zeros.
      return b.loadVector(weights,
                          weightOffset(segment, b.max(lag, b.index(-lanes))));
    };
    b.ifThen(b.less(first, count), [&] {
      addWindows(first, count, lag, /*length=*/b.sub(end, begin),
                 /*size=*/b.sub(numTokens, begin), load);
    });
  };
  Value numShort =
      b.loop(b.index(0), numBases, 1, b.index(0),
             [&](Value segment, ValueRange carried) {
               Value one = b.select(isShort(segment), b.index(1), b.index(0));
               return Values{b.add(carried[0], one)};
             })[0];
  b.ifThen(b.less(b.index(0), numShort), [&] {
    clearWindows(count);
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      b.ifThen(isShort(segment), [&] { addSegment(segment); });
    });
    finishWindows(count, [&](Value at, Value sums) {
      vector::StoreOp::create(b, sums, shortSums, at);
    });
  });
}

/// Adds what enters and leaves windows of the other segments; returns what
/// those of all rows have in common.
Value ConvKernel::sumLongSegments(Value firstRow, Value count) {
  Value endRow = b.add(firstRow, count);
  int64_t group = std::clamp<int64_t>(
      getConstantIntValue(numBases).value_or(kSegments), 1, kSegments);
  auto addGroup = [&](Value firstSegment, ValueRange carried) {
    Values sums(carried);
    SmallVector<std::pair<Value, Value>> starts[2];
    for (int64_t k = 0; k < group; ++k) {
      Value index = b.add(firstSegment, k);
      Value segment = b.min(index, b.sub(numBases, b.index(1)));
      Value first = firstColumn(segment);
      Value end = firstColumn(b.add(segment, 1));
      Value isLong =
          b.both(b.less(index, numBases),
                 b.less(b.sub(count, b.index(1)), lengthOf(segment)));
      // Others have no lags but the zeros before the first.
      Value none = b.sub(b.index(-lanes), numTokens);
      Value lag = b.select(isLong, b.sub(firstRow, first), none);
      starts[0].push_back({segment, lag});
      starts[1].push_back(
          {segment, b.select(isLong, b.sub(firstRow, end), none)});
      Value low = b.max(b.sub(endRow, end), 0);
      sums = addLags(segment, low, b.max(low, lag), sums);
    }
    Value buffers[] = {entering, leaving};
    auto addVectors = [&](Value at) {
      for (auto [buffer, lags] : llvm::zip(buffers, starts)) {
        Value sum;
        for (auto [segment, start] : lags) {
          Value lag = b.max(b.add(start, at), b.index(-lanes));
          Value numbers = b.loadVector(weights, weightOffset(segment, lag));
          sum = sum ? b.fadd(sum, numbers) : numbers;
        }
        addToWindows(at, widen(sum), buffer);
      }
    };
    b.ifThen(b.less(firstColumn(firstSegment), endRow),
             [&] { b.loop(b.index(0), count, lanes, addVectors); });
    return sums;
  };
  Value inits[] = {splatWide(0.0), wide(0.0)};
  Values sums = b.loop(b.index(0), numBases, group, inits, addGroup);
  Value sum =
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, sums[0]);
  return b.fadd(sum, sums[1]);
}

/// Adds the weights of lags `[low, high)` to a vector, and those of whole
/// chunks to a number.
ConvKernel::Values ConvKernel::addLags(Value segment, Value low, Value high,
                                       ValueRange sums) {
  Value firstChunk = b.ceilDiv(low, kLagChunk);
  Value endChunk = b.div(high, kLagChunk);
  auto add = [&](Value lag, Value mask, ValueRange carried) {
    Value at = weightOffset(segment, lag);
    Value numbers =
        mask ? loadMasked(weights, at, mask, 0.0) : b.loadVector(weights, at);
    return Values{b.fadd(widen(numbers), carried[0])};
  };
  Value head = b.min(b.mul(firstChunk, kLagChunk), high);
  Value tail = b.max(b.mul(endChunk, kLagChunk), head);
  Values vectors = forEachVector(low, head, sums[0], add);
  vectors = forEachVector(tail, high, vectors, add);
  Value whole = b.loop(firstChunk, endChunk, 1, sums[1],
                       [&](Value chunk, ValueRange carried) {
                         Value sum = b.loadScalar(chunkSums, {segment, chunk});
                         return Values{b.fadd(carried[0], widen(sum))};
                       })[0];
  return {vectors[0], whole};
}

/// Stores the normalisers of a task. The sum of all rows up to one is that of a
/// vector of them and that of all up to the row a vector before.
void ConvKernel::sumRows(Value firstRow, Value count, Value common) {
  Values inits(llvm::Log2_64(lanes) + 1, splatWide(0.0));
  auto addRows = [&](Value buffer, Value at, ValueRange carried,
                     bool isBehind) {
    Value numbers = vector::LoadOp::create(b, getWideType(), buffer, at);
    Values next = addNeighbours(numbers, carried.drop_back(), isBehind);
    next.back() = b.fadd(next.back(), carried.back());
    return next;
  };
  b.loop(b.index(0), count, lanes, inits, [&](Value done, ValueRange carried) {
    Value at = b.sub(b.sub(count, b.index(lanes)), done);
    Values next = addRows(leaving, b.add(at, 1), carried, /*isBehind=*/true);
    addToWindows(at, next.back(), shortSums);
    return next;
  });
  inits.back() = vector::BroadcastOp::create(b, getWideType(), common);
  b.loop(b.index(0), count, lanes, inits, [&](Value at, ValueRange carried) {
    Values next = addRows(entering, at, carried, /*isBehind=*/false);
    Value others = vector::LoadOp::create(b, getWideType(), shortSums, at);
    storeNormalisers(b.add(firstRow, at), b.fadd(next.back(), others));
    return next;
  });
}

/// Stores the reciprocals of a vector of normalisers; 0 for rows before the
/// first column.
void ConvKernel::storeNormalisers(Value row, Value sums) {
  Value isNone = b.sub(firstColumn(b.index(0)), row);
  Value factors = arith::DivFOp::create(b, splatWide(1.0), sums);
  factors =
      arith::SelectOp::create(b, firstLanes(isNone), splatWide(0.0), factors);
  b.storeVector(narrow(factors), reciprocals, row);
}

//===----------------------------------------------------------------------===//
// Marks
//===----------------------------------------------------------------------===//

/// Finds rows whose weights are next to nothing, or whose numerator may be
/// mostly noise.
ConvKernel::Marked ConvKernel::judgeRows() {
  int64_t size = plan.block != 0 ? plan.block : kJudgedRows;
  return markTasks(size, [&](Value task, Value first, Value end) {
    return judgeBlock(task, first, end);
  });
}

ConvKernel::Marked ConvKernel::markTasks(
    int64_t size,
    function_ref<Value(Value task, Value first, Value end)> mark) {
  Value tasks = b.ceilDiv(numTokens, size);
  forAll({tasks}, [&](ValueRange task) {
    Value first = b.mul(task[0], size);
    Value end = b.min(b.add(first, size), numTokens);
    storeIndex(mark(task[0], first, end), markedOfTask, task[0]);
  });
  Value zeros[] = {b.index(0), b.index(0)};
  Values found =
      b.loop(b.index(0), tasks, 1, zeros, [&](Value task, ValueRange carried) {
        Value count = loadIndex(markedOfTask, task);
        Value end = b.mul(b.add(task, 1), size);
        return Values{b.add(carried[0], count),
                      b.select(b.equal(count, b.index(0)), carried[1], end)};
      });
  return {found[0], b.min(found[1], numTokens)};
}

/// Marks rows of `[first, end)` unless `noise` is small next to `value` times
/// their normalisers, and clears the marks of others. Returns how many.
Value ConvKernel::markRows(Value first, Value end, Value noise, Value value) {
  bool isDouble = b.getStateType().isF64();
  // What weights that underflow might have added is less than the rounding
  // error of a normaliser whose reciprocal is no more than this.
  Value most = wide(std::ldexp(1.0, isDouble ? 1022 - 54 - kLogMaxRows
                                             : 126 - 25 - kLogMaxRows));
  if (noise) {
    // NaN is not good.
    Value isNoisy =
        arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, noise, wide(0.0));
    Value ratio = arith::DivFOp::create(b, value, noise);
    most = b.select(isNoisy, arith::MinimumFOp::create(b, most, ratio), most);
  }
  if (!isDouble)
    most = arith::TruncFOp::create(b, b.getStateType(), most);
  Value bound = b.broadcast(most);
  auto countType = VectorType::get({lanes}, b.getI32Type());
  Value none = arith::ConstantOp::create(b, b.getZeroAttr(Type(countType)));
  Value begin = b.max(first, b.min(firstColumn(b.index(0)), end));
  Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/8);
  b.loop(first, begin, 1,
         [&](Value row) { memref::StoreOp::create(b, zero, marks, row); });
  auto visit = [&](Value row, Value mask, ValueRange carried) {
    Value isBad = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT,
                                        b.loadVector(reciprocals, row), bound);
    auto bytes = VectorType::get({lanes}, b.getI8Type());
    Value numbers = arith::ExtUIOp::create(b, bytes, isBad);
    if (mask) {
      isBad = arith::AndIOp::create(b, isBad, mask);
      vector::MaskedStoreOp::create(b, marks, row, mask, numbers);
    } else {
      vector::StoreOp::create(b, numbers, marks, row);
    }
    Value counts = arith::ExtUIOp::create(b, countType, isBad);
    return Values{arith::AddIOp::create(b, carried[0], counts)};
  };
  Value counts = forEachVector(begin, end, none, visit)[0];
  Value count =
      vector::ReductionOp::create(b, vector::CombiningKind::ADD, counts);
  return arith::IndexCastOp::create(b, b.getIndexType(), count);
}

Value ConvKernel::isMarked(Value row) {
  Value mark = memref::LoadOp::create(b, marks, row);
  Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/8);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, mark, zero);
}
