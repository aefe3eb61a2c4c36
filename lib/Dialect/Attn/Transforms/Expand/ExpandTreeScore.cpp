//===- ExpandTreeScore.cpp - Expand attn.tree_score to attn.dense ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both scores are logarithms of sums of exponentials, which attention returns
// beside its output; the values it averages are zeros of width one.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

namespace {
struct ScoreBuilder {
  ImplicitLocOpBuilder b;
  Type stateType;

  OpFoldResult size(Value tensor, int64_t dim) {
    return tensor::getMixedSize(b, b.getLoc(), tensor, dim);
  }
  Value number(double value) {
    return arith::ConstantOp::create(b, b.getFloatAttr(stateType, value));
  }
  Value empty(ArrayRef<OpFoldResult> sizes, Type type) {
    return tensor::EmptyOp::create(b, sizes, type);
  }

  /// `[B, n]` as `[B, 1, n]`.
  Value addHead(Value tensor) {
    return reshape(tensor, {{0, 1}, {2}},
                   {size(tensor, 0), b.getIndexAttr(1), size(tensor, 1)});
  }
  Value reshape(Value tensor, ArrayRef<ReassociationIndices> groups,
                ArrayRef<OpFoldResult> sizes) {
    auto [shape, dynamic] =
        decomposeMixedValues(SmallVector<OpFoldResult>(sizes));
    auto type = RankedTensorType::get(
        shape, cast<RankedTensorType>(tensor.getType()).getElementType());
    return tensor::ExpandShapeOp::create(b, type, tensor, groups, sizes);
  }

  /// The log-sum-exp of the scores of each query, written to `init` if given.
  Value logSum(Value query, Value key, Value logWeight, FloatAttr scale,
               Value init = {}) {
    auto type = cast<RankedTensorType>(query.getType());
    auto makeZeros = [&](Value like) -> Value {
      SmallVector<OpFoldResult> sizes = {size(like, 0), size(like, 1),
                                         size(like, 2), b.getIndexAttr(1)};
      return empty(sizes, type.getElementType());
    };
    Value zero =
        arith::ConstantOp::create(b, b.getFloatAttr(type.getElementType(), 0));
    Value value = linalg::FillOp::create(b, zero, makeZeros(key)).getResult(0);
    Value output = makeZeros(query);
    if (!init)
      init = empty({size(query, 0), size(query, 1), size(query, 2)}, stateType);
    auto dense = DenseOp::create(b, {output.getType(), init.getType()}, query,
                                 key, value, logWeight, /*bias=*/Value(),
                                 output, init, scale, /*mask=*/MaskAttr());
    return dense.getResult(1);
  }
};

} // namespace

