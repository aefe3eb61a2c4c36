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
#include "mlir/Dialect/Utils/StaticValueUtils.h"
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

std::pair<Value, Value> fovea::attn::splitSections(KernelBuilder &b,
                                                   Value number, Value heads,
                                                   Value blocks,
                                                   Value section) {
  Value size = b.mul(section, blocks), inSection = b.rem(number, size);
  Value first = b.mul(b.div(number, size), section), count = section;
  std::optional<int64_t> all = getConstantIntValue(heads),
                         each = getConstantIntValue(section);
  bool areEqual =
      each && *each > 0 && (*each == 1 || (all && *all % *each == 0));
  if (!areEqual)
    count = b.min(count, b.sub(heads, first));
  Value last = b.sub(blocks, b.index(1));
  return {b.add(first, b.rem(inSection, count)),
          b.sub(last, b.div(inSection, count))};
}

gpu::LaunchOp fovea::attn::launchForall(scf::ForallOp forall,
                                        int64_t numThreads, int64_t sharedBytes,
                                        const BlockOrder &order) {
  OpBuilder builder(forall);
  Location loc = forall.getLoc();
  KernelBuilder b(loc, builder, builder.getF32Type(), /*lanes=*/0);
  SmallVector<Value> lows = forall.getLowerBound(b),
                     highs = forall.getUpperBound(b), steps = forall.getStep(b),
                     counts;
  Value heads = b.index(1), blocks = heads;
  for (auto [low, high, step] : llvm::zip(lows, highs, steps)) {
    Value length = b.max(b.sub(high, low), 0);
    Value &all = counts.size() < order.numHeadDims ? heads : blocks;
    counts.push_back(b.div(b.sub(b.add(length, step), b.index(1)), step));
    all = b.mul(all, counts.back());
  }
  Value section = b.index(order.cluster);
  if (order.section)
    section = b.min(
        b.mul(b.ceilDiv(order.section, order.cluster), order.cluster), heads);
  Value total = b.mul(heads, blocks), numBlocks = total;
  if (order.mostBlocks)
    numBlocks = b.min(total, order.mostBlocks);
  gpu::LaunchOp launch =
      createLaunch(b, loc, numBlocks, numThreads, sharedBytes, order.cluster);

  b.setInsertionPointToStart(&launch.getBody().front());
  Value iteration = launch.getBlockIds().x;
  if (order.mostBlocks) {
    auto loop =
        scf::ForOp::create(b, loc, iteration, total, launch.getGridSize().x);
    b.setInsertionPointToStart(loop.getBody());
    iteration = loop.getInductionVar();
  }
  IRMapping mapping;
  // Those of a cluster have consecutive numbers, and sections whole clusters.
  auto [head, block] = splitSections(b, iteration, heads, blocks, section);
  ValueRange extents(counts);
  KernelBuilder::Values numbers =
      splitNumber(b, head, extents.take_front(order.numHeadDims));
  numbers.append(splitNumber(b, block, extents.drop_front(order.numHeadDims)));
  for (auto [iv, low, number, step] :
       llvm::zip(forall.getInductionVars(), lows, numbers, steps))
    mapping.map(iv, b.add(low, b.mul(number, step)));
  for (Operation &op : forall.getBody()->without_terminator())
    b.clone(op, mapping);
  forall.erase();
  return launch;
}
