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
//   the
//                                                     whole runs of its
//                                                     interval; other columns
//                                                     one by one
//
// The tree is the usual one in an array: node n of 1 .. runs - 1 is the sum of
// nodes 2 n and 2 n + 1, and run r is node runs + r. It is as large as the keys
// and values, twice: a run has as many columns as the rank.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
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
  MaskedSumKernel(OpBuilder &builder, LowRankOp op, RegisterFile registers)
      : LowRankKernel(builder, op, registers),
        // A last column counts: it has the sums of weights.
        columns(llvm::alignTo(width + 1, lanes)),
        run(llvm::alignTo(rank, kChunk)) {}

  void emit();

private:
  bool hasIntervals() { return op.getMask() == RowMask::RowInterval; }
  Value loadPart(Value position);
  Value keepsEntry(Value group, Value position);

  void allocateSums();
  void emitGroup(Value node, Value group);
  void emitRun(Value node, Value first);
  void clearNode(Value node);
  void gather(Value first, Value last, llvm::function_ref<Value(Value)> keeps);
  void packKey(Value row, Value slot);
  Value viewNode(Value node);
  void emitTree();

  void emitRow(Value row);
  void emitInterval(Value first, Value last);
  void addNode(Value node);
  void addKeys(Value first, Value last);

  int64_t columns, run;
  Value sums, numNodes;
  // The present task.
  Value batch, head, keyHeadIndex, u1, u2, values, chosen, output;
};
} // namespace

/// Entry `position` of the first part of the mask.
Value MaskedSumKernel::loadPart(Value position) {
  Value part = op.getMaskParts()[0];
  return b.loadIndex(part, {b.broadcastIndex(part, 0, batch),
                            b.broadcastIndex(part, 1, head), position});
}

Value MaskedSumKernel::keepsEntry(Value group, Value position) {
  Value part = op.getMaskParts()[1];
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
  numNodes = hasIntervals() ? b.mul(b.ceilDiv(b.extent(op.getU2(), 2), run), 2)
                            : b.extent(op.getMaskParts()[1], 2);
  sums =
      b.allocate({b.extent(op.getU1(), 0), b.extent(op.getU1(), 1), numNodes},
                 {paddedRank(), columns}, state);
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
  b.packRow(op.getU2(), {batch, keyHeadIndex, row}, b.index(0), u2, slot,
            paddedRank());
  b.packRow(op.getValue(), {batch, keyHeadIndex, row}, b.index(0), values, slot,
            columns);
  b.storeScalar(b.scalar(1.0), values, {slot, b.index(width)});
}

/// Gathers those of columns `first .. last - 1`, at most a chunk, that are to
/// be kept, and adds them to `chosen`.
void MaskedSumKernel::gather(Value first, Value last,
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
           [&] { addProducts(u2, values, count, chosen, columns); });
}

/// The sum of the columns of a group.
void MaskedSumKernel::emitGroup(Value node, Value group) {
  clearNode(node);
  chosen = node;
  Value numKeys = b.extent(op.getU2(), 2);
  bool isByRow = op.getMask() == RowMask::DistinctRows;
  b.loop(b.index(0), numKeys, kChunk, [&](Value first) {
    gather(first, b.min(b.add(first, kChunk), numKeys), [&](Value column) {
      return isByRow ? keepsEntry(group, column)
                     : b.equal(loadPart(column), group);
    });
  });
}

/// The sum of a run of columns.
void MaskedSumKernel::emitRun(Value node, Value first) {
  clearNode(node);
  chosen = node;
  Value last = b.min(b.add(first, run), b.extent(op.getU2(), 2));
  b.loop(first, last, kChunk, [&](Value low) {
    gather(low, b.min(b.add(low, kChunk), last), [&](Value) -> Value {
      return arith::ConstantIntOp::create(b, 1, /*width=*/1);
    });
  });
}

