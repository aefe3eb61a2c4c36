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

#include "GPULowRankKernels.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

//===----------------------------------------------------------------------===//
// What masks share
//===----------------------------------------------------------------------===//

LowRankLoops::LowRankLoops(OpBuilder &builder, Location loc,
                           const LowRankSum &sum, F32Math math)
    : sum(sum), b(loc, builder, builder.getF32Type(), /*lanes=*/0), math(math),
      rank(sum.left.getNumColumns()), width(sum.value.getWidth()),
      columns(width + sum.hasTotals()), batches(b.extent(sum.left.rows, 0)),
      columnHeads(b.extent(sum.right.rows, 1)),
      numRows(b.extent(sum.left.rows, 2)),
      numColumns(b.extent(sum.right.rows, 2)) {
  Value rowHeads = b.extent(sum.left.rows, 1);
  heads = sum.transposed ? columnHeads : rowHeads;
  Value others = sum.transposed ? rowHeads : columnHeads;
  // Without heads there are no others to divide by.
  sharing = b.max(b.div(heads, b.max(others, 1)), 1);
}

void LowRankLoops::emit() {
  rows = allocate({batches, heads, numRows}, {columns}, b.getF32Type());
  emitRows();
  switch (sum.result) {
  case LowRankSum::Result::Means:
    storeMeans();
    break;
  case LowRankSum::Result::InverseTotals:
    storeInverses();
    break;
  case LowRankSum::Result::Sums:
    storeSums();
    break;
  }
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
}

Value LowRankLoops::allocate(ArrayRef<Value> leading,
                             ArrayRef<int64_t> trailing, Type type) {
  return buffers.emplace_back(b.allocate(leading, trailing, type));
}

/// Column `column` of packed row `at`.
static Value loadPacked(KernelBuilder &k, const PackedRows &source,
                        ValueRange at, Value column) {
  auto loadLast = [&] {
    return source.last ? k.loadScalar(source.last, at) : k.scalar(1.0);
  };
  auto loadRow = [&] {
    Values place(at);
    place.push_back(column);
    Value number = k.loadScalar(source.rows, place);
    return source.scale ? k.fmul(number, k.loadScalar(source.scale, at))
                        : number;
  };
  if (!source.rows)
    return loadLast();
  if (source.getNumColumns() == source.getWidth())
    return loadRow();
  return k.select(k.less(column, k.index(source.getWidth())), k.getF32Type(),
                  loadRow, loadLast);
}

Value LowRankLoops::loadLeft(KernelBuilder &k, Value batch, Value head,
                             Value row, Value d) {
  return loadPacked(k, sum.left, {batch, rowHead(k, head), row}, d);
}

Value LowRankLoops::loadRight(KernelBuilder &k, Value batch, Value columnHead,
                              Value column, Value d) {
  return loadPacked(k, sum.right, {batch, columnHead, column}, d);
}

Value LowRankLoops::loadValue(KernelBuilder &k, Value batch, Value columnHead,
                              Value column, Value e) {
  PackedRows counted = sum.value;
  counted.hasOnes = sum.hasTotals();
  return loadPacked(k, counted, {batch, columnHead, column}, e);
}

/// `number / total`: 0 where the total is, NaN where the number is infinite.
static Value divideByTotal(KernelBuilder &k, Value number, Value total) {
  Value zero = k.scalar(0.0);
  Value isZero =
      arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ, total, zero);
  number = k.fadd(number, k.fsub(number, number));
  Value mean = arith::DivFOp::create(k, number, total);
  return k.select(isZero, zero, mean);
}

void LowRankLoops::storeMeans() {
  parallelLoop(
      b, {batches, heads, numRows, b.index(width)}, [&](ValueRange at) {
        Value total = b.loadScalar(rows, {at[0], at[1], at[2], b.index(width)});
        b.storeScalar(divideByTotal(b, b.loadScalar(rows, at), total),
                      sum.output, at);
      });
}

void LowRankLoops::storeInverses() {
  parallelLoop(b, {batches, heads, numRows}, [&](ValueRange at) {
    Value total = b.loadScalar(rows, {at[0], at[1], at[2], b.index(0)});
    // An infinite total is NaN.
    total = b.fadd(total, b.fsub(total, total));
    b.storeScalar(divideByTotal(b, b.scalar(1.0), total), sum.output, at);
  });
}

