//===- KeepLoopStates.cpp - One buffer for what a loop carries ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop of the host that carries a buffer from one iteration to the next, and
// a branch that gives one, leave open who owns it: what frees it compares
// addresses when it runs, in memory that a function for a GPU does not have.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/LoopsToGPU/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_KEEPLOOPSTATESPASS
#include "fovea/Conversion/LoopsToGPU/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// A buffer of the shape of another, and the same of a type with strides.
struct State {
  Value buffer, typed;
};

static State allocateLike(ImplicitLocOpBuilder &b, Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> sizes;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.isDynamicDim(dim))
      sizes.push_back(memref::DimOp::create(b, buffer, dim));
  Value state = memref::AllocOp::create(
      b, MemRefType::get(type.getShape(), type.getElementType()), sizes);
  if (state.getType() == type)
    return {state, state};
  return {state, memref::CastOp::create(b, type, state)};
}

/// What `buffer` is a view of.
static Value findRoot(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer;
}

/// Whether a state can be overwritten before `buffer` is read.
static bool isApart(Value buffer, Region *loop) {
  Value root = findRoot(buffer);
  return root.getDefiningOp<memref::AllocOp>() &&
         loop->isAncestor(root.getParentRegion());
}

/// Copies to states, at the end of an iteration, what the next one begins with.
static void writeStates(ImplicitLocOpBuilder &b, ArrayRef<State> states,
                        ArrayRef<Value> next, Region *loop) {
  SmallVector<Value> sources;
  for (auto [state, value] : llvm::zip(states, next)) {
    auto type = cast<MemRefType>(value.getType());
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      if (!type.isDynamicDim(dim))
        continue;
      Value same = arith::CmpIOp::create(
          b, arith::CmpIPredicate::eq, memref::DimOp::create(b, value, dim),
          memref::DimOp::create(b, state.buffer, dim));
      cf::AssertOp::create(b, same, "a loop changes the shape of its state");
    }
    if (isApart(value, loop) || value == state.buffer || value == state.typed) {
      sources.push_back(value);
      continue;
    }
    // It may be another state, or this one in another order.
    sources.push_back(allocateLike(b, value).buffer);
    memref::CopyOp::create(b, value, sources.back());
  }
  for (auto [state, source] : llvm::zip(states, sources))
    if (source != state.buffer && source != state.typed)
      memref::CopyOp::create(b, source, state.buffer);
}

/// Has a state begin with what the loop begins with.
static State makeState(ImplicitLocOpBuilder &b, OpOperand &init) {
  State state = allocateLike(b, init.get());
  memref::CopyOp::create(b, init.get(), state.buffer);
  init.set(state.typed);
  return state;
}

static void keepStates(scf::ForOp loop) {
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
  SmallVector<State> states;
  SmallVector<Value> next;
  SmallVector<OpOperand *> yielded;
  for (auto [init, argument, result, operand] :
       llvm::zip(loop.getInitArgsMutable(), loop.getRegionIterArgs(),
                 loop.getResults(), yield->getOpOperands())) {
    if (!isa<MemRefType>(argument.getType()) || operand.get() == argument)
      continue;
    states.push_back(makeState(b, init));
    yielded.push_back(&operand);
    argument.replaceAllUsesWith(states.back().typed);
    result.replaceAllUsesWith(states.back().typed);
  }
  // Some were arguments.
  for (OpOperand *operand : yielded)
    next.push_back(operand->get());
  b.setInsertionPoint(yield);
  writeStates(b, states, next, &loop.getRegion());
  for (auto [state, operand] : llvm::zip(states, yielded))
    operand->set(state.typed);
}

static void keepStates(scf::WhileOp loop) {
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  scf::YieldOp yield = loop.getYieldOp();
  SmallVector<State> states;
  SmallVector<OpOperand *> yielded;
  for (auto [init, argument, operand] :
       llvm::zip(loop.getInitsMutable(), loop.getBeforeArguments(),
                 yield->getOpOperands())) {
    if (!isa<MemRefType>(argument.getType()))
      continue;
    states.push_back(makeState(b, init));
    yielded.push_back(&operand);
    argument.replaceAllUsesWith(states.back().typed);
  }
  // What goes on, or out, is a state unless the condition has computed it.
  for (auto [passed, argument, result] :
       llvm::zip(loop.getConditionOp().getArgs(), loop.getAfterArguments(),
                 loop.getResults())) {
    Value value = passed;
    auto isState = [&](const State &state) { return state.typed == value; };
    if (llvm::none_of(states, isState))
      continue;
    argument.replaceAllUsesWith(value);
    result.replaceAllUsesWith(value);
  }
  SmallVector<Value> next;
  for (OpOperand *operand : yielded)
    next.push_back(operand->get());
  b.setInsertionPoint(yield);
  writeStates(b, states, next, &loop.getAfter());
  for (auto [state, operand] : llvm::zip(states, yielded))
    operand->set(state.typed);
}

/// Has branches write to one buffer, where its shape is known before.
static void keepResults(Operation *branches) {
  ImplicitLocOpBuilder b(branches->getLoc(), branches);
  for (OpResult result : branches->getResults()) {
    auto type = dyn_cast<MemRefType>(result.getType());
    if (!type || !type.hasStaticShape())
      continue;
    b.setInsertionPoint(branches);
    Value buffer = memref::AllocOp::create(
        b, MemRefType::get(type.getShape(), type.getElementType()));
    Value typed = buffer;
    if (buffer.getType() != type)
      typed = memref::CastOp::create(b, type, buffer);
    for (Region &region : branches->getRegions()) {
      Operation *yield = region.front().getTerminator();
      b.setInsertionPoint(yield);
      OpOperand &operand = yield->getOpOperand(result.getResultNumber());
      memref::CopyOp::create(b, operand.get(), buffer);
      operand.set(typed);
    }
    result.replaceAllUsesWith(typed);
  }
}

namespace {
struct KeepLoopStatesPass
    : fovea::attn::impl::KeepLoopStatesPassBase<KeepLoopStatesPass> {
  void runOnOperation() override {
    SmallVector<Operation *> found;
    getOperation()->walk([&](Operation *op) {
      auto isBuffer = [](Type type) { return isa<MemRefType>(type); };
      if (isa<scf::ForOp, scf::WhileOp, scf::IfOp, scf::IndexSwitchOp>(op) &&
          (llvm::any_of(op->getOperandTypes(), isBuffer) ||
           llvm::any_of(op->getResultTypes(), isBuffer)))
        found.push_back(op);
    });
    for (Operation *op : found) {
      if (auto loop = dyn_cast<scf::ForOp>(op))
        keepStates(loop);
      else if (auto loop = dyn_cast<scf::WhileOp>(op))
        keepStates(loop);
      else
        keepResults(op);
    }
    if (found.empty())
      return;
    // What is carried, and does not change, is not carried any more.
    RewritePatternSet patterns(&getContext());
    scf::ForOp::getCanonicalizationPatterns(patterns, &getContext());
    scf::WhileOp::getCanonicalizationPatterns(patterns, &getContext());
    scf::IfOp::getCanonicalizationPatterns(patterns, &getContext());
    (void)applyPatternsGreedily(getOperation(), std::move(patterns));
  }
};
} // namespace
