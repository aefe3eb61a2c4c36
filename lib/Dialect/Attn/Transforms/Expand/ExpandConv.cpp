//===- ExpandConv.cpp - attn.conv to its two halves -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpandConv.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace fovea::attn {
#define GEN_PASS_DEF_EXPANDCONVPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

//===----------------------------------------------------------------------===//
// Tokens that are present
//===----------------------------------------------------------------------===//

void ConvExpander::listTokens(Value mask) {
  if (!mask)
    return;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), mask);
  Type i32 = b.getI32Type();
  Value inits[] = {
      tensor::EmptyOp::create(b, sizes, i32),
      tensor::EmptyOp::create(b, sizes, i32),
      tensor::EmptyOp::create(b, ArrayRef(sizes).take_front(), i32)};
  auto list = ListTokensOp::create(b, TypeRange(ValueRange(inits)), mask,
                                   inits[0], inits[1], inits[2]);
  tokens = list.getResult(0);
  places = list.getResult(1);
  counts = list.getResult(2);
}

Value ConvExpander::takeRows(Value from, Value rows, Value init) {
  if (!init)
    init =
        tensor::EmptyOp::create(b, tensor::getMixedSizes(b, b.getLoc(), from),
                                getElementTypeOrSelf(from));
  return TakeRowsOp::create(b, init.getType(), from, rows, init).getResult(0);
}

Value ConvExpander::unpack(Value rows, Value init) {
  return isPacked() ? takeRows(rows, places, init) : rows;
}

/// How many tokens there are from row `first` on; null without a mask.
Value ConvExpander::getLengths(OpFoldResult first, int64_t skipped) {
  if (!isPacked() || isConstantIntValue(first, 0))
    return counts;
  Type i32 = b.getI32Type();
  Value before = arith::IndexCastOp::create(
      b, i32, getValueOrCreateConstantIndexOp(b, b.getLoc(), first));
  Value most = arith::ConstantIntOp::create(b, i32, skipped);
  Value zero = arith::ConstantIntOp::create(b, i32, 0);
  auto type = cast<RankedTensorType>(counts.getType());
  Value init = tensor::EmptyOp::create(
      b, tensor::getMixedSizes(b, b.getLoc(), counts), i32);
  AffineMap identity = b.getMultiDimIdentityMap(1);
  return linalg::GenericOp::create(
             b, type, counts, init, {identity, identity},
             {utils::IteratorType::parallel},
             [&](OpBuilder &, Location, ValueRange numbers) {
               Value rest = arith::SubIOp::create(b, numbers[0], before);
               Value hasOwn = arith::CmpIOp::create(
                   b, arith::CmpIPredicate::sgt, rest, most);
               Value length = arith::SelectOp::create(b, hasOwn, rest, zero);
               linalg::YieldOp::create(b, length);
             })
      .getResult(0);
}

//===----------------------------------------------------------------------===//
// Pairs of groups
//===----------------------------------------------------------------------===//

Value ConvExpander::makeEmpty(Value like, ArrayRef<int64_t> trailing,
                              Type elementType) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), like);
  sizes.truncate(2);
  for (int64_t extent : trailing)
    sizes.push_back(ShapedType::isDynamic(extent)
                        ? tensor::getMixedSize(b, b.getLoc(), like, 2)
                        : b.getIndexAttr(extent));
  return tensor::EmptyOp::create(b, sizes, elementType);
}

Value ConvExpander::sliceRows(Value tensor, OpFoldResult first, int64_t count) {
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(b, b.getLoc(), tensor);
  offsets[2] = first;
  sizes[2] = b.getIndexAttr(count);
  return tensor::ExtractSliceOp::create(b, tensor, offsets, sizes, strides);
}

Value ConvExpander::insertRows(Value rows, Value tensor, OpFoldResult first) {
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(b, b.getLoc(), rows);
  offsets[2] = first;
  return tensor::InsertSliceOp::create(b, rows, tensor, offsets, sizes,
                                       strides);
}

OpFoldResult ConvExpander::addRows(OpFoldResult first, int64_t offset) {
  AffineExpr row;
  bindDims(b.getContext(), row);
  return affine::makeComposedFoldedAffineApply(b, b.getLoc(), row + offset,
                                               {first});
}

Value ConvExpander::fill(Value init) {
  Value zero =
      arith::ConstantOp::create(b, b.getZeroAttr(getElementTypeOrSelf(init)));
  return linalg::FillOp::create(b, zero, init).getResult(0);
}

Value ConvExpander::addTo(Value sums, Value added) {
  int64_t rank = cast<ShapedType>(sums.getType()).getRank();
  AffineMap identity = b.getMultiDimIdentityMap(rank);
  SmallVector<utils::IteratorType> parallel(rank,
                                            utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, sums.getType(), added, sums, {identity, identity}, parallel,
             [&](OpBuilder &, Location, ValueRange numbers) {
               Value sum =
                   isa<FloatType>(numbers[0].getType())
                       ? arith::AddFOp::create(b, numbers[1], numbers[0])
                             .getResult()
                       : arith::AddIOp::create(b, numbers[1], numbers[0]);
               linalg::YieldOp::create(b, sum);
             })
      .getResult(0);
}

