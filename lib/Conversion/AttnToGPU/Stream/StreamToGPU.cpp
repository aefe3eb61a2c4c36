//===- StreamToGPU.cpp - GPU kernels of attn.stream -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/HeadRows.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether keys or values of source `index` are copied by boxes: rows that are
/// listed, or not known to lie 16 bytes apart, are none.
static bool hasBoxes(StreamOp op, const RangeAnalysis &ranges, unsigned index,
                     Value operand) {
  auto shaped = cast<MemRefType>(operand.getType());
  Type type = getProductType(op);
  return ranges.hasRuns(index) && shaped.getElementType() == type &&
         getCopyBytes(operand, type.getIntOrFloatBitWidth() / 8) == kChunkBytes;
}

/// The dimension of the loop around `op` that says where its queries begin
/// along `axis` of their tensor; none if that is not known.
static std::optional<unsigned> findLoopDim(StreamOp op, scf::ForallOp forall,
                                           unsigned axis) {
  Value offset;
  if (auto view = op.getQuery().getDefiningOp<memref::SubViewOp>())
    offset = dyn_cast<Value>(view.getMixedOffsets()[axis]);
  // Perhaps among others.
  if (auto apply = offset ? offset.getDefiningOp<affine::AffineApplyOp>()
                          : affine::AffineApplyOp())
    offset = apply->getNumOperands() == 1 ? apply->getOperand(0) : Value();
  auto number = dyn_cast_if_present<BlockArgument>(offset);
  if (!number || number.getOwner() != forall.getBody())
    return std::nullopt;
  return number.getArgNumber();
}

/// How many iterations over heads, which dimension `heads` of the loop around
/// `op` counts, are a cluster: as its tiles say, unless threads have to copy
/// rows.
static int64_t getCluster(StreamOp op, scf::ForallOp forall,
                          std::optional<unsigned> heads) {
  int64_t size = op.getTiles()->getCluster();
  if (size == 1)
    return 1;
  auto single = [&](const char *reason) {
    remark::missed(op.getLoc(), remark::RemarkOpts::name("SingleBlocks")
                                    .category("convert-attn-to-gpu"))
        << remark::reason(reason);
    return 1;
  };
  RangeAnalysis ranges(op);
  for (auto [index, source] : llvm::enumerate(op.getSourceList()))
    if (!hasBoxes(op, ranges, index, source.keys) ||
        !hasBoxes(op, ranges, index, source.values))
      return single("rows of keys or values are not known to lie 16 bytes "
                    "apart");
  if (!heads)
    return single("the loop over heads is not known");
  int64_t count = forall.getStaticUpperBound()[*heads];
  if (forall.getStaticLowerBound()[*heads] != 0 ||
      forall.getStaticStep()[*heads] != 1 || ShapedType::isDynamic(count) ||
      count % size != 0)
    return single("the loop over heads is not one of whole clusters");
  return size;
}

/// The tensor outside of `region` that `operand` is a part of, and the views of
/// it that are inside, the last one first; null if it is not known.
static Value findTensor(Region &region, Value operand,
                        SmallVectorImpl<memref::SubViewOp> &views) {
  while (region.isAncestor(operand.getParentRegion())) {
    if (auto cast = operand.getDefiningOp<memref::CastOp>()) {
      operand = cast.getSource();
      continue;
    }
    auto view = operand.getDefiningOp<memref::SubViewOp>();
    if (!view || !view.hasUnitStride() || view.getDroppedDims().any())
      return {};
    views.push_back(view);
    operand = view.getSource();
  }
  return operand;
}

/// Whether some blocks of queries read many more rows than others: all from the
/// same one on, but not to the same one.
static bool haveUnequalLengths(StreamOp op) {
  return llvm::any_of(op.getSourceList(), [](const StreamSource &source) {
    MaskAttr mask = source.attr.getMask();
    return llvm::any_of(source.attr.getRanges(), [&](AffineMap range) {
      bool movesBegin = mask.hasWindow(), movesEnd = mask.getCausal();
      for (auto [i, bound] : llvm::enumerate(range.getResults()))
        (i % 2 == 0 ? movesBegin : movesEnd) |= bound.isFunctionOfDim(0);
      return movesEnd && !movesBegin;
    });
  });
}

