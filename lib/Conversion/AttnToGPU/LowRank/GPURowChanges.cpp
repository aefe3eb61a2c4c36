//===- GPURowChanges.cpp - Low-rank attention by changes of rows on a GPU -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// First which of the changes let a column enter, and which let it leave: a
// thread for each 256th column reads all of them. Then a thread for each head
// and column of the values goes through the rows, with its column of
//
//   C = sum_j right[j, :] (x) [value[j, :], 1]     [rank][columns]
//
// in f64, where products of f32 numbers are exact, and with what each addition
// rounds off; a row without keys starts from zero again.
//
// Transposed intervals are such changes: a row of attn.low_rank, now a column,
// enters at its first column and leaves after its last.
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Kernels/ChangeList.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Threads that share the columns of the mask.
static constexpr int64_t kNumShares = 256;

namespace {
class RowChangeLoops : public LowRankLoops {
public:
  using LowRankLoops::LowRankLoops;

private:
  void emitRows() override;
  void findSigns();
  void emitColumn(ValueRange at);
  void clearSums(ValueRange at);
  Value takeChange(ValueRange at, Value change, Value count);
  Value sumRow(ValueRange at, Value row);
  /// A builder at the same place that computes in f64.
  KernelBuilder wide() { return {b.getLoc(), b, b.getF64Type(), /*lanes=*/0}; }

  // Where the changes of a row end, and the column of a change.
  Value loadEnd(ValueRange at, Value row) {
    return sum.transposed ? changes.getRange(b, at[0], at[1], row).second
                          : sum.loadPart(b, 0, at[0], at[1], row);
  }
  Value loadColumn(ValueRange at, Value change) {
    return sum.transposed ? changes.load(b, at[0], at[1], change)
                          : sum.loadPart(b, 1, at[0], at[1], change);
  }

  /// Of a transposed mask.
  ChangeList changes;
  /// Which columns are there [B, H, M]; 1 or -1 for every change [B, H, K].
  Value present, signs;
  /// [B, H, rank, columns]. The last counts the products that are not finite:
  /// what entered a sum as NaN could not leave it.
  Value sums, errors, unbounded;
};
} // namespace

void RowChangeLoops::findSigns() {
  Value numChanges =
      sum.transposed ? b.mul(numColumns, 2) : b.extent(sum.parts[1], 2);
  Type type = b.getI32Type();
  present = allocate({batches, heads, numColumns}, {}, type);
  signs = allocate({batches, heads, numChanges}, {}, type);
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
  };
  parallelLoop(b, {batches, heads, b.index(kNumShares)}, [&](ValueRange at) {
    b.loop(at[2], numColumns, kNumShares, [&](Value column) {
      memref::StoreOp::create(b, number(-1), present,
                              ValueRange{at[0], at[1], column});
    });
    Value last = b.sub(numRows, b.index(1));
    Value end = b.select(
        b.less(b.index(0), numRows), b.getIndexType(),
        [&] { return loadEnd(at, last); }, [&] { return b.index(0); });
    b.loop(b.index(0), end, 1, [&](Value change) {
      Value column = loadColumn(at, change);
      b.ifThen(b.equal(b.rem(column, kNumShares), at[2]), [&] {
        Value place[] = {at[0], at[1], column};
        Value sign = b.sub(
            number(0), memref::LoadOp::create(b, present, place).getResult());
        memref::StoreOp::create(b, sign, present, place);
        memref::StoreOp::create(b, sign, signs,
                                ValueRange{at[0], at[1], change});
      });
    });
  });
}

void RowChangeLoops::clearSums(ValueRange at) {
  KernelBuilder k = wide();
  k.loop(k.index(0), k.index(rank), 1, [&](Value d) {
    for (Value buffer : {sums, errors, unbounded})
      k.storeScalar(k.scalar(0.0), buffer, {at[0], at[1], d, at[2]});
  });
}

