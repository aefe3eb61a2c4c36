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

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERCHECKSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Calls the runtime with the address, extents and strides of the codes.
static void lowerCheck(CheckCodesOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  SmallVector<Value> arguments = RuntimeCalls::describe(b, op.getCodes());
  arguments.push_back(
      arith::IndexCastOp::create(b, b.getI64Type(), op.getNumCodes()));
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
