//===- ConvToGPU.cpp - GPU kernels of sums of convolutions ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvKernel.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace fovea::attn;

/// Tokens up to which `auto` takes the product, and of a block where the length
/// of a sequence is not known.
static constexpr int64_t kToeplitzTokens = 4096, kDynamicBlock = 4096;

/// The tokens of a block: 8 blocks, or as many as there are bases.
static int64_t chooseBlock(ConvApplyOp op) {
  if (std::optional<int64_t> block = op.getBlock())
    return *block;
  auto basis = cast<MemRefType>(op.getBasis().getType());
  int64_t tokens = basis.getDimSize(3), bases = basis.getDimSize(2);
  if (ShapedType::isDynamic(tokens))
    return kDynamicBlock;
  int64_t whole = llvm::PowerOf2Ceil(std::max<int64_t>(tokens, 8));
  if (op.getAlgorithm() == ConvAlgorithm::Single)
    return whole;
  int64_t blocks =
      ShapedType::isDynamic(bases) ? 8 : std::clamp<int64_t>(bases, 8, 64);
  return std::max<int64_t>(whole / llvm::PowerOf2Ceil(blocks), 8);
}

/// Transforms pay for long sequences, where the runtime has them.
static void emitConvApply(OpBuilder &builder, ConvApplyOp op, F32Math math) {
  int64_t block = chooseBlock(op);
  auto transforms = [&](OpBuilder &builder) {
    emitConvApplyOnGPU(builder, op, math, [&](GPUConvTables &tables) {
      return makeConvTransforms(tables, op, block);
    });
  };
  auto product = [&](OpBuilder &builder) {
    emitConvApplyOnGPU(builder, op, math, [&](GPUConvTables &tables) {
      return makeConvToeplitz(tables, op);
    });
  };
  switch (op.getAlgorithm()) {
  case ConvAlgorithm::Toeplitz:
    return product(builder);
  case ConvAlgorithm::Partitioned:
  case ConvAlgorithm::Single:
    return transforms(builder);
  case ConvAlgorithm::Auto:
    break;
  }
  KernelBuilder b(op.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
  Value isLong = b.less(b.index(kToeplitzTokens), b.extent(op.getBasis(), 3));
  b.ifThenElse(
      isLong,
      [&] {
        b.ifThenElse(
            emitHasTransforms(b, op), [&] { transforms(b); },
            [&] { product(b); });
      },
      [&] { product(b); });
}

static LogicalResult lowerApply(ConvApplyOp op, OpBuilder &builder,
                                GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitConvApply(builder, op, lowering.f32);
  return success();
}

static LogicalResult lowerApplyBackward(ConvApplyBackwardOp op,
                                        OpBuilder &builder,
                                        GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitConvGradientOnGPU(builder, op, lowering.f32);
  return success();
}

static LogicalResult lowerRecover(ConvRecoverOp op, OpBuilder &builder,
                                  GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  emitConvRecoverOnGPU(builder, op, lowering.f32);
  return success();
}

void fovea::attn::attachConvToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerApply, lowerApplyBackward, lowerRecover>(
      context);
}
