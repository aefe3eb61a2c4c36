//===- AMXProduct.cpp - Products of matrices of bf16 by AMX ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PairProduct.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Four sums and the factors of one of them, of which one side is read once,
/// are at most all eight registers.
static constexpr int64_t kSums = 4, kSide = 2;

/// Calls `body(at)` for the tiles of `[low, high)`, `count` at a time. Few are
/// written out.
static void forTiles(KernelBuilder &b, Value low, Value high, int64_t count,
                     function_ref<void(Value)> body) {
  constexpr int64_t kMaxWritten = 4;
  std::optional<int64_t> first = getConstantIntValue(low),
                         last = getConstantIntValue(high);
  if (!first || !last || *last - *first > kMaxWritten * kAMXRows)
    return b.loop(low, high, count * kAMXRows, body);
  for (int64_t at = *first; at < *last; at += count * kAMXRows)
    body(b.index(at));
}

/// Emits `body(at, count)` for all tiles up to `end`, as many at once as there
/// may be sums.
static void forSums(KernelBuilder &b, Value end,
                    function_ref<void(Value, int64_t)> body) {
  Value low = b.index(0);
  for (int64_t count = kSums; count > 0; count /= 2) {
    Value high = b.roundDown(end, count * kAMXRows);
    forTiles(b, low, high, count, [&](Value at) { body(at, count); });
    low = high;
  }
}

void PairProduct::emitTiles(KernelBuilder &b, EachStep each) const {
  Type sumType = amx::TileType::get({kAMXRows, kAMXRows}, b.getF32Type());
  Type factorType = amx::TileType::get({kAMXRows, kAMXDepth}, b.getBF16Type());
  auto emitSums = [&](Value row, int64_t numLeft, Value column,
                      int64_t numRight) {
    auto forEachSum = [&](auto body) {
      for (int64_t i = 0; i < numLeft; ++i)
        for (int64_t j = 0; j < numRight; ++j)
          body(i * numRight + j,
               KernelBuilder::Values{b.add(b.add(sumsRow, row), i * kAMXRows),
                                     b.add(column, j * kAMXRows)});
    };
    KernelBuilder::Values running;
    forEachSum([&](int64_t, const KernelBuilder::Values &at) {
      if (addsToSums)
        running.push_back(amx::TileLoadOp::create(b, sumType, sums, at));
      else
        running.push_back(amx::TileZeroOp::create(b, sumType));
    });
    auto step = [&](Value k, ValueRange running) {
      if (each)
        each({row, column, k, numLeft * kAMXRows, numRight * kAMXRows});
      KernelBuilder::Values next, factors;
      Value pair = b.add(rightRow, b.div(k, 2));
      for (int64_t i = 0; i < numLeft; ++i) {
        Value factor = amx::TileLoadOp::create(
            b, factorType, left,
            ValueRange{b.add(b.add(leftRow, row), i * kAMXRows),
                       b.add(leftColumn, k)});
        for (int64_t j = 0; j < numRight; ++j) {
          if (i == 0)
            factors.push_back(amx::TileLoadOp::create(
                b, factorType, right,
                ValueRange{pair, b.mul(b.add(column, j * kAMXRows), 2)}));
          next.push_back(amx::TileMulFOp::create(b, sumType, factor, factors[j],
                                                 running[i * numRight + j]));
        }
      }
      return next;
    };
    running = b.loop(b.index(0), depth, kAMXDepth, running, step);
    forEachSum([&](int64_t i, const KernelBuilder::Values &at) {
      amx::TileStoreOp::create(b, sums, at, running[i]);
    });
  };
  // Squares of sums first: each factor is multiplied twice. What is left is a
  // row and a column of tiles.
  constexpr int64_t step = kSide * kAMXRows;
  Value zero = b.index(0);
  Value wholeRows = b.roundDown(numRows, step),
        wholeColumns = b.roundDown(numColumns, step);
  forTiles(b, zero, wholeRows, kSide, [&](Value row) {
    forTiles(b, zero, wholeColumns, kSide,
             [&](Value column) { emitSums(row, kSide, column, kSide); });
  });
  forTiles(b, wholeColumns, numColumns, 1, [&](Value column) {
    forSums(b, wholeRows,
            [&](Value row, int64_t count) { emitSums(row, count, column, 1); });
  });
  forTiles(b, wholeRows, numRows, 1, [&](Value row) {
    forSums(b, numColumns, [&](Value column, int64_t count) {
      emitSums(row, 1, column, count);
    });
  });
}
