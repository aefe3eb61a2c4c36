//===- Turns.cpp - Bodies of a loop in one order --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/Turns.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fovea::attn;

/// FOVEA_RT_TURN_STRIDE of the runtime.
static constexpr int64_t kStride = 8;

void Turns::forAll(Value numItems, Value numChains, bool isOrdered,
                   llvm::function_ref<void(Value, Value)> body) {
  this->numItems = numItems;
  this->numChains = numChains;
  if (isOrdered) {
    SmallVector<OpFoldResult> sizes = {
        getAsOpFoldResult(numChains),
        getAsOpFoldResult(b.mul(numItems, kStride))};
    auto [shape, dynamic] = decomposeMixedValues(sizes);
    progress =
        memref::AllocOp::create(b, MemRefType::get(shape, b.getI64Type()),
                                dynamic, b.getI64IntegerAttr(64));
    Value zero = arith::ConstantIntOp::create(b, 0, /*width=*/64);
    b.loop(b.index(0), numChains, 1, [&](Value chain) {
      b.loop(b.index(0), numItems, 1, [&](Value item) {
        memref::StoreOp::create(b, zero, progress,
                                {chain, b.mul(item, kStride)});
      });
    });
  }
  // The first dimension runs fastest, and indices are handed out in descending
  // order: the last item of every chain first. fovea_rt_wait_for_turn relies on
  // it.
  auto loop = scf::ForallOp::create(
      b, {getAsOpFoldResult(numChains), getAsOpFoldResult(numItems)},
      /*outputs=*/ValueRange(), /*mapping=*/std::nullopt);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(loop.getTerminator());
    chain = loop.getInductionVar(0);
    item = loop.getInductionVar(1);
    body(item, chain);
  }
  if (progress)
    memref::DeallocOp::create(b, progress);
}

void Turns::call(StringRef function, ValueRange arguments) {
  if (!progress)
    return;
  auto toI64 = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  SmallVector<Value> operands = {
      RuntimeCalls::getAddress(b, b.rowView(progress, chain)), toI64(item)};
  llvm::append_range(operands, llvm::map_range(arguments, toI64));
  RuntimeCalls::emitCall(b, module, function, /*resultType=*/Type(), operands);
}

void Turns::wait(Value position) {
  call("fovea_rt_wait_for_turn", {numItems, numChains, position});
}

void Turns::end(Value position) { call("fovea_rt_end_turn", position); }
