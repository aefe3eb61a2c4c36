//===- GPUSerialLoops.cpp - Kernels of loops that are not parallel --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What gradients and losses consist of beside attention: a sum of all elements
// of a tensor, and rows that are added where a list of nodes says, one after
// the other, because a node may be listed twice.
//
//===----------------------------------------------------------------------===//

#include "GPUSerialLoops.h"
#include "GPUNeighbours.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

NumberedIterations::NumberedIterations(KernelBuilder &b, scf::ParallelOp loop) {
  total = b.index(1);
  for (auto [low, high, step] :
       llvm::zip(loop.getLowerBound(), loop.getUpperBound(), loop.getStep())) {
    Value length = b.max(b.sub(high, low), 0);
    counts.push_back(b.div(b.sub(b.add(length, step), b.index(1)), step));
    total = b.mul(total, counts.back());
  }
}

void NumberedIterations::emit(KernelBuilder &b, scf::ParallelOp loop,
                              Value number) const {
  IRMapping mapping;
  for (auto [iv, low, at, step] :
       llvm::zip(loop.getInductionVars(), loop.getLowerBound(),
                 splitNumber(b, number, counts), loop.getStep()))
    mapping.map(iv, b.add(low, b.mul(at, step)));
  for (Operation &op : loop.getBody()->without_terminator())
    b.clone(op, mapping);
}

//===----------------------------------------------------------------------===//
// Reductions to one number
//===----------------------------------------------------------------------===//

/// Parts that are summed at once, and sums of these.
static constexpr int64_t kNumParts = 16384, kNumSums = 128;

bool fovea::attn::splitWholeReduction(linalg::LinalgOp op) {
  if (op.getNumParallelLoops() != 0 || op.getNumLoops() == 0)
    return false;
  std::optional<Accumulation> reduction = Accumulation::match(op);
  if (!reduction)
    return false;
  Neighbours neighbours(op);
  int64_t count = neighbours.getCount();

  OpBuilder builder(op);
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Values extents = neighbours.getExtents(b);
  extents.back() = b.div(extents.back(), count);
  Value total = b.index(1);
  for (Value extent : extents)
    total = b.mul(total, extent);
  auto allocate = [&](int64_t number) -> Value {
    return memref::AllocOp::create(
        b, MemRefType::get({number}, reduction->neutral.getType()));
  };
  Value parts = allocate(kNumParts), sums = allocate(kNumSums);
  parallelLoop(b, {b.index(kNumParts)}, [&](ValueRange part) {
    Value sum = b.loop(part[0], total, kNumParts, {reduction->start(b)},
                       [&](Value number, ValueRange sum) -> Values {
                         Values point = splitNumber(b, number, extents);
                         point.back() = b.mul(point.back(), count);
                         return {neighbours.reduce(b, point, count, sum[0])};
                       })[0];
    memref::StoreOp::create(b, sum, parts, part);
  });
  auto addUp = [&](Value start, Value first, Value from, int64_t number,
                   int64_t step) -> Value {
    return b.loop(first, b.index(number), step, {start},
                  [&](Value at, ValueRange sum) -> Values {
                    return {reduction->combine(
                        b, sum[0], memref::LoadOp::create(b, from, at))};
                  })[0];
  };
  parallelLoop(b, {b.index(kNumSums)}, [&](ValueRange at) {
    Value start = reduction->start(b);
    memref::StoreOp::create(b, addUp(start, at[0], parts, kNumParts, kNumSums),
                            sums, at);
  });
  Value result = op.getDpsInits()[0];
  Values place(cast<MemRefType>(result.getType()).getRank(), b.index(0));
  parallelLoop(b, {b.index(1)}, [&](ValueRange) {
    Value start = memref::LoadOp::create(b, result, place);
    memref::StoreOp::create(b, addUp(start, b.index(0), sums, kNumSums, 1),
                            result, place);
  });
  memref::DeallocOp::create(b, parts);
  memref::DeallocOp::create(b, sums);
  op.erase();
  return true;
}

//===----------------------------------------------------------------------===//
// Loops over single elements
//===----------------------------------------------------------------------===//

/// Whether all threads run the operation, rather than one of them a part of it.
static bool isShared(Operation *op) {
  return !op->getParentOfType<scf::ParallelOp>() &&
         !op->getParentOfType<scf::ForallOp>() &&
         !op->getParentOfType<linalg::LinalgOp>();
}

