//===- RowChangeKernel.cpp - Low-rank attention by changes of rows --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (batch, head)
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

#include "LowRankKernel.h"
#include "fovea/Kernels/ChangeList.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Where a column is.
enum Place : int64_t { kNowhere, kSummed, kApart };

class RowChangeKernel : LowRankKernel {
public:
  RowChangeKernel(OpBuilder &builder, Location loc, const LowRankSum &sum,
                  RegisterFile registers)
      : LowRankKernel(builder, loc, sum, registers),
        columns(llvm::alignTo(sum.getCountedValue().getNumColumns(), lanes)),
        wideLanes(registers.vectorBits / 64) {}

  void emit();

private:
  void emitTask();
  void emitHead(Value queryHead, Value isFirst);
  Value loadPart(unsigned part, Value position) {
    return sum.loadPart(b, part, batch, head, position);
  }
  Values toggle(Value column, ValueRange counts);
  void packColumn(Value column);
  Value isFinite();
  Value sumMagnitudes(Value row, int64_t size);
  void addColumn(Value sign);
  void addApart();
  Value placeAt(Place place) {
    return arith::ConstantIntOp::create(b, place, /*width=*/8);
  }
  void clearSums();
  void emitRow(Value row, ValueRange counts, Value isFirst);
  /// A builder at the same place that computes in f64.
  KernelBuilder wide() { return {b.getLoc(), b, b.getF64Type(), wideLanes}; }

  int64_t columns, wideLanes;
  /// Where each column is, and the changes of a transposed mask.
  Value places;
  ChangeList changes;
  // The present task: a head of rows, and a query head.
  Value batch, rowHead, head, keyHead, left, right, values, sums, errors,
      output;
};
} // namespace

void RowChangeKernel::clearSums() {
  KernelBuilder k = wide();
  k.loop(k.index(0), k.index(paddedRank()), 1, [&](Value d) {
    fillZero(k, sums, d, columns);
    fillZero(k, errors, d, columns);
  });
}

/// Adds `sign` times the outer product of the packed column.
void RowChangeKernel::addColumn(Value sign) {
  KernelBuilder k = wide();
  k.loop(k.index(0), k.index(rank), 1, [&](Value d) {
    Value factor = k.fmul(sign, k.loadScalar(right, {k.index(0), d}));
    factor = k.broadcast(factor);
    k.loop(k.index(0), k.index(columns), wideLanes, [&](Value column) {
      Value at[] = {d, column};
      Value value = k.loadVector(values, {k.index(0), column});
      Value product = k.fmul(factor, value), old = k.loadVector(sums, at);
      Value sum = k.fadd(old, product);
      k.storeVector(sum, sums, at);
      // What the sum lost of either, exactly (Knuth).
      Value added = k.fsub(sum, old);
      Value lost =
          k.fadd(k.fsub(old, k.fsub(sum, added)), k.fsub(product, added));
      k.storeVector(k.fadd(k.loadVector(errors, at), lost), errors, at);
    });
  });
}

void RowChangeKernel::packColumn(Value column) {
  Value zero = b.index(0), row[] = {batch, keyHead, column};
  packRow(sum.right, row, zero, right, zero, paddedRank());
  packRow(sum.getCountedValue(), row, zero, values, zero, columns);
}

Value RowChangeKernel::sumMagnitudes(Value row, int64_t size) {
  KernelBuilder k = wide();
  Value sums = k.loop(k.index(0), k.index(size), wideLanes, k.splat(0.0),
                      [&](Value column, ValueRange running) -> Values {
                        Value number = k.loadVector(row, {k.index(0), column});
                        number = math::AbsFOp::create(k, number);
                        return {k.fadd(number, running.front())};
                      })
                   .front();
  return vector::ReductionOp::create(k, vector::CombiningKind::ADD, sums);
}

/// Whether all products of the packed column are numbers.
Value RowChangeKernel::isFinite() {
  KernelBuilder k = wide();
  Value most = k.fmul(sumMagnitudes(right, paddedRank()),
                      sumMagnitudes(values, columns));
  return arith::CmpFOp::create(k, arith::CmpFPredicate::ORD, most,
                               k.fsub(most, most));
}

/// Lets a column enter or leave; takes and returns how many are summed, and
/// how many are apart.
KernelBuilder::Values RowChangeKernel::toggle(Value column, ValueRange counts) {
  Value at[] = {batch, rowHead, column};
  Value wasThere = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                         memref::LoadOp::create(b, places, at),
                                         placeAt(kNowhere));
  packColumn(column);
  Value isSummed = isFinite();
  Value entered = b.select(isSummed, placeAt(kSummed), placeAt(kApart));
  memref::StoreOp::create(b, b.select(wasThere, placeAt(kNowhere), entered),
                          places, at);
  Value change = b.select(wasThere, b.index(-1), b.index(1));
  Value summed = b.add(counts[0], change);
  b.ifThen(isSummed, [&] {
    KernelBuilder k = wide();
    addColumn(k.select(wasThere, k.scalar(-1.0), k.scalar(1.0)));
    b.ifThen(b.equal(summed, b.index(0)), [&] { clearSums(); });
  });
  return {b.select(isSummed, summed, counts[0]),
          b.select(isSummed, counts[1], b.add(counts[1], change))};
}

