//===- SummarizeBackwardToGPU.cpp - Gradients of summaries on a GPU -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SummarizeLevels.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
/// A thread for each number of a gradient, which adds to what is there.
class SummarizeBackwardLoops {
public:
  SummarizeBackwardLoops(OpBuilder &builder, SummarizeBackwardOp op)
      : op(op), b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
        batches(b.extent(op.getInput(), 0)), heads(b.extent(op.getInput(), 1)),
        rows(b.extent(op.getInput(), 2)), width(b.extent(op.getInput(), 3)),
        sets(b.extent(op.getWeights(), 0)), rank(b.extent(op.getWeights(), 1)),
        interval(b.extent(op.getWeights(), 2)),
        // Consecutive heads share a set of weights.
        headsOfSet(b.max(b.div(heads, sets), 1)) {}

  /// Rounds what the gradient has to `rounded` instead, if that is not null.
  void emitInput(Value rounded);
  void emitWeights() {
    emitSums(op.getDWeights(), {sets, rank, interval, width});
  }
  void emitBias() {
    if (op.getDBias())
      emitSums(op.getDBias(), {sets, rank, width});
  }

private:
  void emitSums(Value sums, ArrayRef<Value> extents);
  Value loadGradient(Value batch, Value head, Value number, Value sum,
                     Value column) {
    Value row = b.add(b.mul(number, rank), sum);
    return b.loadScalar(op.getDOutput(), {batch, head, row, column});
  }

  SummarizeBackwardOp op;
  RowBuilder b;
  Value batches, heads, rows, width, sets, rank, interval, headsOfSet;
};
} // namespace

/// A row passes on what all sums of its interval have of it.
void SummarizeBackwardLoops::emitInput(Value rounded) {
  parallelLoop(b, {batches, heads, rows, width}, [&](ValueRange at) {
    Value number = b.div(at[2], interval), place = b.rem(at[2], interval);
    Value set = b.div(at[1], headsOfSet);
    Value total =
        b.loop(b.index(0), rank, 1, {b.loadScalar(op.getDInput(), at)},
               [&](Value sum, ValueRange total) -> Values {
                 Value weight =
                     b.loadScalar(op.getWeights(), {set, sum, place, at[3]});
                 Value gradient =
                     loadGradient(at[0], at[1], number, sum, at[3]);
                 return {b.fma(weight, gradient, total[0])};
               })[0];
    b.storeScalar(total, rounded ? rounded : op.getDInput(), at);
  });
}

/// Gradients of weights [set, sum, place, column], or of a bias without a
/// place: sums over the intervals of all heads that share a set, each from
/// zero.
void SummarizeBackwardLoops::emitSums(Value sums, ArrayRef<Value> extents) {
  parallelLoop(b, extents, [&](ValueRange at) {
    bool hasPlace = at.size() == 4;
    Value column = at.back(), zero = b.index(0);
    auto sumOf = [&](Value batch, Value head) {
      Value count = b.div(b.extent(op.getDOutput(), 2), rank);
      return b.loop(zero, count, 1, {b.scalar(0.0)},
                    [&](Value number, ValueRange sum) -> Values {
                      Value gradient =
                          loadGradient(batch, head, number, at[1], column);
                      if (!hasPlace)
                        return {b.fadd(sum[0], gradient)};
                      Value row = b.add(b.mul(number, interval), at[2]);
                      return {b.select(
                          b.less(row, rows), b.getF32Type(),
                          [&] {
                            Value x = b.loadScalar(op.getInput(),
                                                   {batch, head, row, column});
                            return b.fma(x, gradient, sum[0]);
                          },
                          [&] { return sum[0]; })};
                    })[0];
    };
    Value firstHead = b.mul(at[0], headsOfSet);
    Value total = b.loop(
        zero, batches, 1, {b.loadScalar(sums, at)},
        [&](Value batch, ValueRange total) {
          return b.loop(firstHead, b.add(firstHead, headsOfSet), 1, total,
                        [&](Value head, ValueRange total) -> Values {
                          return {b.fadd(total[0], sumOf(batch, head))};
                        });
        })[0];
    b.storeScalar(total, sums, at);
  });
}

