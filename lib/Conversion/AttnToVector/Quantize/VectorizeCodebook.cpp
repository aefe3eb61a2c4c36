//===- VectorizeCodebook.cpp - Vector code of codebook ops ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CodebookKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZECODEBOOKPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct VectorizeCodebookPass
    : fovea::attn::impl::VectorizeCodebookPassBase<VectorizeCodebookPass> {
  using VectorizeCodebookPassBase::VectorizeCodebookPassBase;

  void runOnOperation() override {
    if (failed(
            fovea::attn::detail::verifyVectorBits(getOperation(), vectorBits)))
      return signalPassFailure();
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!isa<CodebookAccumulateOp, CodebookScanOp, CodebookUpdateOp,
               LogCountOp>(op))
        return WalkResult::advance();
      if (failed(fovea::attn::detail::verifyVectorOperands(op)))
        return WalkResult::interrupt();
      OpBuilder builder(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case([&](CodebookAccumulateOp op) {
            emitAccumulate(builder, op, vectorBits);
          })
          .Case([&](CodebookScanOp op) { emitScan(builder, op, vectorBits); })
          .Case(
              [&](CodebookUpdateOp op) { emitUpdate(builder, op, vectorBits); })
          .Case([&](LogCountOp op) { emitLogCount(builder, op, vectorBits); });
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