/// Adds the columns that are apart to the output of a row.
void RowChangeKernel::addApart() {
  Value zero = b.index(0);
  b.loop(zero, numColumns(), 1, [&](Value column) {
    Value at[] = {batch, rowHead, column};
    Value isApart = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                          memref::LoadOp::create(b, places, at),
                                          placeAt(kApart));
    b.ifThen(isApart, [&] {
      packColumn(column);
      Value weight =
          b.broadcast(b.dotPacked(left, zero, right, zero, paddedRank()));
      b.loop(zero, b.index(columns), lanes, [&](Value column) {
        Value value = b.loadVector(values, {zero, column});
        b.storeVector(b.fma(weight, value, b.loadVector(output, column)),
                      output, column);
      });
    });
  });
}

/// A row, with so many columns that are summed, and that are apart. One without
/// any counts as zeros, whatever it holds.
void RowChangeKernel::emitRow(Value row, ValueRange counts, Value isFirst) {
  Value zero = b.index(0), at[] = {batch, rowHead, row};
  b.ifThenElse(
      b.less(zero, b.add(counts[0], counts[1])),
      [&] { packRow(sum.left, at, zero, left, zero, paddedRank()); },
      [&] { fillZero(b, left, zero, paddedRank()); });
  KernelBuilder k = wide();
  k.loop(zero, k.index(columns), wideLanes, [&](Value column) {
    Value product =
        k.loop(zero, k.index(rank), 1, k.splat(0.0),
               [&](Value d, ValueRange product) -> Values {
                 Value entry = k.fadd(k.loadVector(sums, {d, column}),
                                      k.loadVector(errors, {d, column}));
                 Value factor = k.broadcast(k.loadScalar(left, {zero, d}));
                 return {k.fma(factor, entry, product.front())};
               })
            .front();
    k.storeVector(product, output, column);
  });
  b.ifThen(b.less(zero, counts[1]), [&] { addApart(); });
  storeResult(output, at, isFirst);
}

/// All rows, for the columns of one query head.
void RowChangeKernel::emitHead(Value queryHead, Value isFirst) {
  head = queryHead;
  keyHead = columnHead(queryHead);
  clearSums();
  Value zero = b.index(0);
  b.loop(zero, numColumns(), 1, [&](Value column) {
    memref::StoreOp::create(b, placeAt(kNowhere), places,
                            ValueRange{batch, rowHead, column});
  });
  b.loop(zero, numRows(), 1, {zero, zero, zero},
         [&](Value row, ValueRange state) -> Values {
           Value end = sum.transposed
                           ? changes.getRange(b, batch, head, row).second
                           : loadPart(0, row);
           auto step = [&](Value change, ValueRange counts) {
             Value column = sum.transposed
                                ? changes.load(b, batch, head, change)
                                : loadPart(1, change);
             return toggle(column, counts);
           };
           Values counts = b.loop(state[2], end, 1, state.take_front(2), step);
           emitRow(row, counts, isFirst);
           return {counts[0], counts[1], end};
         });
}

void RowChangeKernel::emitTask() {
  Type wideType = b.getF64Type();
  left = b.scratch({1, paddedRank()}, state);
  right = b.scratch({1, paddedRank()}, state);
  values = b.scratch({1, columns}, state);
  output = b.scratch({columns}, state);
  sums = b.scratch({paddedRank(), columns}, wideType);
  errors = b.scratch({paddedRank(), columns}, wideType);
  heads.forQueryHeads(b, rowHead, [&](Value queryHead, Value isFirst) {
    emitHead(queryHead, isFirst);
  });
  b.freeScratch();
}

void RowChangeKernel::emit() {
  if (sum.transposed)
    changes = ChangeList::fromIntervals(b, sum);
  Value extents[] = {numBatches(), numRowHeads(), numColumns()};
  places = b.allocate(extents, {}, b.getI8Type());
  b.forAll({extents[0], extents[1]}, [&](ValueRange ivs) {
    batch = ivs[0];
    rowHead = ivs[1];
    emitTask();
  });
  memref::DeallocOp::create(b, places);
  changes.free(b);
}

void fovea::attn::emitRowChangeSum(OpBuilder &builder, Location loc,
                                   const LowRankSum &sum,
                                   RegisterFile registers) {
  RowChangeKernel(builder, loc, sum, registers).emit();
}
