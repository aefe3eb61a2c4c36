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
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Rows that a sequence has at most, for bounds of sums.
static constexpr int kLogMaxRows = 20;
/// Windows that a task sums at least, and tasks at most: a task reads what is
/// before its own windows again.
static constexpr int64_t kLeastWindows = 256, kWindowTasks = 32;

//===----------------------------------------------------------------------===//
// Sums of windows
//===----------------------------------------------------------------------===//

void ConvKernel::allocateWindowSums() {
  Value share = b.max(b.ceilDiv(numTokens, kWindowTasks), kLeastWindows);
  windowsOfTask = b.mul(b.ceilDiv(share, lanes), lanes);
  windowTasks =
      b.div(b.add(numTokens, b.sub(windowsOfTask, b.index(1))), windowsOfTask);
  suffixes = allocate(b.getF64Type(), {windowTasks, windowsOfTask});
}

void ConvKernel::forAllWindowTasks(
    function_ref<void(Value, Value, Value)> body) {
  forAll({windowTasks}, [&](ValueRange task) {
    Value first = b.mul(task[0], windowsOfTask);
    body(task[0], first, b.min(b.add(first, windowsOfTask), numTokens));
  });
}

/// Sums of the first elements of a vector, or of the last.
Value ConvKernel::scan(Value numbers, bool isBackward) {
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(numbers.getType()));
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    SmallVector<int64_t> mask;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t from = isBackward ? lane + distance : lane - distance;
      mask.push_back(from >= 0 && from < lanes ? from : lanes);
    }
    numbers =
        b.fadd(numbers, vector::ShuffleOp::create(b, numbers, zeros, mask));
  }
  return numbers;
}

void ConvKernel::sumWindows(Value task, Value start, Value length, Value count,
                            function_ref<Value(Value)> load,
                            function_ref<void(Value, Value, Value)> store) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  auto sumShort = [&] {
    b.loop(b.index(0), count, lanes, [&](Value window) {
      Value first = b.add(start, window);
      Value sums = b.loop(b.index(0), length, 1, zeros,
                          [&](Value at, ValueRange carried) {
                            Value numbers = widen(load(b.add(first, at)));
                            return Values{b.fadd(numbers, carried[0])};
                          })[0];
      store(window, firstLanes(b.sub(count, window)), sums);
    });
  };
  auto sumLong = [&] {
    Value before = b.sub(length, b.index(1));
    Value runs = b.div(b.add(count, before), length);
    b.loop(b.index(0), runs, 1, [&](Value run) {
      Value window = b.mul(run, length);
      Value runCount = b.min(length, b.sub(count, window));
      sumRun(task, b.add(start, window), length, runCount, load,
             [&](Value at, Value mask, Value sums) {
               store(b.add(window, at), mask, sums);
             });
    });
  };
  b.ifThenElse(b.less(length, b.index(lanes + 1)), sumShort, sumLong);
}

/// At most as many windows as each is long. All have the elements from the
/// first one of the last window to the last one of the first window; the sum of
/// a window is that of these, of those before them from its own first on, and
/// of those behind them up to its own last. Nothing is ever subtracted.
void ConvKernel::sumRun(Value task, Value start, Value length, Value count,
                        function_ref<Value(Value)> load,
                        function_ref<void(Value, Value, Value)> store) {
  auto wideType = VectorType::get({lanes}, b.getF64Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(Type(wideType)));
  Value vectors = b.ceilDiv(count, lanes);
  Value before = b.sub(count, b.index(1)), last = b.sub(length, b.index(1));
  auto loadFirst = [&](Value at, Value end) -> Value {
    return arith::SelectOp::create(b, firstLanes(b.sub(end, at)),
                                   widen(load(b.add(start, at))), zeros);
  };
  auto spread = [&](Value sums, int64_t lane) -> Value {
    return vector::BroadcastOp::create(
        b, wideType, vector::ExtractOp::create(b, sums, lane));
  };
  b.loop(b.index(0), vectors, 1, zeros, [&](Value done, ValueRange carried) {
    Value at = b.mul(b.sub(vectors, b.add(done, 1)), lanes);
    Value sums = scan(loadFirst(at, before), /*isBackward=*/true);
    sums = b.fadd(sums, carried[0]);
    vector::StoreOp::create(b, sums, suffixes, ValueRange{task, at});
    return Values{spread(sums, 0)};
  });
  Value shared =
      b.loop(before, last, lanes, zeros, [&](Value at, ValueRange carried) {
        return Values{b.fadd(loadFirst(at, last), carried[0])};
      })[0];
  shared = vector::ReductionOp::create(b, vector::CombiningKind::ADD, shared);
  shared = vector::BroadcastOp::create(b, wideType, shared);
  b.loop(b.index(0), count, lanes, shared, [&](Value at, ValueRange carried) {
    Value numbers = widen(load(b.add(start, b.add(last, at))));
    Value sums = b.fadd(scan(numbers, /*isBackward=*/false), carried[0]);
    Value suffix =
        vector::LoadOp::create(b, wideType, suffixes, ValueRange{task, at});
    store(at, firstLanes(b.sub(count, at)), b.fadd(sums, suffix));
    return Values{spread(sums, lanes - 1)};
  });
}

