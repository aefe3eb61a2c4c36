//===- GPULowRankLoops.cpp - What masks share on a GPU, and causal ones ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Causal rows are cut in chunks of L rows and the L keys on their diagonal:
//
//   C[t] = U2^T [V, 1] of chunk t                        all chunks at once
//   C[t] = C[0] + .. + C[t - 1]                          a compensated scan
//   S = lower triangle of U1 U2^T                        [L][L] for each chunk
//   rows = [U1, S] [C[t]; V, 1]                          one product
//
//===----------------------------------------------------------------------===//

#include "GPULaunch.h"
#include "GPULowRankKernels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// What masks share
//===----------------------------------------------------------------------===//

LowRankLoops::LowRankLoops(OpBuilder &builder, LowRankOp op, F32Math math)
    : op(op), b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
      math(math), rank(cast<MemRefType>(op.getU1().getType()).getDimSize(3)),
      width(cast<MemRefType>(op.getValue().getType()).getDimSize(3)),
      columns(width + 1), batches(b.extent(op.getU1(), 0)),
      heads(b.extent(op.getU1(), 1)), keyHeads(b.extent(op.getU2(), 1)),
      // Without heads there are no key heads to divide by.
      headsOfKey(b.max(b.div(heads, b.max(keyHeads, 1)), 1)),
      numRows(b.extent(op.getU1(), 2)), numKeys(b.extent(op.getU2(), 2)) {}

void LowRankLoops::emit() {
  rows = allocate({batches, heads, numRows}, {columns}, b.getF32Type());
  emitRows();
  divideRows();
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
}

Value LowRankLoops::allocate(ArrayRef<Value> leading,
                             ArrayRef<int64_t> trailing, Type type) {
  return buffers.emplace_back(b.allocate(leading, trailing, type));
}

Value LowRankLoops::loadValue(KernelBuilder &k, Value batch, Value keyHead,
                              Value key, Value column) {
  return k.select(
      k.less(column, k.index(width)), k.getF32Type(),
      [&] {
        return k.loadScalar(op.getValue(), {batch, keyHead, key, column});
      },
      [&] { return k.scalar(1.0); });
}

Value LowRankLoops::loadPart(RowBuilder &k, unsigned part, Value batch,
                             Value head, Value position) {
  Value buffer = op.getMaskParts()[part];
  return k.loadIndex(buffer, {k.broadcastIndex(buffer, 0, batch),
                              k.broadcastIndex(buffer, 1, head), position});
}

/// A row without weights is zero, and an infinity is NaN.
void LowRankLoops::divideRows() {
  parallelLoop(
      b, {batches, heads, numRows, b.index(width)}, [&](ValueRange at) {
        Value total = b.loadScalar(rows, {at[0], at[1], at[2], b.index(width)});
        Value zero = b.scalar(0.0), sum = b.loadScalar(rows, at);
        sum = b.fadd(sum, b.fsub(sum, sum));
        Value isZero =
            arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total, zero);
        Value mean = arith::DivFOp::create(b, sum, total);
        b.storeScalar(b.select(isZero, zero, mean), op.getOutput(), at);
      });
}

//===----------------------------------------------------------------------===//
// Causal masks
//===----------------------------------------------------------------------===//

namespace {
class CausalLoops : public LowRankLoops {
public:
  CausalLoops(OpBuilder &builder, LowRankOp op, F32Math math)
      : LowRankLoops(builder, op, math),
        // As much work in a triangle as in what comes before it.
        chunk(std::min<int64_t>(llvm::alignTo(rank, kTileRows), kMaxChunk)) {}

private:
  static constexpr int64_t kMaxChunk = 512;

  void emitRows() override;
  void emitSums();
  void scanSums();
  void emitTriangles();
  void emitProduct();

  /// The first key of a chunk, which may be negative.
  Value firstKey(KernelBuilder &k, Value number) {
    return k.add(offset, k.mul(number, chunk));
  }
  Value isKey(KernelBuilder &k, Value key) {
    return k.both(k.less(k.index(-1), key), k.less(key, numKeys));
  }

  int64_t chunk;
  /// Chunks of rows; those of keys before the first diagonal; all of them.
  Value numDiagonals, numBefore, numChunks, offset;
  Value sums, triangles;
};
} // namespace

void CausalLoops::emitRows() {
  Value diagonal = b.sub(numKeys, numRows);
  numDiagonals = b.ceilDiv(numRows, chunk);
  numBefore = b.ceilDiv(b.max(diagonal, 0), chunk);
  numChunks = b.add(numDiagonals, numBefore);
  offset = b.sub(diagonal, b.mul(numBefore, chunk));
  sums =
      allocate({batches, keyHeads, numChunks}, {rank, columns}, b.getF32Type());
  triangles =
      allocate({batches, heads, numDiagonals}, {chunk, chunk}, b.getF32Type());
  emitSums();
  scanSums();
  emitTriangles();
  emitProduct();
}

void CausalLoops::emitSums() {
  auto depth = [&](GPUKernelBuilder &k, ValueRange at, Value, Value) {
    Value first = firstKey(k, at[2]);
    return std::pair(k.max(first, 0), k.min(k.add(first, chunk), numKeys));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value key) {
    return k.loadScalar(op.getU2(), {at[0], at[1], key, d});
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value key,
                   Value column) {
    return loadValue(k, at[0], at[1], key, column);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column,
                   Value sum) {
    k.storeScalar(sum, sums, {at[0], at[1], at[2], d, column});
  };
  // Nothing comes after the last chunk.
  Value count = b.max(b.sub(numChunks, b.index(1)), 0);
  TileProduct product = {{batches, keyHeads, count},
                         b.index(rank),
                         columns,
                         depth,
                         left,
                         right,
                         store};
  product.leftAlongRows = true;
  emitTileProduct(b, math, product);
}

