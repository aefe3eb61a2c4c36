//===- ConvertAttnToGPU.cpp - Attention to GPU kernels --------------------===//
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
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/DialectRegistry.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CONVERTATTNTOGPUPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::registerLowerToGPUExternalModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attachConvToGPU(*context);
    attachLowRankToGPU(*context);
    attachCodebookToGPU(*context);
    attachQuantizeToGPU(*context);
    attachStreamToGPU(*context);
    attachStreamBackwardToGPU(*context);
    attachSummarizeToGPU(*context);
    attachSummarizeBackwardToGPU(*context);
    attachVQBackwardToGPU(*context);
  });
}

namespace {
struct ConvertAttnToGPUPass
    : fovea::attn::impl::ConvertAttnToGPUPassBase<ConvertAttnToGPUPass> {
  using ConvertAttnToGPUPassBase::ConvertAttnToGPUPassBase;

  void runOnOperation() override {
    GPULowering lowering = {GPUFacts::of(getOperation()), f32};
    giveSourcesScores(getOperation());
    auto hasForm = [](OperationName name) {
      return name.hasInterface<LowerToGPUOpInterface>();
    };
    auto lower = [&](ArrayRef<Operation *> ops) -> LogicalResult {
      for (Operation *op : ops) {
        OpBuilder builder(op);
        if (failed(
                cast<LowerToGPUOpInterface>(op).lowerToGPU(builder, lowering)))
          return failure();
      }
      return success();
    };
    if (failed(lowerOps(getOperation(), ops, hasForm, lower)))
      signalPassFailure();
  }
};
} // namespace