/// The average of exp(s[h, i, x] - lse[h, i]): an attention of the candidates
/// to the VIP tokens, each with log weight -lse.
static Value expandProbability(TreeScoreOp op, ScoreBuilder &s,
                               FloatAttr scale) {
  ImplicitLocOpBuilder &b = s.b;
  Value query = op.getQuery(), key = op.getKey(), weight = op.getLogWeight();
  auto queryType = cast<RankedTensorType>(query.getType());
  int64_t heads = queryType.getDimSize(1);
  int64_t groups = cast<RankedTensorType>(key.getType()).getDimSize(1);
  OpFoldResult tokens = s.size(query, 2);

  Value totals =
      s.logSum(query, key, weight ? s.addHead(weight) : Value(), scale);
  // Where nothing can be looked at, minus infinity takes the token out.
  Value minusInfinity = s.number(-std::numeric_limits<double>::infinity());
  Value negated = s.empty(
      {s.size(totals, 0), s.size(totals, 1), s.size(totals, 2)}, s.stateType);
  AffineMap identity = b.getMultiDimIdentityMap(3);
  SmallVector<utils::IteratorType> parallel(3, utils::IteratorType::parallel);
  negated = linalg::GenericOp::create(
                b, negated.getType(), totals, negated,
                ArrayRef<AffineMap>{identity, identity}, parallel,
                [&](OpBuilder &, Location loc, ValueRange args) {
                  Value isNothing = arith::CmpFOp::create(
                      b, arith::CmpFPredicate::OEQ, args[0], minusInfinity);
                  Value opposite = arith::NegFOp::create(b, args[0]);
                  Value result = arith::SelectOp::create(
                      b, isNothing, minusInfinity, opposite);
                  linalg::YieldOp::create(b, result);
                })
                .getResult(0);

  // Heads that share keys are one head with as many more tokens.
  if (groups != heads) {
    OpFoldResult shared = b.getIndexAttr(heads / groups);
    OpFoldResult group = b.getIndexAttr(groups);
    Value split =
        s.reshape(query, {{0}, {1, 2}, {3}, {4}},
                  {s.size(query, 0), group, shared, tokens, s.size(query, 3)});
    query = tensor::CollapseShapeOp::create(
        b, split, ArrayRef<ReassociationIndices>{{0}, {1}, {2, 3}, {4}});
    split = s.reshape(negated, {{0}, {1, 2}, {3}},
                      {s.size(negated, 0), group, shared, tokens});
    negated = tensor::CollapseShapeOp::create(
        b, split, ArrayRef<ReassociationIndices>{{0}, {1}, {2, 3}});
  }
  Value sums = s.logSum(key, query, negated, scale);

  Value one = arith::ConstantIndexOp::create(b, 1);
  Value count = getValueOrCreateConstantIndexOp(b, b.getLoc(), tokens);
  count = b.createOrFold<arith::MaxSIOp>(count, one);
  count = arith::IndexCastOp::create(b, b.getI64Type(), count);
  Value looks =
      arith::MulFOp::create(b, arith::SIToFPOp::create(b, s.stateType, count),
                            s.number(static_cast<double>(heads)));
  Value output =
      linalg::FillOp::create(b, s.number(0.0), op.getOutput()).getResult(0);
  // Domain (batch, candidate, head).
  MLIRContext *context = b.getContext();
  auto map = [&](ArrayRef<unsigned> dims) {
    return AffineMap::getMultiDimMapWithTargets(3, dims, context);
  };
  SmallVector<Value> inputs = {sums};
  SmallVector<AffineMap> maps = {map({0, 2, 1})};
  if (weight) {
    inputs.push_back(weight);
    maps.push_back(map({0, 1}));
  }
  maps.push_back(map({0, 1}));
  parallel.back() = utils::IteratorType::reduction;
  return linalg::GenericOp::create(
             b, output.getType(), inputs, output, maps, parallel,
             [&](OpBuilder &, Location, ValueRange args) {
               Value exponent = args[0];
               if (weight)
                 exponent = arith::AddFOp::create(b, exponent, args[1]);
               Value share = arith::DivFOp::create(
                   b, math::ExpOp::create(b, exponent), looks);
               linalg::YieldOp::create(
                   b, ValueRange(arith::AddFOp::create(b, args.back(), share)
                                     .getResult()));
             })
      .getResult(0);
}

Value fovea::attn::detail::expandTreeScore(OpBuilder &builder, TreeScoreOp op) {
  auto type = cast<RankedTensorType>(op.getOutput().getType());
  ScoreBuilder s = {ImplicitLocOpBuilder(op.getLoc(), builder),
                    type.getElementType()};
  FloatAttr scale = builder.getF64FloatAttr(op.getScaleOrDefault());
  if (!op.getExponential())
    return expandProbability(op, s, scale);
  Value sums = s.logSum(op.getKey(), op.getQuery(), /*logWeight=*/Value(),
                        scale, s.addHead(op.getOutput()));
  SmallVector<ReassociationIndices> groups = {{0, 1}, {2}};
  return tensor::CollapseShapeOp::create(s.b, type, sums, groups);
}

namespace {
struct ExpandTreeScore : OpRewritePattern<TreeScoreOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TreeScoreOp op,
                                PatternRewriter &rewriter) const override {
    if (op->getNumResults() == 0)
      return rewriter.notifyMatchFailure(op, "not on tensors");
    rewriter.replaceOp(op, expandTreeScore(rewriter, op));
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandTreePatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandTreeScore>(patterns.getContext());
}
