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

/// The iterations of the loop over heads around `op` that are a cluster: as its
/// tiles say, unless threads have to copy rows.
static LoopCluster getCluster(StreamOp op, scf::ForallOp forall) {
  int64_t size = op.getTiles()->getCluster();
  if (size == 1)
    return {};
  auto single = [&](const char *reason) -> LoopCluster {
    remark::missed(op.getLoc(), remark::RemarkOpts::name("SingleBlocks")
                                    .category("convert-attn-to-gpu"))
        << remark::reason(reason);
    return {};
  };
  RangeAnalysis ranges(op);
  for (auto [index, source] : llvm::enumerate(op.getSourceList()))
    if (!hasBoxes(op, ranges, index, source.keys) ||
        !hasBoxes(op, ranges, index, source.values))
      return single("rows of keys or values are not known to lie 16 bytes "
                    "apart");
  // The number that says where the queries' head lies, perhaps among others.
  Value offset;
  if (auto view = op.getQuery().getDefiningOp<memref::SubViewOp>())
    offset = dyn_cast<Value>(view.getMixedOffsets()[1]);
  if (auto apply = offset ? offset.getDefiningOp<affine::AffineApplyOp>()
                          : affine::AffineApplyOp())
    offset = apply->getNumOperands() == 1 ? apply->getOperand(0) : Value();
  auto head = dyn_cast_if_present<BlockArgument>(offset);
  if (!head || head.getOwner() != forall.getBody())
    return single("the loop over heads is not known");
  unsigned dim = head.getArgNumber();
  int64_t count = forall.getStaticUpperBound()[dim];
  if (forall.getStaticLowerBound()[dim] != 0 ||
      forall.getStaticStep()[dim] != 1 || ShapedType::isDynamic(count) ||
      count % size != 0)
    return single("the loop over heads is not one of whole clusters");
  return {dim, size};
}

/// The launch that has `op` in its body, made from the loop around it, and `op`
/// itself, which is a copy. An operation without a loop is one block.
static StreamOp launchAround(StreamOp op) {
  int64_t numThreads = GPUStreamKernel::getNumThreads(op);
  int64_t sharedBytes = GPUStreamLayout(op).bytes;
  gpu::LaunchOp launch;
  if (auto forall = op->getParentOfType<scf::ForallOp>()) {
    launch =
        launchForall(forall, numThreads, sharedBytes, getCluster(op, forall));
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
findTensor(gpu::LaunchOp launch, StreamOp op, Value operand) {
  OpBuilder inside(op);
  Location loc = op.getLoc();
  KernelBuilder b(loc, inside, inside.getF32Type(), /*lanes=*/0);
  int64_t rank = cast<MemRefType>(operand.getType()).getRank();
  SmallVector<Value> offsets(rank, b.index(0));
  while (launch.getBody().isAncestor(operand.getParentRegion())) {
    if (auto cast = operand.getDefiningOp<memref::CastOp>()) {
      operand = cast.getSource();
      continue;
    }
    auto view = operand.getDefiningOp<memref::SubViewOp>();
    if (!view || !view.hasUnitStride() || view.getDroppedDims().any())
      return {};
    for (auto [offset, own] : llvm::zip(offsets, view.getMixedOffsets()))
      offset = b.add(offset, getValueOrCreateConstantIndexOp(b, loc, own));
    operand = view.getSource();
  }
  for (Value &offset : offsets)
    offset = b.createOrFold<arith::IndexCastOp>(b.getI32Type(), offset);
  return {operand, offsets};
}

/// The map of that tensor, for boxes of `rows` rows.
static FailureOr<TensorMap> makeTensorMap(gpu::LaunchOp launch, StreamOp op,
                                          Value operand, int64_t rows) {
  auto [tensor, offsets] = findTensor(launch, op, operand);
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
  auto [tensor, offsets] = findTensor(launch, op, output);
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
  Value tensor = findTensor(launch, op, source.relativeKeys).first;
  auto [biases, offsets] = findTensor(launch, op, source.relativeBias);
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

/// Emits the kernel of tiles of warpgroups.
static LogicalResult emitWarpgroups(StreamOp op, OpBuilder &builder) {
  auto launch = op->getParentOfType<gpu::LaunchOp>();
  TilesAttr tiles = *op.getTiles();
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
  OpBuilder after(launch->getContext());
  after.setInsertionPointAfter(launch);
  for (const TensorMaps::Source &map : maps.sources)
    if (map.relativeBiases)
      memref::DeallocOp::create(after, op.getLoc(), map.relativeBiases);
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
    OpBuilder builder(inside);
    if (lanes == kWarpRows)
      GPUStreamKernel(inside, builder, lowering.f32).emit();
    else if (failed(emitWarpgroups(inside, builder)))
      return failure();
    inside.erase();
    return success();
  }
};
} // namespace

void fovea::attn::attachStreamToGPU(MLIRContext &context) {
  StreamOp::attachInterface<StreamModel>(context);
}
