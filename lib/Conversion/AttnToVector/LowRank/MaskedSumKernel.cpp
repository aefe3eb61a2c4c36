//===- MaskedSumKernel.cpp - Low-rank attention under other masks ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of outer products are made once and applied to rows:
//
//   mask               sums                           of row i
//   distinct_rows      the columns of every group     that of its group
//   distinct_columns   the columns of every group     those of the groups that
//                                                     it keeps
//   row_interval       a tree over runs of columns    the fewest that make up
//                                                     the whole runs of its
//                                                     interval; other columns
//                                                     one by one
//
// The tree is the usual one in an array: node n of 1 .. runs - 1 is the sum of
// nodes 2 n and 2 n + 1, and run r is node runs + r. It is as large as the keys
// and values, twice: a run has as many columns as the rank.
//
// Transposed, distinct rows are distinct columns and the other way round, and
// the columns that change from row to row become rows of intervals: those in
// which they are there.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "fovea/Kernels/ChangeList.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

/// Columns that are gathered before they are summed, and rows of one task.
static constexpr int64_t kChunk = 32, kTaskRows = 64;

namespace {
class MaskedSumKernel : LowRankKernel {
public:
  MaskedSumKernel(OpBuilder &builder, Location loc, const LowRankSum &sum,
                  RegisterFile registers)
      : LowRankKernel(builder, loc, sum, registers),
        columns(llvm::alignTo(countedValue().getNumColumns(), lanes)),
        run(llvm::alignTo(rank, kChunk)) {}

  void emit();

private:
  Value loadPart(unsigned part, Value position) {
    return sum.loadPart(b, part, batch, head, position);
  }
  Value keepsEntry(Value group, Value position);

  void allocateSums();
  void emitGroup(Value node, Value group);
  void emitRun(Value node, Value first);
  void clearNode(Value node);
  Value gather(Value first, Value last, llvm::function_ref<Value(Value)> keeps);
  void packKey(Value row, Value slot);
  Value viewNode(Value node);
  void emitTree();

  void emitRow(Value rowHead, Value row);
  void addColumns(Value row);
  void emitInterval(Value first, Value last);
  void addNode(Value node);
  void addGroup(Value group);
  void addKeys(Value first, Value last);

  int64_t columns, run;
  Value sums, numNodes;
  /// How many columns each group has.
  Value counts;
  /// The rows at which each column of a transposed mask enters or leaves.
  ChangeList changes;
  // The present task.
  Value batch, head, keyHead, left, right, values, chosen, output;
};
} // namespace