/// Heads that share a row are added in order.
void LowRankLoops::storeSums() {
  Value rowHeads = b.extent(sum.output, 1), one = b.index(1);
  Value count = sum.transposed ? b.div(heads, b.max(rowHeads, 1)) : one;
  parallelLoop(
      b, {batches, rowHeads, numRows, b.index(width)}, [&](ValueRange at) {
        Value first = b.mul(at[1], count);
        Value total = b.loop(
            b.index(0), count, 1, {b.scalar(0.0)},
            [&](Value member, ValueRange total) -> Values {
              Value place[] = {at[0], b.add(first, member), at[2], at[3]};
              return {b.fadd(total[0], b.loadScalar(rows, place))};
            })[0];
        if (sum.scale)
          total = b.fmul(total, b.loadScalar(sum.scale, {at[0], at[1], at[2]}));
        b.storeScalar(total, sum.output, at);
      });
}

//===----------------------------------------------------------------------===//
// Causal masks
//===----------------------------------------------------------------------===//

namespace {
class CausalLoops : public LowRankLoops {
public:
  CausalLoops(OpBuilder &builder, Location loc, const LowRankSum &sum,
              F32Math math)
      : LowRankLoops(builder, loc, sum, math),
        // As much work in a triangle as in what comes before it.
        chunk(std::min<int64_t>(llvm::alignTo(rank, kTileRows), kMaxChunk)) {}

private:
  static constexpr int64_t kMaxChunk = 512;

  void emitRows() override;
  void emitSums();
  void scanSums();
  void emitTriangles();
  void emitProduct();

  /// Where number `number` of `total` rows or keys lies: a transposed mask is
  /// causal from the last ones on.
  Value position(KernelBuilder &k, Value number, Value total) {
    return sum.transposed ? k.sub(k.sub(total, k.index(1)), number) : number;
  }
  Value loadRow(KernelBuilder &k, ValueRange at, Value row, Value d) {
    return loadLeft(k, at[0], at[1], position(k, row, numRows), d);
  }
  /// Of a key of a query head, and of the last column's.
  Value loadKey(KernelBuilder &k, Value batch, Value head, Value key, Value d) {
    return loadRight(k, batch, head, position(k, key, numColumns), d);
  }
  Value loadKeyValue(KernelBuilder &k, Value batch, Value head, Value key,
                     Value e) {
    return loadValue(k, batch, head, position(k, key, numColumns), e);
  }
  /// The first key of a chunk, which may be negative.
  Value firstKey(KernelBuilder &k, Value number) {
    return k.add(offset, k.mul(number, chunk));
  }
  Value isKey(KernelBuilder &k, Value key) {
    return k.both(k.less(k.index(-1), key), k.less(key, numColumns));
  }

  int64_t chunk;
  /// Chunks of rows; those of keys before the first diagonal; all of them.
  Value numDiagonals, numBefore, numChunks, offset;
  Value sums, triangles;
};
} // namespace

