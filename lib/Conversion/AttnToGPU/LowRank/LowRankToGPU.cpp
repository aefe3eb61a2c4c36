//===- LowRankToGPU.cpp - GPU kernels of low-rank attention ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULowRankKernels.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
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

template <typename OpTy>
static LogicalResult lowerRope(OpTy op, OpBuilder &builder,
                               GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  Value frequencies = makeFrequencies(op, lowering.symbols);
  if (!frequencies)
    return failure();
  emitRopeLoops(builder, op, frequencies);
  return success();
}

static LogicalResult lowerFeatures(PolynomialFeaturesOp op, OpBuilder &builder,
                                   GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitPolynomialLoops(builder, op);
  return success();
}

static LogicalResult lowerFeaturesBackward(PolynomialFeaturesBackwardOp op,
                                           OpBuilder &builder,
                                           GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  return emitPolynomialLoops(builder, op);
}

template <typename OpTy>
static LogicalResult lowerLowRank(OpTy op, OpBuilder &builder,
                                  GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitLowRankLoops(builder, op, lowering.f32);
  return success();
}

void fovea::attn::attachLowRankToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerRope<RopeOp>, lowerRope<RopeBackwardOp>,
                  lowerFeatures, lowerFeaturesBackward, lowerLowRank<LowRankOp>,
                  lowerLowRank<LowRankBackwardOp>>(context);
}
