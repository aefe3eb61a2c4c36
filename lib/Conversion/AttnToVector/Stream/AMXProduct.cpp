//===- AMXProduct.cpp - Products of matrices of bf16 by AMX ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AMXProduct.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// Four sums, two left factors and two right ones are all eight registers.
static constexpr int64_t kSide = 2;

/// Emits `body(at, tiles)` for the tiles up to `end`, two at a time. Few are
/// written out.
static void forTiles(KernelBuilder &b, Value end,
                     function_ref<void(Value, int64_t)> body) {
  constexpr int64_t kMaxWritten = 4;
  int64_t tile = kAMXRows, step = kSide * tile;
  std::optional<int64_t> known = getConstantIntValue(end);
  if (known && *known <= kMaxWritten * tile) {
    for (int64_t at = 0; at < *known; at += step)
      body(b.index(at), std::min(kSide, (*known - at) / tile));
    return;
  }
  Value whole = b.roundDown(end, step);
  b.loop(b.index(0), whole, step, [&](Value at) { body(at, kSide); });
  b.loop(whole, end, tile, [&](Value at) { body(at, 1); });
}

void AMXProduct::emit(KernelBuilder &b) const {
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
  Value whole = b.roundDown(numRows, kSide * kAMXRows);
  auto emitRows = [&](Value row, int64_t numLeft) {
    forTiles(b, numColumns, [&](Value column, int64_t numRight) {
      emitSums(row, numLeft, column, numRight);
    });
  };
  b.loop(b.index(0), whole, kSide * kAMXRows,
         [&](Value row) { emitRows(row, kSide); });
  b.loop(whole, numRows, kAMXRows, [&](Value row) { emitRows(row, 1); });
}