void CausalLoops::emitRows() {
  Value diagonal = sum.transposed ? b.index(0) : b.sub(numColumns, numRows);
  numDiagonals = b.ceilDiv(numRows, chunk);
  numBefore = b.ceilDiv(b.max(diagonal, 0), chunk);
  numChunks = b.add(numDiagonals, numBefore);
  offset = b.sub(diagonal, b.mul(numBefore, chunk));
  sums = allocate({batches, columnHeads, numChunks}, {rank, columns},
                  b.getF32Type());
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
    return std::pair(k.max(first, 0), k.min(k.add(first, chunk), numColumns));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value key) {
    return loadKey(k, at[0], at[1], key, d);
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value key,
                   Value column) {
    return loadKeyValue(k, at[0], at[1], key, column);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column,
                   Value sum) {
    k.storeScalar(sum, sums, {at[0], at[1], at[2], d, column});
  };
  // Nothing comes after the last chunk.
  Value count = b.max(b.sub(numChunks, b.index(1)), 0);
  TileProduct product = {{batches, columnHeads, count},
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
  parallelLoop(b, {batches, columnHeads, b.index(rank), b.index(columns)},
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
        [&] { return loadRow(k, at, row, d); }, [&] { return k.scalar(0.0); });
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value j) {
    Value key = k.add(firstKey(k, k.add(at[2], numBefore)), j);
    return k.select(
        isKey(k, key), k.getF32Type(),
        [&] { return loadKey(k, at[0], columnHead(k, at[1]), key, d); },
        [&] { return k.scalar(0.0); });
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value j,
                   Value sum) {
    sum = k.select(k.less(i, j), getHiddenWeight(k), makeRead(k, sum));
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
    auto loadOwn = [&] { return makeRead(k, loadRow(k, at, row, d)); };
    auto loadWeight = [&] {
      Value key = k.sub(d, k.index(rank));
      return k.loadScalar(triangles, {at[0], at[1], at[2], i, key});
    };
    return k.select(
        k.less(row, numRows), k.getF32Type(),
        [&] {
          return k.select(isBefore(k, d), k.getF32Type(), loadOwn, loadWeight);
        },
        [&] { return k.scalar(0.0); });
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column) {
    Value group = columnHead(k, at[1]), number = k.add(at[2], numBefore);
    auto loadSum = [&] {
      return k.loadScalar(sums, {at[0], group, number, d, column});
    };
    auto loadOwn = [&] {
      Value key = k.add(firstKey(k, number), k.sub(d, k.index(rank)));
      return k.select(
          isKey(k, key), k.getF32Type(),
          [&] { return loadKeyValue(k, at[0], group, key, column); },
          [&] { return k.scalar(0.0); });
    };
    return k.select(isBefore(k, d), k.getF32Type(), loadSum, loadOwn);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value i, Value column,
                   Value sum) {
    Value row = k.add(k.mul(at[2], chunk), i);
    // A row without keys is zero, whatever it holds.
    Value lacking = this->sum.transposed
                        ? k.sub(k.index(1), numColumns)
                        : k.sub(k.sub(numRows, numColumns), row);
    sum = k.select(k.less(k.index(0), lacking), k.scalar(0.0), sum);
    k.ifThen(k.less(row, numRows), [&] {
      k.storeScalar(sum, rows,
                    {at[0], at[1], position(k, row, numRows), column});
    });
  };
  TileProduct product = {{batches, heads, numDiagonals},
                         b.index(chunk),
                         columns,
                         depth,
                         left,
                         right,
                         store};
  // Keys after the first row of the tile.
  auto hides = [&](GPUKernelBuilder &k, ValueRange, Value row, Value d) {
    return k.less(k.add(row, rank), k.add(d, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
}

void fovea::attn::emitCausalLoops(OpBuilder &builder, Location loc,
                                  const LowRankSum &sum, F32Math math) {
  CausalLoops(builder, loc, sum, math).emit();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static void emitSumLoops(OpBuilder &builder, Location loc,
                         const LowRankSum &sum, F32Math math) {
  if (sum.mask == RowMask::Causal)
    return emitCausalLoops(builder, loc, sum, math);
  if (sum.hasChanges())
    return emitRowChangeLoops(builder, loc, sum, math);
  emitMaskedLoops(builder, loc, sum, math);
}

void fovea::attn::emitLowRankLoops(OpBuilder &builder, LowRankOp op,
                                   F32Math math) {
  emitSumLoops(builder, op.getLoc(), getLowRankSum(op), math);
}

void fovea::attn::emitLowRankLoops(OpBuilder &builder, LowRankBackwardOp op,
                                   F32Math math) {
  Location loc = op.getLoc();
  RowBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  Value output = op.getOutput();
  Value extents[] = {b.extent(output, 0), b.extent(output, 1),
                     b.extent(output, 2)};
  Value inverses = b.allocate(extents, {}, b.getF32Type());
  Value deltas = b.allocate(extents, {}, b.getF32Type());
  emitRowDots(b, op.getDOutput(), output, /*factor=*/-1.0, deltas);
  forGradientSums(op, inverses, deltas, [&](const LowRankSum &sum) {
    emitSumLoops(builder, loc, sum, math);
  });
  memref::DeallocOp::create(b, inverses);
  memref::DeallocOp::create(b, deltas);
}
