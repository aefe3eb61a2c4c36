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

/// Blocks of a sequence at least: the more there are, the fewer rows pieces
/// have that are zero, and the more products of pieces with windows. Gradients
/// read each number of a line once for each product.
static constexpr int64_t kFewestBlocks = 16, kFewestBlocksOfGradient = 8;

/// The tokens of a block: `fewest` blocks, or as many as there are bases.
template <typename OpTy> static int64_t chooseBlock(OpTy op, int64_t fewest) {
  if (std::optional<int64_t> block = op.getBlock())
    return *block;
  auto basis = cast<MemRefType>(op.getBasis().getType());
  int64_t tokens = basis.getDimSize(3), bases = basis.getDimSize(2);
  if (ShapedType::isDynamic(tokens))
    return kDynamicBlock;
  int64_t whole = llvm::PowerOf2Ceil(std::max<int64_t>(tokens, 8));
  if (op.getAlgorithm() == ConvAlgorithm::Single)
    return whole;
  int64_t blocks = ShapedType::isDynamic(bases)
                       ? fewest
                       : std::clamp<int64_t>(bases, fewest, 64);
  return std::max<int64_t>(whole / llvm::PowerOf2Ceil(blocks), 8);
}

/// Emits one of the algorithms. Transforms pay for long sequences, where the
/// runtime has them.
template <typename OpTy>
static void emitAlgorithm(OpBuilder &builder, OpTy op,
                          function_ref<void(OpBuilder &)> product,
                          function_ref<void(OpBuilder &)> transforms) {
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
  auto product = [&](OpBuilder &builder) {
    emitConvApplyOnGPU(builder, op, lowering.f32, [&](GPUConvTables &tables) {
      return makeConvToeplitz(tables, op);
    });
  };
  auto transforms = [&](OpBuilder &builder) {
    emitConvApplyOnGPU(builder, op, lowering.f32, [&](GPUConvTables &tables) {
      return makeConvTransforms(tables, op, chooseBlock(op, kFewestBlocks));
    });
  };
  emitAlgorithm(builder, op, product, transforms);
  return success();
}

static LogicalResult lowerApplyBackward(ConvApplyBackwardOp op,
                                        OpBuilder &builder,
                                        GPULowering &lowering) {
  if (failed(verifyGPUElementTypes(op)))
    return failure();
  auto emit = [&](std::optional<int64_t> block) {
    return [=, &lowering](OpBuilder &builder) {
      emitConvGradientOnGPU(builder, op, lowering.f32, block);
    };
  };
  emitAlgorithm(builder, op, /*product=*/emit(std::nullopt),
                /*transforms=*/emit(chooseBlock(op, kFewestBlocksOfGradient)));
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
