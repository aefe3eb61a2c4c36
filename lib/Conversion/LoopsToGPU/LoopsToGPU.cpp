//===- LoopsToGPU.cpp - GPU kernels of parallel loops ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUNeighbours.h"
#include "GPUSerialLoops.h"
#include "GuardLaunches.h"
#include "IndependentLines.h"
#include "SinkLoads.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOOPSTOGPUPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Threads of a block.
static constexpr int64_t kNumThreads = 256;

static bool isInKernel(Operation *op) {
  return op->getParentOfType<gpu::LaunchOp>() != nullptr;
}

static bool isOnHost(Operation *op) {
  return !isInKernel(op) && !op->getParentOfType<scf::ParallelOp>() &&
         !op->getParentOfType<scf::ForallOp>();
}

/// One thread for each iteration.
static void launchParallel(scf::ParallelOp loop) {
  OpBuilder builder(loop);
  Location loc = loop.getLoc();
  KernelBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  NumberedIterations iterations(b, loop);
  gpu::LaunchOp launch =
      createLaunch(b, loc, b.ceilDiv(iterations.total, kNumThreads),
                   kNumThreads, /*sharedBytes=*/0);
  b.setInsertionPointToStart(&launch.getBody().front());
  Value number = b.add(b.mul(launch.getBlockIds().x, kNumThreads),
                       launch.getThreadIds().x);
  b.ifThen(b.less(number, iterations.total),
           [&] { iterations.emit(b, loop, number); });
  loop.erase();
}

namespace {
struct LoopsToGPUPass : fovea::attn::impl::LoopsToGPUPassBase<LoopsToGPUPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    SmallVector<linalg::LinalgOp> linalgOps;
    SmallVector<memref::CopyOp> copies;
    SmallVector<scf::ForallOp> foralls;
    llvm::SetVector<scf::ForOp> serialLoops;
    SmallVector<scf::ForOp> loopsOfNumbers, nests;
    getOperation().walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
      if (!loop->getParentOfType<scf::ForOp>() && !isInKernel(loop) &&
          !loop->getParentOfType<scf::ParallelOp>() &&
          !loop->getParentOfType<scf::ForallOp>())
        nests.push_back(loop);
    });
    llvm::for_each(nests, separateLines);
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isa<gpu::LaunchOp, scf::ParallelOp, scf::ForallOp>(op))
        return WalkResult::skip();
      auto loop = dyn_cast<scf::ForOp>(op);
      if (!loop)
        return WalkResult::advance();
      if (loop->getNumResults() > 0)
        loopsOfNumbers.push_back(loop);
      return WalkResult::skip();
    });
    llvm::for_each(loopsOfNumbers, wrapLoopOfNumbers);
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isInKernel(op))
        return;
      auto loop = dyn_cast<scf::ForOp>(op);
      if (loop && !isIn(loop, serialLoops) && isSerialLoop(loop))
        serialLoops.insert(loop);
      if (auto forall = dyn_cast<scf::ForallOp>(op))
        foralls.push_back(forall);
      auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
      if (linalgOp && linalgOp.hasPureBufferSemantics())
        linalgOps.push_back(linalgOp);
      auto copy = dyn_cast<memref::CopyOp>(op);
      if (copy &&
          (isIn(copy, serialLoops) ||
           !(isContiguous(copy.getSource()) && isContiguous(copy.getTarget()))))
        copies.push_back(copy);
    });
    for (scf::ForallOp forall : foralls) {
      rewriter.setInsertionPoint(forall);
      if (failed(scf::forallToParallelLoop(rewriter, forall))) {
        forall.emitOpError("cannot be lowered to loops on buffers");
        return signalPassFailure();
      }
    }
    for (memref::CopyOp copy : copies) {
      rewriter.setInsertionPoint(copy);
      linalgOps.push_back(linalg::makeMemRefCopyOp(
          rewriter, copy.getLoc(), copy.getSource(), copy.getTarget()));
      rewriter.eraseOp(copy);
    }
    for (linalg::LinalgOp op : linalgOps) {
      op = joinLoops(rewriter, op);
      if (!isIn(op, serialLoops) && op.getNumParallelLoops() == 0) {
        if (splitWholeReduction(op))
          continue;
        wrapInLoop(op);
      }
      if (loopOverNeighbours(op) ||
          (isOnHost(op) && !isIn(op, serialLoops) && launchRows(op)))
        continue;
      rewriter.setInsertionPoint(op);
      if (failed(linalg::linalgOpToParallelLoops(rewriter, op))) {
        op.emitOpError("cannot be lowered to loops on buffers");
        return signalPassFailure();
      }
      rewriter.eraseOp(op);
    }
    for (scf::ForOp loop : serialLoops)
      launchSerialLoop(loop, kNumThreads);
    wrapHostStores(getOperation());
    SmallVector<scf::ParallelOp> loops;
    WalkResult result =
        getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
          if (isa<gpu::LaunchOp>(op))
            return WalkResult::skip();
          auto loop = dyn_cast<scf::ParallelOp>(op);
          if (!loop)
            return WalkResult::advance();
          if (!loop.getInitVals().empty()) {
            loop.emitOpError("reduces across its iterations, which GPU loops "
                             "cannot");
            return WalkResult::interrupt();
          }
          loops.push_back(loop);
          return WalkResult::skip();
        });
    if (result.wasInterrupted())
      return signalPassFailure();
    llvm::for_each(loops, launchParallel);
    sinkHostLoads(getOperation());
    guardLaunches(getOperation());
  }

  /// Makes what computes single numbers a loop of one iteration, so that the
  /// host need not read them; one thread goes through a reduction that is not
  /// split, such as of a number and its place.
  static void wrapInLoop(linalg::LinalgOp op) {
    // Behind it, for it moves into the loop.
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
    parallelLoop(b, {b.index(1)}, [&](ValueRange) {
      op->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
    });
  }

  static bool isIn(Operation *op, const llvm::SetVector<scf::ForOp> &loops) {
    return llvm::any_of(
        loops, [&](scf::ForOp loop) { return loop->isProperAncestor(op); });
  }

  static bool isContiguous(Value memref) {
    // Buffers without a rank are refused when they are placed.
    auto type = dyn_cast<MemRefType>(memref.getType());
    return !type || type.getLayout().isIdentity();
  }
};
} // namespace
