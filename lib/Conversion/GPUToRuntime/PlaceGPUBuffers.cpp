//===- PlaceGPUBuffers.cpp - Buffers of GPU functions ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace fovea::attn {
#define GEN_PASS_DEF_PLACEGPUBUFFERSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
/// What a mapped buffer is used for, as FOVEA_RT_GPU_READ, _WRITE and _BOXES
/// say.
enum Access : int32_t { Read = 1, Write = 2, Boxes = 4 };

class BufferPlacement {
public:
  BufferPlacement(func::FuncOp function, int32_t kind)
      : function(function), calls(function->getParentOfType<ModuleOp>()),
        kind(kind) {}

  LogicalResult run();

private:
  LogicalResult check();
  void mapArguments();
  LogicalResult collectResults();
  void placeAllocation(memref::AllocOp op);
  void lower(memref::CopyOp op);
  void lower(memref::LoadOp op);
  void lower(memref::StoreOp op);
  void lower(nvgpu::TmaCreateDescriptorOp op);
  void copyElement(OpBuilder &builder, Location loc, Value to, Value from,
                   Type type);
  /// The device's view of a buffer in the host's memory.
  Value map(OpBuilder &builder, Location loc, Value buffer, int32_t access);
  /// The same of an argument, whose rows may lie anywhere.
  Value mapRows(OpBuilder &builder, Location loc, Value buffer, int32_t access);

  func::FuncOp function;
  GPURuntimeCalls calls;
  int32_t kind;
  Value queue;
  /// Allocations that the function returns, which are the caller's.
  llvm::SmallPtrSet<Operation *, 4> results;
};

struct PlaceGPUBuffersPass
    : fovea::attn::impl::PlaceGPUBuffersPassBase<PlaceGPUBuffersPass> {
  using PlaceGPUBuffersPassBase::PlaceGPUBuffersPassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() &&
          failed(BufferPlacement(function, emulate ? 1 : 0).run()))
        return signalPassFailure();
  }
};
} // namespace

/// A buffer whose bytes cannot be counted before it is copied; null if `types`
/// has none.
static Type findUnsizedBuffer(TypeRange types) {
  for (Type type : types) {
    auto buffer = dyn_cast<BaseMemRefType>(type);
    if (!buffer)
      continue;
    Type element = buffer.getElementType();
    if (auto complex = dyn_cast<ComplexType>(element))
      element = complex.getElementType();
    if (!buffer.hasRank() || !element.isIntOrIndexOrFloat())
      return type;
  }
  return {};
}

/// Whether `op` only forgets the rank of a buffer of which a tensor map is
/// made.
static bool isForTensorMap(Operation *op) {
  return isa<memref::CastOp>(op) &&
         llvm::all_of(op->getUsers(),
                      llvm::IsaPred<nvgpu::TmaCreateDescriptorOp>);
}

/// Whether a tensor map is made of a buffer.
static bool hasTensorMap(Value buffer) {
  return llvm::any_of(buffer.getUsers(), [](Operation *user) {
    return isForTensorMap(user) ||
           (isa<memref::CastOp, memref::TransposeOp>(user) &&
            hasTensorMap(user->getResult(0)));
  });
}

