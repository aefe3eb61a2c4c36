//===- LowerChecks.cpp - Checks to calls of the runtime -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERCHECKSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static void lowerCheck(CheckCodesOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  SmallVector<Value> arguments = RuntimeCalls::describe(b, op.getCodes());
  arguments.push_back(
      arith::IndexCastOp::create(b, b.getI64Type(), op.getNumCodes()));
  bool isOfLists = cast<MemRefType>(op.getCodes().getType()).getRank() == 4;
  calls.emitCheck(b,
                  isOfLists          ? "fovea_rt_check_rows"
                  : op.getOrAbsent() ? "fovea_rt_check_codes_or_absent"
                                     : "fovea_rt_check_codes",
                  op.getName(), arguments);
  op.erase();
}

static void lowerCheck(CheckIntervalsOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  SmallVector<Value> arguments = RuntimeCalls::describe(b, op.getFirst());
  arguments.append(RuntimeCalls::describe(b, op.getLast()));
  arguments.push_back(
      arith::IndexCastOp::create(b, b.getI64Type(), op.getBound()));
  calls.emitCheck(b, "fovea_rt_check_intervals", op.getName(), arguments);
  op.erase();
}

namespace {
struct LowerChecksPass
    : fovea::attn::impl::LowerChecksPassBase<LowerChecksPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation());
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<CheckCodesOp, CheckIntervalsOp>(op))
        return WalkResult::advance();
      if (!isa<MemRefType>(op->getOperand(0).getType()))
        return op->emitOpError("expects memrefs, but got tensors");
      if (auto codes = dyn_cast<CheckCodesOp>(op))
        lowerCheck(codes, calls);
      else
        lowerCheck(cast<CheckIntervalsOp>(op), calls);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
