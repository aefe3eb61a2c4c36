//===- LowRankToGPU.cpp - GPU kernels of low-rank attention ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferUtils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LOWRANKTOGPUPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// The frequencies of a rope, in a constant of the module.
template <typename OpTy>
static Value makeFrequencies(OpTy op, SymbolTableCollection &symbols) {
  OpBuilder builder(op);
  Value rows = op.getDpsInits().front();
  int64_t pairs = cast<MemRefType>(rows.getType()).getDimSize(3) / 2;
  SmallVector<int64_t> frequencies;
  for (int64_t pair = 0; pair < pairs; ++pair)
    frequencies.push_back(
        getFrequencyFraction(op.getBase().convertToDouble(), pair, pairs));
  auto type = RankedTensorType::get({pairs}, builder.getI64Type());
  auto constant = arith::ConstantOp::create(
      builder, op.getLoc(),
      DenseElementsAttr::get(type, ArrayRef<int64_t>(frequencies)));
  auto global = bufferization::getGlobalFor(constant, symbols, /*alignment=*/0);
  constant.erase();
  if (failed(global))
    return {};
  return memref::GetGlobalOp::create(builder, op.getLoc(), global->getType(),
                                     global->getName());
}

namespace {
struct LowRankToGPUPass
    : fovea::attn::impl::LowRankToGPUPassBase<LowRankToGPUPass> {
  using LowRankToGPUPassBase::LowRankToGPUPassBase;

  void runOnOperation() override {
    SymbolTableCollection symbols;
    auto emit = [&](OpBuilder &builder, Operation *op) -> LogicalResult {
      if (failed(verifyGPUElementTypes(op)))
        return failure();
      return llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case<RopeOp, RopeBackwardOp>([&](auto op) {
            Value frequencies = makeFrequencies(op, symbols);
            if (frequencies)
              emitRopeLoops(builder, op, frequencies);
            return success(frequencies != nullptr);
          })
          .Case([&](PolynomialFeaturesOp op) {
            emitPolynomialLoops(builder, op);
            return success();
          })
          .Case([&](PolynomialFeaturesBackwardOp op) {
            return emitPolynomialLoops(builder, op);
          })
          .Case<LowRankOp, LowRankBackwardOp>([&](auto op) {
            emitLowRankLoops(builder, op, f32);
            return success();
          });
    };
    if (failed(replaceOnMemrefs<RopeOp, RopeBackwardOp, PolynomialFeaturesOp,
                                PolynomialFeaturesBackwardOp, LowRankOp,
                                LowRankBackwardOp>(getOperation(), emit)))
      signalPassFailure();
  }
};
} // namespace
