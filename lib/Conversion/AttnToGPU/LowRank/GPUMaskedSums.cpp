//===- GPUMaskedSums.cpp - Low-rank attention under other masks on a GPU --===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of outer products are made once, as products of matrices, and applied to
// rows:
//
//   mask               sums                          of row i
//   distinct_rows      the keys of every group       that of its group
//   distinct_columns   the keys of every group       those of the groups that
//                                                    it keeps
//   row_interval       a tree over runs of keys      the fewest that make up
//                                                    the whole runs of its
//                                                    interval; other keys one
//                                                    by one
//
// Transposed, distinct rows are distinct columns and the other way round, and
// what changes from row to row has intervals.
//
// Node n of 1 .. runs - 1 of the tree is the sum of nodes 2 n and 2 n + 1, and
// run r is node runs + r.
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Kernels/ChangeList.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class MaskedLoops : public LowRankLoops {
public:
  MaskedLoops(OpBuilder &builder, Location loc, const LowRankSum &sum,
              F32Math math)
      : LowRankLoops(builder, loc, sum, math),
        run(llvm::alignTo(rank, kWarpSize)) {}

protected:
  static constexpr int64_t kMaxLevels = 32;

  Value keepsEntry(KernelBuilder &k, Value batch, Value head, Value group,
                   Value position);
  /// `u1 C` of row (batch, head, row), for one column of a node's sums.
  Value addNode(KernelBuilder &k, ValueRange row, Value group, Value node,
                Value column, Value sum);

  int64_t run;
  /// [B, heads or key heads, nodes, rank, columns].
  Value sums, numNodes;
};

/// Masks that say which keys the rows of a group keep, or to which group a key
/// belongs.
class GroupLoops : public MaskedLoops {
public:
  using MaskedLoops::MaskedLoops;

private:
  void emitRows() override;
  void listKeys();
  void emitSums();

  /// The keys of every group in order, and how many there are.
  Value keys, counts;
};

class IntervalLoops : public MaskedLoops {
public:
  using MaskedLoops::MaskedLoops;

private:
  static constexpr int64_t kNumThreads = 64;

  void emitRows() override;
  void emitRuns();
  void emitTree();
  void emitRow(GPUKernelBuilder &k, ValueRange at);
  void addInterval(GPUKernelBuilder &k, ValueRange at, Value first, Value last);
  Value addNodes(GPUKernelBuilder &k, ValueRange at, Value begin, Value end,
                 Value column, Value sum);

  /// The rows at which each column of a transposed mask enters or leaves.
  ChangeList changes;
  /// Of keys beside whole runs, in shared memory.
  Value weights;
};
} // namespace

Value MaskedLoops::keepsEntry(KernelBuilder &k, Value batch, Value head,
                              Value group, Value position) {
  Value part = sum.parts[1];
  return memref::LoadOp::create(k, part,
                                ValueRange{k.broadcastIndex(part, 0, batch),
                                           k.broadcastIndex(part, 1, head),
                                           group, position});
}