/// The operation behind `last` that rounds the gradient of its input, if that
/// is the only one that reads it from there on. What it writes is made ready
/// before `last`.
static linalg::GenericOp findRounding(SummarizeBackwardOp last) {
  Value sums = last.getDInput();
  // Kernels that exist by now hold what uses buffers.
  auto isBefore = [](Operation *op, Operation *other) {
    op = other->getBlock()->findAncestorOpInBlock(*op);
    return op && op->isBeforeInBlock(other);
  };
  if (!sums.getDefiningOp<memref::AllocOp>())
    return nullptr;
  linalg::GenericOp rounding;
  for (Operation *user : sums.getUsers()) {
    if (user == last || isa<memref::DeallocOp>(user))
      continue;
    // A view would hide others.
    if (isa<ViewLikeOpInterface>(user))
      return nullptr;
    if (isBefore(user, last))
      continue;
    auto generic = dyn_cast<linalg::GenericOp>(user);
    if (rounding || !generic || !isBefore(last, generic))
      return nullptr;
    rounding = generic;
  }
  if (!rounding || rounding.getNumDpsInputs() != 1 ||
      rounding.getNumDpsInits() != 1 || rounding.getInputs()[0] != sums ||
      !llvm::all_of(rounding.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return nullptr;
  Block *body = rounding.getBlock();
  auto rounded =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
  if (!rounded || rounded.getIn() != body->getArgument(0) ||
      !llvm::hasNItems(*body, 2))
    return nullptr;
  auto buffer = rounding.getOutputs()[0].getDefiningOp<memref::AllocOp>();
  if (!buffer || buffer->getBlock() != last->getBlock() ||
      !llvm::all_of(buffer->getUsers(), [&](Operation *user) {
        return user == rounding || (user->getBlock() == rounding->getBlock() &&
                                    isBefore(rounding, user));
      }))
    return nullptr;
  if (isBefore(last, buffer)) {
    if (!llvm::all_of(buffer->getOperands(), [&](Value operand) {
          Operation *definition = operand.getDefiningOp();
          return !definition || definition->getBlock() != last->getBlock() ||
                 isBefore(definition, last);
        }))
      return nullptr;
    buffer->moveBefore(last);
  }
  return rounding;
}

namespace {
/// One kernel computes gradients of several levels of an input, another one
/// those of their weights.
struct SummarizeBackwardToGPUModel
    : LowerToGPUOpInterface::ExternalModel<SummarizeBackwardToGPUModel,
                                           SummarizeBackwardOp> {
  LogicalResult lowerToGPU(Operation *op, OpBuilder &builder,
                           GPULowering &) const {
    if (failed(verifyGPUElementTypes(op)))
      return failure();
    SmallVector<SummarizeBackwardOp> levels =
        findLevelsUntil(cast<SummarizeBackwardOp>(op));
    if (levels.empty())
      return success();
    linalg::GenericOp rounding = findRounding(levels.back());
    for (ArrayRef<SummarizeBackwardOp> part :
         divideLevels<SummarizeBackwardOp>(levels)) {
      bool isLast = part.back() == levels.back();
      Value rounded = rounding && isLast ? rounding.getOutputs()[0] : Value();
      if (part.size() > 1) {
        emitInputOfLevels(builder, part, rounded);
        emitWeightsOfLevels(builder, part);
      } else {
        SummarizeBackwardLoops loops(builder, part.front());
        loops.emitInput(rounded);
        loops.emitWeights();
      }
    }
    for (SummarizeBackwardOp level : levels) {
      SummarizeBackwardLoops(builder, level).emitBias();
      level.erase();
    }
    if (rounding)
      rounding.erase();
    return success();
  }
};
} // namespace

void fovea::attn::attachSummarizeBackwardToGPU(MLIRContext &context) {
  SummarizeBackwardOp::attachInterface<SummarizeBackwardToGPUModel>(context);
}