/// Whether an iteration runs kernels: what the host reads of a single element,
/// such as whether to go on, takes no longer.
static bool launchesKernels(Operation *loop) {
  return loop->walk([](gpu::LaunchFuncOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

/// Code outside of kernels runs on the host, which cannot see the device's
/// memory.
LogicalResult BufferPlacement::check() {
  auto checkTypes = [](Operation *op, TypeRange types) -> LogicalResult {
    if (Type type = findUnsizedBuffer(types))
      return op->emitOpError("has a value of type ")
             << type << ", but buffers of GPUs have a rank and hold numbers";
    return success();
  };
  if (failed(checkTypes(function, function.getArgumentTypes())))
    return failure();
  WalkResult result = function.walk([&](Operation *op) -> WalkResult {
    if (!isForTensorMap(op) && failed(checkTypes(op, op->getResultTypes())))
      return WalkResult::interrupt();
    auto loop = op->getParentOfType<LoopLikeOpInterface>();
    if (isa<memref::LoadOp, memref::StoreOp>(op) && loop &&
        !launchesKernels(loop))
      return op->emitOpError(
          "accesses single elements in a loop on the host, but "
          "in a function for a GPU they lie on the device");
    if (isa<func::CallOp>(op))
      return op->emitOpError("calls a function, which a function for a GPU "
                             "cannot");
    if (isa<scf::ForallOp>(op))
      return op->emitOpError("is a parallel loop without a GPU kernel");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

Value BufferPlacement::map(OpBuilder &builder, Location loc, Value buffer,
                           int32_t access) {
  Value pointer = calls.getPointer(builder, loc, buffer);
  Value bytes = calls.getNumBytes(builder, loc, buffer);
  Value flags = arith::ConstantOp::create(builder, loc,
                                          builder.getI32IntegerAttr(access));
  Value mapped = calls.call(builder, loc, "fovea_rt_gpu_map",
                            {queue, pointer, bytes, flags}, calls.pointerType);
  return calls.makeBuffer(builder, loc, mapped, buffer);
}

Value BufferPlacement::mapRows(OpBuilder &builder, Location loc, Value buffer,
                               int32_t access) {
  auto type = cast<MemRefType>(buffer.getType());
  auto metadata =
      memref::ExtractStridedMetadataOp::create(builder, loc, buffer);
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto number = [&](Type type, int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getIntegerAttr(type, value));
  };
  int64_t rank = type.getRank();
  int64_t elementBytes = GPURuntimeCalls::getElementBytes(type);
  Value strides =
      calls.makeList(builder, loc, function, i64, metadata.getStrides());
  Value mapped = calls.call(
      builder, loc, "fovea_rt_gpu_map_rows",
      {queue, calls.getElementPointer(builder, loc, buffer, {}),
       number(i64, elementBytes),
       number(i64, getCopyBytes(buffer, elementBytes)), number(i32, rank),
       calls.makeList(builder, loc, function, i64, metadata.getSizes()),
       strides, number(i32, access)},
      calls.pointerType);
  SmallVector<Value> found;
  for (int64_t dim = 0; dim < rank; ++dim)
    found.push_back(LLVM::LoadOp::create(
        builder, loc, i64,
        calls.getListElement(builder, loc, strides, i64, dim)));
  return calls.makeBuffer(builder, loc, mapped, buffer, found);
}

void BufferPlacement::mapArguments() {
  OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
  Location loc = function.getLoc();
  Value device =
      arith::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(kind));
  queue = calls.call(builder, loc, "fovea_rt_gpu_begin", {device},
                     calls.pointerType);
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type || argument.use_empty())
      continue;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : argument.getUses())
      if (!isa<memref::DimOp>(use.getOwner()))
        uses.push_back(&use);
    if (uses.empty())
      continue;
    bool isWritten = function.getArgAttr(argument.getArgNumber(),
                                         kWrittenAttrName) != nullptr;
    int32_t access = isWritten ? Read | Write : Read;
    if (hasTensorMap(argument))
      access |= Boxes;
    bool isWhole = type.getLayout().isIdentity();
    Value mapped = isWhole ? map(builder, loc, argument, access)
                           : mapRows(builder, loc, argument, access);
    for (OpOperand *use : uses)
      use->set(mapped);
  }
}

/// All of a buffer in another shape.
static bool isReshape(Operation *op) {
  return isa_and_nonnull<memref::CastOp, memref::CollapseShapeOp,
                         memref::ExpandShapeOp>(op);
}

/// True for uses of a result that need no device: the way to `func.return`.
static bool isHostUse(Operation *user) {
  if (isa<memref::DimOp, func::ReturnOp>(user))
    return true;
  return isReshape(user) && llvm::all_of(user->getUsers(), isHostUse);
}

/// Gives a result of its own the reshapes that kernels read it through, too.
/// Returns the buffer behind them.
static Value separateReshapes(OpOperand &result) {
  SmallVector<Operation *> reshapes;
  Value value = result.get();
  while (isReshape(value.getDefiningOp())) {
    reshapes.push_back(value.getDefiningOp());
    value = reshapes.back()->getOperand(0);
  }
  OpBuilder builder(result.getOwner());
  IRMapping mapping;
  if (!llvm::all_of(reshapes, isHostUse))
    for (Operation *reshape : llvm::reverse(reshapes))
      builder.clone(*reshape, mapping);
  result.set(mapping.lookupOrDefault(result.get()));
  return value;
}

LogicalResult BufferPlacement::collectResults() {
  WalkResult walk = function.walk([&](func::ReturnOp op) -> WalkResult {
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<MemRefType>(operand.get().getType()))
        continue;
      Value value = separateReshapes(operand);
      auto allocation = value.getDefiningOp<memref::AllocOp>();
      if (!allocation)
        return op.emitOpError("returns a buffer that the function does not "
                              "allocate");
      results.insert(allocation);
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

void BufferPlacement::placeAllocation(memref::AllocOp op) {
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  Location loc = op.getLoc();
  if (results.contains(op)) {
    Value bytes =
        calls.getNumBytes(builder, loc, op.getType(), op.getDynamicSizes());
    Value pointer = calls.call(builder, loc, "fovea_rt_gpu_alloc_result",
                               {queue, bytes}, calls.pointerType);
    Value buffer = calls.makeBuffer(builder, loc, pointer, op.getType(),
                                    op.getDynamicSizes());
    Value mapped = map(builder, loc, buffer, Write);
    op->replaceUsesWithIf(ValueRange(mapped), [](OpOperand &use) {
      return !isHostUse(use.getOwner());
    });
    op.replaceAllUsesWith(buffer);
    op.erase();
    return;
  }
  builder.setInsertionPoint(op);
  Value bytes =
      calls.getNumBytes(builder, loc, op.getType(), op.getDynamicSizes());
  Value pointer = calls.call(builder, loc, "fovea_rt_gpu_alloc", {queue, bytes},
                             calls.pointerType);
  Value buffer = calls.makeBuffer(builder, loc, pointer, op.getType(),
                                  op.getDynamicSizes());
  op.replaceAllUsesWith(buffer);
  op.erase();
}

void BufferPlacement::lower(memref::CopyOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value to = calls.getPointer(builder, loc, op.getTarget());
  Value from = calls.getPointer(builder, loc, op.getSource());
  Value bytes = calls.getNumBytes(builder, loc, op.getSource());
  calls.call(builder, loc, "fovea_rt_gpu_copy", {queue, to, from, bytes});
  op.erase();
}

void BufferPlacement::copyElement(OpBuilder &builder, Location loc, Value to,
                                  Value from, Type type) {
  Value bytes = calls.getNumBytes(builder, loc, MemRefType::get({}, type), {});
  calls.call(builder, loc, "fovea_rt_gpu_copy", {queue, to, from, bytes});
}

void BufferPlacement::lower(memref::LoadOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Type type = op.getType();
  auto slotType = MemRefType::get({}, type);
  Value slot = calls.makeSlot(builder, loc, function, type);
  copyElement(
      builder, loc, slot,
      calls.getElementPointer(builder, loc, op.getMemref(), op.getIndices()),
      type);
  Value buffer = calls.makeBuffer(builder, loc, slot, slotType, {});
  op.replaceAllUsesWith(
      memref::LoadOp::create(builder, loc, buffer).getResult());
  op.erase();
}

void BufferPlacement::lower(memref::StoreOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value value = op.getValue();
  Type type = value.getType();
  Value to =
      calls.getElementPointer(builder, loc, op.getMemref(), op.getIndices());
  // A graph can record that the device writes a number, not a copy from a slot.
  if (type.isIntOrFloat() && type.getIntOrFloatBitWidth() <= 32) {
    unsigned bits = type.getIntOrFloatBitWidth();
    Type i32 = builder.getI32Type(), integer = builder.getIntegerType(bits);
    if (type != integer)
      value = arith::BitcastOp::create(builder, loc, integer, value);
    if (bits < 32)
      value = arith::ExtUIOp::create(builder, loc, i32, value);
    auto number = [&](Type type, int64_t value) -> Value {
      return arith::ConstantOp::create(builder, loc,
                                       builder.getIntegerAttr(type, value));
    };
    calls.call(builder, loc, "fovea_rt_gpu_fill",
               {queue, to, number(builder.getI64Type(), 1),
                number(i32, llvm::divideCeil(bits, 8)), value});
    op.erase();
    return;
  }
  Value slot = calls.makeSlot(builder, loc, function, type);
  Value buffer =
      calls.makeBuffer(builder, loc, slot, MemRefType::get({}, type), {});
  memref::StoreOp::create(builder, loc, value, buffer);
  copyElement(builder, loc, to, slot, type);
  op.erase();
}

/// Encodes the map of a tensor, whose axes count from the innermost.
void BufferPlacement::lower(nvgpu::TmaCreateDescriptorOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value tensor = op.getTensor();
  while (auto cast = tensor.getDefiningOp<memref::CastOp>())
    tensor = cast.getSource();
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  Type element = cast<MemRefType>(tensor.getType()).getElementType();
  auto number = [&](Type type, int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getIntegerAttr(type, value));
  };
  auto metadata =
      memref::ExtractStridedMetadataOp::create(builder, loc, tensor);
  SmallVector<Value> extents(llvm::reverse(metadata.getSizes())),
      strides(llvm::reverse(metadata.getStrides())),
      box(llvm::reverse(op.getBoxDimensions()));
  strides.erase(strides.begin());
  Value bytes = arith::ConstantIndexOp::create(
      builder, loc, element.getIntOrFloatBitWidth() / 8);
  for (Value &stride : strides)
    stride = arith::MulIOp::create(builder, loc, stride, bytes);
  Value kindOfElement = number(i32, int32_t(getDeviceType(element)));
  auto swizzle =
      cast<nvgpu::TensorMapDescriptorType>(op.getTensorMap().getType())
          .getSwizzle();
  Value map =
      calls.makeSlot(builder, loc, function, LLVM::LLVMArrayType::get(i64, 16),
                     /*alignment=*/64);
  calls.call(builder, loc, "fovea_rt_gpu_encode_tensor_map",
             {queue, map, kindOfElement, number(i32, extents.size()),
              calls.getElementPointer(builder, loc, tensor, {}),
              calls.makeList(builder, loc, function, i64, extents),
              calls.makeList(builder, loc, function, i64, strides),
              calls.makeList(builder, loc, function, i32, box),
              number(i32, static_cast<int64_t>(swizzle))});
  for (Operation *user : llvm::make_early_inc_range(op->getUsers())) {
    user->getResult(0).replaceAllUsesWith(map);
    user->erase();
  }
  op.erase();
}

LogicalResult BufferPlacement::run() {
  if (failed(check()) || failed(collectResults()))
    return failure();
  mapArguments();
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) {
    if (isa<memref::AllocOp, memref::DeallocOp, memref::CopyOp, memref::LoadOp,
            memref::StoreOp, memref::GetGlobalOp, nvgpu::TmaCreateDescriptorOp,
            func::ReturnOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder builder(op);
    Location loc = op->getLoc();
    if (auto allocation = dyn_cast<memref::AllocOp>(op)) {
      placeAllocation(allocation);
    } else if (auto free = dyn_cast<memref::DeallocOp>(op)) {
      Value pointer = calls.getPointer(builder, loc, free.getMemref());
      calls.call(builder, loc, "fovea_rt_gpu_free", {queue, pointer});
      op->erase();
    } else if (auto copy = dyn_cast<memref::CopyOp>(op)) {
      lower(copy);
    } else if (auto load = dyn_cast<memref::LoadOp>(op)) {
      lower(load);
    } else if (auto store = dyn_cast<memref::StoreOp>(op)) {
      lower(store);
    } else if (auto create = dyn_cast<nvgpu::TmaCreateDescriptorOp>(op)) {
      lower(create);
    } else if (auto global = dyn_cast<memref::GetGlobalOp>(op)) {
      builder.setInsertionPointAfter(op);
      SmallVector<OpOperand *> uses;
      for (OpOperand &use : op->getUses())
        uses.push_back(&use);
      Value pointer = calls.getPointer(builder, loc, global.getResult());
      Value bytes = calls.getNumBytes(builder, loc, global.getResult());
      Value mapped = calls.makeBuffer(
          builder, loc,
          calls.call(builder, loc, "fovea_rt_gpu_constant",
                     {queue, pointer, bytes}, calls.pointerType),
          global.getResult());
      for (OpOperand *use : uses)
        use->set(mapped);
    } else {
      calls.call(builder, loc, "fovea_rt_gpu_end", {queue});
    }
  }
  return success();
}
