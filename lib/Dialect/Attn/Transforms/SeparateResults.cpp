//===- SeparateResults.cpp - One buffer for every result ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace fovea::attn {
#define GEN_PASS_DEF_SEPARATERESULTSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

/// The allocation that `buffer` is certain to lie in, or null.
static Operation *findAllocation(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer.getDefiningOp<memref::AllocOp>();
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
      if (buffers.size() < 2)
        return;
      llvm::SmallPtrSet<Operation *, 4> returned;
      OpBuilder builder(op);
      for (OpOperand *operand : buffers) {
        Operation *allocation = findAllocation(operand->get());
        if (allocation && returned.insert(allocation).second)
          continue;
        operand->set(bufferization::CloneOp::create(builder, op.getLoc(),
                                                    operand->get()));
      }
    });
  }
};
} // namespace
