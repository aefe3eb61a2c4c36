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
#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpTeamBuilder.h"
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
      columns(width + sum.hasTotals()), sumHeads(b, sum),
      batches(b.extent(sum.left.rows, 0)), heads(sumHeads.queries),
      columnHeads(b.extent(sum.right.rows, 1)),
      numRows(b.extent(sum.left.rows, 2)),
      numColumns(b.extent(sum.right.rows, 2)) {}

void LowRankLoops::emit() {
  rows = allocate({batches, heads, numRows}, {columns}, b.getF32Type());
  emitRows();
  storeResults();
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
}

Value LowRankLoops::allocate(ArrayRef<Value> leading,
                             ArrayRef<int64_t> trailing, Type type) {
  return buffers.emplace_back(b.allocate(leading, trailing, type));
}

Value LowRankLoops::loadLeft(KernelBuilder &k, Value batch, Value head,
                             Value row, Value d) {
  return sum.left.load(k, {batch, rowHead(k, head), row}, d);
}

Value LowRankLoops::loadRight(KernelBuilder &k, Value batch, Value columnHead,
                              Value column, Value d) {
  return sum.right.load(k, {batch, columnHead, column}, d);
}

Value LowRankLoops::loadValue(KernelBuilder &k, Value batch, Value columnHead,
                              Value column, Value e) {
  return sum.getCountedValue().load(k, {batch, columnHead, column}, e);
}

/// Heads that share a row are added in order.
void LowRankLoops::storeResults() {
  WarpTeamBuilder teams(b.getLoc(), b);
  teams.forTeams({batches, sumHeads.rows, numRows}, [&](ValueRange at) {
    auto load = [&](KernelBuilder &k, Value column) {
      auto loadFrom = [&](Value head) {
        return k.loadScalar(rows, {at[0], head, at[2], column});
      };
      if (!sum.transposed)
        return loadFrom(at[1]);
      Value first = k.mul(at[1], sumHeads.sharing);
      return k
          .loop(k.index(0), sumHeads.sharing, 1, {k.scalar(0.0)},
                [&](Value member, ValueRange total) -> Values {
                  return {k.fadd(total[0], loadFrom(k.add(first, member)))};
                })
          .front();
    };
    storeResult(teams, sum, at, load);
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
  auto depth = [&](KernelBuilder &k, ValueRange at, Value, Value) {
    Value first = firstKey(k, at[2]);
    return std::pair(k.max(first, 0), k.min(k.add(first, chunk), numColumns));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value d, Value key) {
    return loadKey(k, at[0], at[1], key, d);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value key, Value column) {
    return loadKeyValue(k, at[0], at[1], key, column);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value d, Value column,
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
                 Values totals =
                     b.loop(b.index(0), last, 1, {zero, zero},
                            [&](Value number, ValueRange carried) -> Values {
                              Value part = b.loadScalar(sums, place(number));
                              b.storeScalar(carried[0], sums, place(number));
                              auto [sum, carry] = addCompensated(
                                  b, part, carried[0], carried[1]);
                              return {sum, carry};
                            });
                 b.ifThen(b.less(b.index(0), numChunks),
                          [&] { b.storeScalar(totals[0], sums, place(last)); });
               });
}

void CausalLoops::emitTriangles() {
  auto depth = [&](KernelBuilder &k, ValueRange, Value row, Value column) {
    // Tiles above the diagonal are zero.
    Value isBelow = k.less(column, k.add(row, kTileRows));
    return std::pair(k.index(0), k.select(isBelow, k.index(rank), k.index(0)));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value i, Value d) {
    Value row = k.add(k.mul(at[2], chunk), i);
    return k.select(
        k.less(row, numRows), k.getF32Type(),
        [&] { return loadRow(k, at, row, d); }, [&] { return k.scalar(0.0); });
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value d, Value j) {
    Value key = k.add(firstKey(k, k.add(at[2], numBefore)), j);
    return k.select(
        isKey(k, key), k.getF32Type(),
        [&] { return loadKey(k, at[0], columnHead(k, at[1]), key, d); },
        [&] { return k.scalar(0.0); });
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value i, Value j,
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
  auto depth = [&](KernelBuilder &k, ValueRange, Value row, Value) {
    return std::pair(k.index(0),
                     k.add(k.min(k.add(row, kTileRows), chunk), rank));
  };
  auto isBefore = [&](KernelBuilder &k, Value at) {
    return k.less(at, k.index(rank));
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value i, Value d) {
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
  auto right = [&](KernelBuilder &k, ValueRange at, Value d, Value column) {
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
  auto store = [&](KernelBuilder &k, ValueRange at, Value i, Value column,
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
  auto hides = [&](KernelBuilder &k, ValueRange, Value row, Value d) {
    return k.less(k.add(row, rank), k.add(d, kTileDepth - 1));
  };
  product.hides = hides;
  emitTileProduct(b, math, product);
}

void fovea::attn::emitCausalLoops(OpBuilder &builder, Location loc,
                                  const LowRankSum &sum, F32Math math) {
  CausalLoops(builder, loc, sum, math).emit();
}
