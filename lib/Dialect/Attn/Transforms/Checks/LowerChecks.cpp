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

namespace {
/// The arguments of a call of the runtime that checks lists of numbers.
class CheckArguments {
public:
  explicit CheckArguments(ImplicitLocOpBuilder &builder) : b(builder) {}

  void add(Value index) {
    arguments.push_back(
        arith::IndexCastOp::create(b, b.getI64Type(), index).getResult());
  }
  void add(ValueRange indices) {
    for (Value index : indices)
      add(index);
  }
  /// Adds the address of the first element; returns extents and strides.
  memref::ExtractStridedMetadataOp addAddress(Value memref) {
    auto metadata = memref::ExtractStridedMetadataOp::create(b, memref);
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
    Value bytes = arith::MulIOp::create(
        b, metadata.getOffset(),
        arith::ConstantIndexOp::create(b, sizeof(int32_t)).getResult());
    add(arith::AddIOp::create(b, base, bytes).getResult());
    auto pointer = LLVM::LLVMPointerType::get(b.getContext());
    arguments.back() =
        LLVM::IntToPtrOp::create(b, pointer, arguments.back()).getResult();
    return metadata;
  }
  ValueRange get() const { return arguments; }

private:
  ImplicitLocOpBuilder &b;
  SmallVector<Value> arguments;
};
} // namespace

static void lowerCheck(CheckCodesOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  CheckArguments arguments(b);
  auto codes = arguments.addAddress(op.getCodes());
  arguments.add(codes.getSizes());
  arguments.add(codes.getStrides());
  arguments.add(op.getNumCodes());
  calls.emitCheck(b, "fovea_rt_check_codes", op.getName(), arguments.get());
  op.erase();
}

static void lowerCheck(CheckIntervalsOp op, RuntimeCalls &calls) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  CheckArguments arguments(b);
  auto first = arguments.addAddress(op.getFirst());
  auto last = arguments.addAddress(op.getLast());
  arguments.add(first.getSizes());
  arguments.add(first.getStrides());
  arguments.add(last.getStrides());
  arguments.add(op.getBound());
  calls.emitCheck(b, "fovea_rt_check_intervals", op.getName(), arguments.get());
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
