//===- SummarizeBackwardToGPU.cpp - Gradients of summaries on a GPU -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
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

  void emit() {
    emitInput();
    emitSums(op.getDWeights(), {sets, rank, interval, width});
    if (op.getDBias())
      emitSums(op.getDBias(), {sets, rank, width});
  }

private:
  void emitInput();
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
void SummarizeBackwardLoops::emitInput() {
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
    b.storeScalar(total, op.getDInput(), at);
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

static LogicalResult lowerSummarizeBackward(SummarizeBackwardOp op,
                                            OpBuilder &builder,
                                            GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  SummarizeBackwardLoops(builder, op).emit();
  return success();
}

void fovea::attn::attachSummarizeBackwardToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerSummarizeBackward>(context);
}
