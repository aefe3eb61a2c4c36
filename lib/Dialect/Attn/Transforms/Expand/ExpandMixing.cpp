//===- ExpandMixing.cpp - Summaries that mix columns ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights [W, p, I, D, E] that mix columns are factors of a product over the
// numbers of an interval:
//
//   summaries[b, w, r, u, a, e] +=
//       tokens[b, w, r, u, t, d] weights[w, a, t, d, e]
//
// where head w R + r uses set w. Its gradients are two more such products. The
// last interval may be cut: it has a product of its own, so that weights for
// tokens that do not exist are not read, whatever they hold.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

template <typename OpTy> static bool mixes(OpTy op) {
  return cast<ShapedType>(op.getWeights().getType()).getRank() == 5;
}

bool fovea::attn::detail::mixesColumns(Operation *op) {
  if (auto summarize = dyn_cast<SummarizeOp>(op))
    return mixes(summarize);
  auto backward = dyn_cast<SummarizeBackwardOp>(op);
  return backward && mixes(backward);
}

namespace {
/// What the products of an operation have in common.
class Mixing {
public:
  template <typename OpTy>
  Mixing(OpBuilder &builder, OpTy op)
      : b(builder), loc(op.getLoc()), input(op.getInput()),
        weights(op.getWeights()), interval(op.getInterval()),
        rank(op.getRank()),
        sumType(getStateType(getElementTypeOrSelf(op.getInput()))) {}

  /// Calls `emit` for the whole intervals, and for one that is cut, if there is
  /// one or the number of tokens is not known.
  void forEachPart(function_ref<void()> emit);

  // Of the present part: operands as the product has them.
  Value getTokens(Value rows) const { return cut(rows, interval, length); }
  Value getSummaries(Value rows) const {
    return cut(rows, rank, b.getIndexAttr(rank));
  }
  Value getWeights(Value all) const;
  /// And back into what they were taken from.
  Value putTokens(Value part, Value rows) const {
    return put(part, rows, interval);
  }
  Value putSummaries(Value part, Value rows) const {
    return put(part, rows, rank);
  }
  Value putWeights(Value part, Value all) const;

  enum Operand { Tokens, Weights, Summaries };
  Value multiply(Value lhs, Operand left, Value rhs, Operand right, Value sums,
                 Operand output) const;

  /// `value` in the type of sums, and sums in the type of `like`.
  Value widen(Value value) const;
  Value narrow(Value sums, Value like) const;

private:
  OpFoldResult apply(AffineExpr expr, ArrayRef<OpFoldResult> operands) const {
    return affine::makeComposedFoldedAffineApply(b, loc, expr, operands);
  }
  /// [B, G, rows, D] from row `first * unit` on as [B, W, R, count, size, D].
  Value cut(Value rows, int64_t unit, OpFoldResult size) const;
  Value put(Value part, Value rows, int64_t unit) const;
  SmallVector<OpFoldResult> getWeightSizes(Value all) const;
  static SmallVector<ReassociationIndices> getGroups() {
    return {{0}, {1, 2}, {3, 4}, {5}};
  }

  OpBuilder &b;
  Location loc;
  Value input, weights;
  int64_t interval, rank;
  Type sumType;
  /// The present part: `count` intervals of `length` tokens from `first` on.
  OpFoldResult first, count, length;
};
} // namespace

void Mixing::forEachPart(function_ref<void()> emit) {
  OpFoldResult tokens = tensor::getMixedSize(b, loc, input, 2);
  AffineExpr symbol = b.getAffineSymbolExpr(0);
  OpFoldResult whole = apply(symbol.floorDiv(interval), tokens);
  OpFoldResult rest = apply(symbol % interval, tokens);
  first = b.getIndexAttr(0);
  count = whole;
  length = b.getIndexAttr(interval);
  if (getConstantIntValue(count) != 0)
    emit();
  if (getConstantIntValue(rest) == 0)
    return;
  first = whole;
  count = apply(symbol.ceilDiv(interval) - symbol.floorDiv(interval), tokens);
  length = rest;
  emit();
}