Value MaskedLoops::addNode(KernelBuilder &k, ValueRange row, Value group,
                           Value node, Value column, Value sum) {
  return k.loop(k.index(0), k.index(rank), 1, {sum},
                [&](Value d, ValueRange running) -> Values {
                  Value factor = loadLeft(k, row[0], row[1], row[2], d);
                  Value entry =
                      k.loadScalar(sums, {row[0], group, node, d, column});
                  return {k.fma(factor, entry, running[0])};
                })[0];
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

void GroupLoops::listKeys() {
  auto isKept = [&](GPUKernelBuilder &k, ValueRange at, Value key) {
    return sum.hasRowGroups()
               ? keepsEntry(k, at[0], at[1], at[2], key)
               : k.equal(sum.loadPart(k, 0, at[0], at[1], key), at[2]);
  };
  listNumbers(b, {batches, heads, numNodes}, numColumns, isKept, keys, counts);
}

void GroupLoops::emitSums() {
  auto keyOf = [&](GPUKernelBuilder &k, ValueRange at, Value number) {
    return k.loadIndex(keys, {at[0], at[1], at[2], number});
  };
  auto depth = [&](GPUKernelBuilder &k, ValueRange at, Value, Value) {
    return std::pair(k.index(0), k.loadIndex(counts, at));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value number) {
    return loadRight(k, at[0], columnHead(k, at[1]), keyOf(k, at, number), d);
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value number,
                   Value column) {
    return loadValue(k, at[0], columnHead(k, at[1]), keyOf(k, at, number),
                     column);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column,
                   Value sum) {
    k.storeScalar(sum, sums, {at[0], at[1], at[2], d, column});
  };
  TileProduct product = {{batches, heads, numNodes},
                         b.index(rank),
                         columns,
                         depth,
                         left,
                         right,
                         store};
  product.leftAlongRows = true;
  emitTileProduct(b, math, product);
}

void GroupLoops::emitRows() {
  numNodes = b.extent(sum.parts[1], 2);
  sums = allocate({batches, heads, numNodes}, {rank, columns}, b.getF32Type());
  keys = allocate({batches, heads, numNodes, numColumns}, {}, b.getI32Type());
  counts = allocate({batches, heads, numNodes}, {}, b.getI32Type());
  listKeys();
  emitSums();
  parallelLoop(
      b, {batches, heads, numRows, b.index(columns)}, [&](ValueRange at) {
        Value row = at[2], zero = b.scalar(0.0), total;
        // Zeros of a group without keys times a row that is NaN would be NaN.
        auto addGroup = [&](Value group, Value sum) {
          Value count = b.loadIndex(counts, {at[0], at[1], group});
          return b.select(
              b.less(b.index(0), count), b.getF32Type(),
              [&] { return addNode(b, at, at[1], group, at[3], sum); },
              [&] { return sum; });
        };
        if (sum.hasRowGroups()) {
          total = addGroup(sum.loadPart(b, 0, at[0], at[1], row), zero);
        } else {
          total = b.loop(b.index(0), numNodes, 1, {zero},
                         [&](Value group, ValueRange running) -> Values {
                           return {b.select(
                               keepsEntry(b, at[0], at[1], group, row),
                               b.getF32Type(),
                               [&] { return addGroup(group, running[0]); },
                               [&] { return running[0]; })};
                         })[0];
        }
        b.storeScalar(total, rows, at);
      });
}

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

void IntervalLoops::emitRuns() {
  Value numRuns = b.div(numNodes, 2);
  auto depth = [&](GPUKernelBuilder &k, ValueRange at, Value, Value) {
    Value first = k.mul(at[2], run);
    return std::pair(first, k.min(k.add(first, run), numColumns));
  };
  auto left = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value key) {
    return loadRight(k, at[0], at[1], key, d);
  };
  auto right = [&](GPUKernelBuilder &k, ValueRange at, Value key,
                   Value column) {
    return loadValue(k, at[0], at[1], key, column);
  };
  auto store = [&](GPUKernelBuilder &k, ValueRange at, Value d, Value column,
                   Value sum) {
    Value node = k.add(at[2], numRuns);
    k.storeScalar(sum, sums, {at[0], at[1], node, d, column});
  };
  TileProduct product = {{batches, columnHeads, numRuns},
                         b.index(rank),
                         columns,
                         depth,
                         left,
                         right,
                         store};
  product.leftAlongRows = true;
  emitTileProduct(b, math, product);
}

/// The inner nodes from the leaves up, a thread for each element of all.
void IntervalLoops::emitTree() {
  Value one = b.index(1), numRuns = b.div(numNodes, 2);
  parallelLoop(b, {batches, columnHeads, b.index(rank), b.index(columns)},
               [&](ValueRange at) {
                 auto place = [&](Value node) {
                   return Values{at[0], at[1], node, at[2], at[3]};
                 };
                 b.loop(one, numRuns, 1, [&](Value up) {
                   Value node = b.sub(numRuns, up), child = b.mul(node, 2);
                   Value sum =
                       b.fadd(b.loadScalar(sums, place(child)),
                              b.loadScalar(sums, place(b.add(child, 1))));
                   b.storeScalar(sum, sums, place(node));
                 });
               });
}

/// Adds runs `begin .. end - 1`. Up from the leaves, a node at the edge that is
/// no left (right) child of its parent is taken by itself.
Value IntervalLoops::addNodes(GPUKernelBuilder &k, ValueRange at, Value begin,
                              Value end, Value column, Value sum) {
  Value runs = k.div(numNodes, 2), one = k.index(1), zero = k.index(0);
  Value group = columnHead(k, at[1]);
  auto addIf = [&](Value condition, Value node, Value sum) {
    return k.select(
        condition, k.getF32Type(),
        [&] { return addNode(k, at, group, node, column, sum); },
        [&] { return sum; });
  };
  Values start = {k.add(begin, runs), k.add(end, runs), sum};
  return k.loop(zero, k.index(kMaxLevels), 1, start,
                [&](Value, ValueRange carried) -> Values {
                  Value low = carried[0], high = carried[1];
                  Value isOpen = k.less(low, high);
                  Value lowOdd = k.both(isOpen, k.equal(k.rem(low, 2), one));
                  Value highOdd = k.both(isOpen, k.equal(k.rem(high, 2), one));
                  Value next = addIf(lowOdd, low, carried[2]);
                  next = addIf(highOdd, k.sub(high, one), next);
                  low = k.select(lowOdd, k.add(low, one), low);
                  high = k.select(highOdd, k.sub(high, one), high);
                  return {k.div(low, 2), k.div(high, 2), next};
                })[2];
}

