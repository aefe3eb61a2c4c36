//===- CheckMemory.cpp - Values that fit no memory ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKMEMORYPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// log2 of the bytes that a process can address on today's CPUs.
static constexpr int64_t kAddressBits = 47;

/// Whether the static extents of a tensor or memref alone make it larger than
/// any memory: sizes that the code computes from them would wrap.
static bool exceedsMemory(Type type) {
  if (!isa<RankedTensorType, MemRefType>(type))
    return false;
  auto shaped = cast<ShapedType>(type);
  Type element = shaped.getElementType();
  if (auto complex = dyn_cast<ComplexType>(element))
    element = complex.getElementType();
  uint64_t bytes = element.isIntOrFloat()
                       ? llvm::divideCeil(element.getIntOrFloatBitWidth(), 8)
                       : sizeof(int64_t);
  for (int64_t extent : shaped.getShape()) {
    if (extent == 0)
      return false;
    if (!ShapedType::isDynamic(extent))
      bytes = llvm::SaturatingMultiply<uint64_t>(bytes, extent);
  }
  return bytes >> kAddressBits != 0;
}

/// Whether a buffer lies where only some threads of a GPU see it, or anywhere
/// else than in the memory that callers and the host share.
static bool isElsewhere(Type type) {
  auto memref = dyn_cast<BaseMemRefType>(type);
  return memref && memref.getMemorySpace();
}

/// Kernels read vectors of a row. What lies on a GPU may be a copy of other
/// strides.
static LogicalResult checkLayout(func::FuncOp function, unsigned index) {
  auto layout = function.getArgAttrOfType<MemRefLayoutAttrInterface>(
      index, bufferization::BufferizationDialect::kBufferLayoutAttrName);
  Type type = function.getArgumentTypes()[index];
  auto memref = dyn_cast<MemRefType>(type);
  if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && layout)
    memref =
        MemRefType::get(tensor.getShape(), tensor.getElementType(), layout);
  if (!memref || memref.getLayout().isIdentity())
    return success();
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(memref.getStridesAndOffset(strides, offset)) ||
      (!strides.empty() && strides.back() != 1))
    return function.emitOpError("has argument ")
           << index << " of type " << memref
           << ", but kernels need a last stride of 1";
  bool isOpen =
      !strides.empty() &&
      llvm::all_of(ArrayRef(strides).drop_back(), ShapedType::isDynamic) &&
      (offset == 0 || ShapedType::isDynamic(offset));
  if (fovea::attn::isForGPU(function) && !isOpen)
    return function.emitOpError("has argument ")
           << index << " of type " << memref
           << ", but kernels of GPUs need strides and offsets that are `?`, or "
              "no layout";
  return success();
}

namespace {
struct CheckMemoryPass
    : fovea::attn::impl::CheckMemoryPassBase<CheckMemoryPass> {
  using CheckMemoryPassBase::CheckMemoryPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    auto check = [](Operation *op, StringRef what, Type type) -> WalkResult {
      if (isElsewhere(type))
        return op->emitOpError("has ")
               << what << " of type " << type
               << ", but outside of GPU kernels buffers have no memory space";
      if (!exceedsMemory(type))
        return WalkResult::advance();
      return op->emitOpError("has ")
             << what << " of type " << type << ", but no process can address 2^"
             << kAddressBits << " bytes";
    };
    for (auto [index, type] : llvm::enumerate(function.getArgumentTypes()))
      if (check(function, "an argument", type).wasInterrupted() ||
          failed(checkLayout(function, index)))
        return signalPassFailure();
    WalkResult walk = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isa<gpu::LaunchOp>(op))
        return WalkResult::skip();
      auto tensor = dyn_cast<bufferization::AllocTensorOp>(op);
      if (tensor && tensor.getMemorySpace()) {
        op->emitOpError("has memory space ")
            << *tensor.getMemorySpace()
            << ", but outside of GPU kernels buffers have no memory space";
        return WalkResult::interrupt();
      }
      for (Type type : op->getResultTypes())
        if (check(op, "a result", type).wasInterrupted())
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
