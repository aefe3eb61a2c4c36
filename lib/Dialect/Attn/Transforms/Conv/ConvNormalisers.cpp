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
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace fovea::attn;

/// Rows that a sequence has at most, for bounds of sums.
static constexpr int kLogMaxRows = 20;
/// Windows of a task, and what their number is chosen for: a task reads what is
/// before its own windows again.
static constexpr int64_t kLeastWindows = 256, kMostWindows = 4096,
                         kWindowTasks = 32;
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

void ConvKernel::chooseWindowTasks() {
  Value share = b.clamp(b.ceilDiv(numTokens, kWindowTasks),
                        b.index(kLeastWindows), b.index(kMostWindows));
  windowsOfTask = b.mul(b.ceilDiv(share, lanes), lanes);
}

void ConvKernel::forAllWindowTasks(function_ref<void(Value, Value)> body) {
  Value behind = b.add(numTokens, b.sub(windowsOfTask, b.index(1)));
  forAll({b.div(behind, windowsOfTask)}, [&](ValueRange task) {
    // The last windows need the strides of a vector more.
    int64_t most = getConstantIntValue(windowsOfTask).value_or(kMostWindows);
    for (Value *buffer : {&strides, &suffixes, &rests})
      *buffer = b.scratch({most + lanes}, b.getF64Type());
    Value first = b.mul(task[0], windowsOfTask);
    body(first, b.min(b.add(first, windowsOfTask), numTokens));
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

void ConvKernel::finishWindows(Value count,
                               function_ref<void(Value, Value)> store) {
  // Adds neighbours at a distance of half a vector, a quarter and so on:
  // `later` has what the vector behind gave at each.
  auto join = [&](Value at, ValueRange later) {
    Value sums = vector::LoadOp::create(b, getWideType(), strides, at);
    Values found;
    for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
      SmallVector<int64_t> moved(lanes);
      std::iota(moved.begin(), moved.end(), distance);
      found.push_back(sums);
      Value other = later[found.size() - 1];
      sums = b.fadd(sums, vector::ShuffleOp::create(b, sums, other, moved));
    }
    found.push_back(sums);
    return found;
  };
  Value vectors = b.ceilDiv(count, lanes);
  Values unknown(llvm::Log2_64(lanes), splatWide(0.0));
  Values behind = join(b.mul(vectors, lanes), unknown);
  b.loop(b.index(0), vectors, 1, ValueRange(behind).drop_back(),
         [&](Value done, ValueRange later) {
           Value index = b.sub(b.sub(vectors, b.index(1)), done);
           Value at = b.mul(index, lanes);
           Values found = join(at, later);
           Value rest = vector::LoadOp::create(b, getWideType(), rests, at);
           store(at, b.fadd(found.pop_back_val(), rest));
           return found;
         });
}

//===----------------------------------------------------------------------===//
// Normalisers
//===----------------------------------------------------------------------===//

/// Row i adds up, for every segment, the weights of the lags from i - (its last
/// column) to i - (its first column): a window that moves with i.
void ConvKernel::prepareNormalisers() {
  forAllWindowTasks([&](Value firstRow, Value endRow) {
    Value count = b.sub(endRow, firstRow);
    clearWindows(count);
    b.loop(b.index(0), numBases, 1, [&](Value segment) {
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
    });
    finishWindows(count, [&](Value at, Value sums) {
      storeNormalisers(b.add(firstRow, at), sums);
    });
  });
}

/// Stores a vector of normalisers and their reciprocals; 0 for rows before the
/// first column.
void ConvKernel::storeNormalisers(Value row, Value sums) {
  vector::StoreOp::create(b, sums, normalisers, row);
  Value isNone = b.sub(firstColumn(b.index(0)), row);
  Value factors = arith::DivFOp::create(b, splatWide(1.0), sums);
  factors =
      arith::SelectOp::create(b, firstLanes(isNone), splatWide(0.0), factors);
  if (!b.getStateType().isF64())
    factors = arith::TruncFOp::create(b, b.getVectorType(), factors);
  b.storeVector(factors, reciprocals, row);
}

//===----------------------------------------------------------------------===//
// Marks
//===----------------------------------------------------------------------===//

/// Finds rows whose weights are next to nothing, or whose numerator may be
/// mostly noise.
ConvKernel::Marked ConvKernel::judgeRows() {
  int64_t size = plan.block != 0 ? plan.block : kJudgedRows;
  Value tasks = b.ceilDiv(numTokens, size);
  forAll({tasks}, [&](ValueRange task) {
    Value first = b.mul(task[0], size);
    Value end = b.min(b.add(first, size), numTokens);
    storeIndex(judgeBlock(task[0], first, end), markedOfTask, task[0]);
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
  // error of a normaliser as large as this.
  Value least = splatWide(std::ldexp(1.0, isDouble ? -1022 + 54 + kLogMaxRows
                                                   : -126 + 25 + kLogMaxRows));
  auto broadcast = [&](Value number) {
    return number ? vector::BroadcastOp::create(b, getWideType(), number)
                  : Value();
  };
  Value noises = broadcast(noise), values = broadcast(value);
  auto countType = VectorType::get({lanes}, b.getI32Type());
  Value none = arith::ConstantOp::create(b, b.getZeroAttr(Type(countType)));
  Value begin = b.max(first, b.min(firstColumn(b.index(0)), end));
  Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/8);
  b.loop(first, begin, 1,
         [&](Value row) { memref::StoreOp::create(b, zero, marks, row); });
  auto visit = [&](Value row, Value mask, ValueRange carried) {
    Value sums = vector::LoadOp::create(b, getWideType(), normalisers, row);
    // NaN is not good.
    Value isBad =
        arith::CmpFOp::create(b, arith::CmpFPredicate::ULT, sums, least);
    if (noise) {
      Value isNoisy = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT,
                                            noises, b.fmul(values, sums));
      isBad = arith::OrIOp::create(b, isBad, isNoisy);
    }
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
