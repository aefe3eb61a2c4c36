//===- LowerToReference.cpp - Plain loops in f64 --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle. One file for each family emits the loops, straight from the
// definition in the operation's documentation; nothing here is shared with the
// expansion to attn.stream, so that the two can disagree.
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"
#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERTOREFERENCEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
struct LowerToReferencePass
    : fovea::attn::impl::LowerToReferencePassBase<LowerToReferencePass> {
  using LowerToReferencePassBase::LowerToReferencePassBase;

  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      if (!isa_and_present<AttnDialect>(op->getDialect()))
        return WalkResult::advance();
      if (op->getNumResults() != 0) {
        op->emitOpError("expects operands to be memrefs, but got tensors");
        return WalkResult::interrupt();
      }
      llvm::TypeSwitch<Operation *>(op)
          .Case<DenseOp, StreamOp, SummarizeOp, FastMultipoleOp,
                FastMultipoleLinearOp, DenseBackwardOp, StreamBackwardOp,
                SummarizeBackwardOp, FastMultipoleBackwardOp,
                FastMultipoleLinearBackwardOp, QuantizeOp, CodebookAccumulateOp,
                CodebookScanOp, LogCountOp, CodebookUpdateOp, VQOp, VQDecodeOp,
                VQBackwardOp, ConvRecoverOp, ConvApplyOp, ConvApplyBackwardOp,
                ConvRecoverBackwardOp, RopeBackwardOp, LowRankOp,
                LowRankBackwardOp, PolynomialFeaturesOp,
                PolynomialFeaturesBackwardOp, RopeOp, TreeBuildOp, TreeFetchOp,
                TreeUpdateOp, TreeMaterializeOp, TreeSplitOp, TreeScoreOp>(
              [](auto op) { fovea::attn::lowerToReference(op); });
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
