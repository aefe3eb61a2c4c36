//===- CheckNodes.cpp - Checks of lists of nodes --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceChecks.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKNODESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static void checkNodes(RuntimeCalls &calls, Operation *op, Value level,
                       Value index, Value tree, TreeAttr shape,
                       bool mustCover) {
  StringRef rule = op->getName().getStringRef();
  if (isForGPU(op))
    return DeviceChecks(calls, op).checkNodes(level, index, tree, shape,
                                              mustCover, rule);
  ImplicitLocOpBuilder b(op->getLoc(), op);
  SmallVector<Value> arguments = RuntimeCalls::describe(b, level);
  arguments.append(RuntimeCalls::describe(b, index));
  KernelBuilder k(op->getLoc(), b, b.getF32Type(), /*lanes=*/0);
  Value roots = k.div(k.extent(tree, 1), shape.getNodesPerRoot());
  arguments.push_back(arith::IndexCastOp::create(k, k.getI64Type(), roots));
  for (int64_t number :
       {shape.getRatio(), shape.getLevels(), static_cast<int64_t>(mustCover)})
    arguments.push_back(arith::ConstantIntOp::create(b, number, /*width=*/64));
  calls.emitCheck(b, "fovea_rt_check_nodes", rule, arguments);
}

/// Other checks of the host are calls that --attn-lower-checks makes.
static void checkOnDevice(RuntimeCalls &calls, Operation *op) {
  DeviceChecks checks(calls, op);
  if (auto codes = dyn_cast<CheckCodesOp>(op))
    checks.checkCodes(codes);
  else
    checks.checkIntervals(cast<CheckIntervalsOp>(op));
  op->erase();
}

namespace {
struct CheckNodesPass : fovea::attn::impl::CheckNodesPassBase<CheckNodesPass> {

  void runOnOperation() override {
    ModuleOp module = getOperation();
    RuntimeCalls calls(module);
    WalkResult result = module.walk([&](Operation *op) {
      if (!isa<TreeFetchOp, TreeUpdateOp>(op))
        return WalkResult::advance();
      for (Value operand : op->getOperands()) {
        auto type = dyn_cast<MemRefType>(operand.getType());
        if (type && type.isLastDimUnitStride())
          continue;
        op->emitOpError("expects memrefs with unit stride along the last "
                        "dimension, but got ")
            << operand.getType();
        return WalkResult::interrupt();
      }
      if (auto fetch = dyn_cast<TreeFetchOp>(op))
        checkNodes(calls, op, fetch.getLevel(), fetch.getIndex(),
                   fetch.getTree(), fetch.getShape(), /*mustCover=*/false);
      else if (auto update = dyn_cast<TreeUpdateOp>(op))
        checkNodes(calls, op, update.getLevel(), update.getIndex(),
                   update.getTree(), update.getShape(), /*mustCover=*/true);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    if (isForGPU(module))
      module.walk([&](Operation *op) {
        if (isa<CheckCodesOp, CheckIntervalsOp>(op))
          checkOnDevice(calls, op);
      });
  }
};
} // namespace
