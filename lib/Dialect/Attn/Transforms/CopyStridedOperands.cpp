//===- CopyStridedOperands.cpp - Operands without gaps in their rows ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseMap.h"

namespace fovea::attn {
#define GEN_PASS_DEF_COPYSTRIDEDOPERANDSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Whether elements next to each other along the last axis are elsewhere in
/// memory, as far as slices say so.
static bool hasGapsAlongRows(Value tensor) {
  while (Operation *op = tensor.getDefiningOp()) {
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      int64_t extent = slice.getSourceType().getShape().back();
      // One column of several, whatever axes of extent 1 become of it.
      if (slice.getStaticStrides().back() != 1 ||
          (slice.getStaticSizes().back() == 1 && extent != 1))
        return true;
      tensor = slice.getSource();
      continue;
    }
    if (!isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp>(
            op))
      return false;
    tensor = op->getOperand(0);
  }
  return false;
}

namespace {
struct CopyStridedOperandsPass
    : fovea::attn::impl::CopyStridedOperandsPassBase<CopyStridedOperandsPass> {
  void runOnOperation() override {
    // What several operations of a block read is copied once.
    DenseMap<std::pair<Value, Block *>, Value> copies;
    getOperation().walk([&](Operation *op) {
      if (!isa_and_nonnull<AttnDialect>(op->getDialect()))
        return;
      for (OpOperand &operand : op->getOpOperands()) {
        auto type = dyn_cast<RankedTensorType>(operand.get().getType());
        if (!type || type.getRank() == 0 || !hasGapsAlongRows(operand.get()))
          continue;
        Value &copy = copies[{operand.get(), op->getBlock()}];
        if (!copy) {
          OpBuilder builder(op);
          copy = bufferization::AllocTensorOp::create(
              builder, op->getLoc(), type, /*dynamicSizes=*/ValueRange(),
              operand.get());
        }
        operand.set(copy);
      }
    });
  }
};
} // namespace
