//===- GPULaunch.cpp - Kernels from parallel loops ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

LogicalResult fovea::attn::verifyGPUElementTypes(Operation *op) {
  return verifyGPUElementTypes(op, op->getOperands());
}

LogicalResult fovea::attn::verifyGPUElementTypes(Operation *op,
                                                 ValueRange operands) {
  for (Value operand : operands)
    if (getElementTypeOrSelf(operand).isF64())
      return op->emitOpError("has data of type 'f64', but GPU kernels take "
                             "f16, bf16 and f32");
  return success();
}

LogicalResult fovea::attn::verifyGPUWidths(Operation *op, ValueRange operands,
                                           int64_t most) {
  for (Value operand : operands) {
    int64_t width = cast<ShapedType>(operand.getType()).getShape().back();
    if (width > most)
      return op->emitOpError("has heads of width ")
             << width << ", but GPU kernels take at most " << most;
  }
  return success();
}

bool fovea::attn::isUnread(Operation *op, Value buffer) {
  return buffer.getDefiningOp<memref::AllocOp>() &&
         llvm::count(op->getOperands(), buffer) == 1 &&
         llvm::all_of(buffer.getUsers(), [&](Operation *user) {
           return user == op || isa<memref::DeallocOp>(user);
         });
}

gpu::LaunchOp fovea::attn::createLaunch(OpBuilder &builder, Location loc,
                                        Value numBlocks, int64_t numThreads,
                                        int64_t sharedBytes, int64_t cluster) {
  KernelBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  Value one = b.index(1);
  Value shared;
  if (sharedBytes)
    shared = arith::ConstantOp::create(b, b.getI32IntegerAttr(sharedBytes));
  Value clusterSize, clusterOne;
  if (cluster > 1) {
    clusterSize = b.index(cluster);
    clusterOne = one;
  }
  auto launch = gpu::LaunchOp::create(
      b, numBlocks, one, one, b.index(numThreads), one, one, shared,
      /*asyncTokenType=*/Type(), /*asyncDependencies=*/{},
      /*workgroupAttributions=*/{}, /*privateAttributions=*/{}, clusterSize,
      clusterOne, clusterOne);
  // Numbers of clusters, which the builder of the operation leaves out.
  Block &body = launch.getBody().front();
  while (body.getNumArguments() < launch.getNumConfigRegionAttributes())
    body.addArgument(b.getIndexType(), loc);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&body);
  gpu::TerminatorOp::create(builder, loc);
  return launch;
}

void fovea::attn::parallelLoop(KernelBuilder &b, ArrayRef<Value> extents,
                               function_ref<void(ValueRange)> body) {
  SmallVector<Value> lows(extents.size(), b.index(0)),
      steps(extents.size(), b.index(1));
  scf::ParallelOp::create(
      b, lows, extents, steps,
      [&](OpBuilder &, Location, ValueRange at) { body(at); });
}

KernelBuilder::Values fovea::attn::splitNumber(KernelBuilder &b, Value number,
                                               ValueRange extents) {
  KernelBuilder::Values digits(extents.size());
  for (int64_t dim = extents.size() - 1; dim > 0; --dim) {
    digits[dim] = b.rem(number, extents[dim]);
    number = b.div(number, extents[dim]);
  }
  if (!digits.empty())
    digits.front() = number;
  return digits;
}

KernelBuilder::Values fovea::attn::beginBlocks(GPUKernelBuilder &b,
                                               ValueRange extents,
                                               int64_t sharedBytes) {
  Value total = b.index(1);
  for (Value extent : extents)
    total = b.mul(total, extent);
  gpu::LaunchOp launch =
      createLaunch(b, b.getLoc(), total, b.getNumThreads(), sharedBytes);
  b.setInsertionPointToStart(&launch.getBody().front());
  b.begin();
  return splitNumber(b, launch.getBlockIds().x, extents);
}

gpu::LaunchOp fovea::attn::launchForall(scf::ForallOp forall,
                                        int64_t numThreads, int64_t sharedBytes,
                                        LoopCluster cluster) {
  OpBuilder builder(forall);
  Location loc = forall.getLoc();
  KernelBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  // The last dimension varies fastest, so that the blocks of a head run
  // together and share its keys and values in the cache; and it runs backwards.
  SmallVector<Value> lows = forall.getLowerBound(b),
                     highs = forall.getUpperBound(b), steps = forall.getStep(b),
                     counts;
  Value total = b.index(1);
  for (auto [low, high, step] : llvm::zip(lows, highs, steps)) {
    Value length = b.max(b.sub(high, low), 0);
    counts.push_back(b.div(b.sub(b.add(length, step), b.index(1)), step));
    total = b.mul(total, counts.back());
  }
  gpu::LaunchOp launch =
      createLaunch(b, loc, total, numThreads, sharedBytes, cluster.size);

  b.setInsertionPointToStart(&launch.getBody().front());
  IRMapping mapping;
  // The blocks of a cluster have consecutive numbers.
  KernelBuilder::Values extents(counts);
  if (cluster.size > 1) {
    extents[cluster.dim] = b.div(extents[cluster.dim], b.index(cluster.size));
    extents.push_back(b.index(cluster.size));
  }
  KernelBuilder::Values numbers =
      splitNumber(b, launch.getBlockIds().x, extents);
  if (cluster.size > 1) {
    Value rank = numbers.pop_back_val();
    numbers[cluster.dim] =
        b.add(b.mul(numbers[cluster.dim], cluster.size), rank);
  }
  numbers.back() = b.sub(b.sub(counts.back(), numbers.back()), b.index(1));
  for (auto [iv, low, number, step] :
       llvm::zip(forall.getInductionVars(), lows, numbers, steps))
    mapping.map(iv, b.add(low, b.mul(number, step)));
  for (Operation &op : forall.getBody()->without_terminator())
    b.clone(op, mapping);
  forall.erase();
  return launch;
}