/// The heads of a section, a number of the host: those that share a key head.
/// Where blocks of queries take different times, as many as leave their keys
/// and values in Hopper's second-level cache, which has 50 MB, beside queries
/// and results. Null if keys or values are of tensors that are not known.
static Value emitSection(StreamOp op, scf::ForallOp forall, Value numHeads) {
  constexpr int64_t kSectionBytes = int64_t(32) << 20;
  OpBuilder builder(forall);
  KernelBuilder host(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Value together = host.index(1), bytes = host.index(0);
  for (const StreamSource &source : op.getSourceList())
    for (Value operand : {source.keys, source.values}) {
      SmallVector<memref::SubViewOp> views;
      Value tensor = findTensor(forall.getRegion(), operand, views);
      if (!tensor)
        return {};
      // Of a batch entry.
      Value all =
          host.index(getMemRefType(tensor).getElementTypeBitWidth() / 8);
      for (int64_t dim = 1; dim < getMemRefType(tensor).getRank(); ++dim)
        all = host.mul(all, host.extent(tensor, dim));
      bytes = host.add(bytes, all);
      if (operand == source.values)
        together = host.max(
            together, host.div(numHeads, host.max(host.extent(tensor, 1), 1)));
    }
  bool areOnHopper = op.getTiles()->getLanes() == kWarpgroupRows;
  if (!areOnHopper || !haveUnequalLengths(op))
    return together;
  Value fit = host.div(host.mul(numHeads, kSectionBytes), host.max(bytes, 1));
  return host.mul(host.max(host.div(fit, together), 1), together);
}

/// The order of blocks for the loop around `op`: its dimensions are batch
/// entries, heads and blocks of queries, without those of one iteration.
static BlockOrder getBlockOrder(StreamOp op, scf::ForallOp forall) {
  std::optional<unsigned> heads = findLoopDim(op, forall, /*axis=*/1),
                          blocks = findLoopDim(op, forall, /*axis=*/2);
  BlockOrder order;
  order.numHeadDims = blocks.value_or(forall.getRank());
  bool isKnown = order.numHeadDims + 1 >= forall.getRank() &&
                 (!heads || *heads + 1 == order.numHeadDims);
  order.cluster = getCluster(op, forall, isKnown ? heads : std::nullopt);
  if (!isKnown)
    return {};
  // One after the other: beside the numbers of sections, ptxas spills some of
  // the registers of wide heads.
  int64_t width = std::max(getWidth(op.getQuery()), getWidth(op.getOutput()));
  if (width > 128 && op.getTiles()->getLanes() == kWarpgroupRows)
    return order;
  OpBuilder host(forall);
  Value numHeads = arith::ConstantIndexOp::create(host, op.getLoc(), 1);
  if (heads)
    numHeads = getValueOrCreateConstantIndexOp(
        host, op.getLoc(), forall.getMixedUpperBound()[*heads]);
  order.section = emitSection(op, forall, numHeads);
  return order;
}

/// The launch that has `op` in its body, made from the loop around it, and `op`
/// itself, which is a copy. An operation without a loop is one block.
static StreamOp launchAround(StreamOp op) {
  int64_t numThreads = GPUStreamKernel::getNumThreads(op);
  int64_t sharedBytes = GPUStreamLayout(op).bytes;
  gpu::LaunchOp launch;
  if (auto forall = op->getParentOfType<scf::ForallOp>()) {
    BlockOrder order = getBlockOrder(op, forall);
    if (canStay(op)) {
      OpBuilder host(forall);
      order.mostBlocks = arith::IndexCastOp::create(
          host, op.getLoc(), host.getIndexType(),
          GPURuntimeCalls(op->getParentOfType<ModuleOp>())
              .call(host, op.getLoc(), "fovea_rt_gpu_multiprocessors", {},
                    host.getI64Type()));
    }
    launch = launchForall(forall, numThreads, sharedBytes, order);
  } else {
    OpBuilder builder(op);
    Value one = arith::ConstantIndexOp::create(builder, op.getLoc(), 1);
    launch = createLaunch(builder, op.getLoc(), one, numThreads, sharedBytes);
    op->moveBefore(launch.getBody().front().getTerminator());
    return op;
  }
  StreamOp inside;
  launch.walk([&](StreamOp op) { inside = op; });
  return inside;
}

/// The tensor outside of `launch` that an operand of `op` in it is a part of,
/// and the offsets of the part; none if its place is not known.
static std::pair<Value, SmallVector<Value>>
findPlace(gpu::LaunchOp launch, StreamOp op, Value operand) {
  SmallVector<memref::SubViewOp> views;
  Value tensor = findTensor(launch.getBody(), operand, views);
  if (!tensor)
    return {};
  OpBuilder inside(op);
  Location loc = op.getLoc();
  KernelBuilder b(loc, inside, inside.getF32Type(), /*lanes=*/0);
  int64_t rank = getMemRefType(tensor).getRank();
  SmallVector<Value> offsets(rank, b.index(0));
  for (memref::SubViewOp view : views)
    for (auto [offset, own] : llvm::zip(offsets, view.getMixedOffsets()))
      offset = b.add(offset, getValueOrCreateConstantIndexOp(b, loc, own));
  for (Value &offset : offsets)
    offset = b.createOrFold<arith::IndexCastOp>(b.getI32Type(), offset);
  return {tensor, offsets};
}

/// The map of that tensor, for boxes of `rows` rows.
static FailureOr<TensorMap> makeTensorMap(gpu::LaunchOp launch, StreamOp op,
                                          Value operand, int64_t rows) {
  auto [tensor, offsets] = findPlace(launch, op, operand);
  if (!tensor)
    return op.emitOpError("has operands whose place in memory is not known, "
                          "which copies by boxes need");
  OpBuilder host(launch);
  return TensorMap{createBoxMap(host, op.getLoc(), tensor, rows), offsets};
}

/// The map of the output for the rows of a warp; null where threads store it.
/// Boxes end with the columns of the tensor, so these must be the operand's.
static TensorMap makeOutputMap(gpu::LaunchOp launch, StreamOp op) {
  Value output = op.getOutput();
  auto [tensor, offsets] = findPlace(launch, op, output);
  if (!GPUStreamLayout(op).results || !tensor ||
      getWidth(tensor) != getWidth(output) ||
      getCopyBytes(tensor, getMemRefType(tensor).getElementTypeBitWidth() /
                               8) != kChunkBytes)
    return {};
  OpBuilder host(launch);
  return {createBoxMap(host, op.getLoc(), tensor, kWarpRows), offsets};
}

/// What kernels take of relative keys that tensor cores multiply.
static LogicalResult makeRelative(gpu::LaunchOp launch, StreamOp op,
                                  const StreamOp::Source &source, double factor,
                                  TensorMaps::Source &map) {
  FailureOr<TensorMap> keys =
      makeTensorMap(launch, op, source.relativeKeys, kRelativeTile);
  if (failed(keys))
    return failure();
  map.relativeKeys = *keys;
  Value tensor = findPlace(launch, op, source.relativeKeys).first;
  auto [biases, offsets] = findPlace(launch, op, source.relativeBias);
  if (!biases || getWidth(biases) != getWidth(source.relativeBias) ||
      getWidth(tensor) != getWidth(source.relativeKeys))
    return op.emitOpError("has relative keys or biases whose place in memory "
                          "is not known, which products of them need");
  OpBuilder builder(launch);
  KernelBuilder host(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  map.relativeBiases = emitRelativeBiases(host, biases, tensor, factor);
  bool isShared = getMemRefType(tensor).getDimSize(0) == 1;
  OpBuilder inside(op);
  map.relativeHead =
      arith::IndexCastOp::create(inside, op.getLoc(), inside.getIndexType(),
                                 isShared ? offsets[0] : keys->offsets[0]);
  return success();
}

/// Replaces `op` by the kernel of tiles of warpgroups.
static LogicalResult emitWarpgroups(StreamOp op) {
  auto launch = op->getParentOfType<gpu::LaunchOp>();
  TilesAttr tiles = *op.getTiles();
  Operation *replaced = op;
  if (auto loop = dyn_cast<scf::ForOp>(op->getParentOp()))
    replaced = loop;
  OpBuilder builder(replaced);
  GPUStreamKernel kernel(op, builder, F32Math::TF32);
  TensorMaps maps;
  auto make = [&](TensorMap &map, Value operand, int64_t rows) {
    FailureOr<TensorMap> made = makeTensorMap(launch, op, operand, rows);
    if (succeeded(made))
      map = *made;
    return made;
  };
  if (failed(make(maps.query, op.getQuery(), tiles.getQueryLanes())))
    return failure();
  if (launch.hasClusterSize())
    maps.cluster = tiles.getCluster();
  int64_t rows = tiles.getKey() / maps.cluster;
  RangeAnalysis ranges(op);
  for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
    TensorMaps::Source &map = maps.sources.emplace_back();
    if (!source.codes && hasBoxes(op, ranges, index, source.keys) &&
        failed(make(map.keys, source.keys, rows)))
      return failure();
    if (hasBoxes(op, ranges, index, source.values) &&
        failed(make(map.values, source.values, rows)))
      return failure();
    if (source.relativeKeys && multipliesRelativeKeys(op) &&
        failed(makeRelative(launch, op, source, kernel.getScoreScale(), map)))
      return failure();
  }
  maps.output = makeOutputMap(launch, op);
  kernel.emitWarpgroups(maps);
  replaced->erase();
  OpBuilder after(launch->getContext());
  after.setInsertionPointAfter(launch);
  for (const TensorMaps::Source &map : maps.sources)
    if (map.relativeBiases)
      memref::DeallocOp::create(after, launch.getLoc(), map.relativeBiases);
  return success();
}

namespace {
/// The launch may have a copy of the operation, which goes with its loop.
struct StreamModel
    : LowerToGPUOpInterface::ExternalModel<StreamModel, StreamOp> {
  LogicalResult lowerToGPU(Operation *stream, OpBuilder &,
                           GPULowering &lowering) const {
    auto op = cast<StreamOp>(stream);
    if (failed(verifyGPUStream(op)))
      return failure();
    int64_t lanes = op.getTiles() ? op.getTiles()->getLanes() : 0;
    if (lanes != kWarpRows && lanes != kWarpgroupRows)
      return op.emitOpError("has no tiles for a GPU; run "
                            "--attn-select-gpu-tiles first");
    if (lanes == kWarpgroupRows && op.getQueryLengths())
      return op.emitOpError("has query_lengths, which tiles of warpgroups do "
                            "not take");
    if (hasHeadRows(op) && !op->getParentOfType<scf::ForallOp>()) {
      OpBuilder builder(op);
      GPUStreamKernel(op, builder, lowering.f32).emitHeads();
      op.erase();
      return success();
    }
    StreamOp inside = launchAround(op);
    if (lanes == kWarpgroupRows)
      return emitWarpgroups(inside);
    OpBuilder builder(inside);
    GPUStreamKernel(inside, builder, lowering.f32).emit();
    inside.erase();
    return success();
  }
};
} // namespace

void fovea::attn::attachStreamToGPU(MLIRContext &context) {
  StreamOp::attachInterface<StreamModel>(context);
}
