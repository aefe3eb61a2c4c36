//===- CheckSizes.cpp - Checks of sizes of convolutions -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceChecks.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKSIZESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// True for sizes that an attn.conv_recover has written just before, and nobody
/// else.
static bool isRecovered(ConvApplyOp op) {
  bool isFound = false;
  for (Operation *user : op.getSizes().getUsers()) {
    auto recover = dyn_cast<ConvRecoverOp>(user);
    if (recover && recover.getBasis() == op.getBasis() &&
        recover->getBlock() == op->getBlock() && recover->isBeforeInBlock(op))
      isFound = true;
    else if (!isa<ConvApplyOp, memref::DimOp, memref::DeallocOp>(user))
      return false;
  }
  return isFound;
}

namespace {
struct CheckSizesPass : fovea::attn::impl::CheckSizesPassBase<CheckSizesPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation());
    auto check = [&](auto op, Value bases) -> WalkResult {
      if (op->getNumResults() != 0)
        return op.emitOpError(
            "expects operands to be memrefs, but got tensors");
      ImplicitLocOpBuilder b(op.getLoc(), op);
      std::string rule = (op->getName().getStringRef() + ": sizes").str();
      Value numTokens = b.createOrFold<memref::DimOp>(bases, 3);
      SmallVector<Value> arguments = RuntimeCalls::describe(b, op.getSizes());
      arguments.push_back(
          arith::IndexCastOp::create(b, b.getI64Type(), numTokens));
      if (isForGPU(op)) {
        // Of no batch entries, the host checks that there is a basis.
        arguments[1] = arith::ConstantIntOp::create(b, 0, /*width=*/64);
        DeviceChecks(calls, op).checkSizes(op.getSizes(), numTokens, rule);
      }
      calls.emitCheck(b, "fovea_rt_check_sizes", rule, arguments);
      return WalkResult::advance();
    };
    WalkResult result = getOperation().walk([&](Operation *op) {
      return llvm::TypeSwitch<Operation *, WalkResult>(op)
          .Case([&](ConvApplyOp op) {
            return isRecovered(op) ? WalkResult::advance()
                                   : check(op, op.getBasis());
          })
          .Case(
              [&](ConvApplyBackwardOp op) { return check(op, op.getBasis()); })
          .Case([&](ConvRecoverBackwardOp op) {
            return check(op, op.getDBasis());
          })
          .Default(WalkResult::advance());
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
