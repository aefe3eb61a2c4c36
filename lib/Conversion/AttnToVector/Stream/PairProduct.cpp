//===- PairProduct.cpp - Products of matrices of bf16 by vectors ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PairProduct.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Sums in registers, which cover the latency of an instruction, and vectors of
/// columns that share the pairs of a row.
static constexpr int64_t kSums = 16, kVectors = 4, kMaxRows = 8;

Value fovea::attn::alignToDepth(KernelBuilder &b, Value rows) {
  return b.roundDown(b.add(rows, kAMXDepth - 1), kAMXDepth);
}

VectorType fovea::attn::getNarrow(KernelBuilder &b, int64_t elements) {
  return VectorType::get({elements}, b.getBF16Type());
}

Value fovea::attn::dotPairs(KernelBuilder &b, Value one, Value other,
                            Value sums) {
  return x86vector::DotBF16Op::create(b, sums.getType(), sums, one, other);
}

Value fovea::attn::broadcastPair(KernelBuilder &b, int64_t lanes, Value memref,
                                 ValueRange indices) {
  Type i32 = b.getI32Type();
  Value pair = vector::LoadOp::create(b, getNarrow(b, 2), memref, indices);
  Value bits = vector::BitCastOp::create(b, VectorType::get({1}, i32), pair);
  Value all =
      vector::BroadcastOp::create(b, VectorType::get({lanes}, i32), bits);
  return vector::BitCastOp::create(b, getNarrow(b, 2 * lanes), all);
}

void PairProduct::emit(KernelBuilder &b, EachStep each) const {
  byAMX ? emitTiles(b, each) : emitVectors(b, each);
}

void PairProduct::emitVectors(KernelBuilder &b, EachStep each) const {
  constexpr int64_t lanes = kAMXRows;
  auto sumType = VectorType::get({lanes}, b.getF32Type());
  VectorType pairType = getNarrow(b, 2 * lanes);
  auto emitSums = [&](Value row, int64_t rows, Value column, int64_t vectors) {
    Values at, running;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t v = 0; v < vectors; ++v) {
        Value place[] = {b.add(b.add(sumsRow, row), i),
                         b.add(column, v * lanes)};
        llvm::append_range(at, place);
        running.push_back(addsToSums ? Value(vector::LoadOp::create(
                                           b, sumType, sums, ValueRange(place)))
                                     : b.splat(0.0));
      }
    auto addPair = [&](Value k, ValueRange running) {
      Values factors, next;
      Value pair = b.add(rightRow, b.div(k, 2));
      for (int64_t v = 0; v < vectors; ++v)
        factors.push_back(vector::LoadOp::create(
            b, pairType, right,
            ValueRange{pair, b.mul(b.add(column, v * lanes), 2)}));
      for (int64_t i = 0; i < rows; ++i) {
        Value factor = broadcastPair(
            b, lanes, left,
            {b.add(b.add(leftRow, row), i), b.add(leftColumn, k)});
        for (Value other : factors)
          next.push_back(dotPairs(b, factor, other, running[next.size()]));
      }
      return next;
    };
    auto step = [&](Value k, ValueRange running) {
      if (each)
        each({row, column, k, rows, vectors * lanes});
      return b.loop(k, b.add(k, kAMXDepth), 2, running, addPair);
    };
    running = b.loop(b.index(0), depth, kAMXDepth, running, step);
    for (auto [i, total] : llvm::enumerate(running))
      vector::StoreOp::create(b, total, sums,
                              ValueRange{at[2 * i], at[2 * i + 1]});
  };
  // A panel of the right factor stays in the first cache level.
  Value low = b.index(0);
  for (int64_t vectors = kVectors; vectors > 0; vectors /= 2) {
    int64_t columns = vectors * lanes,
            rows = std::min(kSums / vectors, kMaxRows);
    Value high = b.roundDown(numColumns, columns);
    b.loop(low, high, columns, [&](Value column) {
      b.loop(b.index(0), numRows, rows,
             [&](Value row) { emitSums(row, rows, column, vectors); });
    });
    low = high;
  }
}