/// Adds keys `first .. last - 1` to the columns of the row: weights of the keys
/// beside whole runs, then a thread for each column.
void IntervalLoops::addInterval(GPUKernelBuilder &k, ValueRange at, Value first,
                                Value last) {
  Value group = columnHead(k, at[1]), thread = k.toIndex(k.thread());
  Value begin = k.ceilDiv(first, run), end = k.div(last, run);
  Value hasRuns = k.less(begin, end);
  // Keys up to the first run, and from the last one on.
  Value low = k.select(hasRuns, k.mul(begin, run), last);
  Value high = k.select(hasRuns, k.mul(end, run), last);
  Value numLow = k.sub(low, first);
  Value count = k.add(numLow, k.sub(last, high));
  auto keyOf = [&](Value number) {
    return k.select(k.less(number, numLow), k.add(first, number),
                    k.add(high, k.sub(number, numLow)));
  };
  k.loop(thread, count, kNumThreads, [&](Value number) {
    Value key = keyOf(number);
    Value weight = k.loop(k.index(0), k.index(rank), 1, {k.scalar(0.0)},
                          [&](Value d, ValueRange sum) -> Values {
                            Value x = loadLeft(k, at[0], at[1], at[2], d);
                            Value y = loadRight(k, at[0], group, key, d);
                            return {k.fma(x, y, sum[0])};
                          })[0];
    k.storeScalar(weight, weights, number);
  });
  k.barrier();
  k.loop(thread, k.index(columns), kNumThreads, [&](Value column) {
    Value place[] = {at[0], at[1], at[2], column};
    Value total =
        k.loop(k.index(0), count, 1, {k.loadScalar(rows, place)},
               [&](Value number, ValueRange sum) -> Values {
                 Value value =
                     loadValue(k, at[0], group, keyOf(number), column);
                 return {k.fma(k.loadScalar(weights, number), value, sum[0])};
               })[0];
    // No runs are as many from nowhere to nowhere.
    total = addNodes(k, at, k.select(hasRuns, begin, end), end, column, total);
    k.storeScalar(total, rows, place);
  });
}

/// A block of threads, which has a column for each of them.
void IntervalLoops::emitRow(GPUKernelBuilder &k, ValueRange at) {
  weights = k.sharedBuffer(0, {2 * run}, k.getF32Type());
  k.loop(k.toIndex(k.thread()), k.index(columns), kNumThreads,
         [&](Value column) {
           k.storeScalar(k.scalar(0.0), rows, {at[0], at[1], at[2], column});
         });
  if (sum.mask == RowMask::RowInterval)
    return addInterval(k, at, sum.loadPart(k, 0, at[0], at[1], at[2]),
                       k.add(sum.loadPart(k, 1, at[0], at[1], at[2]), 1));
  // Every other change begins an interval, which ends at the next.
  auto [begin, end] = changes.getRange(k, at[0], at[1], at[2]);
  k.loop(begin, end, 2, [&, last = end](Value change) {
    Value next = k.add(change, 1);
    Value after = k.select(
        k.less(next, last), k.getIndexType(),
        [&] { return changes.load(k, at[0], at[1], next); },
        [&] { return numColumns; });
    addInterval(k, at, changes.load(k, at[0], at[1], change), after);
    // All threads have read the weights.
    k.barrier();
  });
}

void IntervalLoops::emitRows() {
  if (sum.mask == RowMask::RowChange)
    changes = ChangeList::fromChanges(b, sum);
  numNodes = b.mul(b.ceilDiv(numColumns, run), 2);
  sums = allocate({batches, columnHeads, numNodes}, {rank, columns},
                  b.getF32Type());
  emitRuns();
  emitTree();
  {
    OpBuilder::InsertionGuard guard(b);
    GPUKernelBuilder k(b.getLoc(), b, kNumThreads);
    Values at =
        beginBlocks(k, {batches, heads, numRows}, 2 * run * sizeof(float));
    emitRow(k, at);
  }
  changes.free(b);
}

void fovea::attn::emitMaskedLoops(OpBuilder &builder, Location loc,
                                  const LowRankSum &sum, F32Math math) {
  if (sum.hasIntervals())
    IntervalLoops(builder, loc, sum, math).emit();
  else
    GroupLoops(builder, loc, sum, math).emit();
}
