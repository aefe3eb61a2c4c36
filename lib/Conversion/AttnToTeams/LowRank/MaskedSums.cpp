//===- MaskedSums.cpp - Low-rank attention under other masks --------------===//
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

#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "fovea/Kernels/ChangeList.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows of one team, what runs have a multiple of, and rows of a product's
/// tile.
static constexpr int64_t kTeamRows = 32, kRunUnit = 32, kMostTileRows = 96;

namespace {
class MaskedSums {
public:
  using EmitProduct = function_ref<void(const TileProduct &)>;

  MaskedSums(TeamBuilder &builder, const LowRankSum &sum,
             EmitProduct emitProduct);

  void emit();

private:
  Value loadPart(unsigned part, Value position) {
    return sum.loadPart(b, part, batch, head, position);
  }
  Value keepsEntry(KernelBuilder &k, Value batch, Value head, Value group,
                   Value position);
  Value allocate(ArrayRef<Value> leading, ArrayRef<int64_t> trailing,
                 Type type) {
    return buffers.emplace_back(b.allocate(leading, trailing, type));
  }

  void makeGroups();
  void makeTree();
  void multiplyNodes(
      Value count,
      function_ref<std::pair<Value, Value>(KernelBuilder &, ValueRange)> depth,
      function_ref<Value(KernelBuilder &, ValueRange, Value)> keyOf,
      Value firstNode);
  void sumNodes();

  void forPieces(const PackedRows &rows, TeamBuilder::ColumnBody body);
  void forRows(function_ref<void()> body);
  void startRow(Value rowHead);
  void storeRow(Value rowHead);
  void addRows();
  void addRow();
  void addInterval(Value first, Value last);
  void addRuns(Value begin, Value end);
  void addNode(Value node);
  void addKeys(Value first, Value last);
  Value getWeight(ValueRange at);

  TeamBuilder &b;
  const LowRankSum &sum;
  PackedRows counted;
  EmitProduct emitProduct;
  SumHeads heads;
  /// All columns of a sum, in whole vectors.
  int64_t rank, columns, run;
  Value batches, numRows, numColumns;
  /// `[B, heads of nodes, nodes, rank, columns]`: query heads have groups,
  /// those of columns have runs.
  Value sums, nodeHeads, numNodes;
  /// How many columns each group has.
  Value counts;
  /// The rows at which each column of a transposed mask enters or leaves.
  ChangeList changes;
  Values buffers;
  // The present team: its rows, packed, and what they become.
  Value batch, firstRow, count, left, output;
  // The present head and row, which is number `slot` of the team's.
  Value head, columnHead, nodeHead, row, slot;
};
} // namespace

MaskedSums::MaskedSums(TeamBuilder &builder, const LowRankSum &sum,
                       EmitProduct emitProduct)
    : b(builder), sum(sum), counted(sum.getCountedValue()),
      emitProduct(emitProduct), heads(builder, sum),
      rank(sum.left.getNumColumns()),
      columns(llvm::alignTo(counted.getNumColumns(),
                            std::max<int64_t>(b.getLanes(), 1))),
      run(llvm::alignTo(rank, kRunUnit)), batches(b.extent(sum.left.rows, 0)),
      numRows(b.extent(sum.left.rows, 2)),
      numColumns(b.extent(sum.right.rows, 2)) {}

