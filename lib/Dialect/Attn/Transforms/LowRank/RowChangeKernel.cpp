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
//       output = u1 C, divided by its sum of weights
//
// What enters must leave without a trace. Sums are in f64, where products of
// f32 numbers are exact, and what each addition rounds off is summed as well. A
// row without columns starts from zero again.
//
//===----------------------------------------------------------------------===//

#include "LowRankKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class RowChangeKernel : LowRankKernel {
public:
  RowChangeKernel(OpBuilder &builder, LowRankOp op, RegisterFile registers)
      : LowRankKernel(builder, op, registers),
        columns(llvm::alignTo(width + 1, lanes)),
        wideLanes(registers.vectorBits / 64) {}

  void emit();

private:
  void emitTask(Value batch, Value head);
  Value loadPart(unsigned part, Value position);
  Value toggle(Value column, Value count);
  void addColumn(Value sign);
  void clearSums();
  void emitRow(Value row);
  /// A builder at the same place that computes in f64.
  KernelBuilder wide() { return {b.getLoc(), b, b.getF64Type(), wideLanes}; }

  int64_t columns, wideLanes;
  /// Which columns are there.
  Value present;
  // The present task.
  Value batch, head, keyHeadIndex, u1, u2, values, sums, errors, output;
};
} // namespace

Value RowChangeKernel::loadPart(unsigned part, Value position) {
  Value buffer = op.getMaskParts()[part];
  return b.loadIndex(buffer, {b.broadcastIndex(buffer, 0, batch),
                              b.broadcastIndex(buffer, 1, head), position});
}

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
    Value factor = k.fmul(sign, k.loadScalar(u2, {k.index(0), d}));
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
  Value at[] = {batch, head, column};
  Value wasThere = memref::LoadOp::create(b, present, at);
  Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
  Value isThere =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, wasThere, no);
  memref::StoreOp::create(b, isThere, present, at);
  Value row[] = {batch, keyHeadIndex, column};
  b.packRow(op.getU2(), row, zero, u2, zero, paddedRank());
  b.packRow(op.getValue(), row, zero, values, zero, columns);
  b.storeScalar(b.scalar(1.0), values, {zero, b.index(width)});
  KernelBuilder k = wide();
  addColumn(k.select(wasThere, k.scalar(-1.0), k.scalar(1.0)));
  count = b.select(wasThere, b.sub(count, b.index(1)), b.add(count, 1));
  b.ifThen(b.equal(count, zero), [&] { clearSums(); });
  return count;
}

void RowChangeKernel::emitRow(Value row) {
  Value zero = b.index(0);
  b.packRow(op.getU1(), {batch, head, row}, zero, u1, zero, paddedRank());
  KernelBuilder k = wide();
  k.loop(zero, k.index(columns), wideLanes, [&](Value column) {
    Value sum =
        k.loop(zero, k.index(rank), 1, k.splat(0.0),
               [&](Value d, ValueRange sum) -> Values {
                 Value entry = k.fadd(k.loadVector(sums, {d, column}),
                                      k.loadVector(errors, {d, column}));
                 Value factor = k.broadcast(k.loadScalar(u1, {zero, d}));
                 return {k.fma(factor, entry, sum.front())};
               })
            .front();
    k.storeVector(sum, output, column);
  });
  storeMeans(output, {batch, head, row});
}

void RowChangeKernel::emitTask(Value batch, Value head) {
  this->batch = batch;
  this->head = head;
  keyHeadIndex = keyHead(head);
  Type wideType = b.getF64Type();
  u1 = b.scratch({1, paddedRank()}, state);
  u2 = b.scratch({1, paddedRank()}, state);
  values = b.scratch({1, columns}, state);
  output = b.scratch({columns}, state);
  sums = b.scratch({paddedRank(), columns}, wideType);
  errors = b.scratch({paddedRank(), columns}, wideType);
  clearSums();
  Value zero = b.index(0);
  b.loop(zero, b.extent(op.getU2(), 2), 1, [&](Value column) {
    memref::StoreOp::create(b, arith::ConstantIntOp::create(b, 0, /*width=*/1),
                            present, ValueRange{batch, head, column});
  });
  b.loop(zero, b.extent(op.getU1(), 2), 1, {zero, zero},
         [&](Value row, ValueRange state) -> Values {
           Value end = loadPart(0, row);
           Value count =
               b.loop(state[1], end, 1, state[0],
                      [&](Value change, ValueRange counts) -> Values {
                        return {toggle(loadPart(1, change), counts.front())};
                      })
                   .front();
           emitRow(row);
           return {count, end};
         });
  b.freeScratch();
}

void RowChangeKernel::emit() {
  Value extents[] = {b.extent(op.getU1(), 0), b.extent(op.getU1(), 1),
                     b.extent(op.getU2(), 2)};
  present = b.allocate(extents, {}, b.getI1Type());
  b.forAll({extents[0], extents[1]},
           [&](ValueRange ivs) { emitTask(ivs[0], ivs[1]); });
  memref::DeallocOp::create(b, present);
}

void fovea::attn::emitRowChangeLowRank(OpBuilder &builder, LowRankOp op,
                                       RegisterFile registers) {
  RowChangeKernel(builder, op, registers).emit();
}
