//===- ConvNormalisers.cpp - Sums of windows of weights -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvNormalisers.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

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

WindowSums::WindowSums(ConvBuilder &b, int64_t room) : b(b) {
  // The last windows need the strides of a vector more.
  for (Value *buffer : {&strides, &suffixes, &rests})
    *buffer = b.scratch({room + b.getLanes()}, b.getF64Type());
}

void WindowSums::forAllTasks(ConvBuilder &b, Value size,
                             function_ref<void(Value, Value)> body) {
  Value behind = b.add(b.numTokens, b.sub(size, b.index(1)));
  b.forAll({b.div(behind, size)}, [&](ValueRange task) {
    Value first = b.mul(task[0], size);
    body(first, b.min(b.add(first, size), b.numTokens));
  });
}

void WindowSums::clear(Value count) {
  for (Value buffer : {strides, rests})
    b.clearWide(buffer, b.add(count, b.getLanes()));
}

static void addTo(ConvBuilder &b, Value at, Value sums, Value buffer) {
  b.storeWide(b.fadd(b.loadWide(buffer, at), sums), buffer, at);
}

void WindowSums::add(Value first, Value end, Value start, Value length,
                     Value size, function_ref<Value(Value)> load) {
  int64_t lanes = b.getLanes();
  Value whole = b.div(length, lanes), rest = b.rem(length, lanes);
  Value vectors = b.ceilDiv(b.sub(end, first), lanes);
  auto loadVector = [&](Value index) {
    return b.widen(load(b.add(start, b.mul(index, lanes))));
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
      Value sums = b.loop(b.index(0), rest, 1, b.splatWide(0.0),
                          [&](Value place, ValueRange carried) {
                            Value numbers = b.widen(load(b.add(origin, place)));
                            return Values{b.fadd(numbers, carried[0])};
                          })[0];
      addTo(b, b.add(first, at), sums, rests);
    });
  });
}

/// At most as many windows as each has vectors, one vector apart. All have the
/// vectors from the first one of the last window to the last one of the first
/// window, of which `shared` may have numbers that are not zero; the sum of a
/// window is that of these, of those before them from its own first on, and of
/// those behind them up to its own last.
void WindowSums::addRun(Value at, Value size, Value count, ValueRange shared,
                        function_ref<Value(Value)> load) {
  Value zeros = b.splatWide(0.0);
  auto placeOf = [&](Value index) {
    return b.add(at, b.mul(index, b.getLanes()));
  };
  b.loop(b.index(0), count, 1, zeros, [&](Value done, ValueRange carried) {
    Value index = b.sub(b.sub(count, b.index(1)), done);
    Value sums = b.fadd(load(index), carried[0]);
    b.storeWide(sums, suffixes, placeOf(index));
    return Values{sums};
  });
  auto add = [&](Value index, ValueRange carried) {
    return Values{b.fadd(load(index), carried[0])};
  };
  Value sum = b.loop(shared[0], shared[1], 1, zeros, add)[0];
  b.loop(b.index(0), count, 1, sum, [&](Value index, ValueRange carried) {
    Value suffix = b.loadWide(suffixes, placeOf(index));
    addTo(b, placeOf(index), b.fadd(suffix, carried[0]), strides);
    return add(b.add(size, index), carried);
  });
}

