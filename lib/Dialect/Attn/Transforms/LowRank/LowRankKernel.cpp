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
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace fovea::attn;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

LowRankKernel::LowRankKernel(OpBuilder &builder, LowRankOp op,
                             RegisterFile registers)
    : op(op), rank(typeOf(op.getU1()).getDimSize(3)),
      width(typeOf(op.getValue()).getDimSize(3)),
      state(getStateType(typeOf(op.getU1()).getElementType())),
      lanes(registers.vectorBits / state.getWidth()),
      vectors(registers.count >= 32 ? 6 : 2),
      accumulators(registers.count >= 32 ? 24 : 8),
      b(op.getLoc(), builder, state, lanes) {}

int64_t LowRankKernel::tileRows(int64_t count) const {
  uint64_t rows = std::max<int64_t>(accumulators / count, 1);
  return std::min<int64_t>(llvm::bit_floor(rows), kMaxTileRows);
}

Value LowRankKernel::keyHead(Value head) {
  return b.div(head, b.div(b.extent(op.getU1(), 1), b.extent(op.getU2(), 1)));
}

void LowRankKernel::fillZero(KernelBuilder &k, Value buffer, ValueRange at,
                             int64_t columns) {
  k.loop(k.index(0), k.index(columns), k.getLanes(), [&](Value column) {
    Values indices(at);
    indices.push_back(column);
    k.storeVector(k.splat(0.0), buffer, indices);
  });
}

void LowRankKernel::addCompensated(KernelBuilder &k, Value part, Value sums,
                                   Value carries, ValueRange at) {
  Value old = k.loadVector(sums, at);
  Value added = k.fsub(part, k.loadVector(carries, at));
  Value sum = k.fadd(old, added);
  k.storeVector(k.fsub(k.fsub(sum, old), added), carries, at);
  k.storeVector(sum, sums, at);
}

void LowRankKernel::addProducts(Value left, Value right, Value depth,
                                Value sums, int64_t columns, Value carries) {
  int64_t numVectors = columns / lanes;
  int64_t numPanels = llvm::divideCeil(numVectors, vectors);
  for (int64_t panel = 0; panel < numPanels; ++panel) {
    int64_t first = numVectors * panel / numPanels;
    int64_t count = numVectors * (panel + 1) / numPanels - first;
    int64_t rows = tileRows(count);
    auto column = [&](int64_t v) { return b.index((first + v) * lanes); };
    auto addTile = [&](Value d) {
      auto step = [&](Value j, ValueRange running) {
        Values next(running), rights;
        for (int64_t v = 0; v < count; ++v)
          rights.push_back(b.loadVector(right, {j, column(v)}));
        for (int64_t i = 0; i < rows; ++i) {
          Value factor = b.broadcast(b.loadScalar(left, {j, b.add(d, i)}));
          for (int64_t v = 0; v < count; ++v)
            next[i * count + v] = b.fma(factor, rights[v], next[i * count + v]);
        }
        return next;
      };
      Values zeros(rows * count, b.splat(0.0));
      Values tile = b.loop(b.index(0), depth, 1, zeros, step);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t v = 0; v < count; ++v) {
          Value part = tile[i * count + v];
          Value at[] = {b.add(d, i), column(v)};
          if (carries)
            addCompensated(b, part, sums, carries, at);
          else
            b.storeVector(b.fadd(b.loadVector(sums, at), part), sums, at);
        }
    };
    b.loop(b.index(0), b.index(llvm::alignTo(rank, rows)), rows, addTile);
  }
}

void LowRankKernel::storeMeans(Value row, ValueRange at) {
  Value total = b.loadScalar(row, b.index(width)), inverse = invert(total);
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Values indices(at);
    indices.push_back(column);
    Value mean = divide(k, k.loadVector(row, column), total, inverse);
    k.storeVector(mean, op.getOutput(), indices);
  });
}

Value LowRankKernel::invert(Value total) {
  return arith::DivFOp::create(b, b.scalar(1.0), total);
}

Value LowRankKernel::divide(KernelBuilder &k, Value value, Value total,
                            Value inverse) {
  // The difference is zero, or NaN for an infinity.
  Value mean =
      k.fmul(k.fadd(value, k.fsub(value, value)), k.broadcast(inverse));
  Value isZero =
      arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, total, k.scalar(0.0));
  return arith::SelectOp::create(k, isZero, k.splat(0.0), mean);
}