Value Mixing::cut(Value rows, int64_t unit, OpFoldResult size) const {
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1)),
      sizes = tensor::getMixedSizes(b, loc, rows);
  AffineExpr x = b.getAffineSymbolExpr(0), y = b.getAffineSymbolExpr(1);
  offsets[2] = apply(x * unit, first);
  sizes[2] = apply(x * y, {count, size});
  Value slice =
      tensor::ExtractSliceOp::create(b, loc, rows, offsets, sizes, strides);
  int64_t sets = cast<ShapedType>(weights.getType()).getDimSize(0);
  SmallVector<OpFoldResult> shape = {sizes[0],
                                     b.getIndexAttr(sets),
                                     apply(x.floorDiv(sets), sizes[1]),
                                     count,
                                     size,
                                     sizes[3]};
  SmallVector<int64_t> extents;
  SmallVector<Value> dynamic;
  dispatchIndexOpFoldResults(shape, dynamic, extents);
  auto type = RankedTensorType::get(extents, getElementTypeOrSelf(rows));
  return tensor::ExpandShapeOp::create(b, loc, type, slice, getGroups(), shape);
}

Value Mixing::put(Value part, Value rows, int64_t unit) const {
  Value slice = tensor::CollapseShapeOp::create(b, loc, part, getGroups());
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)),
      strides(4, b.getIndexAttr(1));
  offsets[2] = apply(b.getAffineSymbolExpr(0) * unit, first);
  return tensor::InsertSliceOp::create(b, loc, slice, rows, offsets,
                                       tensor::getMixedSizes(b, loc, slice),
                                       strides);
}

SmallVector<OpFoldResult> Mixing::getWeightSizes(Value all) const {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, all);
  sizes[2] = length;
  return sizes;
}

Value Mixing::getWeights(Value all) const {
  SmallVector<OpFoldResult> offsets(5, b.getIndexAttr(0)),
      strides(5, b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, all, offsets,
                                        getWeightSizes(all), strides);
}

Value Mixing::putWeights(Value part, Value all) const {
  SmallVector<OpFoldResult> offsets(5, b.getIndexAttr(0)),
      strides(5, b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, loc, part, all, offsets,
                                       getWeightSizes(all), strides);
}

Value Mixing::multiply(Value lhs, Operand left, Value rhs, Operand right,
                       Value sums, Operand output) const {
  // (b, w, r, u, a, t, d, e)
  auto getMap = [&](Operand operand) {
    static constexpr unsigned tokens[] = {0, 1, 2, 3, 5, 6},
                              factors[] = {1, 4, 5, 6, 7},
                              summaries[] = {0, 1, 2, 3, 4, 7};
    ArrayRef<unsigned> dims = operand == Tokens    ? ArrayRef(tokens)
                              : operand == Weights ? ArrayRef(factors)
                                                   : ArrayRef(summaries);
    return AffineMap::getMultiDimMapWithTargets(8, dims, b.getContext());
  };
  return linalg::ContractOp::create(
             b, loc, sums.getType(), ValueRange{lhs, rhs}, sums,
             b.getAffineMapArrayAttr(
                 {getMap(left), getMap(right), getMap(output)}))
      .getResult(0);
}

Value Mixing::widen(Value value) const {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == sumType)
    return value;
  return arith::ExtFOp::create(b, loc, type.clone(sumType), value);
}

Value Mixing::narrow(Value sums, Value like) const {
  if (sums.getType() == like.getType())
    return sums;
  return arith::TruncFOp::create(b, loc, like.getType(), sums);
}

