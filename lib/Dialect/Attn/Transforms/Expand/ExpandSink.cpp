//===- ExpandSink.cpp - The gradient of a sink ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sink is in `lse`, so gradients of all else need no sink; and its own needs
// rows of results alone, no scores. It is taken out of attn.stream_backward:
//
//   delta[b, h, i] = sum_e d_output[b, h, i, e] output[b, h, i, e]
//   d_sink[b, h]   = sum_i exp(sink - lse) (d_lse - delta)
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Sums over rows, in the type that sums are kept in.
struct SinkGradient {
  ImplicitLocOpBuilder b;
  StreamBackwardOp op;
  FloatType type;

  SinkGradient(OpBuilder &builder, StreamBackwardOp op)
      : b(op.getLoc(), builder), op(op),
        type(getStateType(getElementTypeOrSelf(op.getQuery()))) {}

  Value number(double value) {
    return arith::ConstantOp::create(b, b.getFloatAttr(type, value));
  }

  Value widen(Value element) {
    return element.getType() == type ? element
                                     : arith::ExtFOp::create(b, type, element);
  }

  /// Sums of what `term` makes of the elements of `operands`, for each element
  /// of something shaped like `like`; extents of 1 stand for all.
  Value sum(Value like, ArrayRef<Value> operands, int64_t rank,
            function_ref<Value(ValueRange)> term) {
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(b, b.getLoc(), like);
    Value init = tensor::EmptyOp::create(b, sizes, type);
    Value zeros = linalg::FillOp::create(b, number(0.0), init).getResult(0);
    SmallVector<AffineMap> maps;
    for (Value operand : operands)
      maps.push_back(getMap(operand, rank));
    maps.push_back(getMap(zeros, rank));
    SmallVector<utils::IteratorType> loops(rank,
                                           utils::IteratorType::reduction);
    for (AffineExpr result : maps.back().getResults())
      if (auto dim = dyn_cast<AffineDimExpr>(result))
        loops[dim.getPosition()] = utils::IteratorType::parallel;
    return linalg::GenericOp::create(
               b, zeros.getType(), operands, zeros, maps, loops,
               [&](OpBuilder &, Location, ValueRange args) {
                 SmallVector<Value> numbers;
                 for (Value element : args.drop_back())
                   numbers.push_back(widen(element));
                 Value next =
                     arith::AddFOp::create(b, args.back(), term(numbers));
                 linalg::YieldOp::create(b, next);
               })
        .getResult(0);
  }

  Value build() {
    Value deltas =
        sum(op.getLse(), {op.getDOutput(), op.getOutput()},
            /*rank=*/4, [&](ValueRange numbers) -> Value {
              return arith::MulFOp::create(b, numbers[0], numbers[1]);
            });
    SmallVector<Value> operands = {op.getSink(), op.getLse(), deltas};
    if (op.getDLse())
      operands.push_back(op.getDLse());
    Value none = number(-std::numeric_limits<double>::infinity());
    Value zero = number(0.0);
    return sum(op.getSink(), operands, /*rank=*/3, [&](ValueRange numbers) {
      Value dLse = numbers.size() == 4 ? numbers[3] : zero;
      Value share = math::ExpOp::create(
          b, arith::SubFOp::create(b, numbers[0], numbers[1]));
      Value isEmpty =
          arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, numbers[1], none);
      Value product = arith::MulFOp::create(
          b, share, arith::SubFOp::create(b, dLse, numbers[2]));
      // Whatever else there is of a row that read nothing.
      return arith::SelectOp::create(b, isEmpty, zero, product).getResult();
    });
  }

private:
  AffineMap getMap(Value operand, int64_t rank) {
    auto shaped = cast<ShapedType>(operand.getType());
    SmallVector<AffineExpr> at;
    for (int64_t dim = 0; dim < shaped.getRank(); ++dim)
      at.push_back(isOne(shaped, dim) ? b.getAffineConstantExpr(0)
                                      : b.getAffineDimExpr(dim));
    return AffineMap::get(rank, 0, at, b.getContext());
  }
  /// Whether an extent stands for all; rows and columns never do.
  static bool isOne(ShapedType type, int64_t dim) {
    return type.getRank() == 2 && type.getDimSize(dim) == 1;
  }
};

struct ExpandSinkGradient : OpRewritePattern<StreamBackwardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(StreamBackwardOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.getSink() || !op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "no sink, or not on tensors");
    SmallVector<Value> results;
    SmallVector<Type> types(op->getResultTypes());
    Value gradient;
    if (op.getDSink()) {
      gradient = SinkGradient(rewriter, op).build();
      // Before those of what the score region captures.
      auto *position = types.end() - 1 - op.getDCaptures().size();
      Type wanted = *position;
      types.erase(position);
      if (gradient.getType() != wanted)
        gradient =
            arith::TruncFOp::create(rewriter, op.getLoc(), wanted, gradient);
    }
    auto rest = StreamBackwardOp::create(
        rewriter, op.getLoc(), types, op.getQuery(), op.getKeys(),
        op.getValues(), op.getLogWeights(), op.getBiases(), op.getLengths(),
        op.getRowLists(), /*sink=*/Value(), op.getQueryLengths(),
        op.getCaptures(), op.getOutput(), op.getLse(), op.getDOutput(),
        op.getDLse(), op.getDQuery(), op.getDKeys(), op.getDValues(),
        op.getDLogWeights(), op.getDBiases(),
        /*d_sink=*/Value(), op.getDCaptures(), op.getSourcesAttr(),
        op.getBlockAttr(), op.getScaleAttr(), op.getTilesAttr(),
        op.getScores().size());
    cloneScoreRegions(op.getScores(), rest.getScores());
    results.append(rest->result_begin(), rest->result_end());
    if (gradient)
      results.insert(results.end() - op.getDCaptures().size(), gradient);
    rewriter.replaceOp(op, results);
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandSinkPatterns(
    RewritePatternSet &patterns) {
  patterns.add<ExpandSinkGradient>(patterns.getContext());
}
