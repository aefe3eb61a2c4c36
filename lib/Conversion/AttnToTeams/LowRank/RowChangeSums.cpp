//===- RowChangeSums.cpp - Low-rank attention by changes of rows ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   a team for each (batch, head); many teams share the columns of the values
//     C = 0
//     for each row
//       C +- outer product of each column that enters or leaves
//       output = left C, divided by its sum of weights
//
// What enters must leave without a trace. Sums are in f64, where products of
// f32 numbers are exact, and what each addition rounds off is summed as well. A
// row without columns starts from zero again. A NaN or an infinity would never
// leave a sum: columns that have one stay apart, and each row that keeps them
// adds them by themselves.
//
// Transposed intervals are such changes: a row of attn.low_rank, now a column,
// enters at its first column and leaves after its last.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/AttnToTeams/LowRank/LowRankSums.h"
#include "fovea/Kernels/ChangeList.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Columns of the values that one of many teams takes: with the sum of weights
/// one for each lane of a warp.
static constexpr int64_t kTeamColumns = 31;

namespace {
/// Where a column is.
enum Place : int64_t { kNowhere, kSummed, kApart };

class RowChangeSum {
public:
  RowChangeSum(TeamBuilder &builder, const LowRankSum &sum);

  void emit();

private:
  Value getEnd(Value row);
  Value getColumn(Value change);
  Value placeAt(Place place) {
    return arith::ConstantIntOp::create(b, place, /*width=*/8);
  }
  Values placeOf(Value column) {
    Values indices = team;
    indices.push_back(column);
    return indices;
  }
  Value isAt(Place place, Value column) {
    Value found = memref::LoadOp::create(b, places, placeOf(column));
    return b.equal(found, placeAt(place));
  }

  void emitTeam();
  void emitHead(Value queryHead, Value isFirst);
  Values toggle(Value column, ValueRange counts);
  void pack(const PackedRows &source, ValueRange at, Value buffer);
  void packColumn(Value column);
  Value isFinite();
  Value sumMagnitudes(Value row, int64_t size);
  void addColumn(Value sign);
  void addApart();
  void fillZero(Value row, int64_t size);
  void clearSums();
  void emitRow(Value row, ValueRange counts, Value isFirst);
  void multiplyRow();
  void storeRow(Value row, Value isFirst);

  TeamBuilder &b;
  const LowRankSum &sum;
  SumHeads heads;
  /// Columns of the values that a team has; all columns of its sums.
  int64_t rank, width, teamColumns, columns;
  Value numRows, numColumns;
  /// Where each column is, and the changes of a transposed mask.
  Value places;
  ChangeList changes;
  // The present team and its columns of the values, and the query head.
  Values team;
  Value batch, rowHead, firstValue, lastValue, head, columnHead;
  // Buffers of the team.
  Value left, right, values, output, sums, errors;
};
} // namespace

RowChangeSum::RowChangeSum(TeamBuilder &builder, const LowRankSum &sum)
    : b(builder), sum(sum), heads(builder, sum), rank(sum.left.getNumColumns()),
      width(sum.value.getWidth()),
      teamColumns(b.hasManyTeams() ? std::min(width, kTeamColumns) : width),
      columns(llvm::alignTo(teamColumns + sum.hasTotals(),
                            std::max<int64_t>(b.getLanes(), 1))),
      numRows(b.extent(sum.left.rows, 2)),
      numColumns(b.extent(sum.right.rows, 2)) {}

/// Where the changes of a row end.
Value RowChangeSum::getEnd(Value row) {
  return sum.transposed ? changes.getRange(b, batch, head, row).second
                        : sum.loadPart(b, 0, batch, head, row);
}

Value RowChangeSum::getColumn(Value change) {
  return sum.transposed ? changes.load(b, batch, head, change)
                        : sum.loadPart(b, 1, batch, head, change);
}

void RowChangeSum::fillZero(Value row, int64_t size) {
  b.forColumns(size, [&](KernelBuilder &k, Value column) {
    k.storeVector(k.splat(0.0), row, column);
  });
}

void RowChangeSum::clearSums() {
  b.loop(b.index(0), b.index(rank), 1, [&](Value d) {
    b.forColumns(columns, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), sums, {d, column});
      k.storeVector(k.splat(0.0), errors, {d, column});
    });
  });
}

