//===- VectorizeQuantize.cpp - Vector code of attn.quantize ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizeKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZEQUANTIZEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeQuantizePass
    : fovea::attn::impl::VectorizeQuantizePassBase<VectorizeQuantizePass> {
  using VectorizeQuantizePassBase::VectorizeQuantizePassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    WalkResult result = getOperation().walk([&](QuantizeOp op) -> WalkResult {
      if (failed(fovea::attn::detail::verifyVectorOperands(op)))
        return WalkResult::interrupt();
      QuantizePlan plan = planQuantize(op, vectorBits, numRegisters);
      remark::passed(op.getLoc(), remark::RemarkOpts::name("QuantizePlanned")
                                      .category("attn-vectorize-quantize"))
          << remark::metric("Lanes", plan.lanes)
          << remark::metric("Vectors", plan.vectors)
          << remark::metric("Codes", plan.codes)
          << remark::metric("Run", plan.run);
      OpBuilder builder(op);
      if (plan.fewKeys)
        emitQuantizeFewKeys(builder, op, plan);
      else
        emitQuantize(builder, op, plan, manageCache);
      op.erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
