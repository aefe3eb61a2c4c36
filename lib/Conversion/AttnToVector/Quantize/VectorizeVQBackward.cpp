//===- VectorizeVQBackward.cpp - Vector code of attn.vq_backward ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZEVQBACKWARDPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeVQBackwardPass
    : fovea::attn::impl::VectorizeVQBackwardPassBase<VectorizeVQBackwardPass> {
  using VectorizeVQBackwardPassBase::VectorizeVQBackwardPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    SmallVector<VQBackwardOp> ops;
    getOperation().walk([&](VQBackwardOp op) { ops.push_back(op); });
    for (VQBackwardOp op : ops) {
      if (failed(fovea::attn::detail::verifyVectorOperands(op)))
        return signalPassFailure();
      OpBuilder builder(op);
      emitBackward(builder, op, vectorBits);
      op.erase();
    }
  }
};
} // namespace