ConvExpander::Values ConvExpander::forEachPair(int64_t group, ValueRange inits,
                                               PairBody body) {
  int64_t first = std::min(2 * group, numTokens);
  Values carried = body(b.getIndexAttr(0), first, /*skipped=*/0, inits);
  int64_t numGroups = numTokens / group;
  if (numGroups > 2) {
    Value one = arith::ConstantIndexOp::create(b, 1);
    Value end = arith::ConstantIndexOp::create(b, numGroups - 1);
    auto loop = scf::ForOp::create(b, one, end, one, carried);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    AffineExpr pair;
    bindDims(b.getContext(), pair);
    OpFoldResult row = affine::makeComposedFoldedAffineApply(
        b, b.getLoc(), pair * group, {OpFoldResult(loop.getInductionVar())});
    scf::YieldOp::create(b,
                         body(row, 2 * group, group, loop.getRegionIterArgs()));
    carried = Values(loop.getResults());
  }
  // What is left of a last group.
  int64_t done = std::max<int64_t>(numGroups, 2) * group;
  if (done < numTokens)
    carried = body(b.getIndexAttr(done - group), numTokens - done + group,
                   group, carried);
  return carried;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
class Expander : ConvExpander {
public:
  explicit Expander(ConvOp op) : ConvExpander(op, op.getQuery()), op(op) {
    listTokens(op.getMask());
    query = pack(op.getQuery());
    key = pack(op.getKey());
    value = pack(op.getValue());
  }

  void expand() {
    Value output = op.getOutput();
    if (isPacked())
      output = makeEmpty(output, getShape(output).take_back(2),
                         getElementTypeOrSelf(output));
    std::optional<int64_t> group = op.getGroup();
    Values results =
        !group || *group >= numTokens
            ? attend({query, key, value}, b.getIndexAttr(0),
                     /*skipped=*/0, output, op.getFound(), op.getRecomputed())
            : expandGroups(*group, output);
    results[0] = unpack(results[0], op.getOutput());
    op->replaceAllUsesWith(results);
    op.erase();
  }

private:
  Values expandGroups(int64_t group, Value output);
  Values attend(ArrayRef<Value> operands, OpFoldResult first, int64_t skipped,
                Value output, Value found, Value recomputed);
  Values attendRows(OpFoldResult first, int64_t count, int64_t skipped,
                    ValueRange results);

  ConvOp op;
  /// Of the tokens that are present.
  Value query, key, value;
};
} // namespace

/// Causal attention of all rows of the operands, which are those from `first`
/// on; nobody needs that of the first `skipped`.
Expander::Values Expander::attend(ArrayRef<Value> operands, OpFoldResult first,
                                  int64_t skipped, Value output, Value found,
                                  Value recomputed) {
  ConvRecoverOp bases =
      recover(op, operands[0], operands[1], found, first, skipped);
  auto apply =
      ConvApplyOp::create(b, TypeRange(ValueRange{output, recomputed}),
                          bases.getResult(0), bases.getResult(1), operands[2],
                          output, recomputed, op.getAlgorithmAttr(),
                          /*block=*/nullptr);
  return {apply.getResult(0), bases.getResult(2), apply.getResult(1)};
}

/// Attention of a pair of groups among themselves. Returns `results`, the
/// output and the counts so far, with the pair's own rows written and the
/// counts added.
Expander::Values Expander::attendRows(OpFoldResult first, int64_t count,
                                      int64_t skipped, ValueRange results) {
  Values operands;
  for (Value tensor : {query, key, value})
    operands.push_back(sliceRows(tensor, first, count));
  auto outputType = cast<RankedTensorType>(op.getOutput().getType());
  Value output = makeEmpty(query, {count, outputType.getDimSize(3)},
                           outputType.getElementType());
  Values counts;
  for (int i = 0; i < 2; ++i)
    counts.push_back(makeEmpty(query, {}, b.getI32Type()));
  Values rows = attend(operands, first, skipped, output, counts[0], counts[1]);
  Value kept = sliceRows(rows[0], b.getIndexAttr(skipped), count - skipped);
  return {insertRows(kept, results[0], addRows(first, skipped)),
          addTo(results[1], rows[1]), addTo(results[2], rows[2])};
}

Expander::Values Expander::expandGroups(int64_t group, Value output) {
  Values results = {output, fill(op.getFound()), fill(op.getRecomputed())};
  return forEachPair(group, results,
                     [&](OpFoldResult first, int64_t count, int64_t skipped,
                         ValueRange results) {
                       return attendRows(first, count, skipped, results);
                     });
}

namespace {
struct ExpandConvPass : fovea::attn::impl::ExpandConvPassBase<ExpandConvPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<ConvOp, ConvBackwardOp>(op))
        return WalkResult::advance();
      if (!cast<DestinationStyleOpInterface>(op).hasPureTensorSemantics())
        return op->emitOpError("expects tensors to be expanded, but got "
                               "memrefs: expand before bufferization");
      ops.push_back(op);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (Operation *op : ops) {
      if (auto conv = dyn_cast<ConvOp>(op))
        Expander(conv).expand();
      else
        expandConvBackward(cast<ConvBackwardOp>(op));
    }
  }
};
} // namespace
