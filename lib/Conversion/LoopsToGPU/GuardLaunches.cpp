//===- GuardLaunches.cpp - Kernels behind failed checks -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardLaunches.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::guardLaunches(func::FuncOp function) {
  // Checks are calls of the runtime.
  if (function.getOps<LLVM::CallOp>().empty())
    return;
  GPURuntimeCalls calls(function->getParentOfType<ModuleOp>());
  Value failure = calls.getFailure(function);
  if (!failure)
    return;
  function.walk([&](gpu::LaunchOp launch) {
    Block &body = launch.getBody().front();
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    Location loc = launch.getLoc();
    // The second word is not 0 once a failure is told.
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    Value told = memref::LoadOp::create(builder, loc, failure, one);
    Value zero = arith::ConstantIntOp::create(builder, loc, 0, /*width=*/64);
    Value isGood = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                         told, zero);
    auto guard = scf::IfOp::create(builder, loc, isGood);
    Block &guarded = *guard.thenBlock();
    guarded.getOperations().splice(guarded.begin(), body.getOperations(),
                                   std::next(guard->getIterator()),
                                   std::prev(body.end()));
  });
}
