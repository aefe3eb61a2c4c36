//===- SeparateResults.cpp - One buffer for every result ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace fovea::attn {
#define GEN_PASS_DEF_SEPARATERESULTSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// The allocation that `buffer` is certain to lie in, or null.
static Operation *findAllocation(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer.getDefiningOp<memref::AllocOp>();
}

/// Whether `buffer` is all of an allocation.
static bool isWhole(Value buffer) {
  while (isa_and_nonnull<memref::CastOp, memref::CollapseShapeOp,
                         memref::ExpandShapeOp>(buffer.getDefiningOp()))
    buffer = buffer.getDefiningOp()->getOperand(0);
  return buffer.getDefiningOp<memref::AllocOp>() != nullptr;
}

/// A copy that no pattern makes the original again.
static Value copyWhole(OpBuilder &builder, Location loc, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      sizes.push_back(memref::DimOp::create(builder, loc, buffer, dim));
  Value copy = memref::AllocOp::create(
      builder, loc, MemRefType::get(type.getShape(), type.getElementType()),
      sizes);
  memref::CopyOp::create(builder, loc, buffer, copy);
  if (copy.getType() != type)
    copy = memref::CastOp::create(builder, loc, type, copy);
  return copy;
}

namespace {
struct SeparateResultsPass
    : fovea::attn::impl::SeparateResultsPassBase<SeparateResultsPass> {
  using SeparateResultsPassBase::SeparateResultsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.isPublic())
      return;
    function.walk([](func::ReturnOp op) {
      SmallVector<OpOperand *> buffers;
      for (OpOperand &operand : op->getOpOperands())
        if (isa<MemRefType>(operand.get().getType()))
          buffers.push_back(&operand);
      // A single buffer that the function does not own is copied when
      // deallocation is planned.
      bool isOnDevice = isForGPU(op);
      if (buffers.size() < 2 && !isOnDevice)
        return;
      llvm::SmallPtrSet<Operation *, 4> returned;
      OpBuilder builder(op);
      for (OpOperand *operand : buffers) {
        Operation *allocation = findAllocation(operand->get());
        if (allocation && (!isOnDevice || isWhole(operand->get())) &&
            returned.insert(allocation).second)
          continue;
        operand->set(isOnDevice
                         ? copyWhole(builder, op.getLoc(), operand->get())
                         : bufferization::CloneOp::create(builder, op.getLoc(),
                                                          operand->get()));
      }
    });
  }
};
} // namespace
