//===- SharedRows.cpp - Rows that lanes of a warp share -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/SharedRows.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr int64_t kNumThreads = 256;
/// Lanes of a row of a head: 128 bytes of them, a line, at a time.
static constexpr int64_t kLanesOfHead = 8;

void fovea::attn::launchSharedRows(KernelBuilder &host, ValueRange extents,
                                   int64_t lanes, const RowSum &sum) {
  GPUKernelBuilder k(host.getLoc(), host, kNumThreads);
  Value rows = k.index(1);
  for (Value extent : extents)
    rows = k.mul(rows, extent);
  Value blocks[] = {k.ceilDiv(k.mul(rows, lanes), kNumThreads)};
  Value block = beginBlocks(k, blocks)[0];
  Value thread = k.toIndex(k.thread()), lane = k.rem(thread, lanes);
  Value row = k.add(k.mul(block, kNumThreads / lanes), k.div(thread, lanes));
  // All lanes of a warp take part in shuffles.
  Values at = splitNumber(k, k.min(row, k.sub(rows, k.index(1))), extents);
  Value total = sum.part(k, at, lane);
  for (int64_t mask = lanes / 2; mask; mask /= 2)
    total = sum.combine(k, total, k.shuffleXor(total, mask));
  k.ifThen(k.both(k.equal(lane, k.index(0)), k.less(row, rows)),
           [&] { sum.store(k, at, total); });
}

static Value addNumbers(GPUKernelBuilder &k, Value left, Value right) {
  return k.fadd(left, right);
}

/// Columns of a row that are loaded at once.
static int64_t countColumns(Value rows) {
  int64_t bytes = getMemRefType(rows).getElementTypeBitWidth() / 8;
  return getCopyBytes(rows, bytes) / bytes;
}

/// `count` columns from `column` on, in f32.
static Values loadColumns(KernelBuilder &k, Value rows, ValueRange row,
                          Value column, int64_t count) {
  Values at(row);
  at.push_back(column);
  if (count == 1)
    return {k.loadScalar(rows, at)};
  Type element = getMemRefType(rows).getElementType();
  auto loaded =
      vector::LoadOp::create(k, VectorType::get({count}, element), rows, at);
  loaded.setAlignment(count * element.getIntOrFloatBitWidth() / 8);
  Values numbers;
  for (int64_t i : llvm::seq(count)) {
    Value number = vector::ExtractOp::create(k, loaded, i);
    if (!element.isF32())
      number = arith::ExtFOp::create(k, k.getF32Type(), number);
    numbers.push_back(number);
  }
  return numbers;
}

/// A lane's part of the sum of products of `left` and `right`, on top of `sum`.
static Value addProducts(GPUKernelBuilder &k, Value left, Value right,
                         ValueRange row, Value lane, int64_t lanes, Value sum) {
  int64_t count = std::min(countColumns(left), countColumns(right));
  return k.loop(k.mul(lane, count), k.index(getWidth(left)), lanes * count,
                {sum}, [&](Value column, ValueRange sums) -> Values {
                  Values first = loadColumns(k, left, row, column, count);
                  Values second =
                      left == right ? first
                                    : loadColumns(k, right, row, column, count);
                  Value sum = sums[0];
                  for (auto [a, b] : llvm::zip(first, second))
                    sum = k.fma(a, b, sum);
                  return {sum};
                })[0];
}

/// As many lanes as have something to load, up to those of a head.
static int64_t chooseLanes(ValueRange operands) {
  int64_t lanes = kLanesOfHead;
  for (Value rows : operands)
    lanes =
        std::min<int64_t>(lanes, llvm::bit_floor<uint64_t>(std::max<int64_t>(
                                     1, getWidth(rows) / countColumns(rows))));
  return lanes;
}

void fovea::attn::emitRowDots(KernelBuilder &host, Value left, Value right,
                              double factor, Value dots, Value minus) {
  Value extents[] = {host.extent(left, 0), host.extent(left, 1),
                     host.extent(left, 2)};
  int64_t lanes = chooseLanes({left, right});
  auto part = [&](GPUKernelBuilder &k, ValueRange at, Value lane) {
    return addProducts(k, left, right, at, lane, lanes, k.scalar(0.0));
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value total) {
    if (minus)
      total = k.fsub(total, k.loadScalar(minus, at));
    k.storeScalar(k.fmul(total, k.scalar(factor)), dots, at);
  };
  launchSharedRows(host, extents, lanes, {part, addNumbers, store});
}

void fovea::attn::emitRowSquares(
    KernelBuilder &host, ValueRange operands, Value squares,
    function_ref<Value(KernelBuilder &, ValueRange at)> extra) {
  Value extents[] = {host.extent(squares, 0), host.extent(squares, 1),
                     host.extent(squares, 2)};
  int64_t lanes = chooseLanes(operands);
  auto part = [&](GPUKernelBuilder &k, ValueRange at, Value lane) {
    Value sum = k.scalar(0.0);
    for (Value rows : operands)
      sum = addProducts(k, rows, rows, at, lane, lanes, sum);
    return sum;
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value total) {
    k.storeScalar(k.fadd(total, extra(k, at)), squares, at);
  };
  launchSharedRows(host, extents, lanes, {part, addNumbers, store});
}