/// The inner nodes, from the leaves up; every task has a row of all of them.
void MaskedSumKernel::emitTree() {
  Value one = b.index(1), numRuns = b.div(numNodes, 2);
  b.forAll(
      {b.extent(op.getU1(), 0), b.extent(op.getU1(), 1), b.index(paddedRank())},
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

/// `output += u1 C`, for the sums of a node.
void MaskedSumKernel::addNode(Value node) {
  constexpr int64_t kVectors = 8;
  Value view = viewNode(node);
  for (int64_t first = 0; first < columns; first += kVectors * lanes) {
    int64_t count = std::min(kVectors, (columns - first) / lanes);
    auto column = [&](int64_t v) { return b.index(first + v * lanes); };
    Values row;
    for (int64_t v = 0; v < count; ++v)
      row.push_back(b.loadVector(output, column(v)));
    row = b.loop(
        b.index(0), b.index(rank), 1, row, [&](Value d, ValueRange running) {
          Values next;
          Value factor = b.broadcast(b.loadScalar(u1, {b.index(0), d}));
          for (int64_t v = 0; v < count; ++v)
            next.push_back(
                b.fma(factor, b.loadVector(view, {d, column(v)}), running[v]));
          return next;
        });
    for (int64_t v = 0; v < count; ++v)
      b.storeVector(row[v], output, column(v));
  }
}

/// Adds columns `first .. last - 1` one by one.
void MaskedSumKernel::addKeys(Value first, Value last) {
  Value zero = b.index(0);
  b.loop(first, last, 1, [&](Value key) {
    packKey(key, zero);
    Value weight = b.broadcast(b.dotPacked(u1, zero, u2, zero, paddedRank()));
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

void MaskedSumKernel::emitRow(Value row) {
  Value zero = b.index(0);
  b.packRow(op.getU1(), {batch, head, row}, zero, u1, zero, paddedRank());
  fillZero(b, output, {}, columns);
  switch (op.getMask()) {
  case RowMask::DistinctRows:
    addNode(loadPart(row));
    break;
  case RowMask::DistinctColumns:
    b.loop(zero, numNodes, 1, [&](Value group) {
      b.ifThen(keepsEntry(group, row), [&] { addNode(group); });
    });
    break;
  default: {
    Value part = op.getMaskParts()[1];
    Value last = b.loadIndex(part, {b.broadcastIndex(part, 0, batch),
                                    b.broadcastIndex(part, 1, head), row});
    emitInterval(loadPart(row), b.add(last, 1));
  }
  }
  storeMeans(output, {batch, head, row});
}

void MaskedSumKernel::emit() {
  allocateSums();
  Value batches = b.extent(op.getU1(), 0), heads = b.extent(op.getU1(), 1);
  auto beginTask = [&](ValueRange ivs) {
    batch = ivs[0];
    head = ivs[1];
    keyHeadIndex = keyHead(head);
    u2 = b.scratch({kChunk, paddedRank()}, state);
    values = b.scratch({kChunk, columns}, state);
  };
  Value numSums = hasIntervals() ? b.div(numNodes, 2) : numNodes;
  b.forAll({batches, heads, numSums}, [&](ValueRange ivs) {
    beginTask(ivs);
    if (hasIntervals())
      emitRun(viewNode(b.add(numSums, ivs[2])), b.mul(ivs[2], run));
    else
      emitGroup(viewNode(ivs[2]), ivs[2]);
    b.freeScratch();
  });
  if (hasIntervals())
    emitTree();
  Value numRows = b.extent(op.getU1(), 2);
  b.forAll({batches, heads, b.ceilDiv(numRows, kTaskRows)},
           [&](ValueRange ivs) {
             beginTask(ivs);
             u1 = b.scratch({1, paddedRank()}, state);
             output = b.scratch({columns}, state);
             Value first = b.mul(ivs[2], kTaskRows);
             b.loop(first, b.min(b.add(first, kTaskRows), numRows), 1,
                    [&](Value row) { emitRow(row); });
             b.freeScratch();
           });
  memref::DeallocOp::create(b, sums);
}

void fovea::attn::emitMaskedLowRank(OpBuilder &builder, LowRankOp op,
                                    RegisterFile registers) {
  MaskedSumKernel(builder, op, registers).emit();
}