Value MaskedSumKernel::keepsEntry(Value group, Value position) {
  Value part = sum.parts[1];
  return memref::LoadOp::create(b, part,
                                ValueRange{b.broadcastIndex(part, 0, batch),
                                           b.broadcastIndex(part, 1, head),
                                           group, position});
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// `[B, H, nodes, rank, columns]`.
void MaskedSumKernel::allocateSums() {
  numNodes = sum.hasIntervals() ? b.mul(b.ceilDiv(numColumns(), run), 2)
                                : b.extent(sum.parts[1], 2);
  sums = b.allocate({numBatches(), numQueryHeads(), numNodes},
                    {paddedRank(), columns}, state);
  if (!sum.hasIntervals())
    counts = b.allocate({numBatches(), numQueryHeads(), numNodes}, {},
                        b.getI32Type());
}

Value MaskedSumKernel::viewNode(Value node) {
  return b.rowView(sums, {batch, head, node});
}

void MaskedSumKernel::clearNode(Value node) {
  b.loop(b.index(0), b.index(paddedRank()), 1,
         [&](Value d) { fillZero(b, node, d, columns); });
}

/// Packs column `row` of the mask as number `slot` of the gathered ones.
void MaskedSumKernel::packKey(Value row, Value slot) {
  Value at[] = {batch, keyHead, row}, zero = b.index(0);
  packRow(sum.right, at, zero, right, slot, paddedRank());
  packRow(countedValue(), at, zero, values, slot, columns);
}

/// Gathers those of columns `first .. last - 1`, at most a chunk, that are to
/// be kept, and adds them to `chosen`. Returns how many.
Value MaskedSumKernel::gather(Value first, Value last,
                              llvm::function_ref<Value(Value)> keeps) {
  Value count = b.loop(first, last, 1, b.index(0),
                       [&](Value column, ValueRange counts) -> Values {
                         Value slot = counts.front();
                         Value isKept = keeps(column);
                         b.ifThen(isKept, [&] { packKey(column, slot); });
                         return {b.select(isKept, b.add(slot, 1), slot)};
                       })
                    .front();
  b.ifThen(b.less(b.index(0), count),
           [&] { addProducts(right, values, count, chosen, chosen, columns); });
  return count;
}

/// The sum of the columns of a group.
void MaskedSumKernel::emitGroup(Value node, Value group) {
  clearNode(node);
  chosen = node;
  Value numKeys = numColumns();
  auto keeps = [&](Value column) {
    return sum.hasRowGroups() ? keepsEntry(group, column)
                              : b.equal(loadPart(0, column), group);
  };
  Value count =
      b.loop(b.index(0), numKeys, kChunk, b.index(0),
             [&](Value first, ValueRange counts) -> Values {
               Value end = b.min(b.add(first, kChunk), numKeys);
               return {b.add(counts.front(), gather(first, end, keeps))};
             })
          .front();
  b.storeIndex(count, counts, {batch, head, group});
}

/// The sum of a run of columns.
void MaskedSumKernel::emitRun(Value node, Value first) {
  clearNode(node);
  chosen = node;
  Value last = b.min(b.add(first, run), numColumns());
  b.loop(first, last, kChunk, [&](Value low) {
    gather(low, b.min(b.add(low, kChunk), last), [&](Value) -> Value {
      return arith::ConstantIntOp::create(b, 1, /*width=*/1);
    });
  });
}

/// The inner nodes, from the leaves up; every task has a row of all of them.
void MaskedSumKernel::emitTree() {
  Value one = b.index(1), numRuns = b.div(numNodes, 2);
  b.forAll({numBatches(), numQueryHeads(), b.index(paddedRank())},
           [&](ValueRange ivs) {
             b.loop(one, numRuns, 1, [&](Value up) {
               Value node = b.sub(numRuns, up);
               b.loop(b.index(0), b.index(columns), lanes, [&](Value column) {
                 auto at = [&](Value node) {
                   return Values{ivs[0], ivs[1], node, ivs[2], column};
                 };
                 Value child = b.mul(node, 2);
                 Value sum = b.fadd(b.loadVector(sums, at(child)),
                                    b.loadVector(sums, at(b.add(child, 1))));
                 b.storeVector(sum, sums, at(node));
               });
             });
           });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// `output += left C`, for the sums of a node.
void MaskedSumKernel::addNode(Value node) {
  constexpr int64_t kVectors = 8;
  Value view = viewNode(node);
  auto addColumns = [&](Value first, int64_t count) {
    auto column = [&](int64_t v) { return b.add(first, v * lanes); };
    Values row;
    for (int64_t v = 0; v < count; ++v)
      row.push_back(b.loadVector(output, column(v)));
    row = b.loop(
        b.index(0), b.index(rank), 1, row, [&](Value d, ValueRange running) {
          Values next;
          Value factor = b.broadcast(b.loadScalar(left, {b.index(0), d}));
          for (int64_t v = 0; v < count; ++v)
            next.push_back(
                b.fma(factor, b.loadVector(view, {d, column(v)}), running[v]));
          return next;
        });
    for (int64_t v = 0; v < count; ++v)
      b.storeVector(row[v], output, column(v));
  };
  int64_t whole = llvm::alignDown(columns, kVectors * lanes);
  b.loop(b.index(0), b.index(whole), kVectors * lanes,
         [&](Value first) { addColumns(first, kVectors); });
  if (whole < columns)
    addColumns(b.index(whole), (columns - whole) / lanes);
}

/// The same for a group, unless it has no columns: zeros times a row that is no
/// finite number would be none.
void MaskedSumKernel::addGroup(Value group) {
  Value count = b.loadIndex(counts, {batch, head, group});
  b.ifThen(b.less(b.index(0), count), [&] { addNode(group); });
}

/// Adds columns `first .. last - 1` one by one.
void MaskedSumKernel::addKeys(Value first, Value last) {
  Value zero = b.index(0);
  b.loop(first, last, 1, [&](Value key) {
    packKey(key, zero);
    Value weight =
        b.broadcast(b.dotPacked(left, zero, right, zero, paddedRank()));
    b.loop(zero, b.index(columns), lanes, [&](Value column) {
      Value value = b.loadVector(values, {zero, column});
      b.storeVector(b.fma(weight, value, b.loadVector(output, column)), output,
                    column);
    });
  });
}

/// Adds columns `first .. last - 1`: whole runs by nodes of the tree.
void MaskedSumKernel::emitInterval(Value first, Value last) {
  Value runs = b.div(numNodes, 2);
  Value begin = b.ceilDiv(first, run), end = b.div(last, run);
  b.ifThenElse(
      b.less(begin, end),
      [&] {
        addKeys(first, b.mul(begin, run));
        // Up from the leaves; a node at the edge that is no left (right) child
        // of its parent is taken by itself.
        Values edges = {b.add(begin, runs), b.add(end, runs)};
        constexpr int64_t kMaxLevels = 32;
        b.loop(b.index(0), b.index(kMaxLevels), 1, edges,
               [&](Value, ValueRange edges) -> Values {
                 Value low = edges[0], high = edges[1];
                 Value isOpen = b.less(low, high), one = b.index(1);
                 Value lowOdd = b.both(isOpen, b.equal(b.rem(low, 2), one));
                 Value highOdd = b.both(isOpen, b.equal(b.rem(high, 2), one));
                 b.ifThen(lowOdd, [&] { addNode(low); });
                 b.ifThen(highOdd, [&] { addNode(b.sub(high, one)); });
                 low = b.select(lowOdd, b.add(low, one), low);
                 high = b.select(highOdd, b.sub(high, one), high);
                 return {b.div(low, 2), b.div(high, 2)};
               });
        addKeys(b.mul(end, run), last);
      },
      [&] { addKeys(first, last); });
}

/// Adds what row `row` keeps of the present query head.
void MaskedSumKernel::addColumns(Value row) {
  Value zero = b.index(0), one = b.index(1);
  if (sum.mask == RowMask::RowInterval)
    return emitInterval(loadPart(0, row), b.add(loadPart(1, row), one));
  if (sum.mask == RowMask::RowChange) {
    // Every other change begins an interval, which ends at the next.
    Value first, last;
    std::tie(first, last) = changes.getRange(b, batch, head, row);
    return b.loop(first, last, 2, [&](Value change) {
      Value next = b.add(change, one);
      Value end = b.select(
          b.less(next, last), b.getIndexType(),
          [&] { return changes.load(b, batch, head, next); },
          [&] { return numColumns(); });
      emitInterval(changes.load(b, batch, head, change), end);
    });
  }
  if (sum.hasRowGroups())
    return addGroup(loadPart(0, row));
  b.loop(zero, numNodes, 1, [&](Value group) {
    b.ifThen(keepsEntry(group, row), [&] { addGroup(group); });
  });
}

void MaskedSumKernel::emitRow(Value rowHead, Value row) {
  Value zero = b.index(0), at[] = {batch, rowHead, row};
  packRow(sum.left, at, zero, left, zero, paddedRank());
  fillZero(b, output, {}, columns);
  forQueryHeads(rowHead, [&](Value queryHead, Value) {
    head = queryHead;
    keyHead = columnHead(queryHead);
    addColumns(row);
  });
  storeResult(output, at);
}

void MaskedSumKernel::emit() {
  allocateSums();
  if (sum.mask == RowMask::RowChange)
    changes = ChangeList::fromChanges(b, sum);
  auto allocateKeys = [&] {
    right = b.scratch({kChunk, paddedRank()}, state);
    values = b.scratch({kChunk, columns}, state);
  };
  Value numSums = sum.hasIntervals() ? b.div(numNodes, 2) : numNodes;
  b.forAll({numBatches(), numQueryHeads(), numSums}, [&](ValueRange ivs) {
    batch = ivs[0];
    head = ivs[1];
    keyHead = columnHead(head);
    allocateKeys();
    if (sum.hasIntervals())
      emitRun(viewNode(b.add(numSums, ivs[2])), b.mul(ivs[2], run));
    else
      emitGroup(viewNode(ivs[2]), ivs[2]);
    b.freeScratch();
  });
  if (sum.hasIntervals())
    emitTree();
  Value rows = numRows();
  b.forAll({numBatches(), numRowHeads(), b.ceilDiv(rows, kTaskRows)},
           [&](ValueRange ivs) {
             batch = ivs[0];
             allocateKeys();
             left = b.scratch({1, paddedRank()}, state);
             output = b.scratch({columns}, state);
             Value first = b.mul(ivs[2], kTaskRows);
             b.loop(first, b.min(b.add(first, kTaskRows), rows), 1,
                    [&](Value row) { emitRow(ivs[1], row); });
             b.freeScratch();
           });
  memref::DeallocOp::create(b, sums);
  if (counts)
    memref::DeallocOp::create(b, counts);
  changes.free(b);
}

void fovea::attn::emitMaskedSum(OpBuilder &builder, Location loc,
                                const LowRankSum &sum, RegisterFile registers) {
  MaskedSumKernel(builder, loc, sum, registers).emit();
}