namespace {
struct ExpandMixedSummaries : OpRewritePattern<SummarizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SummarizeOp op,
                                PatternRewriter &rewriter) const override {
    if (!mixes(op) || !op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "mixes no columns of tensors");
    Location loc = op.getLoc();
    Mixing mixing(rewriter, op);
    Value sums = op.getOutput();
    Type sumType = getStateType(getElementTypeOrSelf(sums));
    if (getElementTypeOrSelf(sums) != sumType)
      sums = tensor::EmptyOp::create(
          rewriter, loc, tensor::getMixedSizes(rewriter, loc, sums), sumType);
    Value bias = op.getBias() ? mixing.widen(op.getBias()) : Value();
    mixing.forEachPart([&] {
      Value part = mixing.getSummaries(sums);
      Value start = bias ? linalg::BroadcastOp::create(
                               rewriter, loc, bias, part,
                               /*dimensions=*/ArrayRef<int64_t>{0, 2, 3})
                               ->getResult(0)
                         : createZeros(rewriter, loc, part, sumType);
      Value product =
          mixing.multiply(mixing.getTokens(op.getInput()), Mixing::Tokens,
                          mixing.getWeights(op.getWeights()), Mixing::Weights,
                          start, Mixing::Summaries);
      sums = mixing.putSummaries(product, sums);
    });
    rewriter.replaceOp(op, mixing.narrow(sums, op.getOutput()));
    return success();
  }

private:
  static Value createZeros(OpBuilder &builder, Location loc, Value init,
                           Type type) {
    Value zero = arith::ConstantOp::create(builder, loc,
                                           builder.getFloatAttr(type, 0.0));
    return linalg::FillOp::create(builder, loc, zero, init).getResult(0);
  }
};

struct ExpandMixedSummariesBackward : OpRewritePattern<SummarizeBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SummarizeBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (!mixes(op) || !op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "mixes no columns of tensors");
    Mixing mixing(rewriter, op);
    Value dInput = mixing.widen(op.getDInput()),
          dWeights = mixing.widen(op.getDWeights()),
          dBias = op.getDBias() ? mixing.widen(op.getDBias()) : Value();
    mixing.forEachPart([&] {
      Value dSummaries = mixing.getSummaries(op.getDOutput());
      Value tokens = mixing.multiply(
          dSummaries, Mixing::Summaries, mixing.getWeights(op.getWeights()),
          Mixing::Weights, mixing.getTokens(dInput), Mixing::Tokens);
      dInput = mixing.putTokens(tokens, dInput);
      Value factors = mixing.multiply(
          mixing.getTokens(op.getInput()), Mixing::Tokens, dSummaries,
          Mixing::Summaries, mixing.getWeights(dWeights), Mixing::Weights);
      dWeights = mixing.putWeights(factors, dWeights);
      if (dBias)
        dBias = addSums(rewriter, op.getLoc(), dSummaries, dBias);
    });
    SmallVector<Value> results = {mixing.narrow(dInput, op.getDInput()),
                                  mixing.narrow(dWeights, op.getDWeights())};
    if (dBias)
      results.push_back(mixing.narrow(dBias, op.getDBias()));
    rewriter.replaceOp(op, results);
    return success();
  }

private:
  /// `sums` [W, p, E], and those of `summaries` over all else.
  static Value addSums(OpBuilder &builder, Location loc, Value summaries,
                       Value sums) {
    Type type = getElementTypeOrSelf(sums);
    SmallVector<utils::IteratorType> iterators(6,
                                               utils::IteratorType::reduction);
    for (unsigned dim : {1, 4, 5})
      iterators[dim] = utils::IteratorType::parallel;
    SmallVector<AffineMap> maps = {builder.getMultiDimIdentityMap(6),
                                   AffineMap::getMultiDimMapWithTargets(
                                       6, {1, 4, 5}, builder.getContext())};
    return linalg::GenericOp::create(
               builder, loc, sums.getType(), summaries, sums, maps, iterators,
               [&](OpBuilder &nested, Location at, ValueRange args) {
                 Value number = args[0];
                 if (number.getType() != type)
                   number = arith::ExtFOp::create(nested, at, type, number);
                 linalg::YieldOp::create(
                     nested, at,
                     Value(arith::AddFOp::create(nested, at, args[1], number)));
               })
        .getResult(0);
  }
};
} // namespace

void fovea::attn::detail::populateExpandMixingPatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandMixedSummaries, ExpandMixedSummariesBackward>(
      patterns.getContext());
}
