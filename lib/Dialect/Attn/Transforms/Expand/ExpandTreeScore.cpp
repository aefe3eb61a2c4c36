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
#include "fovea/Dialect/Attn/Transforms/Presence.h"
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
                                 /*sink=*/Value(), /*lengths=*/Value(),
                                 /*query_lengths=*/Value(),
                                 /*captures=*/ValueRange(), output, init, scale,
                                 /*mask=*/MaskAttr(), /*scoreCount=*/0);
    return dense.getResult(1);
  }

  /// `numbers` `[B, H, n]`, and minus infinity for tokens that are absent.
  Value keepNumbers(Value numbers, Value mask) {
    Value none = number(-std::numeric_limits<double>::infinity());
    return map(numbers, {mask}, {{0, 2}}, [&](ValueRange args) -> Value {
      return arith::SelectOp::create(b, args[1], args[0], none);
    });
  }

  /// `body` of each of `numbers` `[B, H, n]` and of what is beside it in
  /// `others`, at these of its indices.
  Value map(Value numbers, ArrayRef<Value> others,
            ArrayRef<SmallVector<unsigned>> dims,
            function_ref<Value(ValueRange)> body) {
    Value init = empty({size(numbers, 0), size(numbers, 1), size(numbers, 2)},
                       stateType);
    AffineMap identity = b.getMultiDimIdentityMap(3);
    SmallVector<AffineMap> maps = {identity};
    for (ArrayRef<unsigned> those : dims)
      maps.push_back(
          AffineMap::getMultiDimMapWithTargets(3, those, b.getContext()));
    maps.push_back(identity);
    SmallVector<Value> inputs = {numbers};
    append_range(inputs, others);
    SmallVector<utils::IteratorType> parallel(3, utils::IteratorType::parallel);
    return linalg::GenericOp::create(
               b, init.getType(), inputs, init, maps, parallel,
               [&](OpBuilder &, Location, ValueRange args) {
                 linalg::YieldOp::create(b, body(args));
               })
        .getResult(0);
  }

  /// How many tokens of each batch entry are present, at least 1, as `[B]`.
  Value countTokens(Value mask) {
    Value init = empty(size(mask, 0), stateType);
    Value zeros = linalg::FillOp::create(b, number(0.0), init).getResult(0);
    AffineMap identity = b.getMultiDimIdentityMap(2);
    utils::IteratorType iterators[] = {utils::IteratorType::parallel,
                                       utils::IteratorType::reduction};
    Value counts =
        linalg::GenericOp::create(
            b, zeros.getType(), mask, zeros, {identity, identity.getSubMap(0)},
            iterators,
            [&](OpBuilder &, Location, ValueRange args) {
              Value one = arith::UIToFPOp::create(b, stateType, args[0]);
              linalg::YieldOp::create(
                  b, ValueRange(arith::AddFOp::create(b, args[1], one)));
            })
            .getResult(0);
    AffineMap entry = b.getMultiDimIdentityMap(1);
    return linalg::GenericOp::create(
               b, counts.getType(), counts, empty(size(mask, 0), stateType),
               {entry, entry}, {utils::IteratorType::parallel},
               [&](OpBuilder &, Location, ValueRange args) {
                 linalg::YieldOp::create(
                     b, ValueRange(arith::MaximumFOp::create(b, args[0],
                                                             number(1.0))));
               })
        .getResult(0);
  }
};

} // namespace

/// The average of exp(s[h, i, x] - lse[h, i]): an attention of the candidates
/// to the VIP tokens, each with log weight -lse.
static Value expandProbability(TreeScoreOp op, ScoreBuilder &s, Value query,
                               FloatAttr scale) {
  ImplicitLocOpBuilder &b = s.b;
  Value key = op.getKey(), weight = op.getLogWeight(), mask = op.getMask();
  auto queryType = cast<RankedTensorType>(query.getType());
  int64_t heads = queryType.getDimSize(1);
  int64_t groups = cast<RankedTensorType>(key.getType()).getDimSize(1);
  OpFoldResult tokens = s.size(query, 2);

  Value totals =
      s.logSum(query, key, weight ? s.addHead(weight) : Value(), scale);
  // Where nothing can be looked at, minus infinity takes the token out.
  Value minusInfinity = s.number(-std::numeric_limits<double>::infinity());
  Value negated = s.map(totals, {}, {}, [&](ValueRange args) -> Value {
    Value isNothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                            args[0], minusInfinity);
    Value opposite = arith::NegFOp::create(b, args[0]);
    return arith::SelectOp::create(b, isNothing, minusInfinity, opposite);
  });
  if (mask)
    negated = s.keepNumbers(negated, mask);

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
  Value numHeads = s.number(static_cast<double>(heads));
  Value looks = arith::MulFOp::create(
      b, arith::SIToFPOp::create(b, s.stateType, count), numHeads);
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
  if (mask) {
    inputs.push_back(s.countTokens(mask));
    maps.push_back(map({0}));
  }
  maps.push_back(map({0, 1}));
  utils::IteratorType iterators[] = {utils::IteratorType::parallel,
                                     utils::IteratorType::parallel,
                                     utils::IteratorType::reduction};
  return linalg::GenericOp::create(
             b, output.getType(), inputs, output, maps, iterators,
             [&](OpBuilder &, Location, ValueRange args) {
               Value exponent = args[0], numLooks = looks;
               if (mask)
                 numLooks = arith::MulFOp::create(b, numHeads,
                                                  args.drop_back().back());
               if (weight)
                 exponent = arith::AddFOp::create(b, exponent, args[1]);
               Value share = arith::DivFOp::create(
                   b, math::ExpOp::create(b, exponent), numLooks);
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
  Value query = op.getQuery(), mask = op.getMask(), weight;
  query = keepRows(builder, op.getLoc(), query, mask);
  if (!op.getExponential())
    return expandProbability(op, s, query, scale);
  if (mask) {
    Value zeros = s.empty(
        {s.size(query, 0), s.size(query, 1), s.size(query, 2)}, s.stateType);
    zeros = linalg::FillOp::create(s.b, s.number(0.0), zeros).getResult(0);
    weight = s.keepNumbers(zeros, mask);
  }
  Value sums =
      s.logSum(op.getKey(), query, weight, scale, s.addHead(op.getOutput()));
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
