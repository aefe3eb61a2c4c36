//===- LowerChecks.cpp - Checks to calls of the runtime -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERCHECKSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Calls the runtime with the address, extents and strides of the codes.
static void lowerCheck(CheckCodesOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  auto metadata = memref::ExtractStridedMetadataOp::create(b, op.getCodes());
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, op.getCodes());
  Value bytes = arith::MulIOp::create(
      b, metadata.getOffset(),
      arith::ConstantIndexOp::create(b, sizeof(int32_t)).getResult());
  auto asI64 = [&](Value value) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), value);
  };
  Value address = asI64(arith::AddIOp::create(b, base, bytes));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  SmallVector<Value> arguments = {
      LLVM::IntToPtrOp::create(b, pointer, address)};
  for (Value value : metadata.getSizes())
    arguments.push_back(asI64(value));
  for (Value value : metadata.getStrides())
    arguments.push_back(asI64(value));
  arguments.push_back(asI64(op.getNumCodes()));
  calls.emitCheck(b, "fovea_rt_check_codes", op.getName(), arguments);
  op.erase();
}

namespace {
struct LowerChecksPass
    : fovea::attn::impl::LowerChecksPassBase<LowerChecksPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation());
    WalkResult result = getOperation().walk([&](CheckCodesOp op) -> WalkResult {
      if (!isa<MemRefType>(op.getCodes().getType()))
        return op.emitOpError("expects codes in a memref, but got a tensor");
      lowerCheck(op, calls);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
