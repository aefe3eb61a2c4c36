//===- ExpandConv.cpp - attn.conv to its two halves -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace fovea::attn {
#define GEN_PASS_DEF_EXPANDCONVPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
class Expander {
public:
  explicit Expander(ConvOp op)
      : op(op), b(op.getLoc(), op),
        numTokens(cast<ShapedType>(op.getQuery().getType()).getDimSize(2)) {}

  void expand() {
    std::optional<int64_t> group = op.getGroup();
    if (!group || *group >= numTokens)
      op->replaceAllUsesWith(attend(op.getQuery(), op.getKey(), op.getValue(),
                                    op.getOutput(), op.getFound(),
                                    op.getRecomputed()));
    else
      op->replaceAllUsesWith(expandGroups(*group));
    op.erase();
  }

private:
  using Values = SmallVector<Value>;

  Values expandGroups(int64_t group);
  Values attend(Value query, Value key, Value value, Value output, Value found,
                Value recomputed);
  Values attendRows(OpFoldResult first, int64_t count, int64_t skipped,
                    ValueRange results);
  Value addCounts(Value counts, Value added);
  Value sliceRows(Value tensor, OpFoldResult first, int64_t count);
  Value makeEmpty(Value like, ArrayRef<int64_t> trailing, Type elementType);

  ConvOp op;
  ImplicitLocOpBuilder b;
  int64_t numTokens;
};
} // namespace

/// An empty tensor of the leading two extents of `like` and `trailing`.
Value Expander::makeEmpty(Value like, ArrayRef<int64_t> trailing,
                          Type elementType) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), like);
  sizes.truncate(2);
  for (int64_t extent : trailing)
    sizes.push_back(b.getIndexAttr(extent));
  return tensor::EmptyOp::create(b, sizes, elementType);
}

/// Causal attention of all rows of the operands.
Expander::Values Expander::attend(Value query, Value key, Value value,
                                  Value output, Value found, Value recomputed) {
  auto type = cast<RankedTensorType>(query.getType());
  int64_t length = type.getDimSize(2), numBases = op.getNumBasis();
  Value basis =
      makeEmpty(query, {numBases, length}, getStateType(type.getElementType()));
  Value sizes = makeEmpty(query, numBases, b.getI32Type());
  auto recover = ConvRecoverOp::create(
      b, TypeRange(ValueRange{basis, sizes, found}), query, key, basis, sizes,
      found, op.getWindowAttr(), op.getDeltaAttr(), op.getEpsilonAttr(),
      op.getScaleAttr());
  auto apply = ConvApplyOp::create(
      b, TypeRange(ValueRange{output, recomputed}), recover.getResult(0),
      recover.getResult(1), value, output, recomputed, op.getAlgorithmAttr(),
      /*block=*/nullptr);
  return {apply.getResult(0), recover.getResult(2), apply.getResult(1)};
}

/// Rows `first .. first + count - 1` of `[B, H, N, D]`.
Value Expander::sliceRows(Value tensor, OpFoldResult first, int64_t count) {
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(b, b.getLoc(), tensor);
  offsets[2] = first;
  sizes[2] = b.getIndexAttr(count);
  return tensor::ExtractSliceOp::create(b, tensor, offsets, sizes, strides);
}

/// Attention of rows `first .. first + count - 1` among themselves. Returns
/// `results`, the output and the counts so far, with that of all but the first
/// `skipped` rows written and the counts added.
Expander::Values Expander::attendRows(OpFoldResult first, int64_t count,
                                      int64_t skipped, ValueRange results) {
  Values operands;
  for (Value tensor : {op.getQuery(), op.getKey(), op.getValue()})
    operands.push_back(sliceRows(tensor, first, count));
  Value query = operands[0];
  auto outputType = cast<RankedTensorType>(op.getOutput().getType());
  Value output = makeEmpty(query, {count, outputType.getDimSize(3)},
                           outputType.getElementType());
  Values counts;
  for (int i = 0; i < 2; ++i)
    counts.push_back(makeEmpty(query, {}, b.getI32Type()));
  Values rows =
      attend(query, operands[1], operands[2], output, counts[0], counts[1]);
  Value kept = sliceRows(rows[0], b.getIndexAttr(skipped), count - skipped);
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(b, b.getLoc(), kept);
  AffineExpr row;
  bindDims(b.getContext(), row);
  offsets[2] = affine::makeComposedFoldedAffineApply(b, b.getLoc(),
                                                     row + skipped, {first});
  Value written = tensor::InsertSliceOp::create(b, kept, results[0], offsets,
                                                sizes, strides);
  return {written, addCounts(results[1], rows[1]),
          addCounts(results[2], rows[2])};
}

/// `counts + added`, in place of `counts`.
Value Expander::addCounts(Value counts, Value added) {
  AffineMap identity = b.getMultiDimIdentityMap(2);
  SmallVector<utils::IteratorType> parallel(2, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, counts.getType(), added, counts, {identity, identity}, parallel,
             [&](OpBuilder &, Location, ValueRange numbers) {
               Value sum = arith::AddIOp::create(b, numbers[0], numbers[1]);
               linalg::YieldOp::create(b, sum);
             })
      .getResult(0);
}

/// Every pair of neighbouring groups; the first group of a pair belongs to the
/// pair before.
Expander::Values Expander::expandGroups(int64_t group) {
  Value zero = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  Values results = {op.getOutput()};
  for (Value init : {op.getFound(), op.getRecomputed()})
    results.push_back(linalg::FillOp::create(b, zero, init).getResult(0));
  int64_t first = std::min(2 * group, numTokens);
  results = attendRows(b.getIndexAttr(0), first, /*skipped=*/0, results);
  int64_t numGroups = numTokens / group;
  if (numGroups > 2) {
    Value one = arith::ConstantIndexOp::create(b, 1);
    Value end = arith::ConstantIndexOp::create(b, numGroups - 1);
    auto loop = scf::ForOp::create(b, one, end, one, results);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    AffineExpr pair;
    bindDims(b.getContext(), pair);
    OpFoldResult row = affine::makeComposedFoldedAffineApply(
        b, b.getLoc(), pair * group, {OpFoldResult(loop.getInductionVar())});
    Values next = attendRows(row, 2 * group, group, loop.getRegionIterArgs());
    scf::YieldOp::create(b, next);
    results = Values(loop.getResults());
  }
  // What is left of a last group.
  int64_t done = std::max<int64_t>(numGroups, 2) * group;
  if (done < numTokens)
    results = attendRows(b.getIndexAttr(done - group), numTokens - done + group,
                         group, results);
  return results;
}

namespace {
struct ExpandConvPass : fovea::attn::impl::ExpandConvPassBase<ExpandConvPass> {
  void runOnOperation() override {
    SmallVector<ConvOp> ops;
    WalkResult result = getOperation().walk([&](ConvOp op) -> WalkResult {
      if (!op.hasPureTensorSemantics())
        return op.emitOpError("expects tensors to be expanded, but got "
                              "memrefs: expand before bufferization");
      ops.push_back(op);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (ConvOp op : ops)
      Expander(op).expand();
  }
};
} // namespace
