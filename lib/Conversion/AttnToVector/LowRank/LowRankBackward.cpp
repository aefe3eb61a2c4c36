//===- LowRankBackward.cpp - The gradient of low-rank attention -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of one task.
static constexpr int64_t kTaskRows = 256;

void fovea::attn::emitLowRankSum(OpBuilder &builder, Location loc,
                                 const LowRankSum &sum,
                                 RegisterFile registers) {
  if (sum.mask == RowMask::Causal)
    return emitCausalSum(builder, loc, sum, registers);
  if (sum.hasChanges())
    return emitRowChangeSum(builder, loc, sum, registers);
  emitMaskedSum(builder, loc, sum, registers);
}

/// Stores `-d_output[i] . output[i]` to `deltas`.
static void emitDeltas(RowBuilder &b, LowRankBackwardOp op, Value deltas) {
  Value dOutput = op.getDOutput(), rows = b.extent(dOutput, 2);
  int64_t width = cast<MemRefType>(dOutput.getType()).getDimSize(3);
  int64_t padded = llvm::alignTo(width, b.getLanes());
  b.forAll(
      {b.extent(dOutput, 0), b.extent(dOutput, 1), b.ceilDiv(rows, kTaskRows)},
      [&](ValueRange ivs) {
        Value zero = b.index(0);
        Value left = b.scratch({1, padded}, b.getStateType());
        Value right = b.scratch({1, padded}, b.getStateType());
        Value first = b.mul(ivs[2], kTaskRows);
        b.loop(first, b.min(b.add(first, kTaskRows), rows), 1, [&](Value row) {
          Value at[] = {ivs[0], ivs[1], row};
          b.packRow(dOutput, at, zero, left, zero, padded);
          b.packRow(op.getOutput(), at, zero, right, zero, padded);
          Value dot = b.dotPacked(left, zero, right, zero, padded);
          b.storeScalar(b.fsub(b.scalar(0.0), dot), deltas, at);
        });
        b.freeScratch();
      });
}

/// Without query heads there are no sums to store.
static void clearWithoutHeads(RowBuilder &b, Value heads, Value gradient) {
  b.ifThen(b.equal(heads, b.index(0)), [&] {
    b.forAll(
        {b.extent(gradient, 0), b.extent(gradient, 1)}, [&](ValueRange ivs) {
          b.loop(b.index(0), b.extent(gradient, 2), 1, [&](Value row) {
            int64_t width = cast<MemRefType>(gradient.getType()).getDimSize(3);
            b.forColumns(width, [&](KernelBuilder &k, Value column) {
              k.storeVector(k.splat(0.0), gradient,
                            {ivs[0], ivs[1], row, column});
            });
          });
        });
  });
}

void fovea::attn::emitLowRankBackward(OpBuilder &builder, LowRankBackwardOp op,
                                      RegisterFile registers) {
  Location loc = op.getLoc();
  Value u1 = op.getU1();
  FloatType state =
      getStateType(cast<MemRefType>(u1.getType()).getElementType());
  RowBuilder b(loc, builder, state, registers.vectorBits / state.getWidth());
  Value extents[] = {b.extent(u1, 0), b.extent(u1, 1), b.extent(u1, 2)};
  Value inverses = b.allocate(extents, {}, state);
  Value deltas = b.allocate(extents, {}, state);
  emitDeltas(b, op, deltas);

  forGradientSums(op, inverses, deltas, [&](const LowRankSum &sum) {
    emitLowRankSum(builder, loc, sum, registers);
  });
  clearWithoutHeads(b, extents[1], op.getDU2());
  clearWithoutHeads(b, extents[1], op.getDValue());
  memref::DeallocOp::create(b, inverses);
  memref::DeallocOp::create(b, deltas);
}