/// Lets a column enter or leave; takes and returns how many are there.
Value RowChangeLoops::takeChange(ValueRange at, Value change, Value count) {
  Value column = loadColumn(at, change);
  Value group = columnHead(b, at[1]);
  Value sign =
      memref::LoadOp::create(b, signs, ValueRange{at[0], at[1], change});
  Value value = loadValue(b, at[0], group, column, at[2]);
  value = b.fmul(value, arith::SIToFPOp::create(b, b.getF32Type(), sign));
  KernelBuilder k = wide();
  Value factor = arith::ExtFOp::create(k, k.getF64Type(), value);
  Value entered = arith::SIToFPOp::create(k, k.getF64Type(), sign);
  k.loop(k.index(0), k.index(rank), 1, [&](Value d) {
    Value place[] = {at[0], at[1], d, at[2]};
    KernelBuilder narrow(k.getLoc(), k, b.getF32Type(), /*lanes=*/0);
    Value number = loadRight(narrow, at[0], group, column, d);
    Value product =
        k.fmul(factor, arith::ExtFOp::create(k, k.getF64Type(), number));
    Value zero = k.scalar(0.0);
    Value isFinite = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ,
                                           k.fsub(product, product), zero);
    k.ifThenElse(
        isFinite, [] {},
        [&] {
          Value counted = k.fadd(k.loadScalar(unbounded, place), entered);
          k.storeScalar(counted, unbounded, place);
        });
    product = k.select(isFinite, product, zero);
    Value old = k.loadScalar(sums, place), sum = k.fadd(old, product);
    k.storeScalar(sum, sums, place);
    // What the sum lost of either, exactly (Knuth).
    Value added = k.fsub(sum, old);
    Value lost =
        k.fadd(k.fsub(old, k.fsub(sum, added)), k.fsub(product, added));
    k.storeScalar(k.fadd(k.loadScalar(errors, place), lost), errors, place);
  });
  count = b.add(
      count, arith::IndexCastOp::create(b, b.getIndexType(), sign).getResult());
  b.ifThen(b.equal(count, b.index(0)), [&] { clearSums(at); });
  return count;
}

Value RowChangeLoops::sumRow(ValueRange at, Value row) {
  KernelBuilder k = wide();
  return k.loop(
      k.index(0), k.index(rank), 1, {k.scalar(0.0)},
      [&](Value d, ValueRange sum) -> Values {
        Value place[] = {at[0], at[1], d, at[2]};
        Value entry =
            k.fadd(k.loadScalar(sums, place), k.loadScalar(errors, place));
        Value isBounded = arith::CmpFOp::create(k, arith::CmpFPredicate::OEQ,
                                                k.loadScalar(unbounded, place),
                                                k.scalar(0.0));
        entry = k.select(isBounded, entry,
                         k.scalar(std::numeric_limits<double>::quiet_NaN()));
        KernelBuilder narrow(k.getLoc(), k, b.getF32Type(),
                             /*lanes=*/0);
        Value factor = loadLeft(narrow, at[0], at[1], row, d);
        factor = arith::ExtFOp::create(k, k.getF64Type(), factor);
        return {k.fadd(k.fmul(factor, entry), sum[0])};
      })[0];
}

void RowChangeLoops::emitColumn(ValueRange at) {
  clearSums(at);
  Value zero = b.index(0);
  b.loop(zero, numRows, 1, {zero, zero},
         [&](Value row, ValueRange carried) -> Values {
           Value end = loadEnd(at, row);
           Value count = b.loop(carried[1], end, 1, {carried[0]},
                                [&](Value change, ValueRange count) -> Values {
                                  return {takeChange(at, change, count[0])};
                                })[0];
           Value sum = sumRow(at, row);
           sum = arith::TruncFOp::create(b, b.getF32Type(), sum);
           b.storeScalar(sum, rows, {at[0], at[1], row, at[2]});
           return {count, end};
         });
}

void RowChangeLoops::emitRows() {
  if (sum.transposed)
    changes = ChangeList::fromIntervals(b, sum);
  findSigns();
  Type type = b.getF64Type();
  sums = allocate({batches, heads}, {rank, columns}, type);
  errors = allocate({batches, heads}, {rank, columns}, type);
  unbounded = allocate({batches, heads}, {rank, columns}, type);
  parallelLoop(b, {batches, heads, b.index(columns)},
               [&](ValueRange at) { emitColumn(at); });
  changes.free(b);
}

void fovea::attn::emitRowChangeLoops(OpBuilder &builder, Location loc,
                                     const LowRankSum &sum, F32Math math) {
  RowChangeLoops(builder, loc, sum, math).emit();
}
