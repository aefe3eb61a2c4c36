//===- LowRankSum.cpp - Sums of low-rank attention ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With the totals of the rows and delta[i] = d_output[i] . output[i], every
// gradient is a sum like that of the forward operation:
//
//   gradient   of row   weight                              times
//   d_u1       i        [d_output[i], -delta[i]] . [v[j], 1]   u2[j]
//   d_u2       j        [v[j], 1] . [d_output[i], -delta[i]]   u1[i] / total[i]
//   d_value    j        u2[j] . u1[i] / total[i]               d_output[i]
//
// the first divided by total[i].
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/LowRankSum.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

int64_t PackedRows::getWidth() const {
  return rows ? cast<MemRefType>(rows.getType()).getDimSize(3) : 0;
}

Value PackedRows::load(KernelBuilder &b, ValueRange at, Value column) const {
  Value end = b.index(getWidth());
  auto loadRow = [&] {
    KernelBuilder::Values place(at);
    place.push_back(column);
    Value numbers = b.loadVector(rows, place);
    return scale ? b.fmul(numbers, b.broadcast(b.loadScalar(scale, at)))
                 : numbers;
  };
  // The other column, and zeros behind.
  auto loadRest = [&]() -> Value {
    if (!last && !hasOnes)
      return b.splat(0.0);
    Value number = last ? b.loadScalar(last, at) : b.scalar(1.0);
    if (b.getLanes())
      number = vector::InsertOp::create(b, number, b.splat(0.0), 0);
    return b.select(b.equal(column, end), number, b.splat(0.0));
  };
  if (!rows)
    return loadRest();
  return b.select(b.less(column, end), b.getVectorType(), loadRow, loadRest);
}

Value fovea::attn::invertTotal(KernelBuilder &b, Value total) {
  return arith::DivFOp::create(b, b.scalar(1.0), total);
}

static Value isZero(KernelBuilder &b, Value total) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, total,
                               b.scalar(0.0));
}

Value fovea::attn::invertTotalOrZero(KernelBuilder &b, Value total) {
  Value finite = b.fadd(total, b.fsub(total, total));
  return b.select(isZero(b, total), b.scalar(0.0), invertTotal(b, finite));
}

Value fovea::attn::divideByTotal(KernelBuilder &b, Value value, Value total,
                                 Value inverse) {
  // The difference is zero, or NaN for an infinity.
  Value mean =
      b.fmul(b.fadd(value, b.fsub(value, value)), b.broadcast(inverse));
  return b.select(isZero(b, total), b.splat(0.0), mean);
}

std::pair<Value, Value> fovea::attn::addCompensated(KernelBuilder &b,
                                                    Value part, Value sum,
                                                    Value carry) {
  Value added = b.fsub(part, carry), next = b.fadd(sum, added);
  return {next, b.fsub(b.fsub(next, sum), added)};
}

Value LowRankSum::loadPart(KernelBuilder &b, unsigned part, Value batch,
                           Value head, Value position) const {
  Value buffer = parts[part];
  return b.loadIndex(buffer, {b.broadcastIndex(buffer, 0, batch),
                              b.broadcastIndex(buffer, 1, head), position});
}

SumHeads::SumHeads(KernelBuilder &b, const LowRankSum &sum)
    : transposed(sum.transposed), rows(b.extent(sum.left.rows, 1)),
      queries(transposed ? b.extent(sum.right.rows, 1) : rows) {
  Value others = transposed ? rows : b.extent(sum.right.rows, 1);
  // Without heads there are no others to divide by.
  sharing = b.div(queries, b.max(others, 1));
}

Value SumHeads::getColumnHead(KernelBuilder &b, Value head) const {
  return transposed ? head : b.div(head, sharing);
}

void SumHeads::forQueryHeads(KernelBuilder &b, Value rowHead,
                             function_ref<void(Value, Value)> body) const {
  if (!transposed)
    return body(rowHead, /*isFirst=*/Value());
  Value first = b.mul(rowHead, sharing);
  if (getConstantIntValue(sharing) == 1)
    return body(first, /*isFirst=*/Value());
  b.loop(b.index(0), sharing, 1, [&](Value member) {
    body(b.add(first, member), b.equal(member, b.index(0)));
  });
}

template <typename OpTy> static LogicalResult verifyNoMasks(OpTy op) {
  if (!op.getQueryMask() && !op.getKeyMask())
    return success();
  return op.emitOpError("expects masks of tokens to be expanded: run "
                        "--attn-expand-patterns before bufferization");
}

LogicalResult fovea::attn::verifyNoTokenMasks(LowRankOp op) {
  return verifyNoMasks(op);
}

LogicalResult fovea::attn::verifyNoTokenMasks(LowRankBackwardOp op) {
  return verifyNoMasks(op);
}

LowRankSum fovea::attn::getLowRankSum(LowRankOp op) {
  return {/*left=*/{op.getU1()},
          /*right=*/{op.getU2()},
          /*value=*/{op.getValue()},
          op.getMask(),
          op.getMaskParts(),
          /*transposed=*/false,
          LowRankSum::Result::Means,
          op.getOutput()};
}

void fovea::attn::forGradientSums(LowRankBackwardOp op, Value inverses,
                                  Value deltas,
                                  function_ref<void(const LowRankSum &)> emit) {
  using Result = LowRankSum::Result;
  PackedRows rows = {op.getU1()}, scaledRows = {op.getU1(), inverses};
  PackedRows keys = {op.getU2()}, gradients = {op.getDOutput()};
  PackedRows shifted = {op.getDOutput(), /*scale=*/Value(), deltas};
  PackedRows values = {op.getValue(), /*scale=*/Value(), /*last=*/Value(),
                       /*hasOnes=*/true};
  auto emitOne = [&](const PackedRows &left, const PackedRows &right,
                     const PackedRows &value, bool transposed, Result result,
                     Value output, Value scale = {}) {
    emit({left, right, value, op.getMask(), op.getMaskParts(), transposed,
          result, output, scale});
  };
  emitOne(rows, keys, {}, /*transposed=*/false, Result::InverseTotals,
          inverses);
  emitOne(shifted, values, keys, /*transposed=*/false, Result::Sums,
          op.getDU1(), inverses);
  emitOne(values, shifted, scaledRows, /*transposed=*/true, Result::Sums,
          op.getDU2());
  emitOne(keys, scaledRows, gradients, /*transposed=*/true, Result::Sums,
          op.getDValue());
}
