//===- LowRankKernel.cpp - What low-rank kernels share --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

LowRankKernel::LowRankKernel(OpBuilder &builder, Location loc,
                             const LowRankSum &sum, RegisterFile registers)
    : sum(sum), rank(sum.left.getNumColumns()), width(sum.value.getWidth()),
      state(getStateType(typeOf(sum.left.rows).getElementType())),
      lanes(registers.vectorBits / state.getWidth()), registers(registers),
      b(loc, builder, state, lanes), heads(b, sum) {}

void LowRankKernel::packRow(const PackedRows &source, ValueRange at,
                            Value first, Value target, Value slot,
                            int64_t columns) {
  if (source.rows)
    b.packRow(source.rows, at, first, target, slot, columns);
  else
    fillZero(b, target, slot, columns);
  if (source.scale) {
    Value factor = b.broadcast(b.loadScalar(source.scale, at));
    b.loop(b.index(0), b.index(columns), lanes, [&](Value column) {
      Value value = b.loadVector(target, {slot, column});
      b.storeVector(b.fmul(value, factor), target, {slot, column});
    });
  }
  if (source.last || source.hasOnes)
    b.storeScalar(source.last ? b.loadScalar(source.last, at) : b.scalar(1.0),
                  target, {slot, b.index(source.getWidth())});
}

void LowRankKernel::fillZero(KernelBuilder &k, Value buffer, ValueRange at,
                             int64_t columns) {
  k.loop(k.index(0), k.index(columns), k.getLanes(), [&](Value column) {
    Values indices(at);
    indices.push_back(column);
    k.storeVector(k.splat(0.0), buffer, indices);
  });
}

void LowRankKernel::storeResult(Value row, ValueRange at, Value isFirst) {
  Value total, inverse;
  if (sum.hasTotals())
    total = b.loadScalar(row, b.index(width));
  if (sum.result == LowRankSum::Result::InverseTotals)
    return b.storeScalar(invertTotalOrZero(b, total), sum.output, at);
  if (total)
    inverse = invertTotal(b, total);
  else if (sum.scale)
    inverse = b.loadScalar(sum.scale, at);
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Values indices(at);
    indices.push_back(column);
    Value value = k.loadVector(row, column);
    if (total)
      value = divideByTotal(k, value, total, inverse);
    else if (inverse)
      value = k.fmul(value, k.broadcast(inverse));
    value = addToOutput(k, value, indices, isFirst);
    k.storeVector(value, sum.output, indices);
  });
}

Value LowRankKernel::addToOutput(KernelBuilder &k, Value value,
                                 ValueRange indices, Value isFirst) {
  if (!isFirst)
    return value;
  Value before = k.loadVector(sum.output, indices);
  return k.select(isFirst, value, k.fadd(value, before));
}
