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

LowRankKernel::LowRankKernel(OpBuilder &builder, LowRankOp op,
                             RegisterFile registers)
    : op(op), rank(typeOf(op.getU1()).getDimSize(3)),
      width(typeOf(op.getValue()).getDimSize(3)),
      state(getStateType(typeOf(op.getU1()).getElementType())),
      lanes(registers.vectorBits / state.getWidth()),
      vectors(registers.count >= 32 ? 4 : 2),
      b(op.getLoc(), builder, state, lanes) {}

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
  b.loop(
      b.index(0), b.index(llvm::alignTo(rank, kTileRows)), kTileRows,
      [&](Value d) {
        for (int64_t first = 0; first < numVectors; first += vectors) {
          int64_t count = std::min(vectors, numVectors - first);
          auto column = [&](int64_t v) { return b.index((first + v) * lanes); };
          Values tile(kTileRows * count, b.splat(0.0));
          tile = b.loop(
              b.index(0), depth, 1, tile, [&](Value j, ValueRange running) {
                Values next(running), rights;
                for (int64_t v = 0; v < count; ++v)
                  rights.push_back(b.loadVector(right, {j, column(v)}));
                for (int64_t i = 0; i < kTileRows; ++i) {
                  Value factor =
                      b.broadcast(b.loadScalar(left, {j, b.add(d, i)}));
                  for (int64_t v = 0; v < count; ++v)
                    next[i * count + v] =
                        b.fma(factor, rights[v], next[i * count + v]);
                }
                return next;
              });
          for (int64_t i = 0; i < kTileRows; ++i)
            for (int64_t v = 0; v < count; ++v) {
              Value part = tile[i * count + v];
              Value at[] = {b.add(d, i), column(v)};
              if (carries)
                addCompensated(b, part, sums, carries, at);
              else
                b.storeVector(b.fadd(b.loadVector(sums, at), part), sums, at);
            }
        }
      });
}

void LowRankKernel::storeMeans(Value row, ValueRange at) {
  Value total = b.loadScalar(row, b.index(width));
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Values indices(at);
    indices.push_back(column);
    Value mean = divide(k, k.loadVector(row, column), k.broadcast(total));
    k.storeVector(mean, op.getOutput(), indices);
  });
}

Value LowRankKernel::divide(KernelBuilder &k, Value value, Value total) {
  Value zero = k.splat(0.0);
  // The difference is zero, or NaN for an infinity.
  Value mean =
      arith::DivFOp::create(k, k.fadd(value, k.fsub(value, value)), total);
  Value isZero =
      arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, total, zero);
  return arith::SelectOp::create(k, isZero, zero, mean);
}