/// Adds `sign` times the outer product of the packed column.
void RowChangeSum::addColumn(Value sign) {
  b.loop(b.index(0), b.index(rank), 1, [&](Value d) {
    Value factor = b.fmul(sign, b.loadScalar(right, d));
    b.forColumns(columns, [&](KernelBuilder &k, Value column) {
      Value at[] = {d, column};
      Value value = k.loadVector(values, column);
      Value product = k.fmul(k.broadcast(factor), value);
      Value old = k.loadVector(sums, at), sum = k.fadd(old, product);
      k.storeVector(sum, sums, at);
      // What the sum lost of either, exactly (Knuth).
      Value added = k.fsub(sum, old);
      Value lost =
          k.fadd(k.fsub(old, k.fsub(sum, added)), k.fsub(product, added));
      k.storeVector(k.fadd(k.loadVector(errors, at), lost), errors, at);
    });
  });
}

void RowChangeSum::pack(const PackedRows &source, ValueRange at, Value buffer) {
  int64_t size = source.getWidth();
  b.forColumns(size, [&](KernelBuilder &k, Value d) {
    k.storeVector(source.load(k, at, d), buffer, d);
  });
  if (source.getNumColumns() == size)
    return;
  Value last = b.index(size);
  b.atColumn(last, [&] {
    KernelBuilder one(b.getLoc(), b, b.getStateType(), /*lanes=*/0);
    one.storeScalar(source.load(one, at, last), buffer, last);
  });
}

void RowChangeSum::packColumn(Value column) {
  Value row[] = {batch, columnHead, column};
  b.barrier();
  pack(sum.right, row, right);
  if (width)
    b.forColumns(firstValue, lastValue, [&](KernelBuilder &k, Value e) {
      k.storeVector(sum.value.load(k, row, e), values, k.sub(e, firstValue));
    });
  b.barrier();
}

Value RowChangeSum::sumMagnitudes(Value row, int64_t size) {
  return b.sumColumns(b.index(0), b.index(size),
                      [&](KernelBuilder &k, Value column) {
                        Value number = k.loadVector(row, column);
                        return k.fmax(number, k.fsub(k.splat(0.0), number));
                      });
}

/// Whether all products of the packed column are numbers.
Value RowChangeSum::isFinite() {
  Value most =
      b.fmul(sumMagnitudes(right, rank), sumMagnitudes(values, columns));
  return arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, most,
                               b.fsub(most, most));
}

/// Lets a column enter or leave; takes and returns how many are summed, and
/// how many are apart.
Values RowChangeSum::toggle(Value column, ValueRange counts) {
  Value isNew = isAt(kNowhere, column);
  packColumn(column);
  Value isSummed = isFinite();
  Value entered = b.select(isSummed, placeAt(kSummed), placeAt(kApart));
  b.single([&] {
    memref::StoreOp::create(b, b.select(isNew, entered, placeAt(kNowhere)),
                            places, placeOf(column));
  });
  Value change = b.select(isNew, b.index(1), b.index(-1));
  Value summed = b.add(counts[0], change);
  b.ifThen(isSummed, [&] {
    addColumn(b.select(isNew, b.scalar(1.0), b.scalar(-1.0)));
    b.ifThen(b.equal(summed, b.index(0)), [&] { clearSums(); });
  });
  return {b.select(isSummed, summed, counts[0]),
          b.select(isSummed, counts[1], b.add(counts[1], change))};
}

/// Adds the columns that are apart to the output of a row.
void RowChangeSum::addApart() {
  b.loop(b.index(0), numColumns, 1, [&](Value column) {
    b.ifThen(isAt(kApart, column), [&] {
      packColumn(column);
      Value weight = b.sumColumns(
          b.index(0), b.index(rank), [&](KernelBuilder &k, Value d) {
            return k.fmul(k.loadVector(left, d), k.loadVector(right, d));
          });
      b.forColumns(columns, [&](KernelBuilder &k, Value column) {
        Value value = k.loadVector(values, column);
        value = k.fma(k.broadcast(weight), value, k.loadVector(output, column));
        k.storeVector(value, output, column);
      });
    });
  });
}

/// `output = left C`.
void RowChangeSum::multiplyRow() {
  // Vectors that are summed at once: each waits for its last sum.
  constexpr int64_t kVectors = 4;
  b.forColumnTiles(columns, kVectors, [&](KernelBuilder &k, ValueRange at) {
    Values zeros(at.size(), k.splat(0.0));
    Values row = k.loop(
        k.index(0), k.index(rank), 1, zeros, [&](Value d, ValueRange running) {
          Values next;
          Value factor = k.broadcast(k.loadScalar(left, d));
          for (auto [column, total] : llvm::zip(at, running)) {
            Value entry = k.fadd(k.loadVector(sums, {d, column}),
                                 k.loadVector(errors, {d, column}));
            next.push_back(k.fma(factor, entry, total));
          }
          return next;
        });
    for (auto [column, total] : llvm::zip(at, row))
      k.storeVector(total, output, column);
  });
}