/// Sums of all chunks before each one.
void CausalLoops::scanSums() {
  parallelLoop(b, {batches, keyHeads, b.index(rank), b.index(columns)},
               [&](ValueRange at) {
                 auto place = [&](Value number) {
                   return Values{at[0], at[1], number, at[2], at[3]};
                 };
                 Value zero = b.scalar(0.0),
                       last = b.sub(numChunks, b.index(1));
                 Values totals = b.loop(
                     b.index(0), last, 1, {zero, zero},
                     [&](Value number, ValueRange carried) -> Values {
                       Value part = b.loadScalar(sums, place(number));
                       b.storeScalar(carried[0], sums, place(number));
                       // What the sum before has lost (Kahan).
                       Value added = b.fsub(part, carried[1]);
                       Value sum = b.fadd(carried[0], added);
                       return {sum, b.fsub(b.fsub(sum, carried[0]), added)};
                     });
                 b.ifThen(b.less(b.index(0), numChunks),
                          [&] { b.storeScalar(totals[0], sums, place(last)); });
               });
}

void CausalLoops::emitTriangles() {
  auto depth = [&](GPUKernelBuilder &k, ValueRange, Value row, Value column) {
    // Tiles above the diagonal are zero.
    Value isBelow = k.less(column, k.add(row, kTileRows));
    return std::pair(k.index(0), k.select(isBelow, k.index(rank), k.index(0)));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value d) {
    Value row = k.add(k.mul(at[2], chunk), i);
    return k.select(
        k.less(row, numRows), k.getF32Type(),
        [&] { return k.loadScalar(op.getU1(), {at[0], at[1], row, d}); },
        [&] { return k.scalar(0.0); });
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value j) {
    Value key = k.add(firstKey(k, k.add(at[2], numBefore)), j);
    return k.select(
        isKey(k, key), k.getF32Type(),
        [&] {
          return k.loadScalar(op.getU2(), {at[0], keyHead(k, at[1]), key, d});
        },
        [&] { return k.scalar(0.0); });
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value j,
                   Value sum) {
    sum = k.select(k.less(i, j), k.scalar(0.0), sum);
    k.storeScalar(sum, triangles, {at[0], at[1], at[2], i, j});
  };
  TileProduct product = {{batches, heads, numDiagonals},
                         b.index(chunk),
                         chunk,
                         depth,
                         left,
                         right,
                         store};
  product.rightAlongDepth = true;
  emitTileProduct(b, math, product);
}

void CausalLoops::emitProduct() {
  auto depth = [&](GPUKernelBuilder &k, ValueRange, Value row, Value) {
    return std::pair(k.index(0),
                     k.add(k.min(k.add(row, kTileRows), chunk), rank));
  };
  auto isBefore = [&](KernelBuilder &k, Value at) {
    return k.less(at, k.index(rank));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value d) {
    Value row = k.add(k.mul(at[2], chunk), i);
    auto loadRow = [&] {
      return k.loadScalar(op.getU1(), {at[0], at[1], row, d});
    };
    auto loadWeight = [&] {
      Value key = k.sub(d, k.index(rank));
      return k.loadScalar(triangles, {at[0], at[1], at[2], i, key});
    };
    return k.select(
        k.less(row, numRows), k.getF32Type(),
        [&] {
          return k.select(isBefore(k, d), k.getF32Type(), loadRow, loadWeight);
        },
        [&] { return k.scalar(0.0); });
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column) {
    Value group = keyHead(k, at[1]), number = k.add(at[2], numBefore);
    auto loadSum = [&] {
      return k.loadScalar(sums, {at[0], group, number, d, column});
    };
    auto loadOwn = [&] {
      Value key = k.add(firstKey(k, number), k.sub(d, k.index(rank)));
      return k.select(
          isKey(k, key), k.getF32Type(),
          [&] { return loadValue(k, at[0], group, key, column); },
          [&] { return k.scalar(0.0); });
    };
    return k.select(isBefore(k, d), k.getF32Type(), loadSum, loadOwn);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value column,
                   Value sum) {
    Value row = k.add(k.mul(at[2], chunk), i);
    k.ifThen(k.less(row, numRows),
             [&] { k.storeScalar(sum, rows, {at[0], at[1], row, column}); });
  };
  TileProduct product = {{batches, heads, numDiagonals},
                         b.index(chunk),
                         columns,
                         depth,
                         left,
                         right,
                         store};
  emitTileProduct(b, math, product);
}

void fovea::attn::emitCausalLowRankLoops(OpBuilder &builder, LowRankOp op,
                                         F32Math math) {
  CausalLoops(builder, op, math).emit();
}

void fovea::attn::emitLowRankLoops(OpBuilder &builder, LowRankOp op,
                                   F32Math math) {
  switch (op.getMask()) {
  case RowMask::Causal:
    return emitCausalLowRankLoops(builder, op, math);
  case RowMask::RowChange:
    return emitRowChangeLowRankLoops(builder, op, math);
  case RowMask::RowInterval:
  case RowMask::DistinctRows:
  case RowMask::DistinctColumns:
    return emitMaskedLowRankLoops(builder, op, math);
  }
  llvm_unreachable("unknown mask");
}
