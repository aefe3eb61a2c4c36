//===- AssertionsToChecks.cpp - Assertions of kernels ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUSerialLoops.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fovea::attn {
#define GEN_PASS_DEF_ASSERTIONSTOCHECKSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Whether a kernel will run it.
static bool isOnDevice(Operation *op) {
  if (op->getParentOfType<linalg::LinalgOp>() ||
      op->getParentOfType<scf::ParallelOp>() ||
      op->getParentOfType<scf::ForallOp>())
    return true;
  for (auto loop = op->getParentOfType<scf::ForOp>(); loop;
       loop = loop->getParentOfType<scf::ForOp>())
    if (isSerialLoop(loop))
      return true;
  return false;
}

/// Whether it reads or writes memory, by itself or in its region.
static bool isAccess(Operation *op) {
  return isa<memref::LoadOp, memref::StoreOp, memref::AtomicRMWOp,
             memref::CopyOp, linalg::LinalgOp>(op);
}

/// Makes an access of memory one that happens where `holds`. What a load would
/// give is zero otherwise: nobody reads the results of the call.
static void guardAccess(Operation *access, Value holds) {
  OpBuilder builder(access);
  Location loc = access->getLoc();
  bool isLoad = access->getNumResults() > 0;
  auto guard = scf::IfOp::create(builder, loc, access->getResultTypes(), holds,
                                 /*withElseRegion=*/isLoad);
  access->replaceAllUsesWith(guard.getResults());
  if (!isLoad) {
    access->moveBefore(guard.thenBlock()->getTerminator());
    return;
  }
  access->moveBefore(guard.thenBlock(), guard.thenBlock()->end());
  builder.setInsertionPointToEnd(guard.thenBlock());
  scf::YieldOp::create(builder, loc, access->getResults());
  builder.setInsertionPointToEnd(guard.elseBlock());
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getZeroAttr(access->getResult(0).getType()));
  scf::YieldOp::create(builder, loc, zero);
}

/// Guards what a block accesses behind its assertions.
static void guardAccesses(Block &block) {
  Value holds;
  SmallVector<std::pair<Operation *, Value>> accesses;
  OpBuilder builder(block.getParent()->getContext());
  for (Operation &op : block) {
    if (auto assertion = dyn_cast<cf::AssertOp>(op)) {
      builder.setInsertionPoint(assertion);
      Value argument = assertion.getArg();
      holds = holds
                  ? arith::AndIOp::create(builder, op.getLoc(), holds, argument)
                        .getResult()
                  : argument;
    } else if (holds) {
      op.walk<WalkOrder::PreOrder>([&](Operation *inner) {
        if (!isAccess(inner))
          return WalkResult::advance();
        accesses.push_back({inner, holds});
        return WalkResult::skip();
      });
    }
  }
  for (auto [access, condition] : accesses)
    guardAccess(access, condition);
}

namespace {
struct AssertionsToChecksPass
    : fovea::attn::impl::AssertionsToChecksPassBase<AssertionsToChecksPass> {
  void runOnOperation() override {
    RuntimeCalls texts(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      SmallVector<cf::AssertOp> assertions;
      function.walk([&](cf::AssertOp op) {
        if (isOnDevice(op))
          assertions.push_back(op);
      });
      llvm::SetVector<Block *> blocks;
      for (cf::AssertOp op : assertions)
        blocks.insert(op->getBlock());
      llvm::for_each(blocks, [](Block *block) { guardAccesses(*block); });
      llvm::StringMap<Words> words;
      for (cf::AssertOp op : assertions)
        tellFailure(op, getWords(texts, function, op.getMsg(), words));
    }
  }

  /// Where failures of a call are told, where one of a rule is, and the number
  /// that tells it.
  struct Words {
    Value failure, report, told;
  };

  static Words getWords(RuntimeCalls &texts, func::FuncOp function,
                        StringRef message, llvm::StringMap<Words> &words) {
    auto [known, isNew] = words.try_emplace(message);
    if (!isNew)
      return known->second;
    GPURuntimeCalls calls(function->getParentOfType<ModuleOp>());
    Value failure = calls.getFailure(function, /*make=*/true);
    ImplicitLocOpBuilder b(function.getLoc(), function.getContext());
    b.setInsertionPointAfterValue(failure);
    Value kind = arith::ConstantIntOp::create(
        b, static_cast<int64_t>(DeviceCheck::Assertion), /*width=*/32);
    Value rule =
        calls.call(b, b.getLoc(), "fovea_rt_gpu_rule",
                   {texts.getTextAddress(b, message), kind}, b.getI64Type());
    Value report = calls.call(b, b.getLoc(), "fovea_rt_gpu_report", rule,
                              calls.pointerType);
    Value one = arith::ConstantIntOp::create(b, 1, /*width=*/64);
    return known->second = {failure,
                            calls.makeFailureWords(b, b.getLoc(), report),
                            arith::AddIOp::create(b, rule, one)};
  }

  static void tellFailure(cf::AssertOp op, const Words &words) {
    ImplicitLocOpBuilder b(op.getLoc(), op);
    Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
    Value fails = arith::XOrIOp::create(b, op.getArg(), yes);
    auto guard = scf::IfOp::create(b, fails);
    b.setInsertionPointToStart(guard.thenBlock());
    Value rule = arith::ConstantIndexOp::create(b, 1);
    memref::StoreOp::create(b, words.told, words.report, rule);
    memref::StoreOp::create(b, words.told, words.failure, rule);
    op.erase();
  }
};
} // namespace
