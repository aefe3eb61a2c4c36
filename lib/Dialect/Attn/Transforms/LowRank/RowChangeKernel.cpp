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
// row without columns starts from zero again.
//
// Transposed intervals are such changes: a row of attn.low_rank, now a column,
// enters at its first column and leaves after its last.
//
//===----------------------------------------------------------------------===//

#include "ChangeList.h"
#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class RowChangeKernel : LowRankKernel {
public:
  RowChangeKernel(OpBuilder &builder, Location loc, const LowRankSum &sum,
                  RegisterFile registers)
      : LowRankKernel(builder, loc, sum, registers),
        columns(llvm::alignTo(countedValue().getNumColumns(), lanes)),
        wideLanes(registers.vectorBits / 64) {}

  void emit();

private:
  void emitTask();
  void emitHead(Value queryHead, Value isFirst);
  Value loadPart(unsigned part, Value position) {
    return sum.loadPart(b, part, batch, head, position);
  }
  Value toggle(Value column, Value count);
  void addColumn(Value sign);
  void clearSums();
  void emitRow(Value row, Value isFirst);
  /// A builder at the same place that computes in f64.
  KernelBuilder wide() { return {b.getLoc(), b, b.getF64Type(), wideLanes}; }

  int64_t columns, wideLanes;
  /// Which columns are there, and the changes of a transposed mask.
  Value present;
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

/// Lets a column enter or leave; takes and returns how many are there.
Value RowChangeKernel::toggle(Value column, Value count) {
  Value zero = b.index(0);
  Value at[] = {batch, rowHead, column};
  Value wasThere = memref::LoadOp::create(b, present, at);
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Value isThere =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, wasThere, no);
  memref::StoreOp::create(b, isThere, present, at);
  Value row[] = {batch, keyHead, column};
  packRow(sum.right, row, zero, right, zero, paddedRank());
  packRow(countedValue(), row, zero, values, zero, columns);
  KernelBuilder k = wide();
  addColumn(k.select(wasThere, k.scalar(-1.0), k.scalar(1.0)));
  count = b.select(wasThere, b.sub(count, b.index(1)), b.add(count, 1));
  b.ifThen(b.equal(count, zero), [&] { clearSums(); });
  return count;
}

void RowChangeKernel::emitRow(Value row, Value isFirst) {
  Value zero = b.index(0), at[] = {batch, rowHead, row};
  packRow(sum.left, at, zero, left, zero, paddedRank());
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
  storeResult(output, at, isFirst);
}

/// All rows, for the columns of one query head.
void RowChangeKernel::emitHead(Value queryHead, Value isFirst) {
  head = queryHead;
  keyHead = columnHead(queryHead);
  clearSums();
  Value zero = b.index(0);
  b.loop(zero, numColumns(), 1, [&](Value column) {
    memref::StoreOp::create(b, arith::ConstantIntOp::create(b, 0, /*width=*/1),
                            present, ValueRange{batch, rowHead, column});
  });
  b.loop(zero, numRows(), 1, {zero, zero},
         [&](Value row, ValueRange state) -> Values {
           Value end = sum.transposed
                           ? changes.getRange(b, batch, head, row).second
                           : loadPart(0, row);
           auto step = [&](Value change, ValueRange counts) -> Values {
             Value column = sum.transposed
                                ? changes.load(b, batch, head, change)
                                : loadPart(1, change);
             return {toggle(column, counts.front())};
           };
           Value count = b.loop(state[1], end, 1, state[0], step).front();
           emitRow(row, isFirst);
           return {count, end};
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
  forQueryHeads(rowHead, [&](Value queryHead, Value isFirst) {
    emitHead(queryHead, isFirst);
  });
  b.freeScratch();
}

void RowChangeKernel::emit() {
  if (sum.transposed)
    changes = ChangeList::fromIntervals(b, sum);
  Value extents[] = {numBatches(), numRowHeads(), numColumns()};
  present = b.allocate(extents, {}, b.getI1Type());
  b.forAll({extents[0], extents[1]}, [&](ValueRange ivs) {
    batch = ivs[0];
    rowHead = ivs[1];
    emitTask();
  });
  memref::DeallocOp::create(b, present);
  changes.free(b);
}

void fovea::attn::emitRowChangeSum(OpBuilder &builder, Location loc,
                                   const LowRankSum &sum,
                                   RegisterFile registers) {
  RowChangeKernel(builder, loc, sum, registers).emit();
}