/// Adds to each lane the `lanes - 1` behind it, or before it, some of which are
/// those of a neighbour: at half a vector's distance, a quarter's and so on.
/// Returns what every step started from, which is what the next vector needs of
/// its `neighbour`, and the sums.
static Values addNeighbours(ConvBuilder &b, Value sums, ValueRange neighbour,
                            bool isBehind) {
  Values found;
  int64_t lanes = b.getLanes();
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

void WindowSums::finish(Value count, function_ref<void(Value, Value)> store) {
  int64_t lanes = b.getLanes();
  auto join = [&](Value at, ValueRange behind) {
    return addNeighbours(b, b.loadWide(strides, at), behind, /*isBehind=*/true);
  };
  Value vectors = b.ceilDiv(count, lanes);
  Values unknown(llvm::Log2_64(lanes), b.splatWide(0.0));
  Values behind = join(b.mul(vectors, lanes), unknown);
  b.loop(b.index(0), vectors, 1, ValueRange(behind).drop_back(),
         [&](Value done, ValueRange behind) {
           Value index = b.sub(b.sub(vectors, b.index(1)), done);
           Value at = b.mul(index, lanes);
           Values found = join(at, behind);
           Value rest = b.loadWide(rests, at);
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

namespace {
/// The normalisers of rows `[firstRow, firstRow + count)`, whole vectors.
class RowSums {
public:
  RowSums(ConvBuilder &b, ConvSegments &segments, ConvProfiles &profiles,
          int64_t room, Value firstRow, Value endRow);
  /// `store` takes vectors of the normalisers.
  void emit(function_ref<void(Value row, Value sums)> store);

private:
  void addShortSegments();
  void addShortSegment(Value segment);
  Value isShort(Value segment);
  Value addLongSegments();
  Values addGroup(Value firstSegment, int64_t size, ValueRange sums);
  Values addRows(Value buffer, Value at, ValueRange carried, bool isBehind);

  ConvBuilder &b;
  ConvSegments &segments;
  ConvProfiles &profiles;
  WindowSums windows;
  Value entering, leaving, shortSums;
  Value firstRow, count;
};
} // namespace

RowSums::RowSums(ConvBuilder &b, ConvSegments &segments, ConvProfiles &profiles,
                 int64_t room, Value firstRow, Value endRow)
    : b(b), segments(segments), profiles(profiles), windows(b, room),
      firstRow(firstRow) {
  int64_t lanes = b.getLanes();
  for (Value *buffer : {&entering, &leaving, &shortSums})
    *buffer = b.scratch({room + lanes}, b.getF64Type());
  count = b.mul(b.ceilDiv(b.sub(endRow, firstRow), lanes), lanes);
  for (Value buffer : {entering, leaving, shortSums})
    b.clearWide(buffer, b.add(count, lanes));
}

Value RowSums::isShort(Value segment) {
  Value columns = segments.length(segment);
  return b.both(b.less(b.index(0), columns), b.less(columns, count));
}

void RowSums::addShortSegments() {
  Value numShort =
      b.loop(b.index(0), b.numBases, 1, b.index(0),
             [&](Value segment, ValueRange carried) {
               Value one = b.select(isShort(segment), b.index(1), b.index(0));
               return Values{b.add(carried[0], one)};
             })[0];
  b.ifThen(b.less(b.index(0), numShort), [&] {
    windows.clear(count);
    b.loop(b.index(0), b.numBases, 1, [&](Value segment) {
      b.ifThen(isShort(segment), [&] { addShortSegment(segment); });
    });
    windows.finish(
        count, [&](Value at, Value sums) { b.storeWide(sums, shortSums, at); });
  });
}

void RowSums::addShortSegment(Value segment) {
  int64_t lanes = b.getLanes();
  Value begin = segments.first(segment), end = segments.end(segment);
  // Whole vectors, in some of whose rows the segment has no columns yet.
  Value first = b.roundDown(b.max(b.sub(begin, firstRow), 0), lanes);
  Value lag = b.sub(b.add(b.add(firstRow, first), 1), end);
  auto load = [&](Value lag) {
    // Before lag 0 is a vector of zeros.
    return profiles.loadWeights(segment, b.max(lag, b.index(-lanes)));
  };
  b.ifThen(b.less(first, count), [&] {
    windows.add(first, count, lag, /*length=*/b.sub(end, begin),
                /*size=*/b.sub(b.numTokens, begin), load);
  });
}

/// Adds what enters and leaves windows of the other segments; returns what
/// those of all rows have in common.
Value RowSums::addLongSegments() {
  int64_t size = std::clamp<int64_t>(
      getConstantIntValue(b.numBases).value_or(kSegments), 1, kSegments);
  Value inits[] = {b.splatWide(0.0), b.wide(0.0)};
  Values sums = b.loop(b.index(0), b.numBases, size, inits,
                       [&](Value firstSegment, ValueRange carried) {
                         return addGroup(firstSegment, size, carried);
                       });
  return b.fadd(sumLanes(b, sums[0]), sums[1]);
}

Values RowSums::addGroup(Value firstSegment, int64_t size, ValueRange carried) {
  int64_t lanes = b.getLanes();
  Values sums(carried);
  Value endRow = b.add(firstRow, count);
  SmallVector<std::pair<Value, Value>> starts[2];
  for (int64_t k = 0; k < size; ++k) {
    Value index = b.add(firstSegment, k);
    Value segment = b.min(index, b.sub(b.numBases, b.index(1)));
    Value first = segments.first(segment), end = segments.end(segment);
    Value isLong =
        b.both(b.less(index, b.numBases),
               b.less(b.sub(count, b.index(1)), segments.length(segment)));
    // Others have no lags but the zeros before the first.
    Value none = b.sub(b.index(-lanes), b.numTokens);
    Value lag = b.select(isLong, b.sub(firstRow, first), none);
    starts[0].push_back({segment, lag});
    starts[1].push_back(
        {segment, b.select(isLong, b.sub(firstRow, end), none)});
    Value low = b.max(b.sub(endRow, end), 0);
    sums = profiles.addLags(segment, low, b.max(low, lag), sums);
  }
  Value buffers[] = {entering, leaving};
  auto addVectors = [&](Value at) {
    for (auto [buffer, lags] : llvm::zip(buffers, starts)) {
      Value sum;
      for (auto [segment, start] : lags) {
        Value lag = b.max(b.add(start, at), b.index(-lanes));
        Value numbers = profiles.loadWeights(segment, lag);
        sum = sum ? b.fadd(sum, numbers) : numbers;
      }
      addTo(b, at, b.widen(sum), buffer);
    }
  };
  b.ifThen(b.less(segments.first(firstSegment), endRow),
           [&] { b.loop(b.index(0), count, lanes, addVectors); });
  return sums;
}

/// The sum of all rows up to one is that of a vector of them and that of all up
/// to the row a vector before.
Values RowSums::addRows(Value buffer, Value at, ValueRange carried,
                        bool isBehind) {
  Values next =
      addNeighbours(b, b.loadWide(buffer, at), carried.drop_back(), isBehind);
  next.back() = b.fadd(next.back(), carried.back());
  return next;
}

void RowSums::emit(function_ref<void(Value, Value)> store) {
  addShortSegments();
  Value common = addLongSegments();
  int64_t lanes = b.getLanes();
  Values inits(llvm::Log2_64(lanes) + 1, b.splatWide(0.0));
  b.loop(b.index(0), count, lanes, inits, [&](Value done, ValueRange carried) {
    Value at = b.sub(b.sub(count, b.index(lanes)), done);
    Values next = addRows(leaving, b.add(at, 1), carried, /*isBehind=*/true);
    addTo(b, at, next.back(), shortSums);
    return next;
  });
  inits.back() = vector::BroadcastOp::create(b, b.getWideType(), common);
  b.loop(b.index(0), count, lanes, inits, [&](Value at, ValueRange carried) {
    Values next = addRows(entering, at, carried, /*isBehind=*/false);
    Value others = b.loadWide(shortSums, at);
    store(b.add(firstRow, at), b.fadd(next.back(), others));
    return next;
  });
}

ConvNormalisers::ConvNormalisers(ConvBuilder &b, ConvSegments &segments,
                                 ConvProfiles &profiles)
    : b(b), segments(segments), profiles(profiles) {
  Value rows = b.mul(b.ceilDiv(b.numTokens, b.getLanes()), b.getLanes());
  // Vectors of rows begin anywhere.
  reciprocals = b.allocate(b.getStateType(), {b.add(rows, b.getLanes())});
}

void ConvNormalisers::prepare() {
  // As many as the columns of segments of one length, or a few tasks.
  Value share = b.min(b.div(b.numTokens, b.max(b.numBases, 1)),
                      b.div(b.numTokens, kFewTasks));
  Value size = b.clamp(b.roundDown(share, b.getLanes()), b.index(kLeastRows),
                       b.index(kMostRows));
  int64_t room = getConstantIntValue(size).value_or(kMostRows);
  // Rows before the first column have no normaliser.
  auto store = [&](Value row, Value sums) {
    Value isNone = b.sub(segments.first(), row), zeros = b.splatWide(0.0);
    Value factors = arith::DivFOp::create(b, b.splatWide(1.0), sums);
    factors = arith::SelectOp::create(b, b.firstLanes(isNone), zeros, factors);
    b.storeVector(b.narrow(factors), reciprocals, row);
  };
  WindowSums::forAllTasks(b, size, [&](Value firstRow, Value endRow) {
    RowSums(b, segments, profiles, room, firstRow, endRow).emit(store);
  });
}

//===----------------------------------------------------------------------===//
// Marks
//===----------------------------------------------------------------------===//

ConvMarks::ConvMarks(ConvBuilder &b, ConvSegments &segments,
                     const ConvNormalisers &normalisers)
    : b(b), segments(segments), normalisers(normalisers),
      marks(b.allocate(b.getI8Type(), {b.numTokens})),
      markedOfTask(b.allocate(b.getIndexType(), {b.numTokens})) {}

ConvMarks::Marked ConvMarks::judge(MarkTask judgeBlock) {
  return forAllTasks(b.plan.block != 0 ? b.plan.block : kJudgedRows,
                     judgeBlock);
}

ConvMarks::Marked ConvMarks::forAllTasks(int64_t size, MarkTask mark) {
  Value tasks = b.ceilDiv(b.numTokens, size);
  b.forAll({tasks}, [&](ValueRange task) {
    Value first = b.mul(task[0], size);
    Value end = b.min(b.add(first, size), b.numTokens);
    b.storeIndex(mark(task[0], first, end), markedOfTask, task[0]);
  });
  Value zeros[] = {b.index(0), b.index(0)};
  Values found =
      b.loop(b.index(0), tasks, 1, zeros, [&](Value task, ValueRange carried) {
        Value count = b.loadIndex(markedOfTask, task);
        Value end = b.mul(b.add(task, 1), size);
        return Values{b.add(carried[0], count),
                      b.select(b.equal(count, b.index(0)), carried[1], end)};
      });
  return {found[0], b.min(found[1], b.numTokens)};
}

/// What the reciprocals of rows that are not marked are at most, in f64.
Value ConvMarks::greatestReciprocal(Value noise, Value value) {
  Value most = b.wide(getMostReciprocal(b.getStateType()));
  if (!noise)
    return most;
  // NaN is not good.
  Value isNoisy = b.compare(arith::CmpFPredicate::UGT, noise, b.wide(0.0));
  Value ratio = arith::DivFOp::create(b, value, noise);
  return b.select(isNoisy, arith::MinimumFOp::create(b, most, ratio), most);
}

Value ConvMarks::mark(Value first, Value end, Value noise, Value value) {
  Value most = greatestReciprocal(noise, value);
  if (!b.getStateType().isF64())
    most = arith::TruncFOp::create(b, b.getStateType(), most);
  Value bound = b.broadcast(most);
  auto countType = VectorType::get({b.getLanes()}, b.getI32Type());
  Value none = arith::ConstantOp::create(b, b.getZeroAttr(Type(countType)));
  Value begin = b.max(first, b.min(segments.first(), end));
  Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/8);
  b.loop(first, begin, 1,
         [&](Value row) { memref::StoreOp::create(b, zero, marks, row); });
  auto visit = [&](Value row, Value mask, ValueRange carried) {
    Value isBad = b.compare(arith::CmpFPredicate::UGT,
                            b.loadVector(normalisers.reciprocals, row), bound);
    auto bytes = VectorType::get({b.getLanes()}, b.getI8Type());
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
  Value counts = b.forEachVector(begin, end, none, visit)[0];
  return arith::IndexCastOp::create(
      b, b.getIndexType(), b.reduce(vector::CombiningKind::ADD, counts));
}

Value ConvMarks::isMarked(Value row) {
  Value mark = memref::LoadOp::create(b, marks, row);
  Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/8);
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, mark, zero);
}

void ConvMarks::set(Value row, Value isMarked) {
  Value mark = arith::ExtUIOp::create(b, b.getI8Type(), isMarked);
  memref::StoreOp::create(b, mark, marks, row);
}