/// Whether it accesses single elements, and does nothing that a kernel cannot.
static bool canBeSerial(scf::ForOp loop) {
  bool accessesElements = false;
  WalkResult result = loop.walk([&](Operation *op) -> WalkResult {
    if (isa<memref::LoadOp, memref::StoreOp>(op)) {
      accessesElements |= isShared(op);
      return WalkResult::advance();
    }
    if (auto parallel = dyn_cast<scf::ParallelOp>(op))
      return parallel.getInitVals().empty() ? WalkResult::advance()
                                            : WalkResult::interrupt();
    // Buffers of known size can be allocated ahead.
    if (auto alloc = dyn_cast<memref::AllocOp>(op))
      return alloc.getType().hasStaticShape() ? WalkResult::advance()
                                              : WalkResult::interrupt();
    bool known =
        isa<arith::ArithDialect, math::MathDialect, affine::AffineDialect,
            linalg::LinalgDialect>(op->getDialect()) ||
        isa<scf::ForOp, scf::IfOp, scf::YieldOp, scf::ReduceOp,
            memref::SubViewOp, memref::CastOp, memref::ReinterpretCastOp,
            memref::ExpandShapeOp, memref::CollapseShapeOp, memref::DimOp,
            memref::DeallocOp, memref::CopyOp, cf::AssertOp, scf::WhileOp,
            scf::ConditionOp>(op);
    return known ? WalkResult::advance() : WalkResult::interrupt();
  });
  return accessesElements && !result.wasInterrupted();
}

bool fovea::attn::isSerialLoop(scf::ForOp loop) {
  return loop->getNumResults() == 0 && canBeSerial(loop);
}

void fovea::attn::wrapLoopOfNumbers(scf::ForOp loop) {
  if (!canBeSerial(loop))
    return;
  llvm::SetVector<Operation *> moved;
  moved.insert(loop);
  // Users of what is moved are behind it, and moved in their order.
  Operation *last = loop;
  for (size_t i = 0; i < moved.size(); ++i)
    for (Operation *user : moved[i]->getUsers()) {
      if (user->getBlock() != loop->getBlock() || user->getNumRegions() > 0 ||
          !(isMemoryEffectFree(user) || isa<memref::StoreOp>(user)) ||
          user->hasTrait<OpTrait::IsTerminator>())
        return;
      moved.insert(user);
      if (last->isBeforeInBlock(user))
        last = user;
    }
  SmallVector<Operation *> inOrder;
  for (Operation *op = loop; op != last->getNextNode(); op = op->getNextNode())
    if (moved.contains(op))
      inOrder.push_back(op);
    else if (!isMemoryEffectFree(op) && !isa<memref::AllocOp>(op))
      return;
  OpBuilder builder(loop->getContext());
  builder.setInsertionPointAfter(last);
  KernelBuilder b(loop.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  b.loop(b.index(0), b.index(1), 1, [&](Value) {
    for (Operation *op : inOrder)
      op->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
  });
}

void fovea::attn::launchSerialLoop(scf::ForOp loop, int64_t numThreads) {
  SmallVector<Operation *> allocs, deallocs, stores;
  SmallVector<scf::ParallelOp> parallels;
  loop.walk([&](Operation *op) {
    if (isa<memref::AllocOp>(op))
      allocs.push_back(op);
    else if (isa<memref::DeallocOp>(op))
      deallocs.push_back(op);
    else if (isa<memref::StoreOp>(op) && isShared(op))
      stores.push_back(op);
    else if (auto parallel = dyn_cast<scf::ParallelOp>(op);
             parallel && isShared(op))
      parallels.push_back(parallel);
  });
  for (Operation *op : allocs)
    op->moveBefore(loop);
  for (Operation *op : deallocs)
    op->moveAfter(loop);

  OpBuilder builder(loop);
  GPUKernelBuilder b(loop.getLoc(), builder, numThreads);
  gpu::LaunchOp launch = createLaunch(b, loop.getLoc(), b.index(1), numThreads,
                                      /*sharedBytes=*/0);
  Block *body = &launch.getBody().front();
  b.setInsertionPointToStart(body);
  b.begin();
  Value thread = b.toIndex(b.thread());
  loop->moveBefore(body->getTerminator());
  for (scf::ParallelOp parallel : parallels) {
    b.setInsertionPoint(parallel);
    NumberedIterations iterations(b, parallel);
    b.loop(thread, iterations.total, numThreads,
           [&](Value number) { iterations.emit(b, parallel, number); });
    // What follows reads what other threads have written.
    b.barrier();
    parallel.erase();
  }
  for (Operation *store : stores) {
    b.setInsertionPoint(store);
    // All have read what is overwritten, and all read what is written.
    b.barrier();
    b.ifThen(b.equal(thread, b.index(0)), [&] { b.clone(*store); });
    b.barrier();
    store->erase();
  }
}
