//===- ExpandConvBackward.cpp - attn.conv_backward to its two halves ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpandConv.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

namespace {
class BackwardExpander : ConvExpander {
public:
  explicit BackwardExpander(ConvBackwardOp op)
      : ConvExpander(op, op.getQuery()), op(op) {
    listTokens(op.getMask());
    all = {pack(op.getQuery()), pack(op.getKey()), pack(op.getValue()),
           pack(op.getOutput()), pack(op.getDOutput())};
  }

  void expand() {
    Values inits(op.getDpsInits());
    if (isPacked())
      for (Value &init : inits)
        init = makeEmpty(init, getShape(init).take_back(2),
                         getElementTypeOrSelf(init));
    std::optional<int64_t> group = op.getGroup();
    Values gradients =
        !group || *group >= numTokens
            ? differentiate(all, b.getIndexAttr(0), /*skipped=*/0, inits)
            : expandGroups(*group);
    for (auto [gradient, init] : llvm::zip_equal(gradients, op.getDpsInits()))
      gradient = unpack(gradient, init);
    op->replaceAllUsesWith(gradients);
    op.erase();
  }

private:
  struct Rows {
    Value query, key, value, output, dOutput;
  };

  Values differentiate(const Rows &rows, OpFoldResult first, int64_t skipped,
                       ValueRange inits);
  Values addPair(OpFoldResult first, int64_t count, int64_t skipped,
                 ValueRange sums);
  Values expandGroups(int64_t group);

  ConvBackwardOp op;
  /// Of the tokens that are present.
  Rows all;
};
} // namespace

/// The gradients of queries, keys and values of causal attention of all rows,
/// which are those from `first` on; the first `skipped` pass none on.
BackwardExpander::Values BackwardExpander::differentiate(const Rows &rows,
                                                         OpFoldResult first,
                                                         int64_t skipped,
                                                         ValueRange inits) {
  Value found = makeEmpty(rows.query, {}, b.getI32Type());
  ConvRecoverOp bases =
      recover(op, rows.query, rows.key, found, first, skipped);
  Value basis = bases.getResult(0), sizes = bases.getResult(1);
  auto type = cast<RankedTensorType>(basis.getType());
  Value dBasis = makeEmpty(rows.query, type.getShape().take_back(2),
                           type.getElementType());
  auto apply = ConvApplyBackwardOp::create(
      b, TypeRange(ValueRange{dBasis, inits[2]}), basis, sizes, rows.value,
      rows.output, rows.dOutput, dBasis, inits[2], op.getAlgorithmAttr(),
      /*block=*/nullptr);
  auto scores = ConvRecoverBackwardOp::create(
      b, TypeRange(inits.take_front(2)), rows.query, rows.key, sizes,
      apply.getResult(0), inits[0], inits[1], op.getScaleAttr());
  return {scores.getResult(0), scores.getResult(1), apply.getResult(1)};
}

/// Adds the gradients of a pair of groups to `sums`. Rows that are not the
/// pair's own pass none on.
BackwardExpander::Values BackwardExpander::addPair(OpFoldResult first,
                                                   int64_t count,
                                                   int64_t skipped,
                                                   ValueRange sums) {
  Value query = sliceRows(all.query, first, count);
  // The gradients of the pair's own rows, behind zeros.
  auto own = [&](Value tensor) {
    auto type = cast<RankedTensorType>(tensor.getType());
    Value zeros = fill(
        makeEmpty(query, {count, type.getDimSize(3)}, type.getElementType()));
    Value rows = sliceRows(tensor, addRows(first, skipped), count - skipped);
    return insertRows(rows, zeros, b.getIndexAttr(skipped));
  };
  Values inits;
  for (Value sum : sums) {
    auto type = cast<RankedTensorType>(sum.getType());
    inits.push_back(
        makeEmpty(sum, {count, type.getDimSize(3)}, type.getElementType()));
  }
  Values gradients = differentiate({query, sliceRows(all.key, first, count),
                                    sliceRows(all.value, first, count),
                                    own(all.output), own(all.dOutput)},
                                   first, skipped, inits);
  Values results;
  for (auto [sum, gradient] : llvm::zip_equal(sums, gradients))
    results.push_back(
        insertRows(addTo(sliceRows(sum, first, count), gradient), sum, first));
  return results;
}

BackwardExpander::Values BackwardExpander::expandGroups(int64_t group) {
  Values sums;
  for (Value init : op.getDpsInits()) {
    auto type = cast<RankedTensorType>(init.getType());
    sums.push_back(fill(makeEmpty(init, type.getShape().take_back(2),
                                  getStateType(type.getElementType()))));
  }
  sums = forEachPair(
      group, sums,
      [&](OpFoldResult first, int64_t count, int64_t skipped, ValueRange sums) {
        return addPair(first, count, skipped, sums);
      });
  for (auto [sum, init] : llvm::zip_equal(sums, op.getDpsInits()))
    if (sum.getType() != init.getType())
      sum = arith::TruncFOp::create(b, init.getType(), sum);
  return sums;
}

void fovea::attn::detail::expandConvBackward(ConvBackwardOp op) {
  BackwardExpander(op).expand();
}
