//===- VectorizeConvRecover.cpp - Vector code of attn.conv_recover --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RecoverKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZECONVRECOVERPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeConvRecoverPass
    : fovea::attn::impl::VectorizeConvRecoverPassBase<
          VectorizeConvRecoverPass> {
  using VectorizeConvRecoverPassBase::VectorizeConvRecoverPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    RegisterFile registers = {vectorBits, numRegisters};
    WalkResult result =
        getOperation().walk([&](ConvRecoverOp op) -> WalkResult {
          if (failed(fovea::attn::detail::verifyVectorOperands(op)))
            return WalkResult::interrupt();
          OpBuilder builder(op);
          emitConvRecover(builder, op, registers);
          op.erase();
          return WalkResult::advance();
        });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
