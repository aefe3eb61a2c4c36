//===- InsertInterruptChecks.cpp - Places where kernels may end early -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime looks for an interrupt before every body of a parallel loop, but
// one body may go on for minutes. So do iterations of loops that are long
// enough for a call not to count; and one in some of loops whose iterations may
// be long, or short.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/Support/MathExtras.h"

namespace fovea::attn {
#define GEN_PASS_DEF_INSERTINTERRUPTCHECKSPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// Instructions of an iteration that make a call not count, some microseconds.
static constexpr int64_t kLongIteration = 16384;
/// The same where a loop of unknown length is inside, which may be long itself.
static constexpr int64_t kOpenIteration = 1024;
/// How often such a loop is taken to run.
static constexpr int64_t kUnknownTrips = 16;
/// Limits beyond every threshold, whose product is a number.
static constexpr int64_t kMaxWork = int64_t(1) << 32;
static constexpr int64_t kMaxTrips = int64_t(1) << 20;
static constexpr int64_t kRegisterBits = 256;

namespace {
/// A lower estimate of what runs without a check.
struct Work {
  int64_t instructions = 0;
  /// Whether a loop of unknown length is part of it.
  bool isOpen = false;

  void add(const Work &other, int64_t times = 1) {
    instructions =
        std::min(kMaxWork, instructions + other.instructions * times);
    isOpen |= other.isOpen;
  }
};

struct InsertInterruptChecksPass
    : fovea::attn::impl::InsertInterruptChecksPassBase<
          InsertInterruptChecksPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<FunctionOpInterface>())
      visit(function->getRegions());
  }

private:
  Work visit(MutableArrayRef<Region> regions);
  Work visitLoop(LoopLikeOpInterface loop);
  void insertCheck(LoopLikeOpInterface loop, int64_t period);
};
} // namespace

/// Registers of the widest vector that `op` has to do with.
static int64_t countInstructions(Operation &op) {
  int64_t bits = 1;
  auto see = [&](Type type) {
    if (auto vector = dyn_cast<VectorType>(type);
        vector && vector.getElementType().isIntOrFloat())
      bits = std::max(bits, vector.getNumElements() *
                                vector.getElementTypeBitWidth());
  };
  llvm::for_each(op.getOperandTypes(), see);
  llvm::for_each(op.getResultTypes(), see);
  return llvm::divideCeil(bits, kRegisterBits);
}

/// Puts a check into the last of every `period` iterations, a power of two.
void InsertInterruptChecksPass::insertCheck(LoopLikeOpInterface loop,
                                            int64_t period) {
  // The last region of a scf.while is what it repeats.
  Block &body = loop->getRegions().back().front();
  ImplicitLocOpBuilder b(loop.getLoc(), OpBuilder::atBlockBegin(&body));
  if (period > 1) {
    auto counted = cast<scf::ForOp>(loop);
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantOp::create(
          b, b.getIntegerAttr(counted.getInductionVar().getType(), value));
    };
    Value done = b.createOrFold<arith::SubIOp>(counted.getInductionVar(),
                                               counted.getLowerBound());
    done = b.createOrFold<arith::DivUIOp>(done, counted.getStep());
    Value last = constant(period - 1);
    Value isDue =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                              arith::AndIOp::create(b, done, last), last);
    auto choice = scf::IfOp::create(b, isDue, /*withElseRegion=*/false);
    b.setInsertionPointToStart(choice.thenBlock());
  }
  RuntimeCalls::emitCall(b, getOperation(), "fovea_rt_check_interrupt",
                         /*resultType=*/Type(), /*arguments=*/{});
}

/// Puts a check into `loop` if its iterations are long, and returns what may
/// then go by without one.
Work InsertInterruptChecksPass::visitLoop(LoopLikeOpInterface loop) {
  Work iteration = visit(loop->getRegions());
  if (iteration.instructions >= kLongIteration) {
    insertCheck(loop, /*period=*/1);
    iteration.isOpen = false;
    return iteration;
  }
  std::optional<APInt> counted = loop.getStaticTripCount();
  int64_t trips = counted ? counted->getLimitedValue(kMaxTrips) : kUnknownTrips;
  if (iteration.isOpen && iteration.instructions >= kOpenIteration) {
    // Only counted loops know which iteration they are at.
    int64_t period = 1;
    if (isa<scf::ForOp>(loop))
      period = llvm::PowerOf2Ceil(
          llvm::divideCeil(kLongIteration, iteration.instructions));
    if (!counted || trips >= period) {
      insertCheck(loop, period);
      // One that ends before its first check leaves it to those around it.
      iteration.isOpen = !counted && period > 1;
      return iteration;
    }
  }
  Work work;
  work.add(iteration, trips);
  work.isOpen |= !counted;
  return work;
}

Work InsertInterruptChecksPass::visit(MutableArrayRef<Region> regions) {
  Work work;
  for (Region &region : regions)
    for (Block &block : region)
      for (Operation &op : llvm::make_early_inc_range(block)) {
        if (auto loop = dyn_cast<LoopLikeOpInterface>(op)) {
          work.add(visitLoop(loop));
          continue;
        }
        work.add(visit(op.getRegions()));
        work.instructions += countInstructions(op);
      }
  return work;
}
