//===- LowRankSums.cpp - What sums of all masks share ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of one team.
static constexpr int64_t kTeamRows = 256;

void fovea::attn::storeResult(TeamBuilder &b, const LowRankSum &sum,
                              ValueRange at, TeamBuilder::ColumnValue load) {
  Value total, width = b.index(sum.value.getWidth());
  if (sum.hasTotals()) {
    KernelBuilder one(b.getLoc(), b, b.getStateType(), /*lanes=*/0);
    total = load(one, width);
  }
  storeResult(b, sum, at, b.index(0), width, total, load);
}

void fovea::attn::storeResult(TeamBuilder &b, const LowRankSum &sum,
                              ValueRange at, Value first, Value last,
                              Value total, TeamBuilder::ColumnValue load) {
  if (sum.result == LowRankSum::Result::InverseTotals)
    return b.single(
        [&] { b.storeScalar(invertTotalOrZero(b, total), sum.output, at); });
  Value factor;
  if (total)
    factor = invertTotal(b, total);
  else if (sum.scale)
    factor = b.loadScalar(sum.scale, at);
  b.forColumns(first, last, [&](KernelBuilder &k, Value column) {
    Values place(at);
    place.push_back(column);
    Value value = load(k, column);
    if (total)
      value = divideByTotal(k, value, total, factor);
    else if (factor)
      value = k.fmul(value, k.broadcast(factor));
    k.storeVector(value, sum.output, place);
  });
}

/// Stores `-d_output[i] . output[i]` to `deltas`.
static void emitDeltas(TeamBuilder &b, LowRankBackwardOp op, Value deltas) {
  Value dOutput = op.getDOutput(), rows = b.extent(dOutput, 2);
  int64_t width = cast<MemRefType>(dOutput.getType()).getDimSize(3);
  int64_t chunk = b.getRowsPerTeam(kTeamRows);
  Value grid[] = {b.extent(dOutput, 0), b.extent(dOutput, 1),
                  b.ceilDiv(rows, chunk)};
  b.forTeams(grid, [&](ValueRange point) {
    Value first = b.mul(point[2], chunk);
    b.loop(first, b.min(b.add(first, chunk), rows), 1, [&](Value row) {
      Value at[] = {point[0], point[1], row};
      auto addProduct = [&](KernelBuilder &k, Value column, Value sum) {
        Value place[] = {point[0], point[1], row, column};
        return k.fma(k.loadVector(dOutput, place),
                     k.loadVector(op.getOutput(), place), sum);
      };
      Value dot = b.foldColumns(vector::CombiningKind::ADD, 0.0, b.index(0),
                                b.index(width), addProduct);
      b.single([&] { b.storeScalar(b.fsub(b.scalar(0.0), dot), deltas, at); });
    });
  });
}

void fovea::attn::emitLowRankGradient(
    TeamBuilder &b, LowRankBackwardOp op,
    function_ref<void(const LowRankSum &)> emitSum) {
  Value u1 = op.getU1();
  Value extents[] = {b.extent(u1, 0), b.extent(u1, 1), b.extent(u1, 2)};
  Value inverses = b.allocate(extents, {}, b.getStateType());
  Value deltas = b.allocate(extents, {}, b.getStateType());
  emitDeltas(b, op, deltas);
  forGradientSums(op, inverses, deltas, emitSum);
  memref::DeallocOp::create(b, inverses);
  memref::DeallocOp::create(b, deltas);
}
