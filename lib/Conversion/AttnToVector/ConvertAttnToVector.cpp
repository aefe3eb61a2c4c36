//===- ConvertAttnToVector.cpp - Attention to vector code -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/IR/SourceScores.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/DialectRegistry.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CONVERTATTNTOVECTORPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::registerLowerToVectorExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attachConvToVector(*context);
    attachLowRankToVector(*context);
    attachQuantizeToVector(*context);
    attachStreamToVector(*context);
    attachSummarizeToVector(*context);
  });
}

namespace {
struct ConvertAttnToVectorPass
    : fovea::attn::impl::ConvertAttnToVectorPassBase<ConvertAttnToVectorPass> {
  using ConvertAttnToVectorPassBase::ConvertAttnToVectorPassBase;

  void runOnOperation() override {
    FailureOr<CPUFacts> cpu = CPUFacts::of(getOperation());
    if (failed(cpu))
      return signalPassFailure();
    VectorLowering lowering = {getOperation(), *cpu, manageCache, minTasks,
                               getAnalysis<AliasAnalysis>()};
    giveSourcesScores(getOperation());
    auto hasForm = [](OperationName name) {
      return name.hasInterface<LowerToVectorOpInterface>();
    };
    auto lower = [&](ArrayRef<Operation *> ops) -> LogicalResult {
      for (Operation *op : ops)
        if (!lowering.claimed.contains(op))
          cast<LowerToVectorOpInterface>(op).claimOthers(lowering);
      for (Operation *op : ops) {
        if (lowering.claimed.contains(op))
          continue;
        OpBuilder builder(op);
        if (failed(cast<LowerToVectorOpInterface>(op).lowerToVector(builder,
                                                                    lowering)))
          return failure();
      }
      lowering.claimed.clear();
      lowering.groups.clear();
      return success();
    };
    if (failed(lowerOps(getOperation(), ops, hasForm, lower)))
      signalPassFailure();
  }
};
} // namespace