Value MaskedSums::keepsEntry(KernelBuilder &k, Value batch, Value head,
                             Value group, Value position) {
  Value part = sum.parts[1];
  Value at[] = {k.broadcastIndex(part, 0, batch),
                k.broadcastIndex(part, 1, head), group, position};
  return memref::LoadOp::create(k, part, at);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// The sums of nodes `firstNode .. firstNode + count - 1`, over the columns of
/// the mask that `keyOf` finds for the numbers in `depth`.
void MaskedSums::multiplyNodes(
    Value count,
    function_ref<std::pair<Value, Value>(KernelBuilder &, ValueRange)> depth,
    function_ref<Value(KernelBuilder &, ValueRange, Value)> keyOf,
    Value firstNode) {
  sums = allocate({batches, nodeHeads, numNodes}, {rank, columns},
                  b.getStateType());
  auto rowAt = [&](KernelBuilder &k, ValueRange at, Value number) {
    Value columnHead =
        sum.hasIntervals() ? at[1] : heads.getColumnHead(k, at[1]);
    return Values{at[0], columnHead, keyOf(k, at, number)};
  };
  auto left = [&](KernelBuilder &k, ValueRange at, Value d, Value number) {
    return sum.right.load(k, rowAt(k, at, number), d);
  };
  auto right = [&](KernelBuilder &k, ValueRange at, Value number,
                   Value column) {
    return counted.load(k, rowAt(k, at, number), column);
  };
  auto store = [&](KernelBuilder &k, ValueRange at, Value d, Value column,
                   Value numbers) {
    k.storeVector(numbers, sums,
                  {at[0], at[1], k.add(firstNode, at[2]), d, column});
  };
  auto depthOfTile = [&](KernelBuilder &k, ValueRange at, Value, Value) {
    return depth(k, at);
  };
  TileProduct product = {{batches, nodeHeads, count},
                         b.index(rank),
                         columns,
                         depthOfTile,
                         left,
                         right,
                         store};
  product.leftAlongRows = true;
  product.leftBreak = sum.right.getWidth();
  product.rightBreak = counted.getWidth();
  // All rows need the same columns of the mask.
  product.tileRows = kMostTileRows;
  emitProduct(product);
}

void MaskedSums::makeGroups() {
  nodeHeads = heads.queries;
  numNodes = b.extent(sum.parts[1], 2);
  Value grid[] = {batches, nodeHeads, numNodes};
  Value keys =
      allocate({batches, nodeHeads, numNodes, numColumns}, {}, b.getI32Type());
  counts = allocate(grid, {}, b.getI32Type());
  b.forTeams(grid, [&](ValueRange at) {
    auto keeps = [&](KernelBuilder &k, Value key) {
      return sum.hasRowGroups()
                 ? keepsEntry(k, at[0], at[1], at[2], key)
                 : k.equal(sum.loadPart(k, 0, at[0], at[1], key), at[2]);
    };
    Value count = b.listNumbers(numColumns, keeps, keys, at);
    b.single([&] { b.storeIndex(count, counts, at); });
  });
  multiplyNodes(
      numNodes,
      [&](KernelBuilder &k, ValueRange at) {
        return std::pair(k.index(0), k.loadIndex(counts, at));
      },
      [&](KernelBuilder &k, ValueRange at, Value number) {
        return k.loadIndex(keys, {at[0], at[1], at[2], number});
      },
      b.index(0));
}

void MaskedSums::makeTree() {
  nodeHeads = b.extent(sum.right.rows, 1);
  Value numRuns = b.ceilDiv(numColumns, run);
  numNodes = b.mul(numRuns, 2);
  multiplyNodes(
      numRuns,
      [&](KernelBuilder &k, ValueRange at) {
        Value first = k.mul(at[2], run);
        return std::pair(first, k.min(k.add(first, run), numColumns));
      },
      [&](KernelBuilder &, ValueRange, Value number) { return number; },
      numRuns);
  sumNodes();
}

/// The inner nodes, from the leaves up; every team has a row of all of them.
void MaskedSums::sumNodes() {
  Value one = b.index(1), numRuns = b.div(numNodes, 2);
  b.forTeams({batches, nodeHeads, b.index(rank)}, [&](ValueRange at) {
    b.loop(one, numRuns, 1, [&](Value up) {
      Value node = b.sub(numRuns, up), child = b.mul(node, 2);
      b.forColumns(columns, [&](KernelBuilder &k, Value column) {
        auto place = [&](Value node) {
          return Values{at[0], at[1], node, at[2], column};
        };
        Value total = k.fadd(k.loadVector(sums, place(child)),
                             k.loadVector(sums, place(k.add(child, one))));
        k.storeVector(total, sums, place(node));
      });
    });
  });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Runs `body` for all columns of packed rows; its vectors have columns of one
/// kind.
void MaskedSums::forPieces(const PackedRows &rows,
                           TeamBuilder::ColumnBody body) {
  Value middle = b.index(rows.getWidth());
  b.forColumns(b.index(0), middle, body);
  if (rows.getNumColumns() > rows.getWidth())
    b.forColumns(middle, b.index(rows.getNumColumns()), body);
}

/// `output += left C`, for the sums of a node.
void MaskedSums::addNode(Value node) {
  // As many as there are registers for: each waits for its last sum.
  constexpr int64_t kVectors = 12;
  b.forColumnTiles(columns, kVectors, [&](KernelBuilder &k, ValueRange at) {
    Values row;
    for (Value column : at)
      row.push_back(k.loadVector(output, {slot, column}));
    row = k.loop(k.index(0), k.index(rank), 1, row,
                 [&](Value d, ValueRange running) {
                   Values next;
                   Value factor = k.broadcast(k.loadScalar(left, {slot, d}));
                   for (auto [column, total] : llvm::zip(at, running)) {
                     Value entry =
                         k.loadVector(sums, {batch, nodeHead, node, d, column});
                     next.push_back(k.fma(factor, entry, total));
                   }
                   return next;
                 });
    for (auto [column, total] : llvm::zip(at, row))
      k.storeVector(total, output, {slot, column});
  });
}

/// The product of the row with column `at` of the mask.
Value MaskedSums::getWeight(ValueRange at) {
  int64_t width = sum.right.getWidth();
  Value weight =
      b.sumColumns(b.index(0), b.index(width), [&](KernelBuilder &k, Value d) {
        return k.fmul(k.loadVector(left, {slot, d}), sum.right.load(k, at, d));
      });
  if (width == rank)
    return weight;
  KernelBuilder one(b.getLoc(), b, b.getStateType(), /*lanes=*/0);
  Value d = one.index(width);
  return one.fma(one.loadScalar(left, {slot, d}), sum.right.load(one, at, d),
                 weight);
}

/// Adds columns `first .. last - 1` one by one.
void MaskedSums::addKeys(Value first, Value last) {
  b.loop(first, last, 1, [&](Value key) {
    Value at[] = {batch, columnHead, key};
    Value weight = getWeight(at);
    forPieces(counted, [&](KernelBuilder &k, Value column) {
      Value total = k.fma(k.broadcast(weight), counted.load(k, at, column),
                          k.loadVector(output, {slot, column}));
      k.storeVector(total, output, {slot, column});
    });
  });
}

/// Adds columns `first .. last - 1`: whole runs by nodes of the tree.
void MaskedSums::addInterval(Value first, Value last) {
  Value begin = b.ceilDiv(first, run), end = b.div(last, run);
  b.ifThenElse(
      b.less(begin, end),
      [&] {
        addKeys(first, b.mul(begin, run));
        addRuns(begin, end);
        addKeys(b.mul(end, run), last);
      },
      [&] { addKeys(first, last); });
}

/// Adds runs `begin .. end - 1`. Up from the leaves, a node at the edge that is
/// no left (right) child of its parent is taken by itself.
void MaskedSums::addRuns(Value begin, Value end) {
  constexpr int64_t kMaxLevels = 32;
  Value runs = b.div(numNodes, 2), one = b.index(1);
  Values edges = {b.add(begin, runs), b.add(end, runs)};
  b.loop(b.index(0), b.index(kMaxLevels), 1, edges,
         [&](Value, ValueRange edges) -> Values {
           Value low = edges[0], high = edges[1];
           Value isOpen = b.less(low, high);
           Value lowOdd = b.both(isOpen, b.equal(b.rem(low, 2), one));
           Value highOdd = b.both(isOpen, b.equal(b.rem(high, 2), one));
           b.ifThen(lowOdd, [&] { addNode(low); });
           b.ifThen(highOdd, [&] { addNode(b.sub(high, one)); });
           low = b.select(lowOdd, b.add(low, one), low);
           high = b.select(highOdd, b.sub(high, one), high);
           return {b.div(low, 2), b.div(high, 2)};
         });
}

/// Adds what the row keeps of the present query head.
void MaskedSums::addRow() {
  if (sum.hasRowGroups())
    return addNode(loadPart(0, row));
  if (sum.mask == RowMask::RowInterval)
    return addInterval(loadPart(0, row), b.add(loadPart(1, row), 1));
  // Every other change begins an interval, which ends at the next.
  auto [first, last] = changes.getRange(b, batch, head, row);
  b.loop(first, last, 2, [&, last = last](Value change) {
    Value next = b.add(change, 1);
    Value end = b.select(
        b.less(next, last), b.getIndexType(),
        [&] { return changes.load(b, batch, head, next); },
        [&] { return numColumns; });
    addInterval(changes.load(b, batch, head, change), end);
  });
}

/// Runs `body` for the rows of the team.
void MaskedSums::forRows(function_ref<void()> body) {
  b.loop(b.index(0), count, 1, [&](Value number) {
    slot = number;
    row = b.add(firstRow, number);
    body();
  });
}

/// Groups without columns are left out: zeros times a row that is no finite
/// number would be none.
void MaskedSums::addRows() {
  auto hasColumns = [&](Value group) {
    return b.less(b.index(0), b.loadIndex(counts, {batch, head, group}));
  };
  if (sum.hasIntervals())
    return forRows([&] { addRow(); });
  if (sum.hasRowGroups())
    return forRows(
        [&] { b.ifThen(hasColumns(loadPart(0, row)), [&] { addRow(); }); });
  // The sums of one group after the other stay in the cache.
  b.loop(b.index(0), numNodes, 1, [&](Value group) {
    b.ifThen(hasColumns(group), [&] {
      forRows([&] {
        b.ifThen(keepsEntry(b, batch, head, group, row),
                 [&] { addNode(group); });
      });
    });
  });
}

void MaskedSums::startRow(Value rowHead) {
  Value at[] = {batch, rowHead, row};
  forPieces(sum.left, [&](KernelBuilder &k, Value d) {
    k.storeVector(sum.left.load(k, at, d), left, {slot, d});
  });
  b.forColumns(columns, [&](KernelBuilder &k, Value column) {
    k.storeVector(k.splat(0.0), output, {slot, column});
  });
}

void MaskedSums::storeRow(Value rowHead) {
  Value at[] = {batch, rowHead, row};
  storeResult(b, sum, at, [&](KernelBuilder &k, Value column) {
    return k.loadVector(output, {slot, column});
  });
}

void MaskedSums::emit() {
  if (sum.mask == RowMask::RowChange)
    changes = ChangeList::fromChanges(b, sum);
  if (sum.hasIntervals())
    makeTree();
  else
    makeGroups();
  int64_t chunk = b.getRowsPerTeam(kTeamRows);
  Value grid[] = {batches, heads.rows, b.ceilDiv(numRows, chunk)};
  b.forTeams(grid, [&](ValueRange point) {
    batch = point[0];
    firstRow = b.mul(point[2], chunk);
    count = b.min(b.sub(numRows, firstRow), chunk);
    left = b.teamBuffer({chunk, rank}, b.getStateType());
    output = b.teamBuffer({chunk, columns}, b.getStateType());
    forRows([&] { startRow(point[1]); });
    b.barrier();
    heads.forQueryHeads(b, point[1], [&](Value queryHead, Value) {
      head = queryHead;
      columnHead = heads.getColumnHead(b, head);
      nodeHead = sum.hasIntervals() ? columnHead : head;
      addRows();
    });
    b.barrier();
    forRows([&] { storeRow(point[1]); });
  });
  for (Value buffer : llvm::reverse(buffers))
    memref::DeallocOp::create(b, buffer);
  changes.free(b);
}

void fovea::attn::emitMaskedSum(
    TeamBuilder &builder, const LowRankSum &sum,
    function_ref<void(const TileProduct &)> emitProduct) {
  MaskedSums(builder, sum, emitProduct).emit();
}