/// Stores what is in `output`. Unless `isFirst`, it is added.
void RowChangeSum::storeRow(Value row, Value isFirst) {
  Values at = {batch, rowHead, row};
  Value total;
  if (sum.hasTotals())
    total = b.loadScalar(output, b.index(teamColumns));
  auto load = [&](KernelBuilder &k, Value column) -> Value {
    Value value = k.loadVector(output, k.sub(column, firstValue));
    if (!isFirst)
      return value;
    Values place = at;
    place.push_back(column);
    return k.select(isFirst, value,
                    k.fadd(value, k.loadVector(sum.output, place)));
  };
  storeResult(b, sum, at, firstValue, lastValue, total, load);
}

/// A row, with so many columns that are summed, and that are apart. One without
/// any counts as zeros, whatever it holds.
void RowChangeSum::emitRow(Value row, ValueRange counts, Value isFirst) {
  b.ifThenElse(
      b.less(b.index(0), b.add(counts[0], counts[1])),
      [&] { pack(sum.left, {batch, rowHead, row}, left); },
      [&] { fillZero(left, rank); });
  b.barrier();
  multiplyRow();
  b.ifThen(b.less(b.index(0), counts[1]), [&] { addApart(); });
  b.barrier();
  storeRow(row, isFirst);
}

/// All rows, for the columns of one query head.
void RowChangeSum::emitHead(Value queryHead, Value isFirst) {
  head = queryHead;
  columnHead = heads.getColumnHead(b, head);
  clearSums();
  b.forColumns(b.index(0), numColumns, [&](KernelBuilder &k, Value column) {
    Value nowhere = placeAt(kNowhere);
    if (!k.getLanes()) {
      memref::StoreOp::create(k, nowhere, places, placeOf(column));
      return;
    }
    Type type = k.getVectorType(nowhere.getType());
    nowhere = vector::BroadcastOp::create(k, type, nowhere);
    vector::StoreOp::create(k, nowhere, places, placeOf(column));
  });
  b.barrier();
  Value zero = b.index(0);
  b.loop(zero, numRows, 1, {zero, zero, zero},
         [&](Value row, ValueRange state) -> Values {
           Value end = getEnd(row);
           auto step = [&](Value change, ValueRange counts) {
             return toggle(getColumn(change), counts);
           };
           Values counts = b.loop(state[2], end, 1, state.take_front(2), step);
           emitRow(row, counts, isFirst);
           return {counts[0], counts[1], end};
         });
  b.barrier();
}

void RowChangeSum::emitTeam() {
  Type type = b.getStateType();
  left = b.teamBuffer({rank}, type);
  right = b.teamBuffer({rank}, type);
  values = b.teamBuffer({columns}, type);
  output = b.teamBuffer({columns}, type);
  sums = b.teamBuffer({rank, columns}, type);
  errors = b.teamBuffer({rank, columns}, type);
  // Behind the values are the one that sums weights, and zeros.
  fillZero(values, columns);
  Value last = b.index(teamColumns);
  if (sum.hasTotals())
    b.atColumn(last, [&] { b.storeScalar(b.scalar(1.0), values, last); });
  heads.forQueryHeads(b, rowHead, [&](Value queryHead, Value isFirst) {
    emitHead(queryHead, isFirst);
  });
  // The first query head starts the sums; without any they are zeros.
  if (!sum.transposed || getConstantIntValue(heads.sharing).value_or(0) != 0)
    return;
  b.ifThen(b.equal(heads.sharing, b.index(0)), [&] {
    fillZero(output, columns);
    b.barrier();
    b.loop(b.index(0), numRows, 1,
           [&](Value row) { storeRow(row, /*isFirst=*/Value()); });
  });
}

void RowChangeSum::emit() {
  if (sum.transposed)
    changes = ChangeList::fromIntervals(b, sum);
  Values grid = {b.extent(sum.left.rows, 0), heads.rows};
  if (teamColumns < width)
    grid.push_back(b.index(llvm::divideCeil(width, teamColumns)));
  Values extents = grid;
  extents.push_back(numColumns);
  places = b.allocate(extents, {}, b.getI8Type());
  b.forTeams(grid, [&](ValueRange point) {
    team = Values(point);
    batch = point[0];
    rowHead = point[1];
    Value share = point.size() > 2 ? point[2] : b.index(0);
    firstValue = b.mul(share, teamColumns);
    lastValue = b.min(b.add(firstValue, teamColumns), width);
    emitTeam();
  });
  memref::DeallocOp::create(b, places);
  changes.free(b);
}

void fovea::attn::emitRowChangeSum(TeamBuilder &builder,
                                   const LowRankSum &sum) {
  RowChangeSum(builder, sum).emit();
}
