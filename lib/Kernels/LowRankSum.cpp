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

using namespace mlir;
using namespace fovea::attn;

int64_t PackedRows::getWidth() const {
  return rows ? cast<MemRefType>(rows.getType()).getDimSize(3) : 0;
}

Value LowRankSum::loadPart(RowBuilder &b, unsigned part, Value batch,
                           Value head, Value position) const {
  Value buffer = parts[part];
  return b.loadIndex(buffer, {b.broadcastIndex(buffer, 0, batch),
                              b.broadcastIndex(buffer, 1, head), position});
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
