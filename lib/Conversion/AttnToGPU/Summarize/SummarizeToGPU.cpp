//===- SummarizeToGPU.cpp - GPU kernels of attn.summarize -----------------===//
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
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Sums that a thread keeps in registers.
static constexpr int64_t kMaxSums = 16;
/// Warps of a block, at most: they share the rows of an interval.
static constexpr int64_t kMaxWarps = 8;

namespace {
/// One block of threads for each batch entry, head, interval and 32 columns. A
/// warp has a column for each thread and reads every `numWarps`-th row; the
/// sums of the warps meet in shared memory and are added in order.
class SummarizeGPUKernel {
public:
  SummarizeGPUKernel(SummarizeOp op, OpBuilder &builder)
      : op(op), interval(op.getInterval()), rank(op.getRank()),
        numWarps(
            std::clamp<int64_t>(llvm::divideCeil(interval, 4), 1, kMaxWarps)),
        b(op.getLoc(), builder, numWarps * kWarpSize) {}

  void emit() {
    Value input = op.getInput();
    Value batches = b.extent(input, 0), heads = b.extent(input, 1),
          rows = b.extent(input, 2), columns = b.extent(input, 3);
    Value numIntervals = b.ceilDiv(rows, interval);
    Value numParts = b.ceilDiv(columns, kWarpSize);
    int64_t sharedBytes = numWarps * std::min(rank, kMaxSums) * kWarpSize * 4;
    KernelBuilder::Values at =
        beginBlocks(b, {batches, heads, numIntervals, numParts}, sharedBytes);
    batch = at[0];
    head = at[1];
    number = at[2];
    Value part = at[3];
    lane = b.toIndex(b.lane());
    warp = b.toIndex(b.warp());
    column = b.add(b.mul(part, kWarpSize), lane);
    isColumn = b.less(column, columns);
    // Consecutive heads share a set of weights.
    set = b.div(head, b.div(heads, b.extent(op.getWeights(), 0)));
    shared = b.sharedBuffer(0, {numWarps, std::min(rank, kMaxSums), kWarpSize},
                            b.getF32Type());
    Value first = b.mul(number, interval);
    length = b.min(b.sub(rows, first), interval);
    firstRow = first;
    for (int64_t sum = 0; sum < rank; sum += kMaxSums)
      emitSums(sum, std::min(rank - sum, kMaxSums));
  }

private:
  void emitSums(int64_t firstSum, int64_t numSums) {
    KernelBuilder::Values sums(numSums, b.scalar(0.0));
    sums = b.loop(warp, length, numWarps, sums,
                  [&](Value row, ValueRange running) {
                    return addRow(row, firstSum, running);
                  });
    for (auto [i, sum] : llvm::enumerate(sums))
      memref::StoreOp::create(b, sum, shared,
                              ValueRange{warp, b.index(i), lane});
    b.barrier();
    b.loop(warp, b.index(numSums), numWarps, [&](Value i) {
      Value total = b.scalar(0.0);
      for (int64_t warp = 0; warp < numWarps; ++warp)
        total =
            b.fadd(total, memref::LoadOp::create(
                              b, shared, ValueRange{b.index(warp), i, lane}));
      b.ifThen(isColumn, [&] {
        Value sum = b.add(i, firstSum);
        Value result = total;
        if (op.getBias())
          result =
              b.fadd(result, b.loadScalar(op.getBias(), {set, sum, column}));
        Value row = b.add(b.mul(number, rank), sum);
        b.storeScalar(result, op.getOutput(), {batch, head, row, column});
      });
    });
    b.barrier();
  }

  KernelBuilder::Values addRow(Value row, int64_t firstSum,
                               ValueRange running) {
    // Threads beyond the last column repeat it.
    Value at = b.min(column, b.sub(b.extent(op.getInput(), 3), b.index(1)));
    Value x =
        b.loadScalar(op.getInput(), {batch, head, b.add(firstRow, row), at});
    KernelBuilder::Values next;
    for (auto [i, sum] : llvm::enumerate(running)) {
      Value weight =
          b.loadScalar(op.getWeights(), {set, b.index(firstSum + i), row, at});
      next.push_back(b.fma(weight, x, sum));
    }
    return next;
  }

  SummarizeOp op;
  int64_t interval, rank, numWarps;
  GPUKernelBuilder b;
  Value lane, warp, batch, head, number, set, column, isColumn, firstRow,
      length, shared;
};

/// One kernel computes several levels of an input.
struct SummarizeToGPUModel
    : LowerToGPUOpInterface::ExternalModel<SummarizeToGPUModel, SummarizeOp> {
  LogicalResult lowerToGPU(Operation *op, OpBuilder &builder,
                           GPULowering &) const {
    if (failed(verifyGPUElementTypes(op)))
      return failure();
    SmallVector<SummarizeOp> levels = findLevelsUntil(cast<SummarizeOp>(op));
    for (ArrayRef<SummarizeOp> part : divideLevels<SummarizeOp>(levels)) {
      if (part.size() > 1)
        emitSummaryLevels(builder, part);
      else
        SummarizeGPUKernel(part.front(), builder).emit();
    }
    for (SummarizeOp level : levels)
      level.erase();
    return success();
  }
};
} // namespace

void fovea::attn::attachSummarizeToGPU(MLIRContext &context) {
  SummarizeOp::attachInterface<SummarizeToGPUModel>(context);
}