//===----------------------------------------------------------------------===//
// Normalisers
//===----------------------------------------------------------------------===//

/// Row i adds up, for every segment, the weights of the lags from i - (its last
/// column) to i - (its first column): a window that moves with i.
void ConvKernel::prepareNormalisers() {
  forAllWindowTasks([&](Value task, Value firstRow, Value endRow) {
    b.loop(firstRow, endRow, 1, [&](Value row) {
      memref::StoreOp::create(b, wide(0.0), normalisers, row);
    });
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
      Value first = firstColumn(segment), row = b.max(firstRow, first);
      Value length = b.sub(firstColumn(b.add(segment, 1)), first);
      Value count = b.max(b.sub(endRow, row), 0);
      Value lag = b.sub(b.add(b.sub(row, first), 1), length);
      auto load = [&](Value lag) {
        // Before lag 0 is a vector of zeros.
        return b.loadVector(weights,
                            weightOffset(segment, b.max(lag, b.index(-lanes))));
      };
      auto store = [&](Value at, Value mask, Value sums) {
        Value place = b.add(row, at);
        Value old = loadMasked(normalisers, place, mask, 0.0);
        vector::MaskedStoreOp::create(b, normalisers, place, mask,
                                      b.fadd(old, sums));
      };
      sumWindows(task, lag, length, count, load, store);
    });
  });
}

void ConvKernel::invertNormalisers() {
  Value begin = firstColumn(b.index(0));
  b.loop(b.index(0), begin, 1,
         [&](Value row) { b.storeScalar(b.scalar(0.0), reciprocals, row); });
  Type wideType = VectorType::get({lanes}, b.getF64Type());
  Value ones = vector::BroadcastOp::create(b, wideType, wide(1.0));
  b.loop(begin, numTokens, lanes, [&](Value row) {
    Value mask = firstLanes(b.sub(numTokens, row));
    Value divisors = loadMasked(normalisers, row, mask, 1.0);
    Value factors = arith::DivFOp::create(b, ones, divisors);
    if (!b.getStateType().isF64())
      factors = arith::TruncFOp::create(b, b.getVectorType(), factors);
    vector::MaskedStoreOp::create(b, reciprocals, row, mask, factors);
  });
}

/// Finds rows whose weights are next to nothing, or whose numerator may be
/// mostly noise.
Value ConvKernel::judgeRows() {
  bool isDouble = b.getStateType().isF64();
  // What weights that underflow might have added is less than the rounding
  // error of a normaliser as large as this.
  Value least = wide(std::ldexp(1.0, isDouble ? -1022 + 54 + kLogMaxRows
                                              : -126 + 25 + kLogMaxRows));
  Value begin = firstColumn(b.index(0));
  b.loop(b.index(0), begin, 1,
         [&](Value row) { storeIndex(b.index(0), marks, row); });
  auto judge = [&](Value row, ValueRange carried) {
    Value normaliser = memref::LoadOp::create(b, normalisers, row);
    Value isGood =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, normaliser, least);
    if (Value isQuiet = this->isQuiet(row, normaliser))
      isGood = b.both(isGood, isQuiet);
    Value mark = b.select(isGood, b.index(0), b.index(1));
    storeIndex(mark, marks, row);
    return Values{b.add(carried[0], mark)};
  };
  return b.loop(begin, numTokens, 1, b.index(0), judge)[0];
}
