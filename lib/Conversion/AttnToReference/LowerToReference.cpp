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
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWERTOREFERENCEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::registerLowerToReferenceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attachBackwardToReference(*context);
    attachConvToReference(*context);
    attachConvRecoverToReference(*context);
    attachHierarchicalToReference(*context);
    attachLowRankToReference(*context);
    attachLowRankBackwardToReference(*context);
    attachPoolToReference(*context);
    attachQuantizeToReference(*context);
    attachSoftmaxToReference(*context);
    attachTokensToReference(*context);
    attachTreeToReference(*context);
    attachVQToReference(*context);
    attachVQBackwardToReference(*context);
  });
}

namespace {
struct LowerToReferencePass
    : fovea::attn::impl::LowerToReferencePassBase<LowerToReferencePass> {
  using LowerToReferencePassBase::LowerToReferencePassBase;

  void runOnOperation() override {
    auto hasForm = [](OperationName name) {
      return name.hasInterface<LowerToReferenceOpInterface>();
    };
    auto lower = [](ArrayRef<Operation *> ops) -> LogicalResult {
      for (Operation *op : ops)
        if (failed(cast<LowerToReferenceOpInterface>(op).lowerToReference()))
          return failure();
      return success();
    };
    if (failed(lowerOps(getOperation(), /*names=*/{}, hasForm, lower)))
      signalPassFailure();
  }
};
} // namespace
