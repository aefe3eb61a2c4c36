//===- LowRankKernel.cpp - What low-rank kernels share --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace fovea::attn;

static MemRefType typeOf(Value memref) {
  return cast<MemRefType>(memref.getType());
}

LowRankKernel::LowRankKernel(OpBuilder &builder, Location loc,
                             const LowRankSum &sum, RegisterFile registers)
    : sum(sum), rank(sum.left.getNumColumns()), width(sum.value.getWidth()),
      state(getStateType(typeOf(sum.left.rows).getElementType())),
      lanes(registers.vectorBits / state.getWidth()),
      vectors(registers.count >= 32 ? 6 : 2),
      accumulators(registers.count >= 32 ? 24 : 8),
      b(loc, builder, state, lanes) {}

int64_t LowRankKernel::tileRows(int64_t count) const {
  uint64_t rows = std::max<int64_t>(accumulators / count, 1);
  return std::min<int64_t>(llvm::bit_floor(rows), kMaxTileRows);
}

Value LowRankKernel::numQueryHeads() {
  return b.extent(sum.transposed ? sum.right.rows : sum.left.rows, 1);
}

Value LowRankKernel::columnHead(Value head) {
  if (sum.transposed)
    return head;
  Value shared = b.div(numRowHeads(), b.extent(sum.right.rows, 1));
  return b.div(head, shared);
}

void LowRankKernel::forQueryHeads(Value rowHead,
                                  llvm::function_ref<void(Value, Value)> body) {
  if (!sum.transposed)
    return body(rowHead, /*isFirst=*/Value());
  Value shared = b.div(numQueryHeads(), numRowHeads());
  Value first = b.mul(rowHead, shared);
  if (getConstantIntValue(shared) == 1)
    return body(first, /*isFirst=*/Value());
  b.loop(b.index(0), shared, 1, [&](Value member) {
    body(b.add(first, member), b.equal(member, b.index(0)));
  });
}

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

void LowRankKernel::addCompensated(KernelBuilder &k, Value part, Value sums,
                                   Value carries, ValueRange at) {
  Value old = k.loadVector(sums, at);
  Value added = k.fsub(part, k.loadVector(carries, at));
  Value sum = k.fadd(old, added);
  k.storeVector(k.fsub(k.fsub(sum, old), added), carries, at);
  k.storeVector(sum, sums, at);
}

void LowRankKernel::addProducts(Value left, Value right, Value depth,
                                Value before, Value sums, int64_t columns) {
  auto addPanel = [&](Value first, int64_t count) {
    int64_t rows = tileRows(count);
    auto column = [&](int64_t v) { return b.add(first, v * lanes); };
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
          b.storeVector(b.fadd(b.loadVector(before, at), part), sums, at);
        }
    };
    b.loop(b.index(0), b.index(llvm::alignTo(rank, rows)), rows, addTile);
  };
  // Few panels are alike in width and written out. Many would be much code.
  constexpr int64_t kMaxWritten = 16;
  int64_t numVectors = columns / lanes, whole = 0;
  if (numVectors > kMaxWritten * vectors) {
    whole = llvm::alignDown(numVectors, vectors);
    b.loop(b.index(0), b.index(whole * lanes), vectors * lanes,
           [&](Value first) { addPanel(first, vectors); });
  }
  int64_t rest = numVectors - whole;
  int64_t numPanels = llvm::divideCeil(rest, vectors);
  for (int64_t panel = 0; panel < numPanels; ++panel) {
    int64_t first = rest * panel / numPanels;
    int64_t count = rest * (panel + 1) / numPanels - first;
    addPanel(b.index((whole + first) * lanes), count);
  }
}

void LowRankKernel::storeResult(Value row, ValueRange at, Value isFirst) {
  Value total, inverse;
  if (sum.hasTotals())
    total = b.loadScalar(row, b.index(width));
  if (sum.result == LowRankSum::Result::InverseTotals)
    return b.storeScalar(invertOrZero(total), sum.output, at);
  if (total)
    inverse = invert(total);
  else if (sum.scale)
    inverse = b.loadScalar(sum.scale, at);
  b.forColumns(width, [&](KernelBuilder &k, Value column) {
    Values indices(at);
    indices.push_back(column);
    Value value = k.loadVector(row, column);
    if (total)
      value = divide(k, value, total, inverse);
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

Value LowRankKernel::invert(Value total) {
  return arith::DivFOp::create(b, b.scalar(1.0), total);
}

Value LowRankKernel::invertOrZero(Value total) {
  Value isZero =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, b.scalar(0.0));
  Value finite = b.fadd(total, b.fsub(total, total));
  return b.select(isZero, b.scalar(0.0), invert(finite));
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
